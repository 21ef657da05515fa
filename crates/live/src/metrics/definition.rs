//! A metric: its definition, and its values by labels.

use standfast_instruments::{HistogramCounts, bucket_upper_us};

/// Smallest bound of a histogram, microseconds.
const SMALLEST_US: u64 = 64;
/// Largest finite bound of a histogram, microseconds: 17 s.
const LARGEST_US: u64 = 1 << 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Gauge,
    /// Only grows; its name ends in `_total`.
    Counter,
    /// Counts of durations by upper bound.
    Histogram,
    /// Always 1; the labels carry the information. Its name ends in `_info`.
    Info,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Name without the suffixes `_total` and `_info`.
    pub base: &'static str,
    pub kind: Kind,
    pub labels: &'static [&'static str],
    /// Help text of the exposition, which states the unit.
    pub help: &'static str,
}

impl Definition {
    /// Name in queries; that of a histogram is without `_bucket`, `_sum` and `_count`.
    pub fn name(&self) -> String {
        match self.kind {
            Kind::Counter => format!("{}_total", self.base),
            Kind::Info => format!("{}_info", self.base),
            Kind::Gauge | Kind::Histogram => self.base.into(),
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of a gauge, a counter, or the 1 of an info.
    Number(f64),
    Durations {
        sum_s: f64,
        /// Upper bound in seconds, and the count above the previous bound up to this one.
        buckets: Vec<(f64, u64)>,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Family {
    pub definition: &'static Definition,
    /// Label values, and the metric's value for them.
    pub series: Vec<(Vec<String>, Value)>,
}

/// Durations as a histogram; buckets below the smallest bound are merged, and so are those above the largest.
pub(super) fn durations(counts: &HistogramCounts) -> Value {
    let mut buckets: Vec<(f64, u64)> = Vec::new();
    let mut pending = 0;
    for (bucket, count) in counts.buckets.iter().enumerate() {
        pending += count;
        match bucket_upper_us(bucket) {
            Some(upper) if (SMALLEST_US..=LARGEST_US).contains(&upper) => {
                buckets.push((upper as f64 / 1e6, std::mem::take(&mut pending)));
            }
            _ => {}
        }
    }
    buckets.push((f64::INFINITY, pending));
    Value::Durations { sum_s: counts.time_ns as f64 / 1e9, buckets }
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_instruments::Histogram;

    #[test]
    fn exported_histogram_keeps_every_count_and_its_bounds() {
        let histogram = Histogram::default();
        [900, 63_000, 64_000, 3_000_000, 40_000_000_000].iter().for_each(|ns| histogram.record(*ns));
        let Value::Durations { sum_s, buckets } = durations(&histogram.counts()) else { panic!() };
        assert_eq!(buckets.iter().map(|bucket| bucket.1).sum::<u64>(), 5);
        assert_eq!((buckets[0], buckets[1]), ((64e-6, 2), (128e-6, 1)));
        assert_eq!(buckets[buckets.len() - 2].0, 16.777216);
        assert_eq!(*buckets.last().unwrap(), (f64::INFINITY, 1));
        assert!((sum_s - 40.0031279).abs() < 1e-9, "{sum_s}");
    }
}
