//! What sessions wait for, counted in their slots: durations by powers of two of microseconds.
//!
//! A slot's counts only grow, whichever session owns the slot, so that the sum over all slots is that of all sessions
//! since the segment was created. Only the owner of a slot adds to its counts; a wild write can spoil figures and
//! nothing else.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

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
    pub time_ns: u64,
    pub max_ns: u64,
    pub buckets: Vec<u64>,
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

impl Cell {
    /// Adds to the time only; the maximum and the bucket stay. For what is short beside the whole.
    pub(crate) fn lengthen(&self, ns: u64) {
        add(&self.time_ns, ns);
    }

    pub(crate) fn record(&self, ns: u64) {
        add(&self.time_ns, ns);
        add(&self.buckets[bucket_of(ns)], 1);
        if ns > self.max_ns.load(Relaxed) {
            self.max_ns.store(ns, Relaxed);
        }
    }

    pub(crate) fn add_to(&self, sum: &mut WaitCounts) {
        let time_ns = self.time_ns.load(Relaxed);
        let max_ns = self.max_ns.load(Relaxed);
        if time_ns == 0 && max_ns == 0 && self.buckets[0].load(Relaxed) == 0 {
            return;
        }
        sum.time_ns = sum.time_ns.wrapping_add(time_ns);
        sum.max_ns = sum.max_ns.max(max_ns);
        for (sum, bucket) in sum.buckets.iter_mut().zip(&self.buckets) {
            *sum = sum.wrapping_add(bucket.load(Relaxed));
        }
    }
}
