//! Histograms of durations, by powers of two of microseconds.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

// Sessions count in the same way in the shared memory.
pub use standfast_session::{BUCKETS, bucket_of};

/// Upper bound of a bucket in microseconds, exclusive; `None` for the last one.
pub fn bucket_upper_us(bucket: usize) -> Option<u64> {
    (bucket + 1 < BUCKETS).then(|| 1u64 << bucket)
}

/// Counts to which many threads add.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    time_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            time_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    pub fn record(&self, ns: u64) {
        self.buckets[bucket_of(ns)].fetch_add(1, Relaxed);
        self.time_ns.fetch_add(ns, Relaxed);
        if ns > self.max_ns.load(Relaxed) {
            self.max_ns.fetch_max(ns, Relaxed);
        }
    }

    /// Returns the current counts. A duration that is recorded meanwhile may be in some of the numbers and not in
    /// others.
    pub fn counts(&self) -> HistogramCounts {
        let buckets: Vec<u64> = self.buckets.iter().map(|bucket| bucket.load(Relaxed)).collect();
        HistogramCounts {
            count: buckets.iter().sum(),
            time_ns: self.time_ns.load(Relaxed),
            max_ns: self.max_ns.load(Relaxed),
            buckets,
        }
    }
}

/// Counts at one moment, or of an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HistogramCounts {
    pub count: u64,
    /// Sum of the durations in nanoseconds.
    pub time_ns: u64,
    /// The longest duration since the start of the process, in nanoseconds.
    pub max_ns: u64,
    /// Counts by bucket, at the index that [`bucket_of`] returns.
    pub buckets: Vec<u64>,
}

impl HistogramCounts {
    /// Returns the counts between `earlier` and this; `None` when the counts were reset in between. The maximum is that
    /// since the start of the process, or 0 when `earlier` has the same one: the maximum of the interval is then
    /// unknown.
    pub fn since(&self, earlier: &HistogramCounts) -> Option<HistogramCounts> {
        let before = |bucket: usize| earlier.buckets.get(bucket).copied().unwrap_or(0);
        let buckets = self.buckets.iter().enumerate().map(|(n, count)| count.checked_sub(before(n)));
        let buckets = buckets.collect::<Option<Vec<u64>>>()?;
        Some(HistogramCounts {
            count: self.count.checked_sub(earlier.count)?,
            time_ns: self.time_ns.checked_sub(earlier.time_ns)?,
            max_ns: if self.max_ns > earlier.max_ns { self.max_ns } else { 0 },
            buckets,
        })
    }

    /// Mean in microseconds; `None` when nothing was counted.
    pub fn mean_us(&self) -> Option<f64> {
        (self.count > 0).then(|| self.time_ns as f64 / self.count as f64 / 1e3)
    }

    /// Percentile (`share` from 0 to 1) in microseconds, interpolated within its bucket: off by less than a factor of
    /// two. `None` when nothing was counted.
    pub fn percentile_us(&self, share: f64) -> Option<f64> {
        if self.count == 0 {
            return None;
        }
        let wanted = (share.clamp(0.0, 1.0) * self.count as f64).max(1.0);
        let mut seen = 0.0;
        for (bucket, count) in self.buckets.iter().enumerate().filter(|(_, count)| **count > 0) {
            let count = *count as f64;
            if seen + count >= wanted {
                let lower = if bucket == 0 { 0.0 } else { (1u64 << (bucket - 1)) as f64 };
                let upper = bucket_upper_us(bucket).map_or(lower * 2.0, |upper| upper as f64);
                return Some(lower + (upper - lower) * (wanted - seen) / count);
            }
            seen += count;
        }
        None
    }

    /// Adds other counts, such as those of another session. Adds modulo 2^64: sessions may have written anything into
    /// the shared memory, and that must not end the process.
    pub fn add(&mut self, other: &HistogramCounts) {
        self.count = self.count.wrapping_add(other.count);
        self.time_ns = self.time_ns.wrapping_add(other.time_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        if self.buckets.len() < other.buckets.len() {
            self.buckets.resize(other.buckets.len(), 0);
        }
        for (mine, theirs) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine = mine.wrapping_add(*theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(all_ns: &[u64]) -> HistogramCounts {
        let histogram = Histogram::default();
        all_ns.iter().for_each(|ns| histogram.record(*ns));
        histogram.counts()
    }

    #[test]
    fn duration_lies_between_the_bounds_of_its_bucket() {
        for ns in [0, 999, 1_000, 1_999, 2_000, 4_095_999, 4_096_000, 1 << 50] {
            let bucket = bucket_of(ns);
            assert!(bucket_upper_us(bucket).is_none_or(|upper| ns < upper * 1000), "{ns}");
            assert!(
                bucket == 0 || bucket_upper_us(bucket - 1).is_some_and(|lower| ns >= lower * 1000),
                "{ns}"
            );
        }
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn histogram_interval_is_the_difference_or_none_after_a_restart() {
        let (earlier, later) = (counts(&[1_500, 3_000]), counts(&[1_500, 3_000, 700_000]));
        let interval = later.since(&earlier).unwrap();
        assert_eq!((interval.count, interval.time_ns, interval.max_ns), (1, 700_000, 700_000));
        assert_eq!(interval.mean_us(), Some(700.0));
        assert_eq!(earlier.since(&later), None);
        assert_eq!(later.since(&later).unwrap().max_ns, 0);
        assert_eq!(later.since(&later).unwrap().mean_us(), None);
    }

    #[test]
    fn percentiles_lie_in_the_bucket_that_holds_them() {
        let mut all = vec![10_000; 98];
        all.extend([5_000_000, 5_000_000]);
        let counts = counts(&all);
        let (p50, p99) = (counts.percentile_us(0.5).unwrap(), counts.percentile_us(0.99).unwrap());
        assert!((8.0..16.0).contains(&p50), "{p50}");
        assert!((4096.0..8192.0).contains(&p99), "{p99}");
        assert_eq!(HistogramCounts::default().percentile_us(0.5), None);
    }

    #[test]
    fn sum_of_histograms_equals_one_of_all_values() {
        let mut sum = counts(&[1_000]);
        sum.add(&counts(&[9_000, 2_000]));
        assert_eq!(sum, counts(&[1_000, 9_000, 2_000]));
        let mut none = HistogramCounts::default();
        none.add(&sum);
        assert_eq!(none, sum);
        let garbage = HistogramCounts {
            count: u64::MAX,
            time_ns: u64::MAX,
            max_ns: u64::MAX,
            buckets: vec![u64::MAX; BUCKETS],
        };
        sum.add(&garbage);
        assert_eq!((sum.count, sum.max_ns, sum.buckets[0]), (2, u64::MAX, u64::MAX));
    }
}
