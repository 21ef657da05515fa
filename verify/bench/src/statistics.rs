//! Statistics of a report: min/median/max of runs, percentiles of commits.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Smallest, middle and largest of several runs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MinMedianMax {
    pub min: f64,
    /// Mean of the two middle values for an even number of runs.
    pub median: f64,
    pub max: f64,
}

impl MinMedianMax {
    /// None when there are no values.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<MinMedianMax> {
        let mut sorted: Vec<f64> = values.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let upper = sorted.len() / 2;
        let median =
            if sorted.len() % 2 == 1 { sorted[upper] } else { (sorted[upper - 1] + sorted[upper]) / 2.0 };
        Some(MinMedianMax { min, median, max })
    }
}

/// Longest recordable latency in nanoseconds: the busy timeout plus a margin.
const LONGEST_NS: u64 = 120_000_000_000;

/// Histogram of latencies in nanoseconds, three significant digits.
#[derive(Clone, Debug)]
pub struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Latencies {
        match Histogram::new_with_bounds(1, LONGEST_NS, 3) {
            Ok(histogram) => Latencies(histogram),
            Err(_) => unreachable!("constant bounds: low 1, high over twice that, digits within 0..=5"),
        }
    }
}

impl Latencies {
    /// Counts one latency; a latency above two minutes counts as two minutes.
    pub fn record(&mut self, nanoseconds: u64) {
        self.0.saturating_record(nanoseconds);
    }

    pub fn merge(&mut self, other: &LatencyCounts) {
        for &(nanoseconds, count) in &other.0 {
            self.0.saturating_record_n(nanoseconds, count);
        }
    }

    /// The form in which a worker process passes its latencies on.
    pub fn counts(&self) -> LatencyCounts {
        LatencyCounts(
            self.0.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect(),
        )
    }

    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// Returns the latency that `percent` of all did not exceed, in microseconds.
    pub fn percentile_us(&self, percent: f64) -> f64 {
        self.0.value_at_percentile(percent) as f64 / 1e3
    }

    /// The values that a report shows.
    pub fn summary(&self) -> LatencySummary {
        LatencySummary {
            mean_us: if self.0.is_empty() { 0.0 } else { self.0.mean() / 1e3 },
            p50_us: self.percentile_us(50.0),
            p99_us: self.percentile_us(99.0),
            p999_us: self.percentile_us(99.9),
            max_us: self.0.max() as f64 / 1e3,
        }
    }
}

/// Pairs of a latency in nanoseconds and its count.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LatencyCounts(Vec<(u64, u64)>);

/// Latencies of one run in microseconds, from BEGIN to the return of COMMIT.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct LatencySummary {
    pub mean_us: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    pub p999_us: f64,
    pub max_us: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_three_is_the_middle_one_whatever_the_order() {
        let of = MinMedianMax::of([9.0, 1.0, 4.0]).unwrap();
        assert_eq!((of.min, of.median, of.max), (1.0, 4.0, 9.0));
        assert_eq!(MinMedianMax::of([2.0, 1.0]).unwrap().median, 1.5);
        assert_eq!(MinMedianMax::of([]), None);
    }

    #[test]
    fn percentiles_survive_transfer_from_worker_to_driver() {
        let mut worker = Latencies::default();
        (1..=1000).for_each(|us| worker.record(us * 1000));
        let text = serde_json::to_string(&worker.counts()).unwrap();
        let mut driver = Latencies::default();
        driver.merge(&serde_json::from_str(&text).unwrap());
        driver.merge(&serde_json::from_str(&text).unwrap());
        let summary = driver.summary();
        assert_eq!(driver.count(), 2000);
        assert!((summary.p50_us - 500.0).abs() < 1.0, "{summary:?}");
        assert!((summary.p99_us - 990.0).abs() < 2.0, "{summary:?}");
        assert!((summary.max_us - 1000.0).abs() < 2.0, "{summary:?}");
    }

    #[test]
    fn no_commit_at_all_gives_zeros_and_no_panic() {
        assert_eq!(Latencies::default().summary().max_us, 0.0);
    }
}
