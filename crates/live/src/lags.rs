//! The lags of standbys, each by its own name, and when they are known.
//!
//! Redo that a standby lacks is missing whether or not the standby is heard. A lag of 0 is reported only while it is
//! heard, because only then is it known that nothing is missing.

use standfast_documents::status::Destination;

/// A standby that has been silent for longer is not connected, microseconds.
pub const SILENCE_US: u64 = 15_000_000;

/// An amount of redo and the time span it covers; each is `None` when it is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lag {
    pub seconds: Option<f64>,
    pub bytes: Option<u64>,
}

impl Lag {
    pub const NONE: Lag = Lag { seconds: Some(0.0), bytes: Some(0) };

    fn known(bytes: Option<u64>, seconds: Option<f64>, heard: bool) -> Lag {
        match bytes {
            Some(0) if heard => Lag::NONE,
            None | Some(0) => Lag::default(),
            Some(_) => Lag { seconds, bytes },
        }
    }
}

/// Whether a standby is heard at `now_us`.
pub fn is_heard(destination: &Destination, now_us: Option<u64>) -> bool {
    destination.is_streaming() && is_recent(destination.last_heard_us, now_us)
}

/// Without the time of the last heartbeat the stream counts as heard: its sender ends a stream that is silent.
fn is_recent(heard_us: Option<u64>, now_us: Option<u64>) -> bool {
    match (heard_us, now_us) {
        (Some(heard), Some(now)) => now.saturating_sub(heard) <= SILENCE_US,
        _ => true,
    }
}

/// Redo that the destination has not received.
pub fn transport_lag(destination: &Destination, now_us: Option<u64>) -> Lag {
    let heard = is_heard(destination, now_us);
    Lag::known(destination.transport_lag_bytes, destination.transport_lag_s, heard)
}

/// Redo that the destination has not applied.
pub fn apply_lag(destination: &Destination, now_us: Option<u64>) -> Lag {
    Lag::known(destination.apply_lag_bytes, destination.apply_lag_s, is_heard(destination, now_us))
}
