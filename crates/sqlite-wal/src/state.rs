//! Reads the pages of a database in one state of its files: frames of the WAL up to a given one, else the database
//! file. Uses neither SQLite's cache nor a snapshot: the caller keeps writers and checkpoints out.

use crate::page_map::PageMap;
use crate::vfs_file::{VfsFile, VfsFileKind};
use crate::wal_layout::{FrameHead, frame_offset, image_offset};
use standfast_types::{PageNo, PageSize, WAL_FRAME_HEADER_BYTES, WalSalts};
use std::io::{Error, Result};
use std::path::Path;

/// Which frames of a WAL belong to a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frames {
    pub salts: WalSalts,
    /// Frames 1 to this one belong to the state.
    pub visible: u32,
    /// Frames that the WAL holds. A process may have checkpointed the later ones, so pages that only later frames hold
    /// may be in the database file already: such a page says nothing of the state.
    pub present: u32,
}

/// What the files hold of a page in a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageFound {
    There,
    /// The files end before the page.
    Absent,
    /// A later frame holds the page, so the database file may be newer than the state.
    Unknown,
}

/// Reads the pages of one state.
pub struct StateReader {
    wal: Option<VfsFile>,
    file: VfsFile,
    page_bytes: usize,
    visible: PageMap,
    /// Pages of frames after the state.
    later: PageMap,
}

impl StateReader {
    /// Opens the files of the database at `path` through the VFS `vfs` and finds which frame holds which page.
    ///
    /// # Errors
    /// When a file cannot be read, or a frame does not belong to the WAL with these salts.
    pub fn open(vfs: Option<&str>, path: &Path, page_size: PageSize, frames: Frames) -> Result<StateReader> {
        let mut reader = StateReader {
            wal: None,
            file: VfsFile::open(vfs, path, VfsFileKind::Database)?,
            page_bytes: page_size.bytes(),
            visible: PageMap::default(),
            later: PageMap::default(),
        };
        if frames.present == 0 {
            return Ok(reader);
        }
        let mut wal = VfsFile::open(vfs, path, VfsFileKind::Wal)?;
        for frame in 1..=frames.present {
            let head = frame_head(&mut wal, frame, reader.page_bytes, frames.salts)?;
            let map = if frame <= frames.visible { &mut reader.visible } else { &mut reader.later };
            map.insert(head.page_no, frame);
        }
        reader.wal = Some(wal);
        Ok(reader)
    }

    /// Reads page `page_no` into `image`, which has the size of a page.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn read(&mut self, page_no: PageNo, image: &mut [u8]) -> Result<PageFound> {
        let whole = match (self.visible.get(&page_no), &mut self.wal) {
            (Some(frame), Some(wal)) => wal.read_at(image, image_offset(*frame, self.page_bytes))?,
            _ if self.later.contains_key(&page_no) => return Ok(PageFound::Unknown),
            _ => self.file.read_at(image, u64::from(page_no - 1) * self.page_bytes as u64)?,
        };
        Ok(if whole { PageFound::There } else { PageFound::Absent })
    }
}

impl StateReader {
    /// Reads the image in a frame of the WAL and returns its page number; `None` when there is no such frame.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn read_frame(&mut self, frame: u32, image: &mut [u8]) -> Result<Option<PageNo>> {
        let Some(wal) = self.wal.as_mut().filter(|_| frame > 0) else { return Ok(None) };
        let mut head = [0; WAL_FRAME_HEADER_BYTES];
        let whole = wal.read_at(&mut head, frame_offset(frame, self.page_bytes))?
            && wal.read_at(image, image_offset(frame, self.page_bytes))?;
        Ok(whole.then(|| FrameHead::of(&head).page_no))
    }
}

/// The first commit frame of a WAL with these salts; 0 when none of its `present` frames commits.
///
/// # Errors
/// When the file cannot be read, or a frame does not belong to that WAL.
pub fn first_commit_frame(
    wal: &mut VfsFile,
    page_size: PageSize,
    salts: WalSalts,
    present: u32,
) -> Result<u32> {
    for frame in 1..=present {
        if frame_head(wal, frame, page_size.bytes(), salts)?.commit_pages != 0 {
            return Ok(frame);
        }
    }
    Ok(0)
}

fn frame_head(wal: &mut VfsFile, frame: u32, page_bytes: usize, salts: WalSalts) -> Result<FrameHead> {
    let mut bytes = [0; WAL_FRAME_HEADER_BYTES];
    let whole = wal.read_at(&mut bytes, frame_offset(frame, page_bytes))?;
    let head = FrameHead::of(&bytes);
    if !whole || head.salts != salts || head.page_no == 0 {
        return Err(Error::other(format!("frame {frame} of the write-ahead log is not of its generation")));
    }
    Ok(head)
}
