//! Counts the memory that a thread has allocated. The counting allocator is that of every program that links this
//! library.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    /// Bytes allocated minus bytes freed by this thread; negative when it frees what other threads allocated.
    static LIVE: Cell<isize> = const { Cell::new(0) };
    /// Largest value that `LIVE` has had since the last reset.
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn note(change: isize) {
    // Neither cell needs a destructor, so both are accessible for as long as the thread allocates.
    LIVE.with(|live| {
        live.set(live.get() + change);
        PEAK.with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every call is passed unchanged to the system's allocator; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc`, which is that of the system's allocator.
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: the caller keeps the contract of `alloc_zeroed`, which is that of the system's allocator.
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(-(layout.size() as isize));
        // SAFETY: the caller keeps the contract of `dealloc`; `pointer` came from the system's allocator.
        unsafe { System.dealloc(pointer, layout) }
    }
    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(new_size as isize - layout.size() as isize);
        // SAFETY: the caller keeps the contract of `realloc`; `pointer` came from the system's allocator.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

/// Measures what the running thread allocates from [`Meter::start`] on.
pub struct Meter {
    before: isize,
}

impl Meter {
    pub fn start() -> Meter {
        let before = LIVE.with(Cell::get);
        PEAK.with(|peak| peak.set(before));
        Meter { before }
    }

    /// Most bytes that were allocated at one time since [`Meter::start`].
    pub fn peak(&self) -> usize {
        usize::try_from(PEAK.with(Cell::get) - self.before).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn meter_counts_the_peak_and_not_the_total() {
        let meter = Meter::start();
        for _ in 0..10 {
            drop(std::hint::black_box(vec![1_u8; 100_000]));
        }
        assert!((100_000..150_000).contains(&meter.peak()), "{}", meter.peak());
        let before = Meter::start();
        let mut grown = std::hint::black_box(vec![1_u8; 10]);
        grown.resize(300_000, 0);
        assert!(before.peak() >= 300_000);
        drop(grown);
        assert_eq!(Meter::start().peak(), 0);
    }
}
