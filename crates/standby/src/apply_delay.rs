//! Delayed apply (DELAY): redo is received and hardened as usual, and applied some time later, commit by commit. For
//! that time a user's mistake has not reached the standby. No clock, no I/O.
//!
//! A commit is due when the delay has passed since its time in the redo. That time is of the primary's clock; the
//! current time is of the standby's clock. The rule survives restarts. A commit is due at the latest when the delay has
//! passed since it was first seen here: a primary whose clock was ahead does not hold it back for longer. See
//! docs/decisions/0015-apply-delay.md.

use standfast_types::Scn;
use std::time::Duration;

/// Shortest interval between two checks of the redo, microseconds: commits that become due meanwhile are applied
/// together.
const GRAIN_US: u64 = 200_000;

/// A record of the redo, as seen by [`ApplyDelay::limit`].
#[derive(Clone, Copy, Debug)]
pub struct Seen {
    /// SCN of the byte after the record.
    pub end: Scn,
    /// For a commit: its time in the redo, microseconds since the Unix epoch.
    pub commit_us: Option<u64>,
}

#[derive(Debug, Default)]
pub struct ApplyDelay {
    /// Everything before this position is due. A record begins here.
    due_to: Scn,
    /// The commit that begins at `due_to` and is not due yet.
    held: Option<Held>,
    /// The redo is not read again before this time, microseconds since the Unix epoch.
    look_at_us: u64,
}

#[derive(Clone, Copy, Debug)]
struct Held {
    commit_us: u64,
    since_us: u64,
    end: Scn,
}

impl Held {
    fn due_us(&self, delay_us: u64) -> u64 {
        self.commit_us.min(self.since_us).saturating_add(delay_us)
    }
}

impl ApplyDelay {
    /// Notes that redo before `applied`, where a record begins, is already applied, whatever was decided here.
    pub fn applied(&mut self, applied: Scn) {
        if applied > self.due_to {
            *self = ApplyDelay { due_to: applied, held: None, look_at_us: 0 };
        }
    }

    /// Returns how far redo may be applied at the time `now_us`. `walk` shows the complete records between two
    /// positions in order until its callback returns false.
    ///
    /// # Errors
    /// Those of `walk`.
    pub fn limit<E>(
        &mut self,
        now_us: u64,
        delay_us: u64,
        upto: Scn,
        walk: impl FnOnce(Scn, Scn, &mut dyn FnMut(Seen) -> bool) -> Result<(), E>,
    ) -> Result<Scn, E> {
        // A clock that was set back must not stop apply for longer than necessary.
        let early = now_us < self.look_at_us && self.look_at_us - now_us <= GRAIN_US;
        let not_due = self.held.is_some_and(|held| now_us < held.due_us(delay_us));
        if early || not_due || self.due_to >= upto {
            return Ok(self.due_to);
        }
        if let Some(held) = self.held.take() {
            self.due_to = held.end;
        }
        self.look_at_us = now_us + GRAIN_US;
        let (due_to, found) = (&mut self.due_to, &mut self.held);
        walk(*due_to, upto, &mut |record| {
            let held =
                record.commit_us.map(|commit_us| Held { commit_us, since_us: now_us, end: record.end });
            *found = held.filter(|held| now_us < held.due_us(delay_us));
            if found.is_none() {
                *due_to = record.end;
            }
            found.is_none()
        })?;
        Ok(self.due_to)
    }

    /// Time until [`ApplyDelay::limit`] is to be called again if no more redo comes; `None` when no commit is held
    /// back.
    pub fn wait(&self, now_us: u64, delay_us: u64) -> Option<Duration> {
        let held = self.held?;
        Some(Duration::from_micros(held.due_us(delay_us).max(self.look_at_us).saturating_sub(now_us)))
    }

    /// When the next held-back commit becomes due, microseconds since the Unix epoch.
    pub fn next_due_us(&self, delay_us: u64) -> Option<u64> {
        self.held.map(|held| held.due_us(delay_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    const SECOND: u64 = 1_000_000;
    const DELAY: u64 = 60 * SECOND;
    const BEGIN: u64 = 1_000_000 * SECOND;

    /// Commits of 100 bytes from position 1000 on, with their times; a record of 100 bytes without a time precedes
    /// each.
    struct Redo(Vec<u64>);

    impl Redo {
        fn end(&self) -> Scn {
            Scn(1000 + 200 * self.0.len() as u64)
        }

        fn limit(&self, delay: &mut ApplyDelay, now_us: u64) -> Scn {
            let walk = |from: Scn, upto: Scn, show: &mut dyn FnMut(Seen) -> bool| {
                for (index, commit_us) in self.0.iter().enumerate() {
                    let begin = Scn(1000 + 200 * index as u64);
                    for (end, commit_us) in [(begin + 100, None), (begin + 200, Some(*commit_us))] {
                        if end > from && end <= upto && !show(Seen { end, commit_us }) {
                            return Ok::<(), Infallible>(());
                        }
                    }
                }
                Ok(())
            };
            match delay.limit(now_us, DELAY, self.end(), walk) {
                Ok(limit) => limit,
                Err(never) => match never {},
            }
        }
    }

    fn fresh() -> ApplyDelay {
        let mut delay = ApplyDelay::default();
        delay.applied(Scn(1000));
        delay
    }

    #[test]
    fn commit_is_applied_once_the_delay_since_it_has_passed() {
        let redo = Redo(vec![BEGIN, BEGIN + 10 * SECOND, BEGIN + 20 * SECOND]);
        let mut delay = fresh();
        // The record before the commit may be applied: alone it shows nothing.
        assert_eq!(redo.limit(&mut delay, BEGIN + SECOND), Scn(1100));
        assert_eq!(delay.wait(BEGIN + SECOND, DELAY), Some(Duration::from_secs(59)));
        assert_eq!(redo.limit(&mut delay, BEGIN + 59 * SECOND), Scn(1100));
        assert_eq!(redo.limit(&mut delay, BEGIN + 60 * SECOND), Scn(1300));
        assert_eq!(redo.limit(&mut delay, BEGIN + 70 * SECOND), Scn(1500));
        assert_eq!(redo.limit(&mut delay, BEGIN + 100 * SECOND), Scn(1600));
        assert_eq!(delay.wait(BEGIN + 100 * SECOND, DELAY), None);
    }

    #[test]
    fn delayed_redo_stays_delayed_after_a_restart() {
        let redo = Redo(vec![BEGIN, BEGIN + 10 * SECOND]);
        assert_eq!(redo.limit(&mut fresh(), BEGIN + 65 * SECOND), Scn(1300));
        // Redo that arrives late, or is seen again, is not held back again.
        assert_eq!(redo.limit(&mut fresh(), BEGIN + 1000 * SECOND), Scn(1400));
    }

    #[test]
    fn primary_clock_ahead_never_extends_the_apply_delay() {
        let redo = Redo(vec![BEGIN + 86_400 * SECOND]);
        let mut delay = fresh();
        assert_eq!(redo.limit(&mut delay, BEGIN), Scn(1100));
        assert_eq!(redo.limit(&mut delay, BEGIN + 59 * SECOND), Scn(1100));
        assert_eq!(redo.limit(&mut delay, BEGIN + 60 * SECOND), Scn(1200));
    }

    #[test]
    fn clock_set_back_does_not_stop_due_commits() {
        let mut redo = Redo(vec![BEGIN]);
        let mut delay = fresh();
        assert_eq!(redo.limit(&mut delay, BEGIN + 600 * SECOND), Scn(1200));
        redo.0.push(BEGIN);
        assert_eq!(redo.limit(&mut delay, BEGIN + 120 * SECOND), Scn(1400));
    }

    #[test]
    fn redo_applied_before_the_delay_is_set_is_not_delayed() {
        let redo = Redo(vec![BEGIN, BEGIN, BEGIN]);
        let mut delay = fresh();
        assert_eq!(redo.limit(&mut delay, BEGIN), Scn(1100));
        delay.applied(Scn(1400));
        assert_eq!(redo.limit(&mut delay, BEGIN + SECOND), Scn(1500));
    }

    #[test]
    fn every_commit_is_applied_eventually_and_none_early() {
        let mut seed = 7_u64;
        let mut below = |bound: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % bound
        };
        for _ in 0..200 {
            let times: Vec<u64> = (0..1 + below(20)).map(|_| BEGIN + below(300) * SECOND).collect();
            let redo = Redo(times.clone());
            let (mut delay, mut now, mut before) = (fresh(), BEGIN, Scn(1000));
            // When each commit was first the next one.
            let mut looked_at = vec![u64::MAX; times.len() + 1];
            while now < BEGIN + 400 * SECOND {
                if below(20) == 0 {
                    delay = fresh();
                    delay.applied(before);
                }
                let limit = redo.limit(&mut delay, now);
                assert!(limit >= before, "{limit} after {before}");
                let committed = (limit.0 - 1000) as usize / 200;
                let earlier = (before.0 - 1000) as usize / 200;
                for index in earlier..committed {
                    let from = times[index].min(looked_at[index]).min(now);
                    assert!(from + DELAY <= now, "{} applied at {now}", times[index]);
                }
                looked_at[committed] = looked_at[committed].min(now);
                before = limit;
                now += (1 + below(30)) * SECOND;
            }
            assert_eq!(redo.limit(&mut delay, BEGIN + 1000 * SECOND), redo.end());
        }
    }
}
