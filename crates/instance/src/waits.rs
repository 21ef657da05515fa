//! Waits of the log writer with their names, counts and times, as in V$SYSTEM_EVENT. The receiver of a standby has
//! the same for its log.
//!
//! One thread enters and leaves; others look. A wait that is under way counts when it has ended. Who does not wait
//! touches nothing here.

use serde::Serialize;
use standfast_log::SwitchBlocked;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::time::Instant;

/// What can be waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitEvent {
    /// There is more redo than one round of capture takes: the rest waits in the WALs until that is written.
    LogBufferSpace,
    /// A log switch is made.
    SwitchCompletion,
    /// The next group is still needed for recovery.
    SwitchCheckpointIncomplete,
    /// The next group is not archived.
    SwitchArchivingNeeded,
}

const EVENTS: [WaitEvent; 4] = [
    WaitEvent::LogBufferSpace,
    WaitEvent::SwitchCompletion,
    WaitEvent::SwitchCheckpointIncomplete,
    WaitEvent::SwitchArchivingNeeded,
];
/// In the place of an event: none.
const NONE: usize = EVENTS.len();

impl WaitEvent {
    /// As operators know it.
    pub fn name(self) -> &'static str {
        match self {
            WaitEvent::LogBufferSpace => "log buffer space",
            WaitEvent::SwitchCompletion => "log file switch completion",
            WaitEvent::SwitchCheckpointIncomplete => "log file switch (checkpoint incomplete)",
            WaitEvent::SwitchArchivingNeeded => "log file switch (archiving needed)",
        }
    }
}

impl From<SwitchBlocked> for WaitEvent {
    fn from(why: SwitchBlocked) -> WaitEvent {
        match why {
            SwitchBlocked::CheckpointIncomplete => WaitEvent::SwitchCheckpointIncomplete,
            SwitchBlocked::ArchivingNeeded => WaitEvent::SwitchArchivingNeeded,
        }
    }
}

/// How often and how long something was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WaitTotal {
    /// Its name.
    pub event: &'static str,
    /// Waits that have ended.
    pub count: u64,
    /// Their time together, microseconds.
    pub time_us: u64,
}

#[derive(Default)]
struct Total {
    count: AtomicU64,
    time_us: AtomicU64,
}

/// See the module.
pub struct Waits {
    origin: Instant,
    /// Index of the event that is waited for.
    current: AtomicUsize,
    /// When that began, microseconds after `origin`.
    since_us: AtomicU64,
    totals: [Total; NONE],
}

impl Default for Waits {
    fn default() -> Waits {
        Waits {
            origin: Instant::now(),
            current: AtomicUsize::new(NONE),
            since_us: AtomicU64::new(0),
            totals: Default::default(),
        }
    }
}

impl Waits {
    /// A wait begins, in the place of another one perhaps; one that has begun goes on.
    pub fn enter(&self, event: WaitEvent) {
        self.enter_at(event, self.now_us());
    }

    /// Nothing is waited for any more.
    pub fn leave(&self) {
        if self.current.load(SeqCst) != NONE {
            self.leave_at(self.now_us());
        }
    }

    fn now_us(&self) -> u64 {
        self.origin.elapsed().as_micros() as u64
    }

    fn enter_at(&self, event: WaitEvent, now_us: u64) {
        let index = EVENTS.iter().position(|known| *known == event).unwrap_or(NONE);
        if self.current.load(SeqCst) == index {
            return;
        }
        self.leave_at(now_us);
        self.since_us.store(now_us, SeqCst);
        self.current.store(index, SeqCst);
    }

    fn leave_at(&self, now_us: u64) {
        if let Some(total) = self.totals.get(self.current.swap(NONE, SeqCst)) {
            total.count.fetch_add(1, SeqCst);
            total.time_us.fetch_add(now_us.saturating_sub(self.since_us.load(SeqCst)), SeqCst);
        }
    }

    /// What is waited for at the moment.
    pub fn current(&self) -> Option<WaitEvent> {
        EVENTS.get(self.current.load(SeqCst)).copied()
    }

    /// Totals of all events since the start, in a fixed order.
    pub fn totals(&self) -> Vec<WaitTotal> {
        let total = |(event, total): (&WaitEvent, &Total)| WaitTotal {
            event: event.name(),
            count: total.count.load(SeqCst),
            time_us: total.time_us.load(SeqCst),
        };
        EVENTS.iter().zip(&self.totals).map(total).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(waits: &Waits, event: WaitEvent) -> (u64, u64) {
        let totals = waits.totals();
        let total = totals.iter().find(|total| total.event == event.name()).unwrap();
        (total.count, total.time_us)
    }

    #[test]
    fn a_wait_that_is_entered_again_and_again_is_one_and_another_event_ends_it() {
        let waits = Waits::default();
        assert_eq!(waits.current(), None);
        for now in [100, 300, 500] {
            waits.enter_at(WaitEvent::SwitchArchivingNeeded, now);
            assert_eq!(waits.current(), Some(WaitEvent::SwitchArchivingNeeded));
            assert_eq!(total(&waits, WaitEvent::SwitchArchivingNeeded), (0, 0), "it is under way");
        }
        waits.enter_at(WaitEvent::SwitchCheckpointIncomplete, 1_100);
        assert_eq!(total(&waits, WaitEvent::SwitchArchivingNeeded), (1, 1_000));
        waits.leave_at(1_150);
        waits.leave_at(9_000);
        assert_eq!(waits.current(), None);
        assert_eq!(total(&waits, WaitEvent::SwitchCheckpointIncomplete), (1, 50));
        waits.enter_at(WaitEvent::SwitchArchivingNeeded, 10_000);
        waits.leave_at(10_007);
        assert_eq!(total(&waits, WaitEvent::SwitchArchivingNeeded), (2, 1_007));
        assert_eq!(total(&waits, WaitEvent::LogBufferSpace), (0, 0));
    }
}
