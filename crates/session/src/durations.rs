//! What sessions wait for, counted in their slots: durations by powers of two of microseconds.
//!
//! A slot's counts only grow, whichever session owns the slot, so that the sum over all slots is that of all sessions
//! since the segment was created. Only the owner of a slot adds to its counts; a wild write can spoil figures and
//! nothing else.

use crate::layout::{Slot, WaitLine};
use crate::monotonic_ns;
use crate::segment::Segment;
use crate::session::Session;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// Buckets: below 1 us, then below 2, 4, ... 2^31 us, and all that is longer.
pub const BUCKETS: usize = 33;

/// What is counted of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum SessionWait {
    /// In COMMIT: from the notification to the moment that the session runs again.
    LogFileSync,
    /// The end of that: from the moment that the session may continue, by a wake or by its own check.
    Scheduling,
    /// For the write lock, from the start of the attempt that failed to the grant.
    WriteLock,
    /// No wait: from the start of the transaction in which the session got the lock to the notification of its commit,
    /// and from the end of the wait for that to the end of the transaction.
    Transaction,
    /// At the start of a transaction, while the WAL is reset.
    WalReset,
}

impl SessionWait {
    pub const ALL: [SessionWait; 5] = [
        SessionWait::LogFileSync,
        SessionWait::Scheduling,
        SessionWait::WriteLock,
        SessionWait::Transaction,
        SessionWait::WalReset,
    ];

    pub(crate) fn from_number(number: u32) -> Option<SessionWait> {
        SessionWait::ALL.get(number.checked_sub(1)? as usize).copied()
    }
}

#[repr(C)]
pub(crate) struct Cell {
    time_ns: AtomicU64,
    max_ns: AtomicU64,
    buckets: [AtomicU64; BUCKETS],
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WaitCounts {
    /// All durations together, nanoseconds.
    pub time_ns: u64,
    /// The longest, nanoseconds.
    pub max_ns: u64,
    pub buckets: Vec<u64>,
}

/// The wait within which another one began; usually none.
#[derive(Debug)]
#[must_use = "it continues when the inner wait ends"]
pub struct OuterWait {
    what: u32,
    since_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionActivity {
    pub slot: usize,
    pub pid: u32,
    pub database: u16,
    /// What it waits for; `None`: it holds the write lock and works.
    pub waits_for: Option<SessionWait>,
    /// Duration so far, nanoseconds; 0 when it is not known.
    pub for_ns: u64,
}

/// The bucket of a duration: bucket n holds those below 2^n us and not below 2^(n-1).
pub fn bucket_of(ns: u64) -> usize {
    let us = ns / 1000;
    ((u64::BITS - us.leading_zeros()) as usize).min(BUCKETS - 1)
}

/// Only the owner of a slot adds, so loads and stores suffice.
fn add(to: &AtomicU64, amount: u64) {
    to.store(to.load(Relaxed).wrapping_add(amount), Relaxed);
}

impl Slot {
    /// Adds to the time only; the maximum and the bucket stay. For what is short beside the whole.
    pub(crate) fn lengthen(&self, what: SessionWait, ns: u64) {
        if !cfg!(feature = "off") {
            add(&self.counts[what as usize].time_ns, ns);
        }
    }

    pub(crate) fn record(&self, what: SessionWait, ns: u64) {
        if cfg!(feature = "off") {
            return;
        }
        let cell = &self.counts[what as usize];
        add(&cell.time_ns, ns);
        add(&cell.buckets[bucket_of(ns)], 1);
        if ns > cell.max_ns.load(Relaxed) {
            cell.max_ns.store(ns, Relaxed);
        }
    }
}

/// Value of [`Slot::posted_ns`] when no commit waits whose release the instance should report.
pub(crate) const NO_WAITERS: u64 = u64::MAX;

impl Slot {
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

impl Session {
    /// Counts a wait that has ended, or the time of a transaction.
    pub fn record(&self, what: SessionWait, ns: u64) {
        self.segment.slot(self.slot).record(what, ns);
    }

    /// Adds `ns` to the time of what was counted last.
    pub fn lengthen(&self, what: SessionWait, ns: u64) {
        self.segment.slot(self.slot).lengthen(what, ns);
    }

    /// Begins a wait that others can see, perhaps within another one, which continues when this one has ended.
    pub fn begin_wait(&self, what: SessionWait, since_ns: u64) -> OuterWait {
        self.segment.slot(self.slot).wait.begin(what, since_ns)
    }

    /// Ends a wait and counts it, unless it is within another one, of which it was a part.
    pub fn end_wait(&self, what: SessionWait, since_ns: u64, outer: OuterWait) {
        let slot = self.segment.slot(self.slot);
        if outer.what == 0 {
            slot.record(what, monotonic_ns().saturating_sub(since_ns));
        }
        slot.wait.end(outer);
    }
}

impl Segment {
    /// Counts of all sessions since the segment was made.
    pub fn wait_counts(&self, what: SessionWait) -> WaitCounts {
        let mut sum = WaitCounts { buckets: vec![0; BUCKETS], ..WaitCounts::default() };
        for cell in self.slots_used().iter().map(|slot| &slot.counts[what as usize]) {
            let time_ns = cell.time_ns.load(Relaxed);
            let max_ns = cell.max_ns.load(Relaxed);
            if time_ns == 0 && max_ns == 0 && cell.buckets[0].load(Relaxed) == 0 {
                continue;
            }
            sum.time_ns = sum.time_ns.wrapping_add(time_ns);
            sum.max_ns = sum.max_ns.max(max_ns);
            for (sum, bucket) in sum.buckets.iter_mut().zip(&cell.buckets) {
                *sum = sum.wrapping_add(bucket.load(Relaxed));
            }
        }
        sum
    }

    /// Sessions that wait for something or hold a write lock.
    pub fn active_sessions(&self) -> Vec<SessionActivity> {
        let now = monotonic_ns();
        let active = |(slot, pid, _): (usize, u32, u64)| {
            let of = self.slot(slot);
            let database = of.database.load(Relaxed) as u16;
            let waits_for = SessionWait::from_number(of.wait.what.load(Relaxed));
            let owns = self.database(database).lock.owner.load(Relaxed) == slot as u32 + 1;
            let for_ns = waits_for.map_or(0, |_| now.saturating_sub(of.wait.since_ns.load(Relaxed)));
            (waits_for.is_some() || owns).then_some(SessionActivity {
                slot,
                pid,
                database,
                waits_for,
                for_ns,
            })
        };
        self.sessions().filter_map(active).collect()
    }
}
