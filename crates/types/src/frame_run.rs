//! Frames of one transaction on their way into a WAL file, gathered so that the file is written once.
//!
//! SQLite writes every frame in two pieces, its header and its page, which makes four system calls of a small
//! transaction. Nobody reads them before the wal-index publishes the transaction, and that happens after its
//! commit frame was written: so the frames may wait for it. No I/O here; whoever owns the file does it.

/// Bytes of a frame before its page.
const FRAME_HEADER_BYTES: usize = 24;
/// Smallest page.
const PAGE_BYTES_MIN: usize = 512;
/// A run is written out when it has grown to this, so that a large transaction needs no memory.
const RUN_BYTES: usize = 56 << 10;
/// SQLite's own VFS for Unix takes fewer bytes than this in one write.
const WRITE_BYTES_MAX: usize = 128 << 10;
const _: () = assert!(RUN_BYTES + FRAME_HEADER_BYTES + 65_536 < WRITE_BYTES_MAX);

/// What to do about a write that SQLite asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameWrite {
    /// Nothing: it was added to the run.
    Kept,
    /// It was added and ends a transaction, or the run is long: the run is to be written now.
    Complete,
    /// It is no new frame after the run: the run, if any, is to be written, and then this.
    Through,
}

/// See the module. Order of calls: `clear` when the write lock is taken and when it is given up, `take` for each
/// write, `written` after the run was written out. Whatever the run covers must be written out before it is read.
#[derive(Debug, Default)]
pub struct FrameRun {
    start: u64,
    bytes: Vec<u8>,
    /// Where the next new frame goes; unknown at the beginning of a transaction.
    end: Option<u64>,
    /// Set between a header and its page: whether it is that of a commit frame.
    header: Option<bool>,
}

impl FrameRun {
    /// The write lock is taken or given up. What is left then is of a transaction that was rolled back; written
    /// later, when others have the lock, it would destroy their frames.
    pub fn clear(&mut self) {
        self.bytes.clear();
        (self.end, self.header) = (None, None);
    }

    /// Takes in a write of `data` at `offset`.
    pub fn take(&mut self, offset: u64, data: &[u8]) -> FrameWrite {
        let next = self.end.is_none_or(|end| end == offset);
        match self.header {
            None if next && data.len() == FRAME_HEADER_BYTES => {
                self.header = Some(data[4..8] != [0; 4]);
                self.keep(offset, data);
                FrameWrite::Kept
            }
            Some(commit) if next && data.len() >= PAGE_BYTES_MIN && data.len().is_power_of_two() => {
                self.header = None;
                self.keep(offset, data);
                if commit || self.bytes.len() >= RUN_BYTES { FrameWrite::Complete } else { FrameWrite::Kept }
            }
            _ => {
                // A frame that is overwritten, a checksum that is computed again, the header of the file.
                let end = offset + data.len() as u64;
                self.end = Some(self.end.unwrap_or(0).max(end));
                self.header = None;
                FrameWrite::Through
            }
        }
    }

    fn keep(&mut self, offset: u64, data: &[u8]) {
        if self.bytes.is_empty() {
            self.start = offset;
        }
        self.bytes.extend_from_slice(data);
        self.end = Some(offset + data.len() as u64);
    }

    /// What waits to be written, and where it goes.
    pub fn pending(&self) -> Option<(u64, &[u8])> {
        (!self.bytes.is_empty()).then_some((self.start, self.bytes.as_slice()))
    }

    /// Whether a part of what waits lies in these bytes of the file.
    pub fn covers(&self, offset: u64, bytes: usize) -> bool {
        !self.bytes.is_empty()
            && offset < self.start + self.bytes.len() as u64
            && self.start < offset + bytes as u64
    }

    /// The run has been written, or its transaction fails because it could not be.
    pub fn written(&mut self) {
        self.bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: [u8; 512] = [7; 512];
    const FRAME: u64 = 24 + 512;

    fn header(commit: bool) -> [u8; 24] {
        let mut header = [1; 24];
        header[4..8].copy_from_slice(&u32::from(commit).to_be_bytes());
        header
    }

    #[test]
    fn a_transaction_becomes_one_run_that_is_complete_with_its_commit_frame() {
        let mut run = FrameRun::default();
        run.clear();
        assert_eq!(run.take(32, &header(false)), FrameWrite::Kept);
        assert_eq!(run.take(56, &PAGE), FrameWrite::Kept);
        assert_eq!(run.take(32 + FRAME, &header(true)), FrameWrite::Kept);
        assert_eq!(run.take(56 + FRAME, &PAGE), FrameWrite::Complete);
        let (start, bytes) = run.pending().unwrap();
        assert_eq!((start, bytes.len() as u64), (32, 2 * FRAME));
        assert!(
            run.covers(32, 1) && run.covers(0, 33) && !run.covers(0, 32) && !run.covers(32 + 2 * FRAME, 9)
        );
        run.written();
        assert!(run.pending().is_none());
    }

    #[test]
    fn what_is_written_again_goes_through_and_so_does_the_header_of_the_file() {
        let mut run = FrameRun::default();
        run.clear();
        assert_eq!(run.take(0, &[0; 32]), FrameWrite::Through);
        for frame in 0..2 {
            assert_eq!(run.take(32 + frame * FRAME, &header(false)), FrameWrite::Kept);
            assert_eq!(run.take(56 + frame * FRAME, &PAGE), FrameWrite::Kept);
        }
        assert_eq!(run.take(56, &PAGE), FrameWrite::Through, "a page overwritten in its frame");
        run.written();
        assert_eq!(run.take(32 + 2 * FRAME, &header(true)), FrameWrite::Kept);
        assert_eq!(run.take(56 + 2 * FRAME, &PAGE), FrameWrite::Complete);
        run.written();
        for frame in 0..3 {
            let rewritten = run.take(32 + frame * FRAME, &header(frame == 2));
            assert_eq!(rewritten, FrameWrite::Through, "checksums computed again");
        }
        assert!(run.pending().is_none());
    }

    #[test]
    fn a_page_in_two_pieces_goes_through() {
        let mut run = FrameRun::default();
        run.clear();
        assert_eq!(run.take(32, &header(true)), FrameWrite::Kept);
        assert_eq!(run.take(56, &PAGE[..100]), FrameWrite::Through);
        assert_eq!(run.pending().map(|(start, bytes)| (start, bytes.len())), Some((32, 24)));
        run.written();
        assert_eq!(run.take(156, &PAGE[..412]), FrameWrite::Through);
    }

    #[test]
    fn a_long_transaction_is_written_on_the_way() {
        let mut run = FrameRun::default();
        run.clear();
        let mut kept = 0;
        let mut offset = 32;
        while run.take(offset, &header(false)) == FrameWrite::Kept {
            match run.take(offset + 24, &PAGE) {
                FrameWrite::Kept => kept += 1,
                FrameWrite::Complete => break,
                FrameWrite::Through => panic!("a frame at the end"),
            }
            offset += FRAME;
        }
        assert!((90..120).contains(&kept), "{kept}");
    }

    #[test]
    fn what_a_transaction_left_that_was_rolled_back_is_void() {
        let mut run = FrameRun::default();
        run.clear();
        run.take(32, &header(false));
        run.clear();
        assert!(run.pending().is_none());
        assert_eq!(run.take(32, &header(true)), FrameWrite::Kept);
    }
}
