//! The redo connections between instances, and the progress of each standby.

use crate::figure::{Figure, UNKNOWN};
use crate::lags::{Lag, apply_lag, is_heard, transport_lag};
use crate::look::{Looks, applied};
use serde::{Deserialize, Serialize};
use standfast_documents::Status;
use standfast_documents::status::{Destination, Gap, Received};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Link {
    pub from: String,
    pub to: String,
    pub role: String,
    /// Whether redo flows and the other end is heard.
    pub up: bool,
    pub mode: String,
    pub state: String,
    /// Whether commits wait for it: `wait`, `do not wait`.
    pub commits: String,
    /// Time since the other end was last heard.
    pub heard: Figure,
    /// Logs that the standby lacks; `None` without a gap.
    pub gap: Option<String>,
    /// The newest error while the connection is down.
    pub trouble: Option<String>,
}

/// Progress of a standby. Transport lag and apply lag are separate figures.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StandbyState {
    pub name: String,
    /// Time span of redo that it has not received.
    pub transport_lag: Figure,
    /// Redo that it has not received, bytes.
    pub transport_lag_bytes: Figure,
    /// Time span of redo that it has not applied.
    pub apply_lag: Figure,
    /// Redo that it has not applied, bytes.
    pub apply_lag_bytes: Figure,
    /// Bytes of redo received per second.
    pub receive_rate: Figure,
    /// Bytes of redo applied per second.
    pub apply_rate: Figure,
    /// Time until it has applied everything, at these rates.
    pub catch_up: Figure,
    /// Mean time from sending to acknowledgement.
    pub round_trip: Figure,
}

fn text(text: &Option<String>) -> String {
    text.clone().unwrap_or_else(|| UNKNOWN.into())
}

fn since(heard_us: Option<u64>, now_us: Option<u64>) -> Figure {
    Figure::seconds(heard_us.zip(now_us).map(|(heard, now)| now.saturating_sub(heard) as f64 / 1e6))
}

fn gap(gap: Option<&Gap>) -> Option<String> {
    let gap = gap?;
    let (low, high) = (Figure::count(gap.low_sequence), Figure::count(gap.high_sequence));
    Some(format!("logs {} to {}, {} left", low.text, high.text, Figure::bytes(gap.bytes_left).text))
}

/// Returns the link from the source of a standby or far sync, then the links to the destinations, those of a forwarding
/// standby included.
pub fn links(status: &Status, me: &str) -> Vec<Link> {
    let upstream = status.standby.iter().map(|received| upstream(received, status, me));
    upstream.chain(status.destinations().iter().map(|at| downstream(at, status, me))).collect()
}

fn upstream(received: &Received, status: &Status, me: &str) -> Link {
    let source = received.source.clone().unwrap_or_default();
    let up = received.connected == Some(true);
    Link {
        from: text(&source.name),
        to: me.into(),
        role: text(&status.role),
        up,
        mode: "set at its source".into(),
        state: if up { "receiving" } else { "not connected" }.into(),
        commits: "decided at the primary".into(),
        heard: since(received.last_heard_us, status.time_us),
        gap: gap(received.gap.as_ref()),
        trouble: None,
    }
}

fn downstream(at: &Destination, status: &Status, me: &str) -> Link {
    let up = is_heard(at, status.time_us);
    Link {
        from: me.into(),
        to: at.label().into(),
        role: text(&at.role),
        up,
        mode: text(&at.mode),
        state: text(&at.state),
        commits: match at.required {
            Some(true) => "wait".into(),
            Some(false) => "do not wait".into(),
            None => UNKNOWN.into(),
        },
        heard: since(at.last_heard_us, status.time_us),
        gap: gap(at.gap.as_ref()),
        trouble: at.last_trouble.clone().filter(|_| !up),
    }
}

/// Returns the progress of each standby; a far sync only receives.
pub fn standbys(status: &Status, me: &str, looks: &Looks) -> Vec<StandbyState> {
    let redo_rate = looks.rate(Status::redo_end);
    let mine = status.standby.iter().map(|received| {
        let transport = Lag { seconds: received.transport_lag_s, bytes: received.transport_lag_bytes };
        let apply = Lag { seconds: received.apply_lag_s, bytes: received.apply_lag_bytes };
        let receive_rate = looks.rate(|status| status.standby.as_ref()?.hardened);
        state(me, transport, apply, receive_rate, looks.rate(|status| applied(status, me, me)), redo_rate)
    });
    let there = status.destinations().iter().map(|at| {
        let name = at.label();
        let received = |status: &Status| status.destinations().iter().find(|at| at.label() == name)?.received;
        let (transport, apply) = (transport_lag(at, status.time_us), apply_lag(at, status.time_us));
        let apply_rate = looks.rate(|status| applied(status, name, me));
        let mut state = state(name, transport, apply, looks.rate(received), apply_rate, redo_rate);
        let round_trip = at.round_trip_us.filter(|us| *us > 0);
        state.round_trip = Figure::seconds(round_trip.map(|us| us as f64 / 1e6));
        state
    });
    mine.chain(there).collect()
}

fn state(
    name: &str,
    transport: Lag,
    apply: Lag,
    receive_rate: Option<f64>,
    apply_rate: Option<f64>,
    redo_rate: Option<f64>,
) -> StandbyState {
    StandbyState {
        name: name.into(),
        transport_lag: Figure::seconds(transport.seconds),
        transport_lag_bytes: Figure::bytes(transport.bytes),
        apply_lag: Figure::seconds(apply.seconds),
        apply_lag_bytes: Figure::bytes(apply.bytes),
        receive_rate: Figure::byte_rate(receive_rate),
        apply_rate: Figure::byte_rate(apply_rate),
        catch_up: catch_up(apply, apply_rate, redo_rate),
        round_trip: Figure::seconds(None),
    }
}

/// A shorter lag is not noticeable, seconds.
const KEEPS_UP_S: f64 = 1.0;

/// Time to catch up; never while apply is not faster than redo is generated.
fn catch_up(lag: Lag, apply_rate: Option<f64>, redo_rate: Option<f64>) -> Figure {
    match (lag.bytes, apply_rate.zip(redo_rate)) {
        (Some(0), _) => Figure::seconds(Some(0.0)),
        (Some(_), _) if lag.seconds.is_some_and(|seconds| seconds <= KEEPS_UP_S) => {
            Figure::seconds(lag.seconds)
        }
        (Some(behind), Some((apply, redo))) if apply > redo => {
            Figure::seconds(Some(behind as f64 / (apply - redo)))
        }
        (Some(_), Some(_)) => Figure { value: None, text: "never at these rates".into() },
        _ => Figure::seconds(None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standby_catches_up_only_if_apply_outpaces_redo() {
        let lag = |bytes, seconds| Lag { seconds, bytes };
        let late = lag(Some(1000), Some(60.0));
        assert_eq!(catch_up(late, Some(300.0), Some(200.0)).value, Some(10.0));
        assert_eq!(catch_up(late, Some(200.0), Some(200.0)).text, "never at these rates");
        assert_eq!(catch_up(lag(Some(1000), Some(0.02)), Some(200.0), Some(200.0)).text, "20 ms");
        assert_eq!(catch_up(Lag::NONE, Some(0.0), Some(0.0)).value, Some(0.0));
        assert_eq!(catch_up(Lag::default(), Some(300.0), Some(200.0)).text, "unknown");
    }
}
