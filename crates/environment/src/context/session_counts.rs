//! Counts that sessions keep in the shared memory, since this process was started.
//!
//! The memory outlives the process, and sessions also count there while no instance runs. All other counts begin with
//! the process, and the parts of a commit add up only if these do as well.

use standfast_instruments::{CommitPart, Event, HistogramCounts, Sample, Statistic};
use standfast_session::{Segment, SessionCounts, SessionWait, WaitCounts};

/// First bucket of long waits for durability: `redo synch long waits`.
const LONG_WAITS: usize = 18;

/// Counts of all sessions at one moment.
#[derive(Default)]
struct Totals {
    waits: [HistogramCounts; SessionWait::ALL.len()],
    sleeps: SessionCounts,
}

/// Counts of sessions relative to the start of this process.
pub struct CountedSessions {
    segment: Segment,
    before: Totals,
}

impl CountedSessions {
    pub fn since_now(segment: Segment) -> CountedSessions {
        CountedSessions { segment, before: Totals::of(segment) }
    }

    /// The segment was mapped again: the same file, or another one that replaced it.
    pub fn mapped_again(&mut self, segment: Segment) {
        self.segment = segment;
        if Totals::of(segment).since(&self.before).is_none() {
            self.before = Totals::default();
        }
    }

    /// Puts the session counts into `sample`.
    pub fn put_into(&self, sample: &mut Sample) {
        let now = Totals::of(self.segment);
        now.since(&self.before).unwrap_or(now).put_into(sample);
    }
}

impl Totals {
    fn of(segment: Segment) -> Totals {
        Totals {
            waits: SessionWait::ALL.map(|what| histogram(segment.wait_counts(what))),
            sleeps: segment.counts(),
        }
    }

    /// Counts since `before`; `None` when the counts restarted meanwhile.
    fn since(&self, before: &Totals) -> Option<Totals> {
        let mut waits: [HistogramCounts; SessionWait::ALL.len()] = Default::default();
        for (between, (now, before)) in waits.iter_mut().zip(self.waits.iter().zip(&before.waits)) {
            *between = now.since(before)?;
        }
        let (now, before) = (self.sleeps, before.sleeps);
        let sleeps = SessionCounts {
            commit_polls: now.commit_polls.checked_sub(before.commit_polls)?,
            commit_sleeps: now.commit_sleeps.checked_sub(before.commit_sleeps)?,
            daemon_wakes: now.daemon_wakes.checked_sub(before.daemon_wakes)?,
            lock_waits: now.lock_waits.checked_sub(before.lock_waits)?,
            lock_sleeps: now.lock_sleeps.checked_sub(before.lock_sleeps)?,
            reservations: now.reservations.checked_sub(before.reservations)?,
        };
        Some(Totals { waits, sleeps })
    }

    fn put_into(self, sample: &mut Sample) {
        let counts = |what: SessionWait| self.waits[what as usize].clone();
        let (sync, scheduling) = (counts(SessionWait::LogFileSync), counts(SessionWait::Scheduling));
        let statistics = [
            (Statistic::RedoSynchWrites, sync.count),
            (Statistic::RedoSynchTime, sync.time_ns / 1000),
            (Statistic::RedoSynchTimeOverhead, scheduling.time_ns / 1000),
            (Statistic::RedoSynchLongWaits, sum(sync.buckets.iter().skip(LONG_WAITS))),
            (Statistic::RedoSynchPolls, self.sleeps.commit_polls),
            (Statistic::BackgroundWakes, self.sleeps.daemon_wakes),
        ];
        for (statistic, value) in statistics {
            sample.put_statistic(statistic.name(), value);
        }
        let (mut queue, reset) = (counts(SessionWait::WriteLock), counts(SessionWait::WalReset));
        sample.put_event(Event::LogFileSync, sync);
        sample.put_event(Event::WriteLock, queue.clone());
        sample.put_event(Event::WalReset, reset.clone());
        queue.add(&reset);
        sample.put_part(CommitPart::WriteLockQueue, queue);
        sample.put_part(CommitPart::Transaction, counts(SessionWait::Transaction));
        sample.put_part(CommitPart::Scheduling, scheduling);
    }
}

/// Wrapping: sessions may have written garbage there, which must not end the process.
fn sum<'c>(counts: impl IntoIterator<Item = &'c u64>) -> u64 {
    counts.into_iter().fold(0, |sum, count| sum.wrapping_add(*count))
}

fn histogram(counts: WaitCounts) -> HistogramCounts {
    HistogramCounts {
        count: sum(&counts.buckets),
        time_ns: counts.time_ns,
        max_ns: counts.max_ns,
        buckets: counts.buckets,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use standfast_instruments::{Instruments, bucket_upper_us};
    use standfast_session::Session;

    fn path(name: &str) -> std::path::PathBuf {
        format!("/dev/shm/standfast-test-counts-{}-{name}", std::process::id()).into()
    }

    fn segment(name: &str) -> Segment {
        Segment::create(&path(name), [4; 16], 0o600).unwrap().0
    }

    fn commits(counted: &CountedSessions) -> (u64, u64, u64) {
        let mut sample = Instruments::default().sample();
        counted.put_into(&mut sample);
        let sync = sample.event(Event::LogFileSync).unwrap();
        assert_eq!(sample.statistic("redo synch writes"), Some(sync.count));
        (sync.count, sync.time_ns, sample.statistic("redo synch long waits").unwrap())
    }

    #[test]
    fn session_counts_exclude_those_before_this_process() {
        let first = segment("first");
        let session = Session::attach(first, 1, std::process::id(), 1).unwrap();
        session.record(SessionWait::LogFileSync, 7_000);
        let mut counted = CountedSessions::since_now(first);
        assert_eq!(commits(&counted), (0, 0, 0));
        session.record(SessionWait::LogFileSync, 200_000_000);
        assert_eq!(commits(&counted), (1, 200_000_000, 1));
        // The same file, after a role change; then another one that began at zero.
        counted.mapped_again(segment("first"));
        assert_eq!(commits(&counted), (1, 200_000_000, 1));
        let other = segment("other");
        counted.mapped_again(other);
        assert_eq!(commits(&counted), (0, 0, 0));
        let session = Session::attach(other, 1, std::process::id(), 1).unwrap();
        session.record(SessionWait::LogFileSync, 9_000);
        assert_eq!(commits(&counted), (1, 9_000, 0));
        for name in ["first", "other"] {
            Segment::remove(&path(name));
        }
    }

    #[test]
    fn long_wait_lasts_131_ms_or_more() {
        assert_eq!(bucket_upper_us(LONG_WAITS - 1), Some(131_072));
    }
}
