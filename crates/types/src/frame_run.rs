//! Gathers the frames of one transaction on their way into a WAL file, so that the file is written once.
//!
//! SQLite writes every frame in two parts, its header and its page, which makes four system calls for a small
//! transaction. No reader uses the frames before the wal-index publishes the transaction, which happens after its
//! commit frame was written: so the frames may wait for it. No I/O here: the owner of the file passes, as `out`, a
//! function that writes bytes at an offset of the file.
//!
//! What could not be written is kept. SQLite rolls back a transaction when it fails to write one of its frames, but not
//! always when it fails to read one, and a read writes what was kept as well: a statement that fails with `SQLITE_FULL`
//! is rolled back alone, and the transaction continues with what the statements before it have written.

use crate::{WAL_FRAME_HEADER_BYTES, is_unsummed};

/// Smallest page size that SQLite allows.
const PAGE_BYTES_MIN: usize = 512;
/// A run is written when it has grown to this, so that a large transaction needs little memory.
const RUN_BYTES: usize = 56 << 10;
/// Limit of one write in SQLite's own VFS for Unix, exclusive.
const WRITE_BYTES_MAX: usize = 128 << 10;
const _: () = assert!(RUN_BYTES + WAL_FRAME_HEADER_BYTES + 65_536 < WRITE_BYTES_MAX);

/// What happened to a write that SQLite requests.
enum Taken {
    /// It was added to the run.
    Kept,
    /// It was added and ends a transaction, or the run is long: write the run now.
    Complete,
    /// It is no new frame after the run, or the run is already long because it could not be written: write the run, and
    /// then this.
    Through,
}

/// Frames of a transaction that were written without salts and checksums, as offsets of their headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unsummed {
    /// The first such frame in the file.
    pub first: u64,
    /// The last frame written, with or without a checksum.
    pub last: u64,
}

/// The frames kept for one file. Order of calls: `clear` when the write lock is taken and when it is released; in
/// between `write` for each write and `before_read` for each read of the file.
#[derive(Debug, Default)]
pub struct FrameRun {
    start: u64,
    bytes: Vec<u8>,
    /// Where the next new frame goes; unknown at the start of a transaction.
    end: Option<u64>,
    /// Set between a header and its page: whether the header is that of a commit frame.
    header: Option<bool>,
    unsummed: Option<Unsummed>,
}

impl FrameRun {
    /// Call when the write lock is taken or released. What is left then belongs to a transaction that was rolled back;
    /// written later, while another connection has the lock, it would destroy that connection's frames.
    pub fn clear(&mut self) {
        self.bytes.clear();
        (self.end, self.header, self.unsummed) = (None, None, None);
    }

    /// Returns the frames of this transaction that lack their checksums, if any. SQLite computes the checksums of all
    /// of them before it commits, or, before 3.50.2, of some; see [`WalHeader`](crate::WalHeader).
    pub fn unsummed(&self) -> Option<Unsummed> {
        self.unsummed
    }

    /// Takes a write of `data` at `offset`, and writes what need not or must not wait.
    ///
    /// # Errors
    /// The error of `out`. What was kept stays kept and is written by a later call.
    pub fn write<E>(
        &mut self,
        offset: u64,
        data: &[u8],
        mut out: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match self.take(offset, data) {
            Taken::Kept => Ok(()),
            Taken::Complete => self.write_out(out),
            Taken::Through => {
                self.write_out(&mut out)?;
                out(offset, data)
            }
        }
    }

    /// Call before `bytes` bytes of the file are read at `offset`: writes what was kept if a part of it lies there.
    ///
    /// # Errors
    /// As [`FrameRun::write`].
    pub fn before_read<E>(
        &mut self,
        offset: u64,
        bytes: usize,
        out: impl FnMut(u64, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        let begins_before = offset < self.start + self.bytes.len() as u64;
        let ends_behind = self.start < offset + bytes as u64;
        if begins_before && ends_behind { self.write_out(out) } else { Ok(()) }
    }

    /// Writes what was kept.
    ///
    /// # Errors
    /// As [`FrameRun::write`].
    pub fn write_out<E>(&mut self, mut out: impl FnMut(u64, &[u8]) -> Result<(), E>) -> Result<(), E> {
        if self.bytes.is_empty() {
            return Ok(());
        }
        out(self.start, &self.bytes)?;
        self.bytes.clear();
        Ok(())
    }

    fn note_header(&mut self, offset: u64, header: &[u8; WAL_FRAME_HEADER_BYTES]) {
        match &mut self.unsummed {
            Some(unsummed) => {
                unsummed.last = offset;
                if is_unsummed(header) {
                    unsummed.first = unsummed.first.min(offset);
                }
            }
            None if is_unsummed(header) => self.unsummed = Some(Unsummed { first: offset, last: offset }),
            None => {}
        }
    }

    fn take(&mut self, offset: u64, data: &[u8]) -> Taken {
        if let Ok(header) = data.try_into() {
            self.note_header(offset, header);
        }
        let next = self.end.is_none_or(|end| end == offset);
        let has_room = self.bytes.len() < RUN_BYTES;
        match self.header {
            None if next && has_room && data.len() == WAL_FRAME_HEADER_BYTES => {
                self.header = Some(data[4..8] != [0; 4]);
                self.keep(offset, data);
                Taken::Kept
            }
            Some(commit) if next && data.len() >= PAGE_BYTES_MIN && data.len().is_power_of_two() => {
                self.header = None;
                self.keep(offset, data);
                if commit || self.bytes.len() >= RUN_BYTES { Taken::Complete } else { Taken::Kept }
            }
            _ => {
                // A frame that is overwritten, a checksum that is recomputed, or the header of the file.
                let end = offset + data.len() as u64;
                self.end = Some(self.end.unwrap_or(0).max(end));
                self.header = None;
                Taken::Through
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WAL_HEADER_BYTES;

    const PAGE_BYTES: usize = 512;

    /// A WAL file that only records how it is written.
    #[derive(Default)]
    struct Log {
        run: FrameRun,
        page_bytes: usize,
        writes: Vec<(u64, Vec<u8>)>,
        fails: bool,
    }

    impl Log {
        /// Creates a file at the start of a transaction.
        fn new(page_bytes: usize) -> Log {
            let mut log = Log { page_bytes, ..Log::default() };
            log.run.clear();
            log
        }

        fn write(&mut self, offset: u64, data: &[u8]) -> Result<(), &'static str> {
            self.run.write(offset, data, file(&mut self.writes, self.fails))
        }

        fn before_read(&mut self, offset: u64, bytes: usize) -> Result<(), &'static str> {
            self.run.before_read(offset, bytes, file(&mut self.writes, self.fails))
        }

        /// Returns where frame `number`, counted from 0, begins.
        fn place(&self, number: u64) -> u64 {
            WAL_HEADER_BYTES as u64 + number * (WAL_FRAME_HEADER_BYTES + self.page_bytes) as u64
        }

        /// Writes a frame as SQLite does.
        fn write_frame(&mut self, number: u64, commit: bool) {
            let (place, frame) = (self.place(number), frame(number, commit, self.page_bytes));
            let (header, page) = frame.split_at(WAL_FRAME_HEADER_BYTES);
            self.write(place, header).unwrap();
            self.write(place + header.len() as u64, page).unwrap();
        }

        /// Returns the writes since the last call.
        fn written(&mut self) -> Vec<(u64, Vec<u8>)> {
            std::mem::take(&mut self.writes)
        }
    }

    fn file(
        writes: &mut Vec<(u64, Vec<u8>)>,
        fails: bool,
    ) -> impl FnMut(u64, &[u8]) -> Result<(), &'static str> {
        move |offset, data| {
            writes.push((offset, data.to_vec()));
            if fails { Err("no space") } else { Ok(()) }
        }
    }

    fn header(number: u64, commit: bool) -> [u8; WAL_FRAME_HEADER_BYTES] {
        let mut header = [number as u8 + 1; WAL_FRAME_HEADER_BYTES];
        header[4..8].copy_from_slice(&u32::from(commit).to_be_bytes());
        header
    }

    fn page(number: u64, page_bytes: usize) -> Vec<u8> {
        vec![number as u8 + 100; page_bytes]
    }

    /// Returns a frame whose content identifies its number.
    fn frame(number: u64, commit: bool, page_bytes: usize) -> Vec<u8> {
        [&header(number, commit)[..], &page(number, page_bytes)].concat()
    }

    #[test]
    fn transaction_is_written_in_one_write_at_its_commit_frame() {
        let mut log = Log::new(PAGE_BYTES);
        log.write_frame(0, false);
        assert_eq!(log.written(), []);
        log.write_frame(1, true);
        let both = [frame(0, false, PAGE_BYTES), frame(1, true, PAGE_BYTES)].concat();
        assert_eq!(log.written(), [(32, both)]);
        log.write_frame(2, true);
        assert_eq!(log.written(), [(32 + 2 * 536, frame(2, true, PAGE_BYTES))], "what comes behind a commit");
    }

    #[test]
    fn overwrite_is_written_after_the_buffered_frames() {
        let mut log = Log::new(PAGE_BYTES);
        log.write_frame(0, false);
        log.write_frame(1, false);
        let (place, again) = (log.place(0) + WAL_FRAME_HEADER_BYTES as u64, page(9, PAGE_BYTES));
        log.write(place, &again).unwrap();
        let both = [frame(0, false, PAGE_BYTES), frame(1, false, PAGE_BYTES)].concat();
        assert_eq!(log.written(), [(32, both), (place, again)], "a page overwritten in its frame");

        log.write_frame(2, true);
        assert_eq!(log.written(), [(log.place(2), frame(2, true, PAGE_BYTES))]);
        for number in 0..3 {
            let (place, again) = (log.place(number), header(number + 10, number == 2));
            log.write(place, &again).unwrap();
            assert_eq!(log.written(), [(place, again.to_vec())], "checksums computed again");
        }
    }

    #[test]
    fn wal_header_is_written_before_the_first_frame() {
        let mut log = Log::new(PAGE_BYTES);
        log.write(0, &[5; WAL_HEADER_BYTES]).unwrap();
        assert_eq!(log.written(), [(0, vec![5; WAL_HEADER_BYTES])]);
        log.write_frame(0, true);
        assert_eq!(log.written(), [(32, frame(0, true, PAGE_BYTES))]);
    }

    #[test]
    fn page_in_two_parts_is_written_after_its_header() {
        let mut log = Log::new(PAGE_BYTES);
        let page = page(0, PAGE_BYTES);
        log.write(32, &header(0, true)).unwrap();
        log.write(56, &page[..100]).unwrap();
        assert_eq!(log.written(), [(32, header(0, true).to_vec()), (56, page[..100].to_vec())]);
        log.write(156, &page[100..]).unwrap();
        assert_eq!(log.written(), [(156, page[100..].to_vec())]);
    }

    #[test]
    fn long_transaction_is_written_before_its_commit() {
        // The smallest number of frames that take 56 KiB.
        for (page_bytes, frames) in [(512, 107), (4096, 14), (65_536, 1)] {
            let mut log = Log::new(page_bytes);
            (0..frames - 1).for_each(|number| log.write_frame(number, false));
            assert_eq!(log.written(), [], "{page_bytes}");
            log.write_frame(frames - 1, false);
            let all = (0..frames).map(|number| frame(number, false, page_bytes)).collect::<Vec<_>>().concat();
            assert_eq!(log.written(), [(32, all)], "{page_bytes}");
            log.write_frame(frames, true);
            assert_eq!(log.written(), [(log.place(frames), frame(frames, true, page_bytes))], "{page_bytes}");
        }
    }

    #[test]
    fn only_a_read_of_buffered_frames_writes_them_first() {
        let (start, end) = (32, 32 + 536);
        for (offset, bytes, covers) in [
            (0, 32, false),
            (0, 33, true),
            (start, 1, true),
            (40, 100, true),
            (0, 4096, true),
            (end - 1, 1, true),
            (end, 4096, false),
        ] {
            let mut log = Log::new(PAGE_BYTES);
            log.write_frame(0, false);
            log.before_read(offset, bytes).unwrap();
            let kept = (32, frame(0, false, PAGE_BYTES));
            assert_eq!(log.written(), if covers { vec![kept] } else { vec![] }, "{bytes} at {offset}");
            log.before_read(0, 4096).unwrap();
            assert_eq!(log.written().is_empty(), covers, "written twice: {bytes} at {offset}");
            log.write_frame(1, true);
            assert_eq!(log.written(), [(log.place(1), frame(1, true, PAGE_BYTES))]);
        }
    }

    #[test]
    fn frames_of_a_rolled_back_transaction_are_never_written() {
        let mut log = Log::new(PAGE_BYTES);
        log.write_frame(0, false);
        log.write(log.place(1), &header(1, false)).unwrap();
        log.run.clear();
        log.before_read(0, 1 << 20).unwrap();
        log.run.write_out(file(&mut log.writes, false)).unwrap();
        assert_eq!(log.written(), []);
        log.write_frame(0, true);
        assert_eq!(log.written(), [(32, frame(0, true, PAGE_BYTES))], "the next one begins again");
    }

    #[test]
    fn frames_that_fail_to_write_are_kept_for_the_next_call() {
        for written_by in ["a read", "a frame written again", "the commit", "a sync"] {
            let mut log = Log::new(PAGE_BYTES);
            log.write_frame(0, false);
            log.fails = true;
            assert_eq!(log.write(32, &header(7, false)), Err("no space"));
            assert_eq!(
                log.written(),
                [(32, frame(0, false, PAGE_BYTES))],
                "nothing behind a write that failed"
            );
            assert_eq!(log.before_read(40, 1), Err("no space"));
            assert_eq!(log.written(), [(32, frame(0, false, PAGE_BYTES))]);
            log.fails = false;
            let mut expected = vec![(32, frame(0, false, PAGE_BYTES))];
            match written_by {
                "a read" => log.before_read(40, 1).unwrap(),
                "a frame written again" => {
                    log.write(32, &header(7, false)).unwrap();
                    expected.push((32, header(7, false).to_vec()));
                }
                "the commit" => {
                    log.write_frame(1, true);
                    expected[0].1.extend(frame(1, true, PAGE_BYTES));
                }
                _ => log.run.write_out(file(&mut log.writes, false)).unwrap(),
            }
            assert_eq!(log.written(), expected, "{written_by}");
            log.before_read(0, 1 << 20).unwrap();
            assert_eq!(log.written(), [], "once");
        }
        let mut log = Log::new(PAGE_BYTES);
        log.fails = true;
        log.write(32, &header(0, true)).unwrap();
        assert_eq!(log.write(56, &page(0, PAGE_BYTES)), Err("no space"), "that of the commit frame");
        log.run.clear();
        log.fails = false;
        log.before_read(0, 1 << 20).unwrap();
        assert_eq!(log.written().len(), 1, "what was rolled back is not");
    }

    #[test]
    fn frame_run_that_cannot_be_written_does_not_grow() {
        let mut log = Log::new(65_536);
        log.fails = true;
        log.write(32, &header(0, false)).unwrap();
        assert_eq!(log.write(56, &page(0, 65_536)), Err("no space"));
        let next = log.place(1);
        assert_eq!(log.write(next, &header(1, false)), Err("no space"));
        assert_eq!(log.run.bytes.len(), WAL_FRAME_HEADER_BYTES + 65_536);
    }

    #[test]
    fn unsummed_frames_are_known_until_the_transaction_ends() {
        let mut log = Log::new(PAGE_BYTES);
        let zeroed = |number: u8| {
            let mut header = [0; WAL_FRAME_HEADER_BYTES];
            header[3] = number;
            header
        };
        log.write_frame(0, false);
        assert_eq!(log.run.unsummed(), None);
        let place = |number| Log { page_bytes: PAGE_BYTES, ..Log::default() }.place(number);
        for number in [2, 3, 1] {
            log.write(place(number), &zeroed(1)).unwrap();
            log.write(place(number) + WAL_FRAME_HEADER_BYTES as u64, &page(0, PAGE_BYTES)).unwrap();
        }
        assert_eq!(log.run.unsummed(), Some(Unsummed { first: place(1), last: place(1) }));
        log.write_frame(2, true);
        assert_eq!(log.run.unsummed(), Some(Unsummed { first: place(1), last: place(2) }));
        log.run.clear();
        assert_eq!(log.run.unsummed(), None);
    }
}
