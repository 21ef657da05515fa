//! How late the emulator is with what it releases: what tells a good run from one on a machine that had other things
//! to do.

use crate::settings::Nanos;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// Lateness of all packets since the start or since it was last taken.
pub struct Lateness(Histogram<u64>);

/// Its figures, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Late {
    /// Packets.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Half of the packets were not later.
    pub p50: f64,
    /// 99 of 100 packets were not later.
    pub p99: f64,
    /// The latest.
    pub max: f64,
}

/// Later counts as so late: a minute.
const MOST: Nanos = 60_000_000_000;

impl Default for Lateness {
    fn default() -> Lateness {
        Lateness::new()
    }
}

impl Lateness {
    /// Nothing yet.
    pub fn new() -> Lateness {
        // The bounds are constants that the histogram takes; its error type says nothing else.
        let histogram =
            Histogram::new_with_bounds(1, MOST, 2).unwrap_or_else(|_| unreachable!("fixed bounds"));
        Lateness(histogram)
    }

    /// A packet was so late.
    pub fn record(&mut self, late: Nanos) {
        self.0.saturating_record(late.clamp(1, MOST));
    }

    /// Counts what another one counted as well.
    pub fn add(&mut self, other: &Lateness) {
        // Both have the same bounds.
        let _ = self.0.add(&other.0);
    }

    /// Begins anew.
    pub fn reset(&mut self) {
        self.0.reset();
    }

    /// The figures.
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
    fn one_packet_in_a_hundred_does_not_count_and_two_do() {
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
