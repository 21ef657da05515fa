//! What a test tells while it runs, and what it has found at its end.

use crate::NetError;
use crate::plan::Direction;
use crate::stats::{Interval, Latencies, Latency};

/// Events reported to the caller while a test runs.
pub enum Event<'a> {
    Ready,
    /// An interval of this direction is complete.
    Row(Direction, &'a Interval),
}

/// Socket buffers, bytes as the systems count them, means of the connections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Buffers {
    /// Requested on this side; 0: left to the system.
    pub requested: u32,
    /// Requested from the server; 0: left to it.
    pub requested_far: u32,
    /// Send buffer of the sender at the end.
    pub send: u64,
    /// Receive buffer of the receiver at the end.
    pub receive: u64,
    pub clamped_by: Vec<&'static str>,
}

/// A test that has ended, for whatever reason.
pub struct Outcome {
    pub direction: Direction,
    pub intervals: Vec<Interval>,
    pub total: Interval,
    pub latencies: Latencies,
    /// Bytes of payload of each connection.
    pub streams: Vec<u64>,
    pub buffers: Buffers,
    pub congestion: Option<String>,
    /// Error that ended the test early; what was measured until then is here.
    pub error: Option<NetError>,
    pub interrupted: bool,
    /// Round trips beside the test, when requested.
    pub round_trips: Option<RoundTrips>,
    /// The other direction of a test in both directions.
    pub reverse: Option<Box<Outcome>>,
}

impl Outcome {
    /// Returns the latencies of the whole test.
    pub fn latency(&self) -> Option<Latency> {
        self.total.latency
    }

    /// Returns each direction of the test.
    pub fn directions(&self) -> impl Iterator<Item = &Outcome> {
        std::iter::once(self).chain(self.reverse.as_deref())
    }
}

/// Round trips without payload, on the idle and on the loaded link.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RoundTrips {
    /// Before the load; None when none was answered.
    pub idle: Option<Latency>,
    /// During the load; None when none was answered.
    pub loaded: Option<Latency>,
}

impl RoundTrips {
    /// Returns by which factor loaded round trips are longer than idle ones: median and 99th percentile.
    pub fn growth(&self) -> Option<(f64, f64)> {
        let (idle, loaded) = (self.idle?.total, self.loaded?.total);
        // Below the resolution of the clock the factor is unknown.
        (idle.p50 > 0.0 && idle.p99 > 0.0).then(|| (loaded.p50 / idle.p50, loaded.p99 / idle.p99))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Spread;

    #[test]
    fn latency_growth_is_reported_only_if_both_values_are_measured() {
        let latency = |p50, p99| {
            let total = Spread { p50, p99, ..Spread::default() };
            Some(Latency {
                count: 9,
                total,
                network: total,
                disk: Spread::default(),
                waking: Spread::default(),
            })
        };
        let trips = RoundTrips { idle: latency(0.001, 0.002), loaded: latency(0.010, 0.040) };
        assert_eq!(trips.growth(), Some((10.0, 20.0)));
        assert_eq!(RoundTrips { loaded: None, ..trips }.growth(), None);
        assert_eq!(RoundTrips { idle: latency(0.0, 0.0), ..trips }.growth(), None);
    }
}
