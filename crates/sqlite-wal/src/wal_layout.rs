//! Offsets in a WAL. Layout: SQLite's "WAL-mode File Format".

use standfast_types::{PageNo, WAL_FRAME_HEADER_BYTES, WAL_HEADER_BYTES, WalSalts};

/// Bytes of a WAL's header that hold its salts.
pub(crate) const SALTS: std::ops::Range<usize> = 16..24;

/// Bytes of a frame's header that its checksum covers.
pub(crate) const SUMMED_HEAD: std::ops::Range<usize> = 0..8;

/// Length of a WAL of `frames` frames.
pub(crate) fn log_bytes(frames: u32, page_bytes: usize) -> u64 {
    WAL_HEADER_BYTES as u64 + u64::from(frames) * (WAL_FRAME_HEADER_BYTES + page_bytes) as u64
}

/// Offset of a frame (1-based).
pub(crate) fn frame_offset(frame: u32, page_bytes: usize) -> u64 {
    log_bytes(frame - 1, page_bytes)
}

/// Offset of the page of a frame.
pub(crate) fn image_offset(frame: u32, page_bytes: usize) -> u64 {
    frame_offset(frame, page_bytes) + WAL_FRAME_HEADER_BYTES as u64
}

/// The fields of a frame's header that are read.
pub(crate) struct FrameHead {
    pub page_no: PageNo,
    /// Size of the database in pages where the frame commits; 0 within a transaction.
    pub commit_pages: u32,
    pub salts: WalSalts,
    /// Checksum of all frames up to and including this one.
    pub sum: [u32; 2],
}

impl FrameHead {
    /// Decodes bytes that begin with the frame.
    pub fn of(frame: &[u8]) -> FrameHead {
        let word = |at: usize| u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
        let (salts, sum) = (WalSalts(word(8), word(12)), [word(16), word(20)]);
        FrameHead { page_no: word(0), commit_pages: word(4), salts, sum }
    }

    /// Whether SQLite before 3.50.2 has omitted salts and checksum; page number and database size are there.
    pub fn is_unsummed(&self) -> bool {
        self.page_no != 0 && self.salts == WalSalts(0, 0) && self.sum == [0; 2]
    }
}
