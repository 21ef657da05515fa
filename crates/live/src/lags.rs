//! The lags of standbys, each by its own name, and when they are known.
//!
//! Redo that is missing at a standby is missing whether or not it is heard. That nothing is missing is known only while
//! it is heard: a lag of 0 is read only then.

use crate::lag::LagClock;
use crate::status::{Destination, Received, Status};
use serde_json::{Value, json};

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

fn source_is_heard(received: &Received, now_us: Option<u64>) -> bool {
    received.connected == Some(true)
        && received.last_heard_us.is_some()
        && is_recent(received.last_heard_us, now_us)
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

/// Redo that this standby has not received. A source that is not heard may have gone on: then nothing is known.
pub fn own_transport_lag(received: &Received, clock: &LagClock, now_us: Option<u64>) -> Lag {
    if !source_is_heard(received, now_us) {
        return Lag::default();
    }
    let bytes = received.source_end.zip(received.hardened).map(|(end, here)| end.saturating_sub(here));
    Lag::known(bytes, received.hardened.and_then(|here| clock.age_s(here)), true)
}

/// Redo that is on this standby's disk, or known to exist, and not applied here.
pub fn own_apply_lag(received: &Received, clock: &LagClock) -> Lag {
    let bytes = received.apply_lag_bytes;
    let position = received.confirmed.zip(bytes).map(|(end, behind)| end.saturating_sub(behind));
    Lag::known(bytes, position.and_then(|position| clock.age_s(position)), true)
}

/// Notes the end of the redo, and puts the lags in seconds into a state document: `transport_lag_s` and `apply_lag_s` of
/// each destination; the same and `transport_lag_bytes` of a standby itself. Unknown is null.
pub fn add_lags(document: &mut Value, clock: &mut LagClock) {
    let status = Status::of(document);
    let now = status.time_us;
    if let (Some(now), Some(end)) = (now, status.redo_end()) {
        clock.note(now, end);
    }
    for (index, destination) in status.destinations().iter().enumerate() {
        let age = |bytes: Option<u64>| clock.age_s(status.redo_end()?.saturating_sub(bytes?));
        let mut destination = destination.clone();
        destination.transport_lag_s = age(destination.transport_lag_bytes);
        destination.apply_lag_s = age(destination.apply_lag_bytes);
        let written = &mut document["destinations"][index];
        written["transport_lag_s"] = json!(transport_lag(&destination, now).seconds);
        written["apply_lag_s"] = json!(apply_lag(&destination, now).seconds);
    }
    if let Some(received) = &status.standby {
        let transport = own_transport_lag(received, clock, now);
        let written = &mut document["standby"];
        written["transport_lag_bytes"] = json!(transport.bytes);
        written["transport_lag_s"] = json!(transport.seconds);
        written["apply_lag_s"] = json!(own_apply_lag(received, clock).seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn primary(second: u64, captured: u64, state: &str, behind: Value) -> Value {
        json!({ "role": "primary", "time_us": second * 1_000_000, "captured": captured, "destinations": [{
            "name": "oslo", "state": state, "transport_lag_bytes": behind, "apply_lag_bytes": behind }] })
    }

    fn lags(looks: &[Value]) -> (Value, Value) {
        let mut clock = LagClock::default();
        let mut last = Value::Null;
        for look in looks {
            last = look.clone();
            add_lags(&mut last, &mut clock);
        }
        (last["destinations"][0]["transport_lag_s"].clone(), last["destinations"][0]["apply_lag_s"].clone())
    }

    #[test]
    fn an_idle_primary_reads_no_lag_only_while_its_standby_is_heard() {
        let idle = |state: &str| [primary(1, 500, state, json!(0)), primary(900, 500, state, json!(0))];
        assert_eq!(lags(&idle("streaming")), (json!(0.0), json!(0.0)));
        assert_eq!(lags(&idle("connecting")), (json!(null), json!(null)));
    }

    #[test]
    fn the_lag_of_a_standby_that_is_cut_off_grows_with_the_redo_that_it_lacks() {
        let cut = [
            primary(10, 1000, "streaming", json!(0)),
            primary(11, 1100, "connecting", json!(100)),
            primary(41, 4100, "connecting", json!(3100)),
        ];
        assert_eq!(lags(&cut).0, json!(31.0));
    }

    #[test]
    fn a_standby_that_was_never_heard_has_unknown_lags() {
        assert_eq!(lags(&[primary(1, 500, "connecting", json!(null))]), (json!(null), json!(null)));
    }

    #[test]
    fn a_standby_whose_source_is_silent_does_not_know_its_transport_lag() {
        let standby = |heard: u64| {
            let mut document = json!({ "role": "standby", "time_us": 100_000_000, "standby": { "connected": true,
                "last_heard_us": heard * 1_000_000, "source_end": 900, "hardened": 900, "confirmed": 900,
                "apply_lag_bytes": 0 } });
            add_lags(&mut document, &mut LagClock::default());
            document["standby"]["transport_lag_s"].clone()
        };
        assert_eq!(standby(99), json!(0.0));
        assert_eq!(standby(60), json!(null));
    }
}
