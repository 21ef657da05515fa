//! All of a wal-index, for a caller that holds the locks needed to change it: which frame has which page, and the
//! header that publishes a WAL. Layout: SQLite's "WAL-mode File Format", section "WAL-Index File Format".

use crate::guard_vfs::GuardFile;
use crate::wal_index::{ATTEMPTED_WORD, BACKFILL_WORD, HEADER_WORDS, WalIndexHeader};
use standfast_types::PageNo;
use standfast_types::WalSum as Sum;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering, fence};

/// Words of the five read marks.
const READ_MARKS: std::ops::Range<usize> = 25..30;
/// Value of a read mark that no connection uses.
const UNUSED: u32 = u32::MAX;
/// Page numbers per region. The first region begins with the header and has fewer: [`HEADER_AS_PAGES`] fewer.
const PAGES: usize = 4096;
const HEADER_AS_PAGES: usize = 34;
/// Slots of the hash table behind the page numbers.
const SLOTS: usize = 8192;
const HASH_FACTOR: u32 = 383;

/// A WAL as its header publishes it.
pub(crate) struct NewHeader {
    /// Number of frames; the last one commits.
    pub frames: u32,
    /// Size of the database in pages.
    pub database_pages: u32,
    pub frame_checksum: [u32; 2],
    /// In the byte order of the file.
    pub raw_salts: [u32; 2],
}

/// The regions of 32 KiB that hold the first frames of a WAL.
pub(crate) struct WalIndexRegions<'f> {
    regions: Vec<*mut u32>,
    file: std::marker::PhantomData<&'f GuardFile>,
}

impl<'f> WalIndexRegions<'f> {
    /// The regions for `frames` frames; `None` when they do not all exist.
    pub fn of(file: &'f GuardFile, frames: u32) -> Option<WalIndexRegions<'f>> {
        let count = place(frames.max(1)).0 + 1;
        let regions: Option<Vec<*mut u32>> = (0..count)
            .map(|number| Some(file.shm_region(number as i32).cast::<u32>()).filter(|at| !at.is_null()))
            .collect();
        regions.map(|regions| WalIndexRegions { regions, file: std::marker::PhantomData })
    }

    fn word(&self, region: usize, index: usize) -> &AtomicU32 {
        debug_assert!(index < PAGES);
        // SAFETY: xShmMap returned a region of 32 KiB, which stays mapped while the connection is open, and the
        // borrowed file keeps it open; `index` is below 4,096. Other processes access it at the same time, hence an
        // atomic.
        unsafe { AtomicU32::from_ptr(self.regions[region].add(index)) }
    }

    fn slot(&self, region: usize, index: usize) -> &AtomicU16 {
        debug_assert!(index < SLOTS);
        // SAFETY: as for `word`; the 8,192 slots of two bytes are the second half of the region.
        unsafe { AtomicU16::from_ptr(self.regions[region].add(PAGES).cast::<u16>().add(index)) }
    }

    /// The page of a frame (1-based) that the header publishes.
    pub fn page_of(&self, frame: u32) -> PageNo {
        let (region, index) = place(frame);
        self.word(region, index).load(Ordering::Relaxed)
    }

    /// Publishes a WAL whose frames hold `pages`, in this order, in place of the WAL of `old`. From the first step to
    /// the last the header is invalid: a connection that reads it waits for the write lock, and if this process dies
    /// meanwhile, SQLite's recovery makes the index from the WAL.
    ///
    /// The caller holds the write lock, the checkpoint lock and all read marks.
    pub fn publish(&self, old: &WalIndexHeader, new: &NewHeader, pages: &[PageNo]) {
        self.word(0, 2 * HEADER_WORDS - 1).store(!old.last_word(), Ordering::Relaxed);
        fence(Ordering::SeqCst);
        for region in 0..self.regions.len() {
            let first = if region == 0 { HEADER_AS_PAGES } else { 0 };
            (first..PAGES).for_each(|index| self.word(region, index).store(0, Ordering::Relaxed));
            (0..SLOTS).for_each(|index| self.slot(region, index).store(0, Ordering::Relaxed));
        }
        for (frame, page_no) in (1..).zip(pages) {
            self.insert(frame, *page_no);
        }
        self.word(0, BACKFILL_WORD).store(0, Ordering::Relaxed);
        self.word(0, ATTEMPTED_WORD).store(0, Ordering::Relaxed);
        for (slot, mark) in READ_MARKS.zip([0, new.frames, UNUSED, UNUSED, UNUSED]) {
            self.word(0, slot).store(mark, Ordering::Relaxed);
        }
        self.publish_header(old, new);
    }

    /// Publishes a header whose frames and marks are in place already. The caller holds the write lock.
    pub fn publish_header(&self, old: &WalIndexHeader, new: &NewHeader) {
        let header = header_words(old, new);
        fence(Ordering::SeqCst);
        // The second copy first, as SQLite does: a reader that finds the first copy new finds the second copy new.
        for copy in [HEADER_WORDS, 0] {
            for (index, word) in header.iter().enumerate() {
                self.word(0, copy + index).store(*word, Ordering::Relaxed);
            }
            fence(Ordering::SeqCst);
        }
    }

    fn insert(&self, frame: u32, page_no: PageNo) {
        let (region, index) = place(frame);
        let first = if region == 0 { HEADER_AS_PAGES } else { 0 };
        self.word(region, index).store(page_no, Ordering::Relaxed);
        let mut slot = page_no.wrapping_mul(HASH_FACTOR) as usize % SLOTS;
        // A region has half as many pages as slots, so there is a free one.
        while self.slot(region, slot).load(Ordering::Relaxed) != 0 {
            slot = (slot + 1) % SLOTS;
        }
        self.slot(region, slot).store((index - first + 1) as u16, Ordering::Relaxed);
    }

    /// Sets nBackfill to `frames`, and nBackfillAttempted too: no checkpoint is about to backfill more.
    pub fn set_backfilled(&self, frames: u32) {
        self.word(0, BACKFILL_WORD).store(frames, Ordering::SeqCst);
        self.word(0, ATTEMPTED_WORD).store(frames, Ordering::SeqCst);
    }

    #[cfg(test)]
    pub fn set_attempted(&self, frames: u32) {
        self.word(0, ATTEMPTED_WORD).store(frames, Ordering::SeqCst);
    }
}

/// The region of a frame, and the index of its page number there.
fn place(frame: u32) -> (usize, usize) {
    let at = frame as usize - 1 + HEADER_AS_PAGES;
    (at / PAGES, at % PAGES)
}

fn header_words(old: &WalIndexHeader, new: &NewHeader) -> [u32; HEADER_WORDS] {
    let mut words = old.words();
    words[2] = words[2].wrapping_add(1);
    words[4] = new.frames;
    words[5] = new.database_pages;
    words[6..8].copy_from_slice(&new.frame_checksum);
    words[8..10].copy_from_slice(&new.raw_salts);
    let mut sum = Sum::new(cfg!(target_endian = "big"));
    let bytes: Vec<u8> = words[..10].iter().flat_map(|word| word.to_ne_bytes()).collect();
    sum.add(&bytes);
    words[10..12].copy_from_slice(&sum.words());
    words
}
