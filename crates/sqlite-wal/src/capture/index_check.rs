//! Checks of the wal-index and of its last frame before redo is made of them: numbers in shared memory may be anything.

use super::frames::Span;
use super::{Capture, CaptureError};
use crate::vfs_file::VfsFile;
use crate::wal_index::WalIndexHeader;
use crate::wal_layout::{FrameHead, frame_offset};
use standfast_types::{PageSize, WAL_FRAME_HEADER_BYTES, WAL_HEADER_BYTES, WalHeader};

/// Pages that a commit may add without writing them before its frame is checked.
const SKIPPED_UNCHECKED: usize = 4096;

/// Checks that the numbers in `header`, which was read under the write lock, fit the WAL: its last frame exists, and
/// ends a transaction that leaves as many pages as the index says.
///
/// # Errors
/// `BadIndex`, and when the WAL cannot be read.
pub fn check_index(
    header: &WalIndexHeader,
    wal: &mut VfsFile,
    page_size: PageSize,
) -> Result<(), CaptureError> {
    if header.frames() == 0 {
        return Ok(());
    }
    let bad = |what: String| Err(CaptureError::BadIndex { what });
    let (frame, pages) = (header.frames(), header.database_pages());
    if header.page_size() != Some(page_size) {
        return bad(format!("its page size is not that of the database, {} bytes", page_size.bytes()));
    }
    let mut head = [0; WAL_FRAME_HEADER_BYTES];
    if !wal.read_at(&mut head, frame_offset(frame, page_size.bytes()))? {
        return bad(format!("it ends at frame {frame}, and the log before"));
    }
    let head = FrameHead::of(&head);
    let known = head.salts == header.salts() || head.is_unsummed();
    if !known || head.commit_pages != pages {
        return bad(format!(
            "it says that the database has {pages} pages after frame {frame}, and that frame says {}",
            head.commit_pages
        ));
    }
    Ok(())
}

impl Capture {
    /// Trusts a size that adds very many pages without writing them only if the frame is what was written, because each
    /// of those pages becomes redo.
    pub(super) fn check_growth(
        &mut self,
        chunk: &[u8],
        chunk_first: u32,
        span: &Span,
        pages: u32,
    ) -> Result<(), CaptureError> {
        let grown = pages.saturating_sub(self.database_pages) as usize;
        if grown.saturating_sub(self.new_pages.len()) <= SKIPPED_UNCHECKED {
            return Ok(());
        }
        let index = span.first + span.count - 1;
        let frame = chunk_first + index as u32;
        let bytes = &chunk[index * self.frame_bytes()..(index + 1) * self.frame_bytes()];
        let head = FrameHead::of(bytes);
        let mut start = [0; WAL_HEADER_BYTES];
        let log = if self.wal.read_at(&mut start, 0)? { WalHeader::of(&start) } else { None };
        let sums = log.map(|log| log.frame_sums(&mut self.wal, frame, frame)).transpose()?;
        // A frame without a checksum is bounded by the size in the index, which was written with it.
        let size = self.index.settled_header().map(|header| header.database_pages());
        let is_what_was_written = if head.is_unsummed() {
            size == Some(pages)
        } else {
            sums.is_some_and(|sums| sums == [head.sum])
        };
        if is_what_was_written {
            return Ok(());
        }
        let what =
            format!("frame {frame} says that the database has {pages} pages, and its checksum is wrong");
        Err(CaptureError::BadIndex { what })
    }
}
