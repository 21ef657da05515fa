//! Wild writes to a wal-index: a header with other numbers and a matching checksum.

use crate::{During, Result};
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// Size of one of the two copies of the header.
const HEADER_BYTES: usize = 48;
/// Offset of the number of frames of the WAL.
const FRAMES_AT: usize = 16;
/// Offset of the number of pages of the database.
const PAGES_AT: usize = 20;
const CHECKSUM_AT: usize = 40;

#[derive(Clone, Copy)]
pub enum Number {
    /// mxFrame: the number of committed frames of the WAL.
    Frames(u32),
    /// nPage: the size of the database in pages.
    Pages(u32),
}

/// Returns the path of the wal-index of `database`.
pub fn path_of(database: &Path) -> PathBuf {
    PathBuf::from(format!("{}-shm", database.display()))
}

/// Publishes `number` in the wal-index of `database`.
///
/// # Errors
/// When the file cannot be written.
pub fn publish(database: &Path, number: Number) -> Result<()> {
    let path = path_of(database);
    let during = || format!("change {}", path.display());
    let file = OpenOptions::new().read(true).write(true).open(&path).during(during)?;
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0).during(during)?;
    change(&mut header, number);
    // The second copy first, as SQLite does.
    file.write_all_at(&header, HEADER_BYTES as u64).during(during)?;
    file.write_all_at(&header, 0).during(during)
}

fn change(header: &mut [u8; HEADER_BYTES], number: Number) {
    let (at, value) = match number {
        Number::Frames(frames) => (FRAMES_AT, frames),
        Number::Pages(pages) => (PAGES_AT, pages),
    };
    header[at..at + 4].copy_from_slice(&value.to_ne_bytes());
    let (mut first, mut second) = (0u32, 0u32);
    for pair in header[..CHECKSUM_AT].chunks_exact(8) {
        let word = |at: usize| u32::from_ne_bytes([pair[at], pair[at + 1], pair[at + 2], pair[at + 3]]);
        first = first.wrapping_add(word(0)).wrapping_add(second);
        second = second.wrapping_add(word(4)).wrapping_add(first);
    }
    header[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&first.to_ne_bytes());
    header[CHECKSUM_AT + 4..].copy_from_slice(&second.to_ne_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::Connection;

    #[test]
    fn header_rewritten_with_the_same_numbers_keeps_its_checksum() {
        let directory = standfast_testkit::TempDir::new("wal-index").unwrap();
        let database = directory.join("a.db");
        let connection = Connection::open(&database).unwrap();
        connection.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(x)").unwrap();
        let bytes = std::fs::read(path_of(&database)).unwrap();
        let mut header: [u8; HEADER_BYTES] = bytes[..HEADER_BYTES].try_into().unwrap();
        let before = header;
        let frames = u32::from_ne_bytes(header[FRAMES_AT..FRAMES_AT + 4].try_into().unwrap());
        change(&mut header, Number::Frames(frames));
        assert_eq!(header, before);
        change(&mut header, Number::Pages(1 << 31));
        assert_ne!(header[CHECKSUM_AT..], before[CHECKSUM_AT..]);
    }
}
