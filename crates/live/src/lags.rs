//! The lags of standbys, each by its own name, and when they are known.
//!
//! Redo that is missing at a standby is missing whether or not it is heard. That nothing is missing is known only while
//! it is heard: a lag of 0 is read only then.

use crate::status::Destination;

/// A standby that has been silent for longer is not taken to be there, microseconds.
pub const SILENCE_US: u64 = 15_000_000;

/// How much redo, and how old it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lag {
    /// Time span; `None`: unknown.
    pub seconds: Option<f64>,
    /// Redo; `None`: unknown.
    pub bytes: Option<u64>,
}

impl Lag {
    /// Nothing is missing.
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

/// A stream without a time of its last heartbeat is ended by its sender when it is silent.
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
