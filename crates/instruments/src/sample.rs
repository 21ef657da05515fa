//! All counts at one moment, and the difference between two moments.

use crate::anatomy::CommitPart;
use crate::event::{Event, WaitClass};
use crate::histogram::HistogramCounts;
use serde::{Deserialize, Serialize};

/// Totals of a wait event since the start of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventTotals {
    pub event: String,
    pub class: WaitClass,
    /// Whether sessions wait for it; otherwise threads of the instance do.
    pub foreground: bool,
    #[serde(flatten)]
    pub counts: HistogramCounts,
}

/// Totals of a part of commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartTotals {
    pub part: CommitPart,
    #[serde(flatten)]
    pub counts: HistogramCounts,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatisticValue {
    pub name: String,
    /// Value since the start of the process.
    pub value: u64,
}

/// What a thread does at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadSample {
    /// Name as shown by `top -H`.
    pub name: String,
    /// What it waits for; `None` when it works.
    pub event: Option<String>,
    /// Duration of the wait so far, in microseconds.
    pub waited_us: Option<u64>,
}

/// All counts of an instance at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// Time of the sample, microseconds since the Unix epoch.
    pub time_us: u64,
    /// Start of the process that counts, microseconds since the Unix epoch. Two samples of one process have the same
    /// value; counts of different processes must not be subtracted.
    pub started_us: u64,
    pub events: Vec<EventTotals>,
    pub statistics: Vec<StatisticValue>,
    pub parts: Vec<PartTotals>,
    pub threads: Vec<ThreadSample>,
}

impl Sample {
    pub fn statistic(&self, name: &str) -> Option<u64> {
        self.statistics.iter().find(|statistic| statistic.name == name).map(|statistic| statistic.value)
    }

    pub fn event(&self, event: Event) -> Option<&HistogramCounts> {
        self.events.iter().find(|totals| totals.event == event.name()).map(|totals| &totals.counts)
    }

    pub fn part(&self, part: CommitPart) -> Option<&HistogramCounts> {
        self.parts.iter().find(|totals| totals.part == part).map(|totals| &totals.counts)
    }

    /// Replaces the counts of an event with those that another component keeps.
    pub fn put_event(&mut self, event: Event, counts: HistogramCounts) {
        if let Some(totals) = self.events.iter_mut().find(|totals| totals.event == event.name()) {
            totals.counts = counts;
        }
    }

    /// Replaces the counts of a part with those that another component keeps.
    pub fn put_part(&mut self, part: CommitPart, counts: HistogramCounts) {
        if let Some(totals) = self.parts.iter_mut().find(|totals| totals.part == part) {
            totals.counts = counts;
        }
    }

    /// Replaces the value of a statistic with the one that another component keeps.
    pub fn put_statistic(&mut self, name: &str, value: u64) {
        if let Some(statistic) = self.statistics.iter_mut().find(|statistic| statistic.name == name) {
            statistic.value = value;
        }
    }

    /// Returns what was counted between `earlier` and this sample; `None` when the process was restarted in between.
    /// The threads are those of this sample.
    pub fn since(&self, earlier: &Sample) -> Option<Sample> {
        if self.started_us != earlier.started_us {
            return None;
        }
        let mut interval = self.clone();
        for totals in &mut interval.events {
            if let Some(before) = earlier.events.iter().find(|before| before.event == totals.event) {
                totals.counts = totals.counts.since(&before.counts)?;
            }
        }
        for totals in &mut interval.parts {
            if let Some(before) = earlier.part(totals.part) {
                totals.counts = totals.counts.since(before)?;
            }
        }
        for statistic in &mut interval.statistics {
            if let Some(before) = earlier.statistic(&statistic.name) {
                statistic.value = statistic.value.checked_sub(before)?;
            }
        }
        Some(interval)
    }

    /// Returns the seconds from `earlier` to this sample.
    pub fn seconds_since(&self, earlier: &Sample) -> f64 {
        self.time_us.saturating_sub(earlier.time_us) as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Instruments, Statistic};
    use std::time::Duration;

    #[test]
    fn interval_is_the_difference_of_two_samples() {
        let instruments = Instruments::default();
        instruments.record(Event::RfsWrite, Duration::from_micros(30));
        instruments.add(Statistic::RedoWrites, 5);
        let earlier = instruments.sample();
        instruments.record(Event::RfsWrite, Duration::from_micros(70));
        instruments.add(Statistic::RedoWrites, 2);
        let interval = instruments.sample().since(&earlier).unwrap();
        assert_eq!(interval.event(Event::RfsWrite).unwrap().time_ns, 70_000);
        assert_eq!(interval.statistic("redo writes"), Some(2));
    }

    #[test]
    fn no_counters_are_subtracted_across_a_restart() {
        let instruments = Instruments::default();
        let earlier = instruments.sample();
        let mut later = instruments.sample();
        assert!(later.since(&earlier).is_some());
        later.started_us += 1;
        assert_eq!(later.since(&earlier), None);
    }

    #[test]
    fn sample_survives_a_json_round_trip() {
        let instruments = Instruments::default();
        instruments.record(Event::RfsWrite, Duration::from_micros(30));
        let sample = instruments.sample();
        let text = serde_json::to_string(&sample).unwrap();
        assert_eq!(serde_json::from_str::<Sample>(&text).unwrap(), sample);
    }
}
