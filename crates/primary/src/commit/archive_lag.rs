//! Log switches by age (ARCHIVE_LAG_TARGET): redo is archived at the latest when the target has passed since it came,
//! also while too little comes to fill the log.

use std::time::Duration;

/// Decides by the times passed to it; no clock of its own.
#[derive(Debug)]
pub struct ArchiveLag {
    target: Option<Duration>,
    /// Sequence of the log examined last.
    sequence: u64,
    /// When redo was first seen in that log.
    since: Option<Duration>,
}

impl ArchiveLag {
    /// `target_s` is `redo.archive_lag_target_s`; with 0 the age of a log never leads to a switch.
    pub fn new(target_s: u64) -> ArchiveLag {
        let target = (target_s > 0).then(|| Duration::from_secs(target_s));
        ArchiveLag { target, sequence: 0, since: None }
    }

    pub fn is_on(&self) -> bool {
        self.target.is_some()
    }

    /// Whether to switch the log with this number at `now`, a time that never goes back. `holds_redo`: the log holds
    /// more than what every log begins with.
    pub fn is_due(&mut self, now: Duration, sequence: u64, holds_redo: bool) -> bool {
        if sequence != self.sequence || !holds_redo {
            (self.sequence, self.since) = (sequence, None);
        }
        let Some(target) = self.target.filter(|_| holds_redo) else { return false };
        now.saturating_sub(*self.since.get_or_insert(now)) >= target
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Times with steps of up to 3 s, drawn from a seed.
    fn times(mut seed: u64) -> impl Iterator<Item = Duration> {
        let mut now = Duration::from_secs(1_000);
        std::iter::from_fn(move || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            now += Duration::from_millis((seed >> 33) % 3_000);
            Some(now)
        })
    }

    #[test]
    fn log_switch_is_due_once_redo_reaches_the_lag_target() {
        for seed in 1..50 {
            let mut lag = ArchiveLag::new(60);
            let (mut sequence, mut oldest, mut last, mut switches) = (7, None, Duration::ZERO, 0);
            for (nth, now) in times(seed).take(2_000).enumerate() {
                // Some logs fill up, others stay empty for a while.
                let fills = nth % 977 == 976;
                if nth % 50 > 30 {
                    oldest = oldest.or(Some(now));
                }
                let due = lag.is_due(now, sequence, oldest.is_some());
                let age = oldest.map_or(Duration::ZERO, |oldest: Duration| now - oldest);
                assert_eq!(due, age >= Duration::from_secs(60), "seed {seed}, age {age:?}");
                assert!(age < Duration::from_secs(60) + (now - last), "seed {seed}, age {age:?}");
                if due || fills {
                    (sequence, oldest, switches) = (sequence + 1, None, switches + u32::from(due));
                }
                last = now;
            }
            assert!(switches > 5, "seed {seed}: {switches}");
        }
    }

    #[test]
    fn log_switch_is_never_due_without_redo_or_without_a_target() {
        let mut lag = ArchiveLag::new(60);
        assert!(times(3).take(500).all(|now| !lag.is_due(now, 1, false)));
        let mut off = ArchiveLag::new(0);
        assert!(!off.is_on() && times(3).take(500).all(|now| !off.is_due(now, 1, true)));
    }

    #[test]
    fn archive_lag_restarts_after_any_other_log_switch() {
        let mut lag = ArchiveLag::new(60);
        let at = Duration::from_secs;
        assert!(!lag.is_due(at(0), 1, true));
        // Log 1 was filled meanwhile, and log 2 already holds redo when it is first examined.
        assert!(!lag.is_due(at(61), 2, true));
        assert!(!lag.is_due(at(120), 2, true));
        assert!(lag.is_due(at(121), 2, true));
    }
}
