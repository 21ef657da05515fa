//! What all sessions wait for and have waited for, for observers.

use crate::durations::{BUCKETS, SessionWait, WaitCounts};
use crate::monotonic_ns;
use crate::segment::Segment;
use std::sync::atomic::Ordering::Relaxed;

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

impl Segment {
    /// Counts of all sessions since the segment was made.
    pub fn wait_counts(&self, what: SessionWait) -> WaitCounts {
        let mut sum = WaitCounts { buckets: vec![0; BUCKETS], ..WaitCounts::default() };
        self.slots_used().iter().for_each(|slot| slot.counts[what as usize].add_to(&mut sum));
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
