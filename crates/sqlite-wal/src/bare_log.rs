//! A WAL that consists of nothing but its header.
//!
//! SQLite syncs the header of a WAL before it writes the first frame behind it. So of a new WAL a power loss may leave
//! exactly the header, and SQLite's recovery takes a file of that size for no WAL at all. But its salts tell that the
//! database file is at the beginning of this generation.

use crate::{VfsFile, WalIndexHeader};
use standfast_types::{WAL_HEADER_BYTES, WalSalts};
use std::io::Result;

/// Returns the salts of a WAL that consists of nothing but its header, when SQLite's recovery, which left `header`,
/// found no WAL.
///
/// # Errors
/// When the file system fails.
pub fn bare_salts(wal: &mut VfsFile, header: &WalIndexHeader) -> Result<Option<WalSalts>> {
    let mut bytes = [0; WAL_HEADER_BYTES];
    if header.raw_salts() != [0, 0]
        || wal.bytes()? != WAL_HEADER_BYTES as u64
        || !wal.read_at(&mut bytes, 0)?
    {
        return Ok(None);
    }
    let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Ok(Some(WalSalts(word(16), word(20))))
}
