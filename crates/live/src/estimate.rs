//! What a failover at this moment would lose, and how long it would take.

use crate::lags::{Lag, transport_lag};
use crate::status::{Destination, Status};
use std::collections::BTreeMap;

/// From the command to the first transaction of a standby that has nothing left to apply, seconds: cut of the redo, new
/// incarnation, log, reopening of the databases.
pub const ROLE_CHANGE_S: f64 = 1.0;

/// A failover at this moment, to the standby that would lose least.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The standby; `None`: there is none.
    pub target: Option<String>,
    /// Acknowledged commits that would be lost.
    pub loss: Lag,
    /// Until applications can write there, seconds, from the command on; `None`: unknown.
    pub failover_s: Option<f64>,
}

impl Estimate {
    /// For an instance in this state. `apply_rates`: the fastest apply that was seen, bytes per second, by the name of the
    /// standby.
    pub fn of(status: &Status, name: &str, apply_rates: &BTreeMap<String, f64>) -> Estimate {
        if let Some(received) = &status.standby
            && status.role.as_deref() == Some("standby")
        {
            return Estimate {
                target: Some(name.to_owned()),
                loss: Lag { seconds: received.transport_lag_s, bytes: received.transport_lag_bytes },
                failover_s: failover_s(received.apply_lag_bytes, apply_rates.get(name)),
            };
        }
        let now = status.time_us;
        let best =
            status.destinations().iter().filter(|at| at.is_standby()).min_by_key(|at| {
                (at.required != Some(true), transport_lag(at, now).bytes.unwrap_or(u64::MAX))
            });
        best.map_or_else(Estimate::default, |at| Estimate {
            target: Some(at.label().to_owned()),
            loss: loss(at, now),
            failover_s: failover_s(backlog(at), apply_rates.get(at.label())),
        })
    }
}

/// A commit that has returned is at every required destination, however far the others are behind.
fn loss(destination: &Destination, now_us: Option<u64>) -> Lag {
    match destination.required {
        Some(true) => Lag::NONE,
        _ => transport_lag(destination, now_us),
    }
}

/// Received there and not applied, bytes.
fn backlog(destination: &Destination) -> Option<u64> {
    Some(destination.apply_lag_bytes?.saturating_sub(destination.transport_lag_bytes?))
}

fn failover_s(backlog: Option<u64>, apply_rate: Option<&f64>) -> Option<f64> {
    match (backlog?, apply_rate) {
        (0, _) => Some(ROLE_CHANGE_S),
        (bytes, Some(rate)) if *rate > 0.0 => Some(ROLE_CHANGE_S + bytes as f64 / rate),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn estimate(destinations: serde_json::Value) -> Estimate {
        let status =
            json!({ "role": "primary", "time_us": 9, "captured": 5000, "destinations": destinations });
        let rates = BTreeMap::from([("oslo".to_owned(), 100.0)]);
        Estimate::of(&Status::of(&status), "paris", &rates)
    }

    #[test]
    fn nothing_acknowledged_is_lost_while_commits_wait_for_a_standby() {
        let estimate = estimate(json!([
            { "name": "rome", "role": "standby", "state": "streaming", "transport_lag_bytes": 0,
              "apply_lag_bytes": 0 },
            { "name": "oslo", "role": "standby", "state": "connecting", "required": true,
              "transport_lag_bytes": 50, "transport_lag_s": 3.0, "apply_lag_bytes": 250 },
        ]));
        assert_eq!(estimate.target.as_deref(), Some("oslo"));
        assert_eq!(estimate.loss, Lag::NONE);
        assert_eq!(estimate.failover_s, Some(ROLE_CHANGE_S + 2.0));
    }

    #[test]
    fn the_loss_of_an_asynchronous_standby_is_its_transport_lag() {
        let estimate = estimate(json!([{ "name": "oslo", "role": "standby", "state": "streaming",
            "required": false, "transport_lag_bytes": 70, "transport_lag_s": 4.5, "apply_lag_bytes": 70 }]));
        assert_eq!(estimate.loss, Lag { seconds: Some(4.5), bytes: Some(70) });
        assert_eq!(estimate.failover_s, Some(ROLE_CHANGE_S));
    }

    #[test]
    fn without_a_standby_or_its_state_nothing_is_estimated() {
        assert_eq!(estimate(json!([])), Estimate::default());
        let far = json!([{ "name": "near", "role": "far sync", "state": "streaming", "required": true }]);
        assert_eq!(estimate(far), Estimate::default());
        let silent = json!([{ "name": "rome", "role": "standby", "state": "connecting", "transport_lag_bytes": 0,
            "apply_lag_bytes": 40 }]);
        let silent = estimate(silent);
        assert_eq!((silent.loss, silent.failover_s), (Lag::default(), None));
    }
}
