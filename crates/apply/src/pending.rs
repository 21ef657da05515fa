//! Redo of a transaction whose commit record has not arrived.

use standfast_io::outside;
use standfast_types::Scn;
use std::fs::File;
use std::io::{Error, Read, Result, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Complete change records of one database, in order. Beyond a bound they go to a file without a name, which vanishes
/// with the process: after a restart the records are read from the standby log again.
pub struct Pending {
    directory: PathBuf,
    memory_bytes: usize,
    memory: Vec<u8>,
    file: Option<File>,
    start: Option<Scn>,
    replaces_all: bool,
    may_lack: bool,
}

impl Pending {
    /// Creates an empty one, which makes files in `directory` once `memory_bytes` are exceeded.
    pub fn new(directory: &Path, memory_bytes: usize) -> Pending {
        Pending {
            directory: directory.to_owned(),
            memory_bytes,
            memory: Vec::new(),
            file: None,
            start: None,
            replaces_all: false,
            may_lack: false,
        }
    }

    /// Returns the start of the first record in the stream, or of the announcement of a replacement.
    pub fn start(&self) -> Option<Scn> {
        self.start
    }

    /// Returns whether the transaction replaces the whole database.
    pub fn replaces_all(&self) -> bool {
        self.replaces_all
    }

    /// Returns whether that transaction may lack redo that the database holds.
    pub fn may_lack(&self) -> bool {
        self.may_lack
    }

    /// Drops the pending records; the transaction that follows, announced at `scn`, replaces the whole database.
    /// `complete`: it is known to hold all redo before it.
    pub fn begin_replacement(&mut self, scn: Scn, complete: bool) {
        self.clear();
        (self.start, self.replaces_all, self.may_lack) = (Some(scn), true, !complete);
    }

    /// Adds a record that starts at `scn`.
    ///
    /// # Errors
    /// When the file cannot be made or written.
    pub fn push(&mut self, scn: Scn, record: &[u8]) -> Result<()> {
        if self.memory.len() + record.len() > self.memory_bytes && !self.memory.is_empty() {
            if self.file.is_none() {
                self.file = Some(nameless_file(&self.directory)?);
            }
            if let Some(file) = &mut self.file {
                file.write_all(&self.memory)?;
            }
            self.memory.clear();
        }
        self.memory.extend_from_slice(record);
        self.start = self.start.or(Some(scn));
        Ok(())
    }

    pub fn clear(&mut self) {
        self.memory.clear();
        self.file = None;
        self.start = None;
        self.replaces_all = false;
        self.may_lack = false;
    }

    /// Passes every record to `take` in order and is empty afterwards.
    ///
    /// # Errors
    /// The errors of `take`, and of reading the file.
    pub fn drain<E: From<Error>>(
        &mut self,
        mut take: impl FnMut(&[u8]) -> std::result::Result<(), E>,
    ) -> std::result::Result<(), E> {
        if let Some(mut file) = self.file.take() {
            file.seek(SeekFrom::Start(0))?;
            let mut buffer = Vec::new();
            loop {
                let had = buffer.len();
                (&mut file).take(READ_BYTES).read_to_end(&mut buffer)?;
                if buffer.len() == had {
                    break;
                }
                let used = each_record(&buffer, &mut take)?;
                buffer.drain(..used);
            }
        }
        each_record(&self.memory, &mut take)?;
        self.clear();
        self.memory.shrink_to(KEPT_MEMORY);
        Ok(())
    }
}

/// Bytes read from the file at a time.
const READ_BYTES: u64 = 4 << 20;
/// Bytes of memory kept for the next transaction.
const KEPT_MEMORY: usize = 64 << 10;

/// Passes the complete records at the start of `bytes` to `take`; returns their length.
fn each_record<E>(
    bytes: &[u8],
    take: &mut impl FnMut(&[u8]) -> std::result::Result<(), E>,
) -> std::result::Result<usize, E> {
    let mut at = 0;
    while let Ok(length) = standfast_format::peek_length(&bytes[at..])
        && at + length <= bytes.len()
    {
        take(&bytes[at..at + length])?;
        at += length;
    }
    Ok(at)
}

fn nameless_file(directory: &Path) -> Result<File> {
    let path =
        directory.join(format!(".pending-redo-{}-{:?}", std::process::id(), std::thread::current().id()));
    // Left by an earlier process with the same number.
    outside::remove(&path)?;
    let file = outside::create_new(&path, 0o600)?;
    outside::remove(&path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_format::RecordBuilder;
    use standfast_types::DatabaseId;

    fn records() -> Vec<Vec<u8>> {
        (0..50u32)
            .map(|i| {
                let mut out = Vec::new();
                let mut builder = RecordBuilder::change(&mut out, DatabaseId(1));
                builder.vector(i + 1, None, &vec![i as u8 + 1; 512], 0, &mut Vec::new());
                builder.finish();
                out
            })
            .collect()
    }

    fn drain_into(pending: &mut Pending, back: &mut Vec<Vec<u8>>) {
        let take = |record: &[u8]| {
            back.push(record.to_vec());
            Ok::<(), Error>(())
        };
        pending.drain(take).unwrap();
    }

    #[test]
    fn records_come_back_in_order_from_memory_and_from_the_file() {
        for memory in [100, 2000, 1 << 20] {
            let mut pending = Pending::new(&std::env::temp_dir(), memory);
            for round in 0..2 {
                for (i, record) in records().iter().enumerate() {
                    pending.push(Scn(100 * round + i as u64), record).unwrap();
                }
                assert_eq!(pending.start(), Some(Scn(100 * round)));
                let mut back = Vec::new();
                drain_into(&mut pending, &mut back);
                assert_eq!(back, records());
                assert_eq!(pending.start(), None);
            }
        }
    }

    #[test]
    fn cleared_records_do_not_come_back() {
        let mut pending = Pending::new(&std::env::temp_dir(), 100);
        records().iter().for_each(|record| pending.push(Scn(1), record).unwrap());
        pending.clear();
        pending.push(Scn(2), &records()[7]).unwrap();
        let mut back = Vec::new();
        drain_into(&mut pending, &mut back);
        assert_eq!(back, [records()[7].clone()]);
    }
}
