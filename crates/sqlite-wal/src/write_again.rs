//! Writes a WAL again whose sync may have failed.
//!
//! After a failed sync the kernel may take what it could not write for written: the next sync succeeds and reports
//! nothing. Only a new write of the same bytes makes a later sync meaningful, and only while the bytes are unchanged,
//! which the checksums of the frames show.

use crate::wal_layout::{SALTS, SUMMED_HEAD};
use crate::{VfsFile, WalIndexHeader};
use standfast_types::{PageSize, WAL_FRAME_HEADER_BYTES, WAL_HEADER_BYTES};
use standfast_types::{WAL_MAGIC as MAGIC, WalSum as Sum};
use std::io::Result;

/// Bytes of a frame that hold its salts.
const FRAME_SALTS: std::ops::Range<usize> = 8..16;
/// Bytes of a frame that hold its checksum.
const FRAME_SUM: std::ops::Range<usize> = 16..24;

/// Reads the frames that `header` publishes, compares their checksums, writes them again in place, and syncs. Returns
/// false, and leaves the rest alone, when a frame or the header has changed. The caller holds the write lock; readers
/// continue.
///
/// A WAL that was reset and has no new frame yet stays as it is: all its frames are in the database.
///
/// # Errors
/// When the file system fails.
pub fn write_again(wal: &mut VfsFile, header: &WalIndexHeader, page_size: PageSize) -> Result<bool> {
    if header.frames() == 0 {
        return Ok(true);
    }
    let mut start = [0; WAL_HEADER_BYTES];
    let [first, second] = header.raw_salts().map(u32::to_ne_bytes);
    let salts = *[first, second].as_flattened().first_chunk::<8>().unwrap_or(&[0; 8]);
    if !wal.read_at(&mut start, 0)? || start[SALTS] != salts {
        return Ok(false);
    }
    let magic = word(&start, 0);
    let mut sum = Sum::new(magic & 1 == 1);
    sum.add(&start[..24]);
    if magic & !1 != MAGIC || sum.words() != [word(&start, 24), word(&start, 28)] {
        return Ok(false);
    }
    wal.write_at(&start, 0)?;
    let mut frame = vec![0; WAL_FRAME_HEADER_BYTES + page_size.bytes()];
    for number in 0..u64::from(header.frames()) {
        let offset = WAL_HEADER_BYTES as u64 + number * frame.len() as u64;
        if !wal.read_at(&mut frame, offset)? {
            return Ok(false);
        }
        sum.add(&frame[SUMMED_HEAD]);
        sum.add(&frame[WAL_FRAME_HEADER_BYTES..]);
        let stored = [word(&frame, FRAME_SUM.start), word(&frame, FRAME_SUM.start + 4)];
        if frame[FRAME_SALTS] != salts || sum.words() != stored {
            return Ok(false);
        }
        wal.write_at(&frame, offset)?;
    }
    if sum.words() != header.frame_checksum() {
        return Ok(false);
    }
    wal.sync()?;
    Ok(true)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VfsFileKind;
    use crate::guard::{Guard, register_guard_vfs};
    use rusqlite::{Connection, OpenFlags};
    use standfast_testkit::TempDir;

    /// A database with a WAL of several transactions; the connection goes through the guard.
    fn database(directory: &TempDir) -> (std::path::PathBuf, Connection) {
        let path = directory.join("app.db");
        let vfs = register_guard_vfs(None).unwrap();
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let connection = Connection::open_with_flags_and_vfs(&path, flags, vfs.as_str()).unwrap();
        connection
            .execute_batch(
                "PRAGMA page_size=4096; PRAGMA journal_mode=OFF; PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; CREATE TABLE t(x);
                 INSERT INTO t VALUES(randomblob(20000)); INSERT INTO t VALUES(randomblob(9000))",
            )
            .unwrap();
        (path, connection)
    }

    fn page_size() -> PageSize {
        PageSize::from_header_field(4096).unwrap()
    }

    #[test]
    fn complete_wal_is_written_again_byte_for_byte() {
        let directory = TempDir::new("write-again").unwrap();
        let (path, connection) = database(&directory);
        let header = Guard::of(&connection).unwrap().wal_header().unwrap();
        assert!(header.frames() > 8);
        let before = std::fs::read(path.with_extension("db-wal")).unwrap();
        let mut wal = VfsFile::open(None, &path, VfsFileKind::Wal).unwrap();
        assert!(write_again(&mut wal, &header, page_size()).unwrap());
        assert_eq!(std::fs::read(path.with_extension("db-wal")).unwrap(), before);
    }

    #[test]
    fn wal_that_lost_a_frame_is_detected() {
        let directory = TempDir::new("write-again-lost").unwrap();
        let (path, connection) = database(&directory);
        let header = Guard::of(&connection).unwrap().wal_header().unwrap();
        let mut wal = VfsFile::open(None, &path, VfsFileKind::Wal).unwrap();
        let frame = WAL_FRAME_HEADER_BYTES + page_size().bytes();
        for lost in 0..header.frames() as u64 {
            let offset = WAL_HEADER_BYTES as u64 + lost * frame as u64;
            let mut kept = vec![0; frame];
            assert!(wal.read_at(&mut kept, offset).unwrap());
            wal.write_at(&vec![0; frame], offset).unwrap();
            assert!(!write_again(&mut wal, &header, page_size()).unwrap(), "frame {lost}");
            wal.write_at(&kept, offset).unwrap();
        }
        assert!(write_again(&mut wal, &header, page_size()).unwrap());
    }
}
