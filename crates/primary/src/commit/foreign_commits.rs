//! Commits of one database that no session announced: those of connections without the VFS. Pure.
//!
//! Capture counts commits, sessions count the commits they make, both per database. The instance reads the difference,
//! the count of the sessions first: what they had announced by then is captured. So a reading is never too low. It is
//! too high by the commits that were published and not yet announced at that moment, of which none are left a little
//! later. The lowest reading of an interval is therefore the number itself, however much is committed meanwhile.
//!
//! A session that dies between publishing and announcing leaves one commit without an announcement. So as many of an
//! interval's new unannounced commits are forgiven as sessions died under the write lock.
//!
//! The counts of sessions are in memory that any session can write. There are never more foreign commits than were
//! captured.

/// Length of an interval, nanoseconds: longer than it takes to find a session dead.
const INTERVAL_NS: u64 = 1_000_000_000;

#[derive(Debug, Default)]
pub struct ForeignCommits {
    /// Commits captured since the database began to be served.
    captured: u64,
    /// Commits that sessions had announced when the database began to be served.
    announced_before: u64,
    /// Unannounced commits that were counted or forgiven.
    settled: i64,
    lowest: Option<i64>,
    began_ns: u64,
    /// Sessions that died under the write lock, in this interval and the one before.
    orphans: [u32; 2],
    /// Commits captured before this interval with readings, and before the previous one.
    captured_before: [u64; 2],
}

impl ForeignCommits {
    /// Starts with a database of which sessions have announced this many commits.
    pub fn new(announced: u64) -> ForeignCommits {
        ForeignCommits { announced_before: announced, ..ForeignCommits::default() }
    }

    pub fn captured(&mut self, commits: usize) {
        self.captured += commits as u64;
    }

    /// Takes a reading: everything published is captured, and before that sessions had announced this many commits.
    pub fn read(&mut self, announced: u64) {
        let announced = announced.wrapping_sub(self.announced_before);
        let unannounced = self.captured.wrapping_sub(announced).cast_signed();
        self.lowest = Some(self.lowest.map_or(unannounced, |lowest| lowest.min(unannounced)));
    }

    /// Whether it is time for [`ForeignCommits::end_interval`].
    pub fn is_due(&self, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.began_ns) >= INTERVAL_NS
    }

    /// Ends an interval in which this many sessions died under the write lock. Returns how many commits are now certain
    /// to be of connections without the VFS.
    pub fn end_interval(&mut self, now_ns: u64, orphans: u32) -> u64 {
        self.began_ns = now_ns;
        self.orphans[1] = self.orphans[1].saturating_add(orphans);
        let Some(lowest) = self.lowest.take() else { return 0 };
        // Lower than before: a full resync image has included commits that were announced and never captured as such.
        let fresh = u64::try_from(lowest.saturating_sub(self.settled)).unwrap_or(0);
        self.settled = lowest;
        let [newer, older] = self.captured_before;
        self.captured_before = [self.captured, newer];
        let fresh = fresh.min(self.captured - older);
        let orphans = u64::from(self.orphans[0]) + u64::from(self.orphans[1]);
        let forgiven = fresh.min(orphans);
        let left = (orphans - forgiven).min(self.orphans[1].into());
        self.orphans = [u32::try_from(left).unwrap_or(0), 0];
        fresh - forgiven
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interval(commits: &mut ForeignCommits, orphans: u32) -> u64 {
        commits.end_interval(commits.began_ns + INTERVAL_NS, orphans)
    }

    #[test]
    fn unannounced_commits_are_counted_once() {
        let mut commits = ForeignCommits::new(100);
        commits.captured(3);
        commits.read(101);
        assert_eq!(interval(&mut commits, 0), 2);
        commits.captured(1);
        commits.read(102);
        assert_eq!(interval(&mut commits, 0), 0);
        assert_eq!(interval(&mut commits, 0), 0, "nothing was read");
    }

    #[test]
    fn corrupt_shared_counter_adds_no_more_than_captured_commits() {
        let mut commits = ForeignCommits::new(1_000);
        commits.captured(3);
        commits.read(1_003);
        assert_eq!(interval(&mut commits, 0), 0);
        // The memory was truncated, then filled with garbage.
        commits.captured(2);
        commits.read(0);
        assert_eq!(interval(&mut commits, 0), 5);
        commits.captured(1);
        commits.read(u64::MAX / 3);
        assert!(interval(&mut commits, 0) <= 3);
        commits.read(u64::MAX / 3);
        assert_eq!(interval(&mut commits, 0), 0, "a value that stays says nothing new");
    }

    #[test]
    fn a_commit_captured_before_it_is_announced_is_not_foreign() {
        let mut commits = ForeignCommits::new(u64::MAX);
        commits.captured(2);
        commits.read(u64::MAX);
        commits.read(1);
        commits.captured(5);
        commits.read(5);
        assert_eq!(interval(&mut commits, 0), 0);
    }

    #[test]
    fn session_killed_before_announcing_is_excused_one_commit() {
        let mut commits = ForeignCommits::new(0);
        commits.captured(1);
        commits.read(0);
        assert_eq!(interval(&mut commits, 1), 0);
        commits.captured(1);
        commits.read(0);
        assert_eq!(interval(&mut commits, 0), 1, "its one commit was forgiven before");
    }

    #[test]
    fn dead_session_without_a_commit_excuses_no_later_commits() {
        let mut commits = ForeignCommits::new(0);
        commits.read(0);
        assert_eq!(interval(&mut commits, 4), 0);
        commits.read(0);
        assert_eq!(interval(&mut commits, 0), 0);
        commits.captured(2);
        commits.read(0);
        assert_eq!(interval(&mut commits, 0), 2);
    }

    #[test]
    fn full_resync_hides_no_later_foreign_commit() {
        let mut commits = ForeignCommits::new(0);
        commits.read(50);
        assert_eq!(interval(&mut commits, 0), 0);
        commits.captured(2);
        commits.read(51);
        assert_eq!(interval(&mut commits, 0), 1);
    }
}
