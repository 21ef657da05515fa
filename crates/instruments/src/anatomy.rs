//! The parts of a commit: where the time went between the notification of a commit and its release.
//!
//! All times are nanoseconds of CLOCK_MONOTONIC, which the processes of one host share. The local write and the round
//! trip to the standby overlap; the one that ended later was waited for and gets the time. While the log writer is busy
//! with earlier commits, a commit waits for what the log writer does: that time counts as gathering, writing or
//! posting, and only what is left is the wake-up. By construction, the sum of the parts is the total.

use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Number of batches that are remembered: a commit that waited for more of them waited for the oldest one.
const BATCHES_KEPT: usize = 64;

/// A part of the time of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[repr(usize)]
pub enum CommitPart {
    /// Waiting for SQLite's write lock, from the first attempt to the grant, and, at the start of a transaction, while
    /// the WAL of the database is reset.
    WriteLockQueue,
    /// SQLite's and the application's own work while the write lock is held: up to the notification of the commit, and
    /// from when the commit is durable to the end of the transaction.
    Transaction,
    /// From the notification until the log writer runs, when it had nothing else to do.
    Wake,
    /// Capture: the log writer reads frames and builds redo.
    Gather,
    /// The local log write, as far as commits waited for it.
    LocalWrite,
    /// The network round trip to the standby, as far as commits waited for it.
    Network,
    /// The write of the standby, including the write before it where that one was in the way.
    RemoteWrite,
    /// From the arrival of the acknowledgement to the release.
    Acknowledgement,
    /// From the release until the session may continue.
    Post,
    /// From then until the session runs: the call that wakes it, the wakes of the sessions before it, and its wait for
    /// a processor.
    Scheduling,
}

impl CommitPart {
    /// All parts, in the order of events.
    pub const ALL: [CommitPart; 10] = [
        CommitPart::WriteLockQueue,
        CommitPart::Transaction,
        CommitPart::Wake,
        CommitPart::Gather,
        CommitPart::LocalWrite,
        CommitPart::Network,
        CommitPart::RemoteWrite,
        CommitPart::Acknowledgement,
        CommitPart::Post,
        CommitPart::Scheduling,
    ];

    pub fn name(self) -> &'static str {
        match self {
            CommitPart::WriteLockQueue => "queue for the write lock",
            CommitPart::Transaction => "transaction",
            CommitPart::Wake => "wake",
            CommitPart::Gather => "gather",
            CommitPart::LocalWrite => "local write",
            CommitPart::Network => "network",
            CommitPart::RemoteWrite => "remote write",
            CommitPart::Acknowledgement => "acknowledgement",
            CommitPart::Post => "post",
            CommitPart::Scheduling => "scheduling",
        }
    }

    pub fn label(self) -> &'static str {
        match self {
            CommitPart::WriteLockQueue => "write_lock_queue",
            CommitPart::Transaction => "transaction",
            CommitPart::Wake => "wake",
            CommitPart::Gather => "gather",
            CommitPart::LocalWrite => "local_write",
            CommitPart::Network => "network",
            CommitPart::RemoteWrite => "remote_write",
            CommitPart::Acknowledgement => "acknowledgement",
            CommitPart::Post => "post",
            CommitPart::Scheduling => "scheduling",
        }
    }

    /// Returns whether the part belongs to `log file sync`; the others come before it.
    pub fn is_of_log_file_sync(self) -> bool {
        !matches!(self, CommitPart::WriteLockQueue | CommitPart::Transaction)
    }

    /// Index of the part, from 0.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// Times of one batch of the log writer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchTimes {
    /// The log writer took the notifications.
    pub taken_ns: u64,
    /// Redo was built; now it goes to the destinations and to the local log.
    pub issued_ns: u64,
    /// The redo is in the local log.
    pub written_ns: u64,
    /// All commits that could be released are, and the next batch may begin. Equal to `written_ns` while releases
    /// are in progress.
    pub ended_ns: u64,
}

/// What an acknowledgement says about the standby's side. Clocks are not compared: a standby that has finished a write
/// reported so half a round trip before the report arrives here, and what is sent here arrives there half a round trip
/// later.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteAnswer {
    /// When the acknowledgement arrived here, on the clock of this machine.
    pub arrived_ns: u64,
    /// How long the standby took to write the redo.
    pub write_ns: u64,
    /// What was sent before this moment found the standby busy with earlier writes.
    pub busy_until_ns: u64,
    /// How long the standby had been busy with them without a pause.
    pub busy_ns: u64,
}

impl RemoteAnswer {
    /// Returns how long the standby held what was sent at `sent_ns`: its write, and the earlier writes that were in the
    /// way.
    pub fn held_ns(&self, sent_ns: u64) -> u64 {
        self.write_ns + self.busy_until_ns.saturating_sub(sent_ns).min(self.busy_ns)
    }
}

/// What the release of a commit waited for last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Local,
    Remote(RemoteAnswer),
    /// A decision not to wait for a destination any more.
    Decision,
}

/// Nanoseconds per part, at the index that [`CommitPart::index`] returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts(pub [u64; CommitPart::ALL.len()]);

impl Parts {
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    pub fn of(&self, part: CommitPart) -> u64 {
        self.0[part.index()]
    }

    fn add(&mut self, part: CommitPart, ns: u64) {
        self.0[part.index()] += ns;
    }
}

/// The newest batches of the log writer, by number.
#[derive(Debug, Default)]
pub struct RecentBatches {
    kept: VecDeque<BatchTimes>,
    /// Number of the batch after the newest one.
    next: u64,
}

impl RecentBatches {
    /// Adds a batch whose redo goes to the destinations and to the log now; returns its number.
    pub fn begin(&mut self, batch: BatchTimes) -> u64 {
        if self.kept.len() == BATCHES_KEPT {
            self.kept.pop_front();
        }
        self.kept.push_back(batch);
        self.next += 1;
        self.next - 1
    }

    /// Records that the local log has the redo of that batch.
    pub fn written(&mut self, number: u64, written_ns: u64) {
        if let Some(batch) = self.get_mut(number) {
            batch.written_ns = written_ns;
            batch.ended_ns = written_ns;
        }
    }

    /// Records that the batch has ended.
    pub fn ended(&mut self, number: u64, ended_ns: u64) {
        if let Some(batch) = self.get_mut(number) {
            batch.ended_ns = ended_ns.max(batch.written_ns);
        }
    }

    fn get_mut(&mut self, number: u64) -> Option<&mut BatchTimes> {
        let index = self.index(number)?;
        self.kept.get_mut(index)
    }

    fn index(&self, number: u64) -> Option<usize> {
        let first = self.next - self.kept.len() as u64;
        usize::try_from(number.checked_sub(first)?).ok().filter(|index| *index < self.kept.len())
    }

    /// Returns the parts of a commit whose notification was at `notice_ns`, whose redo was in that batch, whose
    /// release began at `release_ns` for that cause, and whose session could continue at `posted_ns`. `None` when the
    /// batch is no longer remembered.
    pub fn split(
        &self,
        number: u64,
        notice_ns: u64,
        cause: Cause,
        release_ns: u64,
        posted_ns: u64,
    ) -> Option<Parts> {
        let index = self.index(number)?;
        let batch = self.kept.get(index)?;
        let mut parts = Parts::default();
        let mut at = Cursor { now: notice_ns, parts: &mut parts, end: posted_ns };
        for earlier in self.kept.iter().take(index).filter(|earlier| earlier.ended_ns > notice_ns) {
            at.pass(earlier.taken_ns, CommitPart::Wake);
            at.pass(earlier.issued_ns, CommitPart::Gather);
            at.pass(earlier.written_ns, CommitPart::LocalWrite);
            at.pass(earlier.ended_ns, CommitPart::Post);
        }
        at.pass(batch.taken_ns, CommitPart::Wake);
        at.pass(batch.issued_ns, CommitPart::Gather);
        match cause {
            Cause::Local => at.pass(batch.written_ns, CommitPart::LocalWrite),
            Cause::Remote(answer) => {
                let away_ns = answer.arrived_ns.saturating_sub(at.now);
                let on_the_way_ns = away_ns.saturating_sub(answer.held_ns(batch.issued_ns));
                at.pass(at.now + on_the_way_ns, CommitPart::Network);
                at.pass(answer.arrived_ns, CommitPart::RemoteWrite);
                at.pass(release_ns, CommitPart::Acknowledgement);
            }
            Cause::Decision => at.pass(release_ns, CommitPart::Network),
        }
        at.pass(posted_ns, CommitPart::Post);
        Some(parts)
    }
}

/// A moment that advances; the time that passes is assigned to a part.
struct Cursor<'p> {
    now: u64,
    parts: &'p mut Parts,
    end: u64,
}

impl Cursor<'_> {
    fn pass(&mut self, to: u64, part: CommitPart) {
        let to = to.min(self.end);
        if to > self.now {
            self.parts.add(part, to - self.now);
            self.now = to;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use CommitPart::*;

    fn times(taken_ns: u64, issued_ns: u64, written_ns: u64, ended_ns: u64) -> BatchTimes {
        BatchTimes { taken_ns, issued_ns, written_ns, ended_ns }
    }

    fn answered(arrived_ns: u64, write_ns: u64) -> Cause {
        Cause::Remote(RemoteAnswer { arrived_ns, write_ns, ..RemoteAnswer::default() })
    }

    fn named(parts: Parts) -> Vec<(CommitPart, u64)> {
        CommitPart::ALL.into_iter().map(|part| (part, parts.of(part))).filter(|(_, ns)| *ns > 0).collect()
    }

    #[test]
    fn single_commit_waits_for_the_local_write() {
        let mut batches = RecentBatches::default();
        let number = batches.begin(times(112, 117, 217, 217));
        let parts = batches.split(number, 100, Cause::Local, 218, 220).unwrap();
        assert_eq!(named(parts), [(Wake, 12), (Gather, 5), (LocalWrite, 100), (Post, 3)]);
        assert_eq!(parts.total(), 120);
    }

    #[test]
    fn standby_path_is_critical_if_it_ends_after_the_local_write() {
        let mut batches = RecentBatches::default();
        let number = batches.begin(times(112, 117, 217, 219));
        let cause = answered(417, 180);
        let parts = batches.split(number, 100, cause, 425, 430).unwrap();
        let expected =
            [(Wake, 12), (Gather, 5), (Network, 120), (RemoteWrite, 180), (Acknowledgement, 8), (Post, 5)];
        assert_eq!(named(parts), expected);
        assert_eq!(parts.total(), 330);
    }

    #[test]
    fn standby_busy_with_an_earlier_write_adds_no_network_time() {
        let mut batches = RecentBatches::default();
        let number = batches.begin(times(112, 117, 217, 219));
        // The round trip takes 20. The standby wrote something else for 200 until 300, reported that here at 310, and
        // then wrote for 100.
        let answer = RemoteAnswer { arrived_ns: 410, write_ns: 100, busy_until_ns: 310 - 20, busy_ns: 200 };
        let parts = batches.split(number, 100, Cause::Remote(answer), 411, 412).unwrap();
        assert_eq!((parts.of(Network), parts.of(RemoteWrite)), (20, 173 + 100));
        // What is sent when it has finished finds it free; and no wait is longer than the write in the way.
        assert_eq!((answer.held_ns(290), answer.held_ns(289), answer.held_ns(0)), (100, 101, 300));
    }

    #[test]
    fn commit_waits_for_what_the_busy_log_writer_is_doing() {
        let mut batches = RecentBatches::default();
        batches.begin(times(0, 10, 110, 120));
        let number = batches.begin(times(121, 130, 230, 230));
        let parts = batches.split(number, 60, Cause::Local, 231, 232).unwrap();
        assert_eq!(named(parts), [(Wake, 1), (Gather, 9), (LocalWrite, 50 + 100), (Post, 10 + 2)]);
        assert_eq!(parts.total(), 172);
    }

    #[test]
    fn commit_captured_before_its_notification_has_no_wake_part() {
        let mut batches = RecentBatches::default();
        let number = batches.begin(times(100, 120, 200, 200));
        let parts = batches.split(number, 115, Cause::Local, 201, 203).unwrap();
        assert_eq!(named(parts), [(Gather, 5), (LocalWrite, 80), (Post, 3)]);
    }

    #[test]
    fn excessive_standby_write_time_leaves_no_network_time() {
        let mut batches = RecentBatches::default();
        let number = batches.begin(times(100, 110, 150, 150));
        let cause = answered(160, 900);
        let parts = batches.split(number, 100, cause, 165, 166).unwrap();
        assert_eq!((parts.of(Network), parts.of(RemoteWrite), parts.total()), (0, 50, 66));
    }

    #[test]
    fn wait_for_an_abandoned_destination_counts_as_network() {
        let mut batches = RecentBatches::default();
        let number = batches.begin(times(100, 110, 150, 150));
        let parts = batches.split(number, 100, Cause::Decision, 5_000, 5_001).unwrap();
        assert_eq!(named(parts), [(Gather, 10), (Network, 4_890), (Post, 1)]);
    }

    #[test]
    fn forgotten_batches_are_not_confused_with_newer_ones() {
        let mut batches = RecentBatches::default();
        let first = batches.begin(times(1, 2, 3, 4));
        for _ in 0..BATCHES_KEPT {
            batches.begin(times(5, 6, 7, 8));
        }
        assert_eq!(batches.split(first, 1, Cause::Local, 9, 9), None);
        assert!(batches.split(first + 1, 1, Cause::Local, 9, 9).is_some());
        assert_eq!(batches.split(first + 1 + BATCHES_KEPT as u64, 1, Cause::Local, 9, 9), None);
    }

    #[test]
    fn commit_parts_add_up_for_any_times() {
        let mut batches = RecentBatches::default();
        let mut seed = 7u64;
        let mut next = |limit: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % limit
        };
        let mut now = 0;
        for _ in 0..200 {
            let mut later = |most| {
                now += next(most);
                now
            };
            let number = batches.begin(times(later(9), later(9), later(99), later(5)));
            let notice = now.saturating_sub(next(300));
            let posted = now + next(300);
            let cause = match next(3) {
                0 => Cause::Local,
                1 => Cause::Remote(RemoteAnswer {
                    arrived_ns: now + next(200),
                    write_ns: next(200),
                    busy_until_ns: now + next(200),
                    busy_ns: next(200),
                }),
                _ => Cause::Decision,
            };
            let parts = batches.split(number, notice, cause, posted.saturating_sub(next(9)), posted).unwrap();
            assert_eq!(parts.total(), posted - notice);
        }
    }
}
