//! A WAL that is nothing but its header.
//!
//! SQLite syncs the header of a log before it writes the first frame behind it. Of a log that is new a power loss then
//! leaves exactly the header, and SQLite's recovery takes a file of that size for no log at all. But its salts tell that
//! the database file stands at the beginning of this generation.

use crate::{VfsFile, WalIndexHeader};
use standfast_types::{WAL_HEADER_BYTES, WalSalts};
use std::io::Result;

/// The salts of a log that is nothing but its header, where SQLite's recovery, which left `header`, found no log.
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
