//! Counters of a destination, read by instruments while they change.

use standfast_instruments::Histogram;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counters since the sender was started.
#[derive(Debug, Default)]
pub struct DestinationStats {
    /// Bytes of payload that redo became on the wire: fewer than `redo_bytes` when it is compressed.
    pub wire_bytes: AtomicU64,
    /// Redo frames sent by the log writer itself.
    pub frames_direct: AtomicU64,
    /// Redo frames sent by the sender's thread.
    pub frames_deferred: AtomicU64,
    /// Frames that the socket took only in part.
    pub frames_partial: AtomicU64,
    /// Bytes of redo sent.
    pub redo_bytes: AtomicU64,
    /// Bytes of archived logs sent over separate connections.
    pub archived_bytes: AtomicU64,
    /// Confirmations sent without redo.
    pub confirms: AtomicU64,
    pub acks: AtomicU64,
    pub connects: AtomicU64,
    /// Connections that were lost or refused.
    pub disconnects: AtomicU64,
    /// Times that commits stopped waiting for it, or waited beyond the timeout.
    pub timeouts: AtomicU64,
    /// Time from sending a frame to its acknowledgement.
    pub round_trip: Histogram,
    /// `round_trip` of the acknowledgements that report a write to the standby log.
    pub responses: Histogram,
    /// Log writes of the standby, as it reports them.
    pub standby_write: Histogram,
    /// Shortest recent network round trip, microseconds + 1; 0: not known.
    pub(crate) shortest_way: AtomicU64,
}

impl DestinationStats {
    /// Shortest recent network round trip, without the standby's write, microseconds.
    pub fn network_round_trip_us(&self) -> Option<u64> {
        self.shortest_way.load(Relaxed).checked_sub(1)
    }
}
