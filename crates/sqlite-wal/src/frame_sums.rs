//! Identifies the frames of a WAL by their checksums and by those of their pages.

use crate::VfsFile;
use crate::page_map::PageMap;
use crate::wal_layout::{FrameHead, frame_offset, image_offset};
use standfast_format::page_sum;
use standfast_types::{PageNo, PageSize, WAL_FRAME_HEADER_BYTES, WalSalts};
use std::collections::HashMap;
use std::io::Result;

/// The second word of the checksum of `frame` in a WAL with these salts. It continues that of all frames before, so
/// that together with the salts it identifies one content of the WAL. `None` when the frame does not exist or is not of
/// this generation.
///
/// # Errors
/// When the file cannot be read.
pub fn frame_checksum(
    wal: &mut VfsFile,
    page_size: PageSize,
    salts: WalSalts,
    frame: u32,
) -> Result<Option<u32>> {
    let head = read_head(wal, page_size, frame)?;
    Ok(head.filter(|head| head.salts == salts).map(|head| head.sum[1]))
}

/// Checksums, as of [`page_sum`], of the newest image of each page in the frames after `after` up to `upto`. Skips
/// frames that are not of this generation.
///
/// # Errors
/// When the file cannot be read.
pub fn page_sums_behind(
    wal: &mut VfsFile,
    page_size: PageSize,
    salts: WalSalts,
    after: u32,
    upto: u32,
) -> Result<HashMap<PageNo, u32>> {
    let mut newest = PageMap::default();
    for frame in after + 1..=upto {
        if let Some(head) = read_head(wal, page_size, frame)?.filter(|head| head.salts == salts) {
            newest.insert(head.page_no, frame);
        }
    }
    let mut image = vec![0; page_size.bytes()];
    let mut sums = HashMap::new();
    for (page_no, frame) in newest {
        if wal.read_at(&mut image, image_offset(frame, page_size.bytes()))? {
            sums.insert(page_no, page_sum(page_no, &image));
        }
    }
    Ok(sums)
}

fn read_head(wal: &mut VfsFile, page_size: PageSize, frame: u32) -> Result<Option<FrameHead>> {
    if frame == 0 {
        return Ok(None);
    }
    let mut head = [0; WAL_FRAME_HEADER_BYTES];
    let whole = wal.read_at(&mut head, frame_offset(frame, page_size.bytes()))?;
    Ok(whole.then(|| FrameHead::of(&head)))
}
