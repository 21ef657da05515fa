//! Frames of the WAL as they are read: their headers, whether they belong to the generation, and the transactions that
//! they form.

use super::{Capture, CaptureError};
use crate::wal_layout::{FrameHead, frame_offset};
use standfast_types::{PageNo, WAL_FRAME_HEADER_BYTES};

/// A transaction, or a part of one, within the chunk.
pub(super) struct Span {
    /// Index of its first frame in the chunk.
    pub(super) first: usize,
    /// Number of frames.
    pub(super) count: usize,
    /// Database size in pages when the last frame is a commit frame.
    pub(super) commit_pages: Option<u32>,
}

/// The page of a frame whose header has been checked.
pub(super) fn page_no_of(frame: &[u8]) -> PageNo {
    u32::from_be_bytes([frame[0], frame[1], frame[2], frame[3]])
}

impl Capture {
    pub(super) fn frame_bytes(&self) -> usize {
        WAL_FRAME_HEADER_BYTES + self.page_bytes
    }

    pub(super) fn read_frame_head(&mut self, frame: u32) -> Result<FrameHead, CaptureError> {
        let mut header = [0; WAL_FRAME_HEADER_BYTES];
        let offset = frame_offset(frame, self.page_bytes);
        let complete = self.wal.read_at(&mut header, offset)?;
        let head = FrameHead::of(&header);
        if !complete {
            return Err(CaptureError::ForeignFrame { frame });
        }
        self.accept(frame, &head)?;
        Ok(head)
    }

    /// Checks that a frame below the published end belongs to this generation. A frame without a checksum does, like
    /// any other that the index publishes; that it lacks one is recorded.
    fn accept(&mut self, frame: u32, head: &FrameHead) -> Result<(), CaptureError> {
        if head.is_unsummed() {
            self.unsummed = Some(self.unsummed.map_or(frame, |first| first.min(frame)));
        } else if head.salts != self.salts || head.page_no == 0 {
            return Err(CaptureError::ForeignFrame { frame });
        }
        Ok(())
    }

    /// Returns the frames from `at` up to and including the next commit frame, or to the end of the chunk.
    pub(super) fn next_span(
        &mut self,
        chunk: &[u8],
        first: u32,
        at: usize,
        frames: usize,
    ) -> Result<Span, CaptureError> {
        for index in at..frames {
            let header = self.frame_header(chunk, first, index)?;
            if header.commit_pages != 0 {
                return Ok(Span {
                    first: at,
                    count: index + 1 - at,
                    commit_pages: Some(header.commit_pages),
                });
            }
        }
        Ok(Span { first: at, count: frames - at, commit_pages: None })
    }

    /// `first`: the frame with which the chunk begins.
    fn frame_header(&mut self, chunk: &[u8], first: u32, index: usize) -> Result<FrameHead, CaptureError> {
        let head = FrameHead::of(&chunk[index * self.frame_bytes()..]);
        self.accept(first + index as u32, &head)?;
        Ok(head)
    }
}
