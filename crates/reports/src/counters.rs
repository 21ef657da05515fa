//! What was counted in an interval. Pure.

use serde::Serialize;
use standfast_instruments::{CommitPart, Event, HistogramCounts, Sample, Statistic, WaitClass};

/// How often something took how long. Microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Times {
    /// How often.
    pub count: u64,
    /// All of them together, seconds.
    pub total_s: f64,
    /// Mean; `None` when there was none.
    pub mean_us: Option<f64>,
    /// Half of them were shorter; off by less than a factor of two.
    pub p50_us: Option<f64>,
    /// Of a hundred, 99 were shorter; off by less than a factor of two.
    pub p99_us: Option<f64>,
    /// The longest; `None` when a longer one came before the interval: then it is not known.
    pub max_us: Option<f64>,
    /// By powers of two of microseconds: bucket n has those below 2^n us.
    pub buckets: Vec<u64>,
}

impl Times {
    /// Of counts of an interval.
    pub fn of(counts: &HistogramCounts) -> Times {
        Times {
            count: counts.count,
            total_s: counts.time_ns as f64 / 1e9,
            mean_us: counts.mean_us(),
            p50_us: counts.percentile_us(0.5),
            p99_us: counts.percentile_us(0.99),
            max_us: (counts.max_ns > 0).then_some(counts.max_ns as f64 / 1e3),
            buckets: counts.buckets.clone(),
        }
    }

    /// A percentile of those that were not shorter than a microsecond; `None` when there was none.
    pub fn percentile_above_zero_us(&self, share: f64) -> Option<f64> {
        let mut buckets = self.buckets.clone();
        *buckets.first_mut()? = 0;
        let counts = HistogramCounts { count: buckets.iter().sum(), buckets, ..HistogramCounts::default() };
        counts.percentile_us(share)
    }

    /// How many took a microsecond or longer.
    pub fn above_zero(&self) -> u64 {
        self.count.saturating_sub(self.buckets.first().copied().unwrap_or(0))
    }
}

/// A wait event of an interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventFigures {
    /// Its name.
    pub event: String,
    /// Its class.
    pub class: WaitClass,
    /// Whether sessions waited for it; else threads of the instance did.
    pub foreground: bool,
    /// How often and how long; `None` when it was reset meanwhile.
    pub times: Option<Times>,
}

/// A part of commits of an interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartFigures {
    /// Which.
    pub part: CommitPart,
    /// How often and how long; `None` when it was reset meanwhile.
    pub times: Option<Times>,
}

/// A counter of an interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatisticFigures {
    /// Its name.
    pub name: String,
    /// What was counted; `None` when it was reset meanwhile.
    pub value: Option<u64>,
}

/// What one process counted in an interval.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Counters {
    /// Length of the interval, seconds.
    pub seconds: f64,
    /// Wait events.
    pub events: Vec<EventFigures>,
    /// Parts of commits.
    pub parts: Vec<PartFigures>,
    /// Statistics.
    pub statistics: Vec<StatisticFigures>,
    /// What went back to zero meanwhile; its figures are not known.
    pub resets: Vec<String>,
}

impl Counters {
    /// What came between two samples; `None` when they are of two processes or the later one is not later.
    pub fn between(earlier: &Sample, later: &Sample) -> Option<Counters> {
        if earlier.started_us != later.started_us || later.time_us <= earlier.time_us {
            return None;
        }
        let mut resets = Vec::new();
        let mut of = |name: &str, now: &HistogramCounts, before: Option<&HistogramCounts>| {
            let none = HistogramCounts::default();
            let counts = now.since(before.unwrap_or(&none));
            if counts.is_none() {
                resets.push(name.to_owned());
            }
            counts.as_ref().map(Times::of)
        };
        let before =
            |name: &str| earlier.events.iter().find(|event| event.event == name).map(|event| &event.counts);
        let events = later.events.iter().map(|event| EventFigures {
            event: event.event.clone(),
            class: event.class,
            foreground: event.foreground,
            times: of(&event.event, &event.counts, before(&event.event)),
        });
        let events = events.collect();
        let parts = later.parts.iter().map(|part| PartFigures {
            part: part.part,
            times: of(part.part.name(), &part.counts, earlier.part(part.part)),
        });
        let parts = parts.collect();
        let statistics = later.statistics.iter().map(|statistic| {
            let value = statistic.value.checked_sub(earlier.statistic(&statistic.name).unwrap_or(0));
            if value.is_none() {
                resets.push(statistic.name.clone());
            }
            StatisticFigures { name: statistic.name.clone(), value }
        });
        let statistics = statistics.collect();
        Some(Counters { seconds: later.seconds_since(earlier), events, parts, statistics, resets })
    }

    /// An event.
    pub fn event(&self, event: Event) -> Option<&Times> {
        self.events.iter().find(|figures| figures.event == event.name())?.times.as_ref()
    }

    /// Mean of an event, microseconds; `None` when it did not happen.
    pub fn mean_us(&self, event: Event) -> Option<f64> {
        self.event(event)?.mean_us
    }

    /// All waits for an event together, seconds.
    pub fn total_s(&self, event: Event) -> Option<f64> {
        Some(self.event(event)?.total_s)
    }

    /// A part of commits.
    pub fn part(&self, part: CommitPart) -> Option<&Times> {
        self.parts.iter().find(|figures| figures.part == part)?.times.as_ref()
    }

    /// A part of commits, seconds.
    pub fn part_s(&self, part: CommitPart) -> Option<f64> {
        Some(self.part(part)?.total_s)
    }

    /// A counter.
    pub fn statistic(&self, statistic: Statistic) -> Option<u64> {
        self.statistics.iter().find(|figures| figures.name == statistic.name())?.value
    }

    /// A counter for each second.
    pub fn per_second(&self, statistic: Statistic) -> Option<f64> {
        Some(self.statistic(statistic)? as f64 / self.seconds)
    }

    /// A counter for each commit; `None` without commits.
    pub fn per_commit(&self, statistic: Statistic) -> Option<f64> {
        ratio(self.statistic(statistic)?, self.statistic(Statistic::UserCommits)?)
    }

    /// Bytes of redo for each write of the log writer.
    pub fn write_bytes(&self) -> Option<f64> {
        ratio(self.statistic(Statistic::RedoSize)?, self.statistic(Statistic::RedoWrites)?)
    }

    /// Time of sessions in write transactions, seconds: what they waited for, and their own work under the write lock.
    pub fn db_time_s(&self) -> Option<f64> {
        let waits = self.events.iter().filter(|event| event.foreground);
        let waits = waits.map(|event| Some(event.times.as_ref()?.total_s)).sum::<Option<f64>>()?;
        Some(waits + self.part_s(CommitPart::Transaction)?)
    }

    /// Time of threads of the instance in waits that are not idle, seconds.
    pub fn background_s(&self) -> Option<f64> {
        let waits = self.events.iter().filter(|event| !event.foreground && event.class != WaitClass::Idle);
        waits.map(|event| Some(event.times.as_ref()?.total_s)).sum()
    }

    /// All parts of commits that `log file sync` has, seconds.
    pub fn commit_s(&self) -> Option<f64> {
        self.sum_of_parts(
            &CommitPart::ALL.into_iter().filter(|part| part.is_of_log_file_sync()).collect::<Vec<_>>(),
        )
    }

    /// The way to the standby and back, where commits waited for it, seconds.
    pub fn remote_s(&self) -> Option<f64> {
        self.sum_of_parts(&[CommitPart::Network, CommitPart::RemoteWrite])
    }

    fn sum_of_parts(&self, parts: &[CommitPart]) -> Option<f64> {
        parts.iter().map(|part| self.part_s(*part)).sum()
    }

    /// Share of the time of commits that a part is; `None` without commits.
    pub fn share_of(&self, part: CommitPart) -> Option<f64> {
        let all = self.commit_s().filter(|all| *all > 0.0)?;
        Some(self.part_s(part)? / all)
    }

    /// Share of the time of commits for which the standby was the critical one.
    pub fn remote_share(&self) -> Option<f64> {
        let all = self.commit_s().filter(|all| *all > 0.0)?;
        Some(self.remote_s()? / all)
    }
}

/// A quotient of counts; `None` when there is nothing to divide by.
fn ratio(of: u64, by: u64) -> Option<f64> {
    (by > 0).then(|| of as f64 / by as f64)
}
