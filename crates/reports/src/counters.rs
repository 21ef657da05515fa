//! What a process counted in an interval. Pure.

use serde::Serialize;
use standfast_instruments::{CommitPart, Event, HistogramCounts, Sample, Statistic, WaitClass};

/// Count, total and distribution of a duration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Times {
    pub count: u64,
    pub total_s: f64,
    /// Mean; `None` when the count is zero.
    pub mean_us: Option<f64>,
    /// Median; off by less than a factor of two.
    pub p50_us: Option<f64>,
    /// 99th percentile; off by less than a factor of two.
    pub p99_us: Option<f64>,
    /// The longest; `None` (unknown) when a longer one came before the interval.
    pub max_us: Option<f64>,
    /// By powers of two of microseconds: bucket n counts durations below 2^n us.
    pub buckets: Vec<u64>,
}

impl Times {
    /// Returns the figures of the counts of an interval.
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

    /// Returns a percentile of the durations of at least one microsecond; `None` when there is none.
    pub fn percentile_above_zero_us(&self, share: f64) -> Option<f64> {
        let mut buckets = self.buckets.clone();
        *buckets.first_mut()? = 0;
        let counts = HistogramCounts { count: buckets.iter().sum(), buckets, ..HistogramCounts::default() };
        counts.percentile_us(share)
    }

    /// Returns how many durations were at least one microsecond.
    pub fn above_zero(&self) -> u64 {
        self.count.saturating_sub(self.buckets.first().copied().unwrap_or(0))
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventFigures {
    pub event: String,
    pub class: WaitClass,
    /// Whether sessions waited for it; otherwise threads of the instance did.
    pub foreground: bool,
    /// `None` when it was reset in the interval.
    pub times: Option<Times>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartFigures {
    pub part: CommitPart,
    /// `None` when it was reset in the interval.
    pub times: Option<Times>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StatisticFigures {
    pub name: String,
    /// The increase; `None` when it was reset in the interval.
    pub value: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Counters {
    pub seconds: f64,
    pub events: Vec<EventFigures>,
    pub parts: Vec<PartFigures>,
    pub statistics: Vec<StatisticFigures>,
    /// Names of what was reset in the interval; their figures are unknown.
    pub resets: Vec<String>,
}

impl Counters {
    /// Subtracts two samples; `None` when two processes took them or the later one is not later.
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

    /// Returns the times of an event; `None` when unknown.
    pub fn event(&self, event: Event) -> Option<&Times> {
        self.events.iter().find(|figures| figures.event == event.name())?.times.as_ref()
    }

    /// Mean of an event, microseconds; `None` when it did not happen.
    pub fn mean_us(&self, event: Event) -> Option<f64> {
        self.event(event)?.mean_us
    }

    /// Sum of all waits for an event, seconds.
    pub fn total_s(&self, event: Event) -> Option<f64> {
        Some(self.event(event)?.total_s)
    }

    /// Returns the times of a part of commits; `None` when unknown.
    pub fn part(&self, part: CommitPart) -> Option<&Times> {
        self.parts.iter().find(|figures| figures.part == part)?.times.as_ref()
    }

    /// Sum of a part of commits, seconds.
    pub fn part_s(&self, part: CommitPart) -> Option<f64> {
        Some(self.part(part)?.total_s)
    }

    /// Returns the increase of a statistic; `None` when unknown.
    pub fn statistic(&self, statistic: Statistic) -> Option<u64> {
        self.statistics.iter().find(|figures| figures.name == statistic.name())?.value
    }

    /// Increase of a statistic per second.
    pub fn per_second(&self, statistic: Statistic) -> Option<f64> {
        Some(self.statistic(statistic)? as f64 / self.seconds)
    }

    /// Increase of a statistic per commit; `None` without commits.
    pub fn per_commit(&self, statistic: Statistic) -> Option<f64> {
        ratio(self.statistic(statistic)?, self.statistic(Statistic::UserCommits)?)
    }

    /// Mean bytes of redo per write of the log writer.
    pub fn write_bytes(&self) -> Option<f64> {
        ratio(self.statistic(Statistic::RedoSize)?, self.statistic(Statistic::RedoWrites)?)
    }

    /// DB time, seconds: what sessions in write transactions waited for, and their own work under the write lock.
    pub fn db_time_s(&self) -> Option<f64> {
        let waits = self.events.iter().filter(|event| event.foreground);
        let waits = waits.map(|event| Some(event.times.as_ref()?.total_s)).sum::<Option<f64>>()?;
        Some(waits + self.part_s(CommitPart::Transaction)?)
    }

    /// Non-idle waits of the instance's threads, seconds.
    pub fn background_s(&self) -> Option<f64> {
        let waits = self.events.iter().filter(|event| !event.foreground && event.class != WaitClass::Idle);
        waits.map(|event| Some(event.times.as_ref()?.total_s)).sum()
    }

    /// Sum of the parts of commits that `log file sync` consists of, seconds.
    pub fn commit_s(&self) -> Option<f64> {
        self.sum_of_parts(
            &CommitPart::ALL.into_iter().filter(|part| part.is_of_log_file_sync()).collect::<Vec<_>>(),
        )
    }

    /// Time that commits waited for the way to the standby and back, seconds.
    pub fn remote_s(&self) -> Option<f64> {
        self.sum_of_parts(&[CommitPart::Network, CommitPart::RemoteWrite])
    }

    fn sum_of_parts(&self, parts: &[CommitPart]) -> Option<f64> {
        parts.iter().map(|part| self.part_s(*part)).sum()
    }

    /// Share of a part in the time of commits; `None` without commits.
    pub fn share_of(&self, part: CommitPart) -> Option<f64> {
        let all = self.commit_s().filter(|all| *all > 0.0)?;
        Some(self.part_s(part)? / all)
    }

    /// Share of the time of commits for which the standby was critical.
    pub fn remote_share(&self) -> Option<f64> {
        let all = self.commit_s().filter(|all| *all > 0.0)?;
        Some(self.remote_s()? / all)
    }
}

/// A quotient of counts; `None` when the divisor is zero.
fn ratio(of: u64, by: u64) -> Option<f64> {
    (by > 0).then(|| of as f64 / by as f64)
}
