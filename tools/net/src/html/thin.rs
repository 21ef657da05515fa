//! Groups neighbouring intervals of long tests, which have more intervals than a page has room for. Pure.

use crate::limit::Limit;
use crate::stats::Interval;

/// One interval, or several neighbours as one.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Start, seconds since the test began to count.
    pub start: f64,
    pub seconds: f64,
    /// Bytes of payload that the receiver has.
    pub bytes: u64,
    pub messages: u64,
    /// Rate of the slowest interval, bytes per second.
    pub slowest: f64,
    /// `None` in tests that are not SYNC.
    pub latency: Option<RowLatency>,
    /// Share of the time in which the receiver wrote durably.
    pub disk_share: f64,
    pub retransmissions: u64,
    /// Congestion window at the end, bytes.
    pub congestion_window: u64,
    /// The most frequent limit of the intervals.
    pub limit: Option<Limit>,
}

/// Latencies of a row, seconds. Percentiles of several intervals are those of the worst one: the exact ones are
/// unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowLatency {
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
    /// Exact mean without the durable write and without `waking`.
    pub network: f64,
    /// Exact mean of the time in which arrived data was not yet seen.
    pub waking: f64,
    /// Exact mean of the durable write.
    pub disk: f64,
}

impl Row {
    /// Returns the payload bytes per second.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.bytes as f64 / self.seconds } else { 0.0 }
    }

    /// Returns the end, seconds since the test began to count.
    pub fn end(&self) -> f64 {
        self.start + self.seconds
    }

    fn of(group: &[Interval]) -> Row {
        let seconds = group.iter().map(|one| one.seconds).sum::<f64>();
        let share = |of: f64| if seconds > 0.0 { of / seconds } else { 0.0 };
        Row {
            start: group.first().map_or(0.0, |one| one.start),
            seconds,
            bytes: group.iter().map(|one| one.bytes).sum(),
            messages: group.iter().map(|one| one.messages).sum(),
            slowest: group.iter().map(Interval::rate).fold(f64::INFINITY, f64::min),
            latency: latency(group),
            disk_share: share(group.iter().map(|one| one.disk_share * one.seconds).sum()),
            retransmissions: group.iter().map(|one| one.tcp.retransmissions).sum(),
            congestion_window: group.last().map_or(0, |one| one.tcp.congestion_window),
            limit: most_frequent(group),
        }
    }
}

fn latency(group: &[Interval]) -> Option<RowLatency> {
    let parts: Vec<_> = group.iter().filter_map(|one| one.latency).collect();
    let count = parts.iter().map(|part| part.count).sum::<u64>() as f64;
    let mean = |of: fn(&crate::stats::Latency) -> f64| {
        parts.iter().map(|part| of(part) * part.count as f64).sum::<f64>() / count
    };
    let worst = |of: fn(&crate::stats::Latency) -> f64| parts.iter().map(of).fold(0.0, f64::max);
    (count > 0.0).then(|| RowLatency {
        mean: mean(|part| part.total.mean),
        p50: worst(|part| part.total.p50),
        p99: worst(|part| part.total.p99),
        max: worst(|part| part.total.max),
        network: mean(|part| part.network.mean),
        waking: mean(|part| part.waking.mean),
        disk: mean(|part| part.disk.mean),
    })
}

fn most_frequent(group: &[Interval]) -> Option<Limit> {
    let count = |limit: Limit| group.iter().filter(|one| one.limit == Some(limit)).count();
    group.iter().filter_map(|one| one.limit).max_by_key(|limit| count(*limit))
}

/// Groups all intervals into at most `most` rows; also returns how many intervals a row has.
pub fn rows(intervals: &[Interval], most: usize) -> (Vec<Row>, usize) {
    let each = intervals.len().div_ceil(most.max(1)).max(1);
    (intervals.chunks(each).map(Row::of).collect(), each)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::{Latencies, Tcp};

    fn interval(number: u32) -> Interval {
        let mut latencies = Latencies::default();
        (0..=number).for_each(|message| latencies.record(1_000_000 * u64::from(message + 1), 100_000, 0));
        Interval {
            start: f64::from(number),
            seconds: 1.0,
            bytes: u64::from(number) * 1000,
            messages: u64::from(number) + 1,
            latency: latencies.figures(),
            disk_share: f64::from(number % 2),
            tcp: Tcp { retransmissions: u64::from(number % 3), ..Tcp::default() },
            limit: Some(if number.is_multiple_of(5) { Limit::Disk } else { Limit::Path }),
        }
    }

    #[test]
    fn merged_intervals_keep_their_sums_and_worst_values() {
        let intervals: Vec<Interval> = (0..25).map(interval).collect();
        let (rows, each) = rows(&intervals, 10);
        assert_eq!((rows.len(), each), (9, 3));
        assert_eq!(
            rows.iter().map(|row| row.bytes).sum::<u64>(),
            intervals.iter().map(|one| one.bytes).sum::<u64>()
        );
        assert_eq!(rows.iter().map(|row| row.retransmissions).sum::<u64>(), 24);
        let row = &rows[1];
        assert_eq!((row.start, row.end(), row.rate(), row.slowest), (3.0, 6.0, 4000.0, 3000.0));
        assert!((row.disk_share - 2.0 / 3.0).abs() < 1e-9);
        assert_eq!(row.limit, Some(Limit::Path));
        let latency = row.latency.unwrap();
        // 4, 5 and 6 messages of 1 to 6 ms.
        assert!((latency.mean - 0.046 / 15.0).abs() < 1e-4, "{latency:?}");
        assert!((latency.max - 0.006).abs() < 1e-5 && (latency.disk - 0.000_1).abs() < 1e-9);
    }

    #[test]
    fn intervals_that_fit_are_not_merged() {
        let intervals: Vec<Interval> = (0..4).map(interval).collect();
        let (rows, each) = rows(&intervals, 4);
        assert_eq!((rows.len(), each), (4, 1));
        assert_eq!(rows[3].latency.unwrap().p99, intervals[3].latency.unwrap().total.p99);
        assert_eq!(super::rows(&[], 4), (Vec::new(), 1));
    }
}
