//! The apply journal: maps WAL positions of standby databases to SCNs.
//!
//! ```text
//! file:   4,096 bytes header, then two halves of equal size, each filled from its start
//! header: "SFAPPLYJ", u32 version, u32 CRC-32C of the first 12 bytes, zeros
//! fact (32 bytes, so that none lies in two sectors):
//!  0  u32  CRC-32C of bytes 4..32
//!  4  u8   kind (1 position, 2 floor: durable SCN, 3 horizon, 4 stopped, 5 whole: file SCN)
//!  5  u8   zero
//!  6  u16  database, 0xFFFF for a horizon
//!  8  u64  SCN
//! 16  u32  first salt     \
//! 20  u32  second salt    | position only
//! 24  u32  frame          |
//! 28  u32  its checksum   / (second word; 0: unknown)
//! ```
//!
//! Facts are true whenever they are read, in any order and however few of them survived a power loss: each is a lower
//! bound of what a database holds (see [`History::bound`]). So no fact must be synced with a transaction, stale facts
//! of an earlier turn of the ring do no harm, and a torn fact is ignored.
//!
//! When a half is full, the file is synced and the other half begins with the newest facts of every database, so that
//! each half alone is sufficient.

#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

use crate::history::{Fact, History};
use standfast_format::crc32c;
use standfast_io::{Disk, LogFile};
use standfast_types::{DatabaseId, Scn, WalPosition, WalSalts};
use std::io::{Error, ErrorKind, Result};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MAGIC: &[u8; 8] = b"SFAPPLYJ";
const VERSION: u32 = 1;
const HEADER_BYTES: usize = 4096;
const FACT_BYTES: usize = 32;
/// Smallest journal: each half must hold the newest facts of all databases with room to spare.
pub const JOURNAL_BYTES_MIN: u64 = 512 << 10;

pub struct Journal {
    disk: Arc<dyn Disk>,
    path: PathBuf,
    bytes: usize,
    history: History,
    /// `None` until the first fact is written: until then the file found at start stays untouched.
    file: Option<Arc<dyn LogFile>>,
    half: usize,
    used: usize,
    unsynced: bool,
    buffer: Vec<u8>,
}

impl Journal {
    /// Reads the journal at `path`; a missing file is an empty journal. `bytes` is the size of a new one.
    ///
    /// # Errors
    /// `InvalidData` when the file is not a journal of this version; else the error of the disk.
    pub fn open(disk: Arc<dyn Disk>, path: &Path, bytes: u64) -> Result<Journal> {
        let mut history = History::default();
        match disk.read(path) {
            Ok(image) => read_facts(&image, &mut history)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let bytes =
            bytes.max(JOURNAL_BYTES_MIN).next_multiple_of(2 * HEADER_BYTES as u64) as usize + HEADER_BYTES;
        Ok(Journal {
            disk,
            path: path.to_owned(),
            bytes,
            history,
            file: None,
            half: 0,
            used: 0,
            unsynced: false,
            buffer: Vec::new(),
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn history(&self) -> &History {
        &self.history
    }

    /// Writes facts; they survive a killed process immediately and a power loss after [`Journal::sync`].
    ///
    /// # Errors
    /// The error of the disk; the journal must not be used any more.
    pub fn append(&mut self, facts: &[Fact]) -> Result<()> {
        if facts.is_empty() {
            return Ok(());
        }
        facts.iter().for_each(|fact| self.history.append(*fact));
        let Some(file) = self.file.clone() else { return self.rewrite() };
        if self.used + facts.len() * FACT_BYTES > self.half_bytes() {
            return self.begin_other_half(&*file);
        }
        self.buffer.clear();
        facts.iter().for_each(|fact| encode(*fact, &mut self.buffer));
        self.write_buffer(&*file)
    }

    /// Makes all appended facts survive a power loss.
    ///
    /// # Errors
    /// The error of the disk; the journal must not be used any more.
    pub fn sync(&mut self) -> Result<()> {
        if self.unsynced
            && let Some(file) = &self.file
        {
            file.sync()?;
            self.unsynced = false;
        }
        Ok(())
    }

    /// Removes all facts about `database`, durably: its file was replaced by another copy.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn forget(&mut self, database: DatabaseId) -> Result<()> {
        self.history.forget(database);
        self.rewrite()
    }

    /// Lowers the horizon, durably: nothing beyond `scn` has been applied to any database.
    ///
    /// # Errors
    /// The error of the disk.
    pub fn lower_horizon(&mut self, scn: Scn) -> Result<()> {
        self.history.lower_horizon(scn);
        self.rewrite()
    }

    fn half_bytes(&self) -> usize {
        (self.bytes - HEADER_BYTES) / 2
    }

    fn write_buffer(&mut self, file: &dyn LogFile) -> Result<()> {
        let offset = HEADER_BYTES + self.half * self.half_bytes() + self.used;
        file.write(&self.buffer, offset as u64)?;
        self.used += self.buffer.len();
        self.unsynced = true;
        Ok(())
    }

    /// Begins the other half. The half just filled is synced before the other one, its predecessor, is overwritten.
    fn begin_other_half(&mut self, file: &dyn LogFile) -> Result<()> {
        self.sync()?;
        self.half = 1 - self.half;
        self.used = 0;
        self.encode_newest()?;
        self.write_buffer(file)
    }

    /// Replaces the whole file, atomically and durably, with the newest facts.
    fn rewrite(&mut self) -> Result<()> {
        self.file = None;
        self.encode_newest()?;
        let mut image = Vec::with_capacity(self.bytes);
        image.extend_from_slice(MAGIC);
        image.extend_from_slice(&VERSION.to_le_bytes());
        image.extend_from_slice(&crc32c(&image).to_le_bytes());
        image.resize(HEADER_BYTES, 0);
        image.extend_from_slice(&self.buffer);
        image.resize(self.bytes, 0);
        self.disk.replace(&self.path, &image)?;
        self.file = Some(self.disk.open(&self.path)?);
        (self.half, self.used, self.unsynced) = (0, self.buffer.len(), false);
        Ok(())
    }

    fn encode_newest(&mut self) -> Result<()> {
        self.buffer.clear();
        self.history.compact();
        for fact in self.history.newest() {
            encode(fact, &mut self.buffer);
        }
        if self.buffer.len() > self.half_bytes() {
            return Err(Error::other("too many databases for the size of the journal"));
        }
        Ok(())
    }
}

fn read_facts(image: &[u8], history: &mut History) -> Result<()> {
    let invalid = |why| Err(Error::new(ErrorKind::InvalidData, why));
    if image.len() < HEADER_BYTES || &image[..8] != MAGIC || crc32c(&image[..12]) != u32_at(image, 12) {
        return invalid("not an apply journal");
    }
    if u32_at(image, 8) != VERSION {
        return invalid("an apply journal of another version");
    }
    image[HEADER_BYTES..].chunks_exact(FACT_BYTES).filter_map(decode).for_each(|fact| history.add(fact));
    Ok(())
}

fn encode(fact: Fact, out: &mut Vec<u8>) {
    let none = (WalPosition::default(), 0);
    let (kind, database, scn, (at, checksum)) = match fact {
        Fact::Position { database, at, checksum, scn } => (1, database.0, scn, (at, checksum)),
        Fact::Durable { database, scn } => (2, database.0, scn, none),
        Fact::Horizon { scn } => (3, u16::MAX, scn, none),
        Fact::Stopped { database, scn } => (4, database.0, scn, none),
        Fact::InFile { database, scn } => (5, database.0, scn, none),
    };
    let start = out.len();
    out.extend_from_slice(&[0, 0, 0, 0, kind, 0]);
    out.extend_from_slice(&database.to_le_bytes());
    out.extend_from_slice(&scn.0.to_le_bytes());
    for word in [at.salts.0, at.salts.1, at.frame, checksum] {
        out.extend_from_slice(&word.to_le_bytes());
    }
    let crc = crc32c(&out[start + 4..]);
    out[start..start + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Decodes a fact; `None` when it is torn or was never written.
fn decode(bytes: &[u8]) -> Option<Fact> {
    if crc32c(&bytes[4..]) != u32_at(bytes, 0) {
        return None;
    }
    let database = DatabaseId(u16::from_le_bytes([bytes[6], bytes[7]]));
    let scn = Scn(u64::from(u32_at(bytes, 8)) | u64::from(u32_at(bytes, 12)) << 32);
    let salts = WalSalts(u32_at(bytes, 16), u32_at(bytes, 20));
    match bytes[4] {
        1 => {
            let at = WalPosition { salts, frame: u32_at(bytes, 24) };
            Some(Fact::Position { database, at, checksum: u32_at(bytes, 28), scn })
        }
        2 => Some(Fact::Durable { database, scn }),
        3 => Some(Fact::Horizon { scn }),
        4 => Some(Fact::Stopped { database, scn }),
        5 => Some(Fact::InFile { database, scn }),
        _ => None,
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_io::DirectDisk;
    use standfast_testkit::TempDir;

    const DB: DatabaseId = DatabaseId(3);

    fn position(frame: u32, scn: u64) -> Fact {
        let at = WalPosition { salts: WalSalts(1, 2), frame };
        Fact::Position { database: DB, at, checksum: frame, scn: Scn(scn) }
    }

    fn open(directory: &TempDir) -> Journal {
        Journal::open(Arc::new(DirectDisk), &directory.join("journal"), 0).unwrap()
    }

    fn bound(journal: &Journal, frame: u32) -> Option<Scn> {
        journal.history().lower_bound(DB, WalPosition { salts: WalSalts(1, 2), frame })
    }

    #[test]
    fn facts_survive_a_reopen_however_many_were_written() {
        let directory = TempDir::new("journal").unwrap();
        let per_round = JOURNAL_BYTES_MIN / FACT_BYTES as u64;
        for rounds in [0, 1, 3] {
            let mut journal = open(&directory);
            journal.forget(DB).unwrap();
            journal.append(&[Fact::Durable { database: DatabaseId(9), scn: Scn(77) }]).unwrap();
            let facts = rounds * per_round + 5;
            for i in 1..=facts {
                journal.append(&[position(i as u32, i * 10)]).unwrap();
            }
            let found = open(&directory);
            assert_eq!(bound(&found, facts as u32), Some(Scn(facts * 10)));
            assert_eq!(bound(&found, facts as u32 - 1), Some(Scn(facts * 10 - 10)));
            assert_eq!(found.history().lower_bound(DatabaseId(9), WalPosition::default()), Some(Scn(77)));
        }
    }

    #[test]
    fn torn_journal_end_costs_only_the_torn_fact() {
        let directory = TempDir::new("journal-torn").unwrap();
        let mut journal = open(&directory);
        journal.append(&[position(1, 10)]).unwrap();
        journal.append(&[position(2, 20)]).unwrap();
        let path = directory.join("journal");
        let mut image = std::fs::read(&path).unwrap();
        image[HEADER_BYTES + FACT_BYTES + 20] ^= 1;
        std::fs::write(&path, image).unwrap();
        assert_eq!(bound(&open(&directory), 9), Some(Scn(10)));
    }

    #[test]
    fn lowered_horizon_is_found_after_a_reopen() {
        let directory = TempDir::new("journal-horizon").unwrap();
        let mut journal = open(&directory);
        let horizon = |scn| Fact::Horizon { scn: Scn(scn) };
        journal.append(&[horizon(9000), position(1, 10)]).unwrap();
        journal.lower_horizon(Scn(500)).unwrap();
        assert_eq!(open(&directory).history().horizon(), Some(Scn(500)));
        assert_eq!(bound(&open(&directory), 1), Some(Scn(10)), "the rest is kept");
        journal.append(&[horizon(600)]).unwrap();
        assert_eq!(open(&directory).history().horizon(), Some(Scn(600)));
    }

    #[test]
    fn foreign_journal_file_is_refused_at_open() {
        let directory = TempDir::new("journal-foreign").unwrap();
        std::fs::write(directory.join("journal"), vec![7; 8192]).unwrap();
        let error = Journal::open(Arc::new(DirectDisk), &directory.join("journal"), 0).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::InvalidData);
    }
}
