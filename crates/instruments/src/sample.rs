//! All counts at one moment, and what lies between two.

use crate::anatomy::CommitPart;
use crate::event::{Event, WaitClass};
use crate::histogram::HistogramCounts;
use serde::{Deserialize, Serialize};

/// Totals of a wait event since the start of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventTotals {
    /// Its name.
    pub event: String,
    /// Its class.
    pub class: WaitClass,
    /// Whether sessions wait for it; else threads of the instance do.
    pub foreground: bool,
    /// How often and how long.
    #[serde(flatten)]
    pub counts: HistogramCounts,
}

/// Totals of a part of commits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartTotals {
    /// Which.
    pub part: CommitPart,
    /// How often and how long.
    #[serde(flatten)]
    pub counts: HistogramCounts,
}

/// A counter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatisticValue {
    /// Its name.
    pub name: String,
    /// Since the start of the process.
    pub value: u64,
}

/// What a thread does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadSample {
    /// As `top -H` shows it.
    pub name: String,
    /// What it waits for; `None`: it works.
    pub event: Option<String>,
    /// For how long so far, microseconds.
    pub waited_us: Option<u64>,
}

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// When it was taken, microseconds since the Unix epoch.
    pub time_us: u64,
    /// When the process that counts was started, microseconds since the Unix epoch. Two samples of one process have the
    /// same; the counts of others must not be subtracted.
    pub started_us: u64,
    /// All wait events.
    pub events: Vec<EventTotals>,
    /// All counters.
    pub statistics: Vec<StatisticValue>,
    /// The parts of commits.
    pub parts: Vec<PartTotals>,
    /// Threads at this moment.
    pub threads: Vec<ThreadSample>,
}

impl Sample {
    /// A counter by its name.
    pub fn statistic(&self, name: &str) -> Option<u64> {
        self.statistics.iter().find(|statistic| statistic.name == name).map(|statistic| statistic.value)
    }

    /// The counts of a wait event.
    pub fn event(&self, event: Event) -> Option<&HistogramCounts> {
        self.events.iter().find(|totals| totals.event == event.name()).map(|totals| &totals.counts)
    }

    /// The counts of a part of commits.
    pub fn part(&self, part: CommitPart) -> Option<&HistogramCounts> {
        self.parts.iter().find(|totals| totals.part == part).map(|totals| &totals.counts)
    }

    /// Puts the counts of an event that somebody else counts in the place of its own.
    pub fn put_event(&mut self, event: Event, counts: HistogramCounts) {
        if let Some(totals) = self.events.iter_mut().find(|totals| totals.event == event.name()) {
            totals.counts = counts;
        }
    }

    /// Puts the counts of a part that somebody else counts in the place of its own.
    pub fn put_part(&mut self, part: CommitPart, counts: HistogramCounts) {
        if let Some(totals) = self.parts.iter_mut().find(|totals| totals.part == part) {
            totals.counts = counts;
        }
    }

    /// Puts the value of a statistic that somebody else counts in the place of its own.
    pub fn put_statistic(&mut self, name: &str, value: u64) {
        if let Some(statistic) = self.statistics.iter_mut().find(|statistic| statistic.name == name) {
            statistic.value = value;
        }
    }

    /// What was counted between `earlier` and this one; `None` when the process was restarted in between. Threads are
    /// those of this one.
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

    /// Seconds from `earlier` to this one.
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
    fn an_interval_holds_what_came_in_between() {
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
    fn nothing_is_subtracted_across_a_restart() {
        let instruments = Instruments::default();
        let earlier = instruments.sample();
        let mut later = instruments.sample();
        assert!(later.since(&earlier).is_some());
        later.started_us += 1;
        assert_eq!(later.since(&earlier), None);
    }

    #[test]
    fn a_sample_survives_its_way_through_json() {
        let instruments = Instruments::default();
        instruments.record(Event::RfsWrite, Duration::from_micros(30));
        let sample = instruments.sample();
        let text = serde_json::to_string(&sample).unwrap();
        assert_eq!(serde_json::from_str::<Sample>(&text).unwrap(), sample);
    }
}
