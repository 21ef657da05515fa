//! What a session has in its slot: the commit that waits, the current wait, and the counts of those that have ended.

use crate::durations::SessionWait;
use crate::layout::{Slot, WORD_IDLE, WaitLine};
use crate::monotonic_ns;
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};

/// The wait within which another one began; usually none.
#[derive(Debug)]
#[must_use = "it continues when the inner wait ends"]
pub struct OuterWait {
    what: u32,
    since_ns: u64,
}

impl Slot {
    pub(crate) fn waits_for(&self, position: u64) -> bool {
        self.target.load(SeqCst) <= position && self.commit_word.load(SeqCst) != WORD_IDLE
    }

    /// Called when the commit that waits, if one does, may continue: `posted` gets the time of its notification and the
    /// time now.
    pub(crate) fn post(&self, posted: &mut dyn FnMut(u64, u64)) {
        if cfg!(feature = "off") || self.posted_ns.load(SeqCst) != 0 {
            return;
        }
        let (noticed, now) = (self.noticed_ns.load(SeqCst), monotonic_ns());
        if self.posted_ns.compare_exchange(0, now, SeqCst, SeqCst).is_ok() {
            posted(noticed, now);
        }
    }

    pub(crate) fn lengthen(&self, what: SessionWait, ns: u64) {
        if !cfg!(feature = "off") {
            self.counts[what as usize].lengthen(ns);
        }
    }

    pub(crate) fn record(&self, what: SessionWait, ns: u64) {
        if !cfg!(feature = "off") {
            self.counts[what as usize].record(ns);
        }
    }

    /// Ends a wait and counts it, unless it is within another one, of which it was a part.
    pub(crate) fn end_wait(&self, what: SessionWait, since_ns: u64, outer: OuterWait) {
        if outer.what == 0 {
            self.record(what, monotonic_ns().saturating_sub(since_ns));
        }
        self.wait.end(outer);
    }
}

impl WaitLine {
    pub(crate) fn begin(&self, what: SessionWait, since_ns: u64) -> OuterWait {
        let outer = OuterWait { what: self.what.load(Relaxed), since_ns: self.since_ns.load(Relaxed) };
        self.since_ns.store(since_ns, Relaxed);
        self.what.store(what as u32 + 1, Relaxed);
        outer
    }

    pub(crate) fn end(&self, outer: OuterWait) {
        self.since_ns.store(outer.since_ns, Relaxed);
        self.what.store(outer.what, Relaxed);
    }

    /// Clears the wait of an owner that was killed while it waited.
    pub(crate) fn forget(&self) {
        self.what.store(0, Relaxed);
    }
}
