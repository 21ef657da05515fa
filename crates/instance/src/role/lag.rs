//! Age of redo, from the recorded ends of the stream at past moments.
//!
//! A lag in seconds is the age of the oldest redo that a destination lacks. Commit times would give it only where there
//! are commits, and by the clock of another host. This module derives it from positions alone, by the clock of the
//! instance that asks.

use std::collections::VecDeque;

/// Largest number of samples kept: more than an hour at one per second. Older redo is at least as old as the oldest
/// sample.
const KEPT: usize = 4096;

/// The stream ended at `end` during this interval. Microseconds of any one clock.
#[derive(Clone, Copy, Debug)]
struct EndSample {
    end: u64,
    since_us: u64,
    until_us: u64,
}

/// End of the stream over time. Pure.
#[derive(Debug, Default)]
pub struct EndSamples(VecDeque<EndSample>);

impl EndSamples {
    /// Records that the stream ends at `end` at `time_us`.
    pub fn note(&mut self, end: u64, time_us: u64) {
        // The stream was truncated: discard the samples beyond its new end.
        while self.0.back().is_some_and(|newest| newest.end > end) {
            self.0.pop_back();
        }
        match self.0.back_mut() {
            Some(newest) if newest.end == end => newest.until_us = time_us,
            _ => self.0.push_back(EndSample { end, since_us: time_us, until_us: time_us }),
        }
        if self.0.len() > KEPT {
            self.0.pop_front();
        }
    }

    /// Returns the age of the oldest redo after `position`, where `end` is the end of the stream now; 0 if there is
    /// none. Redo older than all samples gets the age of the oldest sample, a lower bound. `None` before the first
    /// sample.
    pub fn lag_us(&self, position: u64, end: u64, now_us: u64) -> Option<u64> {
        if position >= end {
            return Some(0);
        }
        let next = self.0.partition_point(|sample| sample.end <= position);
        let Some(before) = next.checked_sub(1).map(|before| self.0[before]) else {
            return self.0.front().map(|oldest| now_us.saturating_sub(oldest.since_us));
        };
        let (after_end, after_us) =
            self.0.get(next).map_or((end, now_us), |sample| (sample.end, sample.since_us));
        // Assumes that redo arrived at an even rate between two samples.
        let share = (position - before.end) as f64 / (after_end.max(position + 1) - before.end) as f64;
        let came_us = before.until_us + (after_us.saturating_sub(before.until_us) as f64 * share) as u64;
        Some(now_us.saturating_sub(came_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000;

    #[test]
    fn idle_standby_with_all_redo_has_zero_lag() {
        let mut samples = EndSamples::default();
        assert_eq!(samples.lag_us(100, 100, 9 * S), Some(0));
        assert_eq!(samples.lag_us(50, 100, 9 * S), None, "nothing is known of the past");
        for second in 1..50 {
            samples.note(100, second * S);
        }
        assert_eq!(samples.lag_us(100, 100, 50 * S), Some(0));
    }

    #[test]
    fn lag_counts_from_redo_arrival_not_from_the_pause_before() {
        let mut samples = EndSamples::default();
        samples.note(100, S);
        samples.note(100, 60 * S);
        samples.note(300, 61 * S);
        samples.note(500, 62 * S);
        assert_eq!(samples.lag_us(300, 500, 65 * S), Some(4 * S));
        assert_eq!(samples.lag_us(200, 500, 65 * S), Some(4 * S + S / 2));
        assert_eq!(samples.lag_us(100, 500, 65 * S), Some(5 * S));
        assert_eq!(samples.lag_us(500, 700, 63 * S), Some(S), "it came since the last look");
    }

    #[test]
    fn lag_beyond_the_history_is_at_least_the_history_length() {
        let mut samples = EndSamples::default();
        for second in 0..2 * KEPT as u64 {
            samples.note(second * 10, second * S);
        }
        let now = 2 * KEPT as u64 * S;
        assert_eq!(samples.lag_us(0, u64::MAX, now), Some(KEPT as u64 * S));
    }

    #[test]
    fn lag_history_is_truncated_with_the_stream() {
        let mut samples = EndSamples::default();
        for (end, second) in [(100, 1), (200, 2), (300, 3), (150, 4), (400, 5)] {
            samples.note(end, second * S);
        }
        assert_eq!(samples.lag_us(150, 400, 6 * S), Some(2 * S));
    }

    #[test]
    fn lag_of_redo_missing_from_the_start_keeps_growing() {
        let mut samples = EndSamples::default();
        for second in 10..100 {
            samples.note(200, second * S);
        }
        assert_eq!(samples.lag_us(100, 200, 100 * S), Some(90 * S));
    }
}
