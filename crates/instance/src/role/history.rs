//! What an instance records about itself: metrics of intervals, active sessions and threads, and how large the lags
//! were.
//!
//! [`Notes`] is pure: it gets the time and the observations. The thread `mmnl` passes them once a second.

use standfast_instruments::{
    Activity, CommitPart, Event, History, LagCount, Metric, Sample, Statistic, lag_unit_s,
};
use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

/// Lengths of intervals, seconds, and for how many of them metrics are kept: an hour, and three minutes.
const GROUPS: [(u32, usize); 2] = [(60, 60), (15, 12)];
/// Entries of activity that are kept: an hour of a busy instance.
const ACTIVITY_KEPT: usize = 36_000;

/// Entries of activity that other instances get, about 200 bytes each: the answer is one frame.
const ACTIVITY_REPORTED: usize = 4_000;

/// Age up to which activity is recent, microseconds.
const RECENT_US: u64 = 10_000_000;

pub struct Look {
    /// When the sample was taken, microseconds since the Unix epoch.
    pub time_us: u64,
    pub sample: Sample,
    pub activity: Vec<Activity>,
    /// Lags by name, seconds; unknown lags are omitted.
    pub lags: Vec<(&'static str, f64)>,
}

#[derive(Default)]
pub struct Notes {
    began: [Option<Sample>; GROUPS.len()],
    metrics: [VecDeque<Vec<Metric>>; GROUPS.len()],
    activity: VecDeque<Activity>,
    lags: Vec<LagCount>,
}

impl Notes {
    /// Records the observations of a moment. To be called once a second.
    pub fn note(&mut self, look: Look) {
        for (index, (seconds, kept)) in GROUPS.into_iter().enumerate() {
            let due = self.began[index].as_ref().map(|began| look.sample.seconds_since(began));
            if due.is_some_and(|passed| passed < f64::from(seconds)) {
                continue;
            }
            let began = self.began[index].replace(look.sample.clone());
            if let Some(metrics) = began.and_then(|began| metrics(&began, &look.sample, seconds)) {
                if self.metrics[index].len() == kept {
                    self.metrics[index].pop_front();
                }
                self.metrics[index].push_back(metrics);
            }
        }
        self.activity.extend(look.activity);
        let excess = self.activity.len().saturating_sub(ACTIVITY_KEPT);
        self.activity.drain(..excess);
        for (name, seconds) in look.lags {
            let seconds = seconds as u64;
            // Rounded as it is shown, so that the list stays short however long a lag grows.
            self.count_lag(name, seconds / lag_unit_s(seconds) * lag_unit_s(seconds), look.time_us);
        }
    }

    fn count_lag(&mut self, name: &str, seconds: u64, now_us: u64) {
        match self.lags.iter_mut().find(|lag| lag.name == name && lag.seconds == seconds) {
            Some(lag) => {
                lag.count += 1;
                lag.last_us = now_us;
            }
            None => self.lags.push(LagCount { name: name.into(), seconds, count: 1, last_us: now_us }),
        }
    }

    /// Returns the history with at most this many entries of activity, the newest.
    fn newest(&self, entries: usize) -> History {
        let older = self.activity.len().saturating_sub(entries);
        let activity = self.activity.iter().skip(older).cloned().collect();
        History { activity, ..self.history_without_activity() }
    }

    fn history_without_activity(&self) -> History {
        let mut lags = self.lags.clone();
        lags.sort_by(|a, b| (&a.name, a.seconds).cmp(&(&b.name, b.seconds)));
        History {
            metrics: self.metrics.iter().flatten().flatten().cloned().collect(),
            activity: Vec::new(),
            lags,
        }
    }
}

/// Returns the metrics of an interval; `None` when the counts restarted in it.
fn metrics(began: &Sample, ended: &Sample, group_s: u32) -> Option<Vec<Metric>> {
    let interval = ended.since(began)?;
    let seconds = ended.seconds_since(began);
    let count = |statistic: Statistic| interval.statistic(statistic.name()).map(|value| value as f64);
    let per = |value: Option<f64>, of: Option<f64>| Some(value? / of.filter(|of| *of > 0.0)?);
    let per_second = |statistic: Statistic| per(count(statistic), Some(seconds));
    let commits = count(Statistic::UserCommits);
    let busy_us = |event: Event| interval.event(event).map(|counts| counts.time_ns as f64 / 1e3);
    let waits = [Event::LogFileSync, Event::WriteLock, Event::WalReset];
    let work_us = interval.part(CommitPart::Transaction).map(|counts| counts.time_ns as f64 / 1e3);
    let database_us = waits.into_iter().map(busy_us).try_fold(work_us?, |sum, us| Some(sum + us?));
    let metric = |name: &str, unit: &str, value: Option<f64>| Metric {
        name: name.into(),
        unit: unit.into(),
        begin_us: began.time_us,
        end_us: ended.time_us,
        group_s,
        value,
    };
    Some(vec![
        metric("Redo Generated Per Sec", "Bytes Per Second", per_second(Statistic::RedoSize)),
        metric("Redo Generated Per Txn", "Bytes Per Txn", per(count(Statistic::RedoSize), commits)),
        metric("Redo Writes Per Sec", "Writes Per Second", per_second(Statistic::RedoWrites)),
        metric("User Transaction Per Sec", "Transactions Per Second", per_second(Statistic::UserCommits)),
        metric("Response Time Per Txn", "CentiSeconds Per Txn", per(database_us.map(|us| us / 1e4), commits)),
        metric(
            "Database Time Per Sec",
            "CentiSeconds Per Second",
            per(database_us.map(|us| us / 1e4), Some(seconds)),
        ),
        metric(
            "Average Synchronous Commit",
            "Microseconds",
            per(busy_us(Event::LogFileSync), {
                interval.event(Event::LogFileSync).map(|counts| counts.count as f64)
            }),
        ),
        metric("Redo Applied Per Sec", "Bytes Per Second", per_second(Statistic::RedoApplied)),
    ])
}

#[derive(Default)]
pub struct SharedNotes(Mutex<Notes>);

impl SharedNotes {
    pub fn note(&self, look: Look) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).note(look);
    }

    /// Returns metrics, and the activity of the last seconds.
    pub fn recent(&self) -> History {
        let notes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let newest = notes.activity.back().map_or(0, |newest| newest.time_us);
        let recent =
            notes.activity.iter().rev().take_while(|one| newest - one.time_us.min(newest) < RECENT_US);
        let mut activity: Vec<Activity> = recent.cloned().collect();
        activity.reverse();
        History { activity, ..notes.history_without_activity() }
    }

    pub fn all(&self) -> History {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).newest(ACTIVITY_KEPT)
    }

    pub fn newest(&self) -> History {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).newest(ACTIVITY_REPORTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_instruments::Instruments;
    use std::time::Duration;

    fn look(instruments: &Instruments, at_s: u64, lag: Option<f64>) -> Look {
        let mut sample = instruments.sample();
        sample.time_us = at_s * 1_000_000;
        let lags = lag.map(|lag| ("apply lag", lag)).into_iter().collect();
        Look { time_us: at_s * 1_000_000, sample, activity: Vec::new(), lags }
    }

    fn value(history: &History, name: &str) -> Vec<Option<f64>> {
        let named = history.metrics.iter().filter(|metric| metric.name == name && metric.group_s == 15);
        named.map(|metric| metric.value).collect()
    }

    #[test]
    fn rates_cover_their_interval_and_empty_averages_are_unknown() {
        let (instruments, mut notes) = (Instruments::default(), Notes::default());
        notes.note(look(&instruments, 100, None));
        instruments.add(Statistic::RedoSize, 3_000);
        instruments.add(Statistic::UserCommits, 10);
        instruments.record(Event::LogFileSync, Duration::from_micros(500));
        notes.note(look(&instruments, 110, None));
        notes.note(look(&instruments, 115, None));
        notes.note(look(&instruments, 130, None));
        let history = notes.newest(ACTIVITY_KEPT);
        assert_eq!(value(&history, "Redo Generated Per Sec"), [Some(200.0), Some(0.0)]);
        assert_eq!(value(&history, "Redo Generated Per Txn"), [Some(300.0), None]);
        assert_eq!(value(&history, "Average Synchronous Commit"), [Some(500.0), None]);
        assert!(history.metrics.iter().all(|metric| metric.group_s == 15), "no minute has passed");
    }

    #[test]
    fn lag_histogram_counts_whole_seconds_and_skips_unknown_lags() {
        let (instruments, mut notes) = (Instruments::default(), Notes::default());
        for (at, lag) in [(1, Some(0.2)), (2, Some(0.9)), (3, None), (4, Some(7.5))] {
            notes.note(look(&instruments, at, lag));
        }
        let lags: Vec<_> = notes
            .newest(ACTIVITY_KEPT)
            .lags
            .iter()
            .map(|lag| (lag.seconds, lag.count, lag.last_us))
            .collect();
        assert_eq!(lags, [(0, 2, 2_000_000), (7, 1, 4_000_000)]);
        (0..200_000).for_each(|second| notes.note(look(&instruments, 5, Some(f64::from(second)))));
        assert!(notes.lags.len() < 200, "{}", notes.lags.len());
    }

    #[test]
    fn reported_history_has_the_newest_activity_and_all_lags() {
        let (instruments, mut notes) = (Instruments::default(), Notes::default());
        for second in 1..=5 {
            let activity = vec![Activity {
                time_us: second * 1_000_000,
                session: 0,
                pid: 1,
                name: "mrp0".into(),
                foreground: false,
                event: None,
                class: None,
                waited_us: None,
            }];
            notes.note(Look { activity, ..look(&instruments, second, Some(second as f64)) });
        }
        let reported = notes.newest(2);
        let seconds: Vec<u64> = reported.activity.iter().map(|one| one.time_us / 1_000_000).collect();
        assert_eq!((seconds, reported.lags.len()), (vec![4, 5], 5));
    }

    #[test]
    fn old_history_entries_make_room_for_new_ones() {
        let (instruments, mut notes) = (Instruments::default(), Notes::default());
        for at in 0..200 {
            notes.note(look(&instruments, at * 15, None));
        }
        let history = notes.newest(ACTIVITY_KEPT);
        let of = |seconds| history.metrics.iter().filter(|metric| metric.group_s == seconds).count() / 8;
        assert_eq!((of(15), of(60)), (GROUPS[1].1, 49));
    }
}
