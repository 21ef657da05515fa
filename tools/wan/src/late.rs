//! Lateness of what the emulator releases: it tells a good run from one on a machine that was busy with other work.

use crate::settings::Nanos;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Lateness of all packets since the start or the last reset.
pub struct Lateness(Histogram<u64>);

/// Figures of the lateness, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Late {
    pub count: u64,
    pub mean: f64,
    pub p50: f64,
    pub p99: f64,
    pub max: f64,
}

/// Higher values are recorded as this: a minute.
const MOST: Nanos = 60_000_000_000;

impl Default for Lateness {
    fn default() -> Lateness {
        Lateness::new()
    }
}

impl Lateness {
    pub fn new() -> Lateness {
        // The bounds are constants that the histogram accepts; there is no other error.
        let histogram =
            Histogram::new_with_bounds(1, MOST, 2).unwrap_or_else(|_| unreachable!("fixed bounds"));
        Lateness(histogram)
    }

    /// Records the lateness of a packet.
    pub fn record(&mut self, late: Nanos) {
        self.0.saturating_record(late.clamp(1, MOST));
    }

    /// Adds the counts of another histogram.
    pub fn add(&mut self, other: &Lateness) {
        // Cannot fail: both have the same bounds.
        let _ = self.0.add(&other.0);
    }

    pub fn reset(&mut self) {
        self.0.reset();
    }

    /// Returns the figures; all zero without a packet.
    pub fn figures(&self) -> Late {
        let seconds = |nanos: u64| nanos as f64 / 1e9;
        if self.0.is_empty() {
            return Late::default();
        }
        Late {
            count: self.0.len(),
            mean: self.0.mean() / 1e9,
            p50: seconds(self.0.value_at_quantile(0.5)),
            p99: seconds(self.0.value_at_quantile(0.99)),
            max: seconds(self.0.max()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p99_lateness_ignores_one_packet_in_a_hundred_but_not_two() {
        let mut lateness = Lateness::new();
        (0..99).for_each(|_| lateness.record(1_000));
        lateness.record(5_000_000);
        assert!(lateness.figures().p99 < 2e-6, "{:?}", lateness.figures());
        let mut more = Lateness::new();
        more.record(5_000_000);
        lateness.add(&more);
        assert!(lateness.figures().p99 > 4e-3);
        assert_eq!(lateness.figures().count, 101);
        lateness.reset();
        assert_eq!(lateness.figures(), Late::default());
    }
}
