//! Checkpoint candidates: the newest position from which recovery may start next, offered and not reached. Pure.

use standfast_types::Scn;
use std::time::{Duration, Instant};

/// A position that could not be reached is tried again after this time.
const AGAIN: Duration = Duration::from_millis(200);

/// How long to wait for databases whose WALs are rewritten every few seconds; then all WALs are synced as they are.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Default)]
pub struct Candidates {
    newest: Option<Scn>,
    /// Since when an offered position has not been reached.
    since: Option<Instant>,
    /// Earliest time of the next attempt.
    not_before: Option<Instant>,
    /// The last failure that was reported.
    stated: Option<String>,
}

impl Candidates {
    /// Offers `scn` as a start of recovery; older positions need no further attempt. It is due immediately.
    pub fn add(&mut self, scn: Scn, now: Instant) {
        self.newest = self.newest.max(Some(scn));
        self.since.get_or_insert(now);
        self.not_before = None;
    }

    /// Returns the position to advance to now.
    pub fn due(&self, now: Instant) -> Option<Scn> {
        self.newest.filter(|_| self.not_before.is_none_or(|then| now >= then))
    }

    /// Whether the wait for databases that come to hold the position by themselves has lasted long enough.
    pub fn is_overdue(&self, now: Instant) -> bool {
        self.since.is_some_and(|since| now.saturating_duration_since(since) >= TIMEOUT)
    }

    /// Notes that recovery starts at `scn`, by whatever means that was reached.
    pub fn reached(&mut self, scn: Scn) {
        self.newest = self.newest.filter(|newest| *newest > scn);
        self.since = self.since.filter(|_| self.newest.is_some());
    }

    /// Takes the result of an attempt to advance to `scn`; returns what an operator should hear: each cause once, and
    /// its end.
    pub fn tried(&mut self, scn: Scn, result: Result<(), String>, now: Instant) -> Option<String> {
        match result {
            Ok(()) => {
                self.reached(scn);
                self.stated.take().map(|_| format!("checkpoint at SCN {scn} complete; checkpoints continue"))
            }
            Err(error) => {
                self.not_before = Some(now + AGAIN);
                if self.stated.as_ref() == Some(&error) {
                    return None;
                }
                let changes = format!("checkpoint at SCN {scn} failed and will be tried again: {error}");
                self.stated = Some(error);
                Some(changes)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreached_candidate_is_retried_and_its_error_reported_once() {
        let mut candidates = Candidates::default();
        let start = Instant::now();
        assert_eq!(candidates.due(start), None);
        candidates.add(Scn(5), Instant::now());
        assert_eq!(candidates.due(start), Some(Scn(5)));
        let reported = candidates.tried(Scn(5), Err("no room".into()), start).unwrap();
        assert!(reported.contains("no room"), "{reported}");
        assert_eq!(candidates.due(start), None);
        let later = start + AGAIN;
        assert_eq!(candidates.due(later), Some(Scn(5)));
        assert_eq!(candidates.tried(Scn(5), Err("no room".into()), later), None, "reported once");
        candidates.add(Scn(9), Instant::now());
        assert_eq!(candidates.due(later), Some(Scn(9)), "the newest, at once");
        assert!(candidates.tried(Scn(9), Err("no inode".into()), later).is_some(), "another cause");
        assert!(candidates.tried(Scn(9), Ok(()), later + AGAIN).unwrap().contains("continue"));
        assert_eq!(candidates.due(later + 2 * AGAIN), None);
        candidates.add(Scn(11), Instant::now());
        assert_eq!(candidates.tried(Scn(11), Ok(()), later), None, "nothing was wrong");
    }

    #[test]
    fn newer_candidate_does_not_restart_the_timeout_of_an_older_one() {
        let mut candidates = Candidates::default();
        let start = Instant::now();
        candidates.add(Scn(5), start);
        candidates.add(Scn(9), start + TIMEOUT / 2);
        assert!(!candidates.is_overdue(start + TIMEOUT - AGAIN));
        candidates.reached(Scn(5));
        assert!(candidates.is_overdue(start + TIMEOUT), "the newer one does not restart it");
        candidates.reached(Scn(9));
        assert!(!candidates.is_overdue(start + 2 * TIMEOUT));
        candidates.add(Scn(11), start + 2 * TIMEOUT);
        assert!(!candidates.is_overdue(start + 2 * TIMEOUT));
    }

    #[test]
    fn reaching_a_later_scn_clears_older_candidates() {
        let mut candidates = Candidates::default();
        candidates.add(Scn(5), Instant::now());
        candidates.reached(Scn(4));
        assert_eq!(candidates.due(Instant::now()), Some(Scn(5)));
        candidates.reached(Scn(7));
        assert_eq!(candidates.due(Instant::now()), None);
    }
}
