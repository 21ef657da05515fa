//! The counters of a receiver.

use std::sync::atomic::AtomicU64;

/// Counters since the receiver was started.
#[derive(Debug, Default)]
pub struct ReceiverCounts {
    pub connections: AtomicU64,
    /// Connections closed immediately because there were too many, or too many in too short a time.
    pub turned_away: AtomicU64,
    /// Connections closed because the bytes were not this protocol or did not come in time.
    pub garbage: AtomicU64,
    /// Failed TLS handshakes, and plain connections where they are not allowed.
    pub insecure: AtomicU64,
    pub bad_tokens: AtomicU64,
    pub streams: AtomicU64,
    pub redo_bytes: AtomicU64,
    pub writes: AtomicU64,
    /// Confirmed positions hardened without redo.
    pub confirms: AtomicU64,
}
