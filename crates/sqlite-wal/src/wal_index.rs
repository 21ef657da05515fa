//! The header of the wal-index (the `-shm` file): what SQLite has published as committed.

use crate::wal_layout::log_bytes;
use standfast_types::{PageSize, WalPosition, WalSalts};
use std::sync::atomic::{AtomicU32, Ordering, fence};

/// Reads of a header that is being written before [`WalIndexView::settled_header`] gives up.
const LOOKS: u32 = 10_000;
/// Words (4 bytes, native order) of one copy of the header; there are two copies, one after the other.
pub(crate) const HEADER_WORDS: usize = 12;
/// Words of both copies of the header and of the checkpoint information after them.
pub(crate) const VIEW_WORDS: usize = 34;
/// Word of the number of frames backfilled (nBackfill), and word of the number whose backfill was begun
/// (nBackfillAttempted).
pub(crate) const BACKFILL_WORD: usize = 24;
pub(crate) const ATTEMPTED_WORD: usize = 32;

/// One consistent reading of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalIndexHeader {
    words: [u32; HEADER_WORDS],
}

impl WalIndexHeader {
    /// Last committed frame (mxFrame); 0 for an empty WAL.
    pub fn frames(&self) -> u32 {
        self.words[4]
    }
    /// Size of the database in pages.
    pub fn database_pages(&self) -> u32 {
        self.words[5]
    }
    /// Checksum of the last committed frame, which continues those of all frames before it.
    pub(crate) fn frame_checksum(&self) -> [u32; 2] {
        [self.words[6], self.words[7]]
    }
    /// Second word of [`WalIndexHeader::frame_checksum`], as [`crate::frame_sums::frame_checksum`] reads it from the
    /// WAL; 0 for an empty WAL.
    pub fn last_checksum(&self) -> u32 {
        if self.frames() == 0 { 0 } else { self.words[7] }
    }
    /// Salts as two words in the byte order of the file, the form in which sessions compare them.
    pub fn raw_salts(&self) -> [u32; 2] {
        [self.words[8], self.words[9]]
    }
    pub fn salts(&self) -> WalSalts {
        WalSalts(u32::from_be(self.words[8]), u32::from_be(self.words[9]))
    }
    /// Validity as SQLite tests it before it decides on recovery: the index is initialised, and its own checksum is
    /// right.
    fn is_valid(&self) -> bool {
        let [first, second] = self.words[..HEADER_WORDS - 2].as_chunks::<2>().0.iter().fold(
            [0u32; 2],
            |[first, second], [a, b]| {
                let first = first.wrapping_add(*a).wrapping_add(second);
                [first, second.wrapping_add(*b).wrapping_add(first)]
            },
        );
        self.words[3].to_ne_bytes()[0] != 0 && self.words[HEADER_WORDS - 2..] == [first, second]
    }
    #[cfg(test)]
    pub(crate) fn of_test([first, second]: [u32; 2], frames: u32) -> WalIndexHeader {
        let mut words = [0; HEADER_WORDS];
        (words[4], words[8], words[9]) = (frames, first, second);
        WalIndexHeader { words }
    }
    pub(crate) fn words(&self) -> [u32; HEADER_WORDS] {
        self.words
    }
    /// The second word of its own checksum.
    pub(crate) fn last_word(&self) -> u32 {
        self.words[HEADER_WORDS - 1]
    }
    /// Whether the checksums of the WAL read the data in the byte order of this machine.
    pub(crate) fn sums_in_native_order(&self) -> bool {
        (self.words[3].to_ne_bytes()[1] != 0) == cfg!(target_endian = "big")
    }
    /// Bytes of the file that are in use; `None` when the header is not initialised.
    pub fn log_bytes(&self) -> Option<u64> {
        self.page_size().map(|page_size| log_bytes(self.frames(), page_size.bytes()))
    }
    pub fn position(&self) -> WalPosition {
        WalPosition { salts: self.salts(), frame: self.frames() }
    }
    /// `None` when the header is not initialised.
    pub fn page_size(&self) -> Option<PageSize> {
        let bytes = self.words[3].to_ne_bytes();
        PageSize::from_header_field(u16::from_ne_bytes([bytes[2], bytes[3]]))
    }
}

/// The first words of a mapped wal-index. SQLite and other processes write them at any time.
#[derive(Clone, Copy)]
pub struct WalIndexView {
    words: *const AtomicU32,
}

// SAFETY: the view only reads atomics in memory that stays mapped while its connection is open (see `new`).
unsafe impl Send for WalIndexView {}
// SAFETY: as for Send.
unsafe impl Sync for WalIndexView {}

impl WalIndexView {
    /// # Safety
    /// `region` is region 0 of a wal-index as returned by xShmMap, and the connection that mapped it stays
    /// open for as long as the view is used.
    pub(crate) unsafe fn new(region: *mut std::ffi::c_void) -> WalIndexView {
        WalIndexView { words: region.cast() }
    }

    fn word(&self, index: usize) -> u32 {
        debug_assert!(index < VIEW_WORDS);
        // SAFETY: `new` promises a mapped region of 32 KiB; index is below VIEW_WORDS.
        unsafe { (*self.words.add(index)).load(Ordering::Relaxed) }
    }

    /// Reads the header; `None` while a writer is between its two copies, and when it is not valid. If a writer died
    /// there, or a process has written something else there, it stays so until SQLite's recovery runs.
    pub fn header(&self) -> Option<WalIndexHeader> {
        // SQLite writes the second copy first, so reading the first copy first detects every torn state.
        let first = std::array::from_fn(|i| self.word(i));
        fence(Ordering::SeqCst);
        let second: [u32; HEADER_WORDS] = std::array::from_fn(|i| self.word(HEADER_WORDS + i));
        let header = WalIndexHeader { words: first };
        (first == second && header.is_valid()).then_some(header)
    }

    /// Reads the header like [`WalIndexView::header`], but waits for a writer, which is between the copies for a moment
    /// only unless it died there.
    pub fn settled_header(&self) -> Option<WalIndexHeader> {
        (0..LOOKS).find_map(|_| {
            let header = self.header();
            if header.is_none() {
                std::thread::yield_now();
            }
            header
        })
    }

    /// Frames that have been backfilled (nBackfill).
    pub fn backfilled(&self) -> u32 {
        self.word(BACKFILL_WORD)
    }

    /// Frames whose backfill was begun (nBackfillAttempted); more than [`WalIndexView::backfilled`] while a checkpoint
    /// runs, and after one that did not complete.
    pub fn attempted(&self) -> u32 {
        self.word(ATTEMPTED_WORD)
    }
}
