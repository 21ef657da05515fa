//! The pool of archivers.

use crate::gap::{Pace, Usual};
use crate::lock;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The pool of archivers that may send at the same time, for all destinations of an instance (`archive_processes`).
#[derive(Debug)]
pub struct Archivers {
    free: Mutex<u32>,
    freed: Condvar,
    pace: Mutex<Pace>,
}

impl Archivers {
    pub fn new(count: u32) -> Arc<Archivers> {
        Arc::new(Archivers { free: Mutex::new(count), freed: Condvar::new(), pace: Mutex::default() })
    }

    /// Records that a destination that commits wait for has answered after `took_ns`; `usual` is that destination's
    /// usual answer time.
    pub(super) fn answered(&self, now_ns: u64, took_ns: u64, usual: &mut Usual) {
        lock(&self.pace).answered(now_ns, took_ns, usual);
    }

    /// How long the next `bytes` must wait so that answers to commits are not delayed.
    pub(super) fn holds_back(&self, now_ns: u64, bytes: u64) -> Duration {
        Duration::from_nanos(lock(&self.pace).wait_ns(now_ns, bytes))
    }

    /// Waits for a free archiver; `None` when `give_up` returns true first.
    pub(super) fn take(&self, give_up: &dyn Fn() -> bool) -> Option<Busy<'_>> {
        let mut free = lock(&self.free);
        while *free == 0 {
            if give_up() {
                return None;
            }
            let waited = self.freed.wait_timeout(free, Duration::from_millis(100));
            free = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *free -= 1;
        Some(Busy(self))
    }
}

/// A busy archiver; drop frees it.
pub(super) struct Busy<'a>(&'a Archivers);

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        *lock(&self.0.free) += 1;
        self.0.freed.notify_one();
    }
}
