//! Counters of a destination, read by instruments while they move.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Latencies in powers of two of nanoseconds: bucket n counts those below 2^n and not below 2^(n-1).
#[derive(Debug)]
pub struct LatencyCounts {
    buckets: [AtomicU64; 64],
    sum_ns: AtomicU64,
    max_ns: AtomicU64,
}

impl Default for LatencyCounts {
    fn default() -> Self {
        LatencyCounts {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_ns: AtomicU64::new(0),
            max_ns: AtomicU64::new(0),
        }
    }
}

impl LatencyCounts {
    /// Counts one.
    pub fn record(&self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let bucket = (u64::BITS - ns.leading_zeros()).min(63) as usize;
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(ns, Relaxed);
        self.max_ns.fetch_max(ns, Relaxed);
    }

    /// How many were counted.
    pub fn count(&self) -> u64 {
        self.buckets().iter().sum()
    }

    /// All buckets.
    pub fn buckets(&self) -> [u64; 64] {
        std::array::from_fn(|bucket| self.buckets[bucket].load(Relaxed))
    }

    /// Mean; zero when nothing was counted.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum_ns.load(Relaxed).checked_div(self.count()).unwrap_or(0))
    }

    /// The largest.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max_ns.load(Relaxed))
    }
}

/// What a destination has done since its sender was started.
#[derive(Debug, Default)]
pub struct DestinationStats {
    /// Bytes of payload that redo became on the wire: fewer than `redo_bytes` when it is packed.
    pub wire_bytes: AtomicU64,
    /// Redo frames sent by the log writer itself.
    pub frames_direct: AtomicU64,
    /// Redo frames sent by the sender's thread.
    pub frames_deferred: AtomicU64,
    /// Frames that the socket did not take whole at once.
    pub frames_partial: AtomicU64,
    /// Bytes of redo sent.
    pub redo_bytes: AtomicU64,
    /// Bytes of redo read from logs instead of the log buffer.
    pub logged_bytes: AtomicU64,
    /// Bytes of archived logs sent over connections of their own.
    pub archived_bytes: AtomicU64,
    /// Confirmations sent without redo.
    pub confirms: AtomicU64,
    /// Acknowledgements received.
    pub acks: AtomicU64,
    /// Streams begun.
    pub connects: AtomicU64,
    /// From sending a frame to its acknowledgement.
    pub round_trip: LatencyCounts,
    /// Log writes of the standby, as it reports them.
    pub standby_write: LatencyCounts,
    /// Shortest way there and back of late, microseconds + 1; 0 not known.
    pub(crate) shortest_way: AtomicU64,
}

impl DestinationStats {
    /// Shortest time there and back of late, without the standby's write, microseconds.
    pub fn network_round_trip_us(&self) -> Option<u64> {
        self.shortest_way.load(Relaxed).checked_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_counted_by_their_power_of_two() {
        let counts = LatencyCounts::default();
        assert_eq!(counts.mean(), Duration::ZERO);
        for ns in [0, 1, 1000, 1023, 1024] {
            counts.record(Duration::from_nanos(ns));
        }
        counts.record(Duration::MAX);
        let buckets = counts.buckets();
        assert_eq!((buckets[0], buckets[1], buckets[10], buckets[11], buckets[63]), (1, 1, 2, 1, 1));
        assert_eq!(counts.count(), 6);
    }
}
