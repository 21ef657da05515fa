//! How old redo is: the end of the stream as it was at moments of the past.
//!
//! A lag in seconds is the age of the oldest redo that somebody lacks. Commit times would tell it only where there are
//! commits, and by another host's clock; this is told by the clock of the instance that asks, from positions alone.

use std::collections::VecDeque;

/// Moments that are kept: with one a second, more than an hour. Older redo is as old as the oldest of them, at least.
const KEPT: usize = 4096;

/// See the module. Pure; times are microseconds of any one clock.
#[derive(Debug, Default)]
pub struct Marks(VecDeque<(u64, u64)>);

impl Marks {
    /// The stream ended at `end` at that time.
    pub fn note(&mut self, end: u64, time_us: u64) {
        match self.0.back_mut() {
            // While nothing comes the newest moment at which the stream ended there is the one that counts.
            Some((known, time)) if *known == end => *time = time_us,
            // The stream was cut: what was noted of it beyond is void.
            Some((known, _)) if *known > end => {
                self.0.retain(|(known, _)| *known < end);
                self.0.push_back((end, time_us));
            }
            _ => self.0.push_back((end, time_us)),
        }
        if self.0.len() > KEPT {
            self.0.pop_front();
        }
    }

    /// How old the oldest redo is that comes after `position`, when the stream ends at `end` now; 0 when nothing does.
    /// `None` when nothing was noted yet.
    pub fn lag_us(&self, position: u64, end: u64, now_us: u64) -> Option<u64> {
        if position >= end {
            return Some(0);
        }
        let after = self.0.partition_point(|(known, _)| *known <= position);
        // Redo after `position` came later than this.
        let (before_end, before_us) = match after.checked_sub(1) {
            Some(before) => self.0[before],
            None => return self.0.front().map(|(_, time)| now_us.saturating_sub(*time)),
        };
        let (after_end, after_us) = self.0.get(after).copied().unwrap_or((end, now_us));
        // Between two moments redo is taken to have come evenly.
        let share = (position - before_end) as f64 / (after_end.max(position + 1) - before_end) as f64;
        let came_us = before_us + (after_us.saturating_sub(before_us) as f64 * share) as u64;
        Some(now_us.saturating_sub(came_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    #[test]
    fn who_has_everything_does_not_lag_however_long_nothing_came() {
        let mut marks = Marks::default();
        assert_eq!(marks.lag_us(100, 100, 9 * S), Some(0));
        assert_eq!(marks.lag_us(50, 100, 9 * S), None, "nothing is known of the past");
        for second in 1..50 {
            marks.note(100, second * S);
        }
        assert_eq!(marks.lag_us(100, 100, 50 * S), Some(0));
    }

    #[test]
    fn redo_is_as_old_as_the_moment_it_came_and_not_as_the_pause_before() {
        let mut marks = Marks::default();
        marks.note(100, S);
        marks.note(100, 60 * S);
        marks.note(300, 61 * S);
        marks.note(500, 62 * S);
        assert_eq!(marks.lag_us(300, 500, 65 * S), Some(4 * S));
        assert_eq!(marks.lag_us(200, 500, 65 * S), Some(4 * S + S / 2));
        assert_eq!(marks.lag_us(100, 500, 65 * S), Some(5 * S));
        assert_eq!(marks.lag_us(500, 700, 63 * S), Some(S), "it came since the last look");
    }

    #[test]
    fn what_is_older_than_all_that_is_known_is_at_least_as_old() {
        let mut marks = Marks::default();
        for second in 0..2 * KEPT as u64 {
            marks.note(second * 10, second * S);
        }
        let now = 2 * KEPT as u64 * S;
        assert_eq!(marks.lag_us(0, u64::MAX, now), Some(KEPT as u64 * S));
    }

    #[test]
    fn a_stream_that_was_cut_is_known_up_to_there() {
        let mut marks = Marks::default();
        for (end, second) in [(100, 1), (200, 2), (300, 3), (150, 4), (400, 5)] {
            marks.note(end, second * S);
        }
        assert_eq!(marks.lag_us(150, 400, 6 * S), Some(2 * S));
    }
}
