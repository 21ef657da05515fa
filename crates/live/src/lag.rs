//! How old a position of the redo stream is.
//!
//! A lag in seconds is the time span of redo that another instance has not got: since when redo beyond its position has
//! existed. Positions carry no times, so the end of the redo is noted with the time, and a position is looked up.

use std::collections::VecDeque;

/// Moments that are kept; see [`LagClock::note`].
const KEPT: usize = 4096;

/// A look that is older by less was overtaken by another one, microseconds.
const OVERTAKEN_US: u64 = 2_000_000;

/// A moment: at `time_us` the redo ended at `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Moment {
    time_us: u64,
    end: u64,
}

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct LagClock {
    moments: VecDeque<Moment>,
}

impl LagClock {
    /// At `time_us` the redo ended at `end`. Moments at which it did not move are one; when there are too many, every
    /// other one of the older half goes, so that long lags stay known, less exactly.
    pub fn note(&mut self, time_us: u64, end: u64) {
        if let Some(last) = self.moments.back() {
            if time_us <= last.time_us && last.time_us - time_us < OVERTAKEN_US {
                // Who looked later was faster.
                return;
            }
            if end < last.end || time_us < last.time_us {
                // Another incarnation, or a clock that was set back: what was noted is of no use any more.
                self.moments.clear();
            } else if end == last.end {
                return self.stay(time_us);
            }
        }
        self.moments.push_back(Moment { time_us, end });
        if self.moments.len() > KEPT {
            let mut index = 0;
            self.moments.retain(|_| {
                index += 1;
                index > KEPT / 2 || index % 2 == 1
            });
        }
    }

    /// The end is where it was: of a stretch without redo the first and the last moment are kept.
    fn stay(&mut self, time_us: u64) {
        let still = self.moments.len() >= 2
            && self.moments[self.moments.len() - 2].end == self.moments[self.moments.len() - 1].end;
        match self.moments.back_mut() {
            Some(last) if still => last.time_us = time_us,
            Some(last) => {
                let end = last.end;
                self.moments.push_back(Moment { time_us, end });
            }
            None => {}
        }
    }

    /// Seconds for which redo beyond `position` has existed, at the newest moment: 0 when there is none, `None` when it
    /// was there before the first moment. Between two moments redo is taken to have been made evenly.
    pub fn age_s(&self, position: u64) -> Option<f64> {
        let newest = self.moments.back()?;
        if position >= newest.end {
            return Some(0.0);
        }
        let next = self.moments.partition_point(|moment| moment.end <= position);
        let (from, to) = (self.moments.get(next.checked_sub(1)?)?, self.moments.get(next)?);
        let share = (position - from.end) as f64 / (to.end - from.end) as f64;
        let then_us = from.time_us as f64 + share * (to.time_us - from.time_us) as f64;
        Some((newest.time_us as f64 - then_us).max(0.0) / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    fn clock(moments: &[(u64, u64)]) -> LagClock {
        let mut clock = LagClock::default();
        moments.iter().for_each(|(second, end)| clock.note(second * S, *end));
        clock
    }

    #[test]
    fn the_lag_of_a_position_is_the_time_since_redo_beyond_it_was_made() {
        let clock = clock(&[(10, 100), (11, 200), (12, 300), (13, 400)]);
        assert_eq!(clock.age_s(400), Some(0.0));
        assert_eq!(clock.age_s(300), Some(1.0));
        assert_eq!(clock.age_s(250), Some(1.5));
        assert_eq!(clock.age_s(100), Some(3.0));
    }

    #[test]
    fn a_position_from_before_the_first_moment_has_an_unknown_age() {
        assert_eq!(clock(&[(10, 100), (11, 200)]).age_s(99), None);
        assert_eq!(LagClock::default().age_s(0), None);
    }

    #[test]
    fn time_without_redo_does_not_count_as_lag() {
        let mut moments = vec![(10, 100), (11, 100), (60, 100), (600, 100)];
        assert_eq!(clock(&moments).age_s(100), Some(0.0));
        moments.push((601, 150));
        assert_eq!(clock(&moments).age_s(100), Some(1.0));
    }

    #[test]
    fn a_stream_that_begins_anew_forgets_what_was_noted() {
        assert_eq!(clock(&[(10, 1000), (11, 2000), (12, 500), (13, 600)]).age_s(500), Some(1.0));
        assert_eq!(clock(&[(10, 1000), (11, 2000), (12, 500)]).age_s(400), None);
    }

    #[test]
    fn a_look_that_another_one_overtook_changes_nothing() {
        let mut clock = clock(&[(10, 100), (11, 200), (12, 300)]);
        clock.note(12 * S - 500, 290);
        assert_eq!(clock.age_s(200), Some(1.0));
    }

    #[test]
    fn long_lags_stay_known_within_bounded_memory() {
        let mut clock = LagClock::default();
        (0..100_000).for_each(|second| clock.note(second * S, second * 10));
        assert!(clock.moments.len() <= KEPT);
        assert_eq!(clock.age_s(99_998 * 10), Some(1.0));
        let day = clock.age_s((99_999 - 86_400) * 10).unwrap();
        assert!((86_400.0..95_000.0).contains(&day), "{day}");
    }
}
