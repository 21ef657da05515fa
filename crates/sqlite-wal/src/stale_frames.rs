//! Truncates what a power loss leaves behind the committed frames of a WAL.
//!
//! A frame counts when its checksum continues that of the frame before it. When frames were not synced, a power loss
//! may keep later ones and lose an earlier one. When the same transaction is then written again, the lost frame comes
//! back byte for byte and the later ones count again: after the next power loss SQLite would find commits from before
//! the first power loss in place of newer ones. So such frames are truncated, durably, before anything is written.

use crate::{VfsFile, WalIndexHeader};
use standfast_types::{PageSize, WAL_FRAME_HEADER_BYTES, WAL_HEADER_BYTES};
use std::io::Result;

/// Bytes of the file that hold its salts.
const SALTS: std::ops::Range<usize> = 16..24;

/// Truncates `wal` behind the frames that `header` publishes, durably. The caller holds the write lock.
///
/// A WAL that was reset and has no new frame yet stays as it is: all its frames are in the database.
///
/// # Errors
/// When the file system fails.
pub fn cut_stale_frames(wal: &mut VfsFile, header: &WalIndexHeader, page_size: PageSize) -> Result<()> {
    let mut start = [0; WAL_HEADER_BYTES];
    if !wal.read_at(&mut start, 0)? {
        return Ok(());
    }
    let [first, second] = header.raw_salts().map(u32::to_ne_bytes);
    if start[SALTS] != *[first, second].as_flattened() {
        return Ok(());
    }
    let frame_bytes = (WAL_FRAME_HEADER_BYTES + page_size.bytes()) as u64;
    // SQLite's recovery ignores the header of a file that holds nothing else, so one byte of a frame stays.
    let end = WAL_HEADER_BYTES as u64 + (u64::from(header.frames()) * frame_bytes).max(1);
    if wal.bytes()? > end {
        wal.truncate(end)?;
        wal.sync()?;
    }
    Ok(())
}
