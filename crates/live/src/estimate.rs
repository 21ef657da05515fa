//! What a failover now would lose, and how long it would take.

use crate::apply_rate::{ApplyRate, Moment};
use crate::lags::{Lag, transport_lag};
use standfast_documents::status::Destination;
use standfast_instruments::{Event, Observation, Sample};
use std::collections::BTreeMap;

/// Duration of a role change without its durable writes, seconds: the standby's threads end, files are opened and read.
/// The durable writes come on top (a log header each, the control file, the incarnation), and each database adds time
/// and writes of its own. Counted with strace.
const ROLE_CHANGE_S: f64 = 0.010;
const ROLE_CHANGE_WRITES: f64 = 20.0;
const DATABASE_S: f64 = 0.000_6;
const DATABASE_WRITES: f64 = 4.0;
/// Assumed duration of a durable write at a standby of which no write was seen yet, seconds.
const WRITE_S: f64 = 0.001;

/// A failover now, to a standby that commits wait for, or else to the one that would lose least.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Estimate {
    /// The target; `None`: there is no standby.
    pub target: Option<String>,
    /// Acknowledged commits that would be lost.
    pub loss: Lag,
    /// Time from the command until applications can write at the target, seconds; `None`: unknown.
    pub failover_s: Option<f64>,
}

impl Estimate {
    /// Estimates from an observation of an instance. `apply_rates` is keyed by the name of the standby.
    pub fn of(observation: &Observation, apply_rates: &BTreeMap<String, ApplyRate>) -> Estimate {
        let status = &observation.status;
        let databases = status.databases.as_ref().map_or(1, Vec::len);
        let apply_rate = |name: &str| apply_rates.get(name).and_then(ApplyRate::bytes_s);
        if let Some(received) = &status.standby
            && status.role.as_deref() == Some("standby")
        {
            return Estimate {
                target: Some(observation.name.clone()),
                loss: Lag { seconds: received.transport_lag_s, bytes: received.transport_lag_bytes },
                failover_s: apply_s(received.backlog(), apply_rate(&observation.name))
                    .map(|apply| apply + role_change_s(databases, own_write_us(&observation.sample))),
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
            failover_s: apply_s(at.backlog(), apply_rate(at.label()))
                .map(|apply| apply + role_change_s(databases, at.log_write_us.map(|us| us as f64))),
        })
    }
}

/// Returns the seconds until the observed standby has applied all that it may apply, at its mean rate since its start,
/// pauses excluded. `None`: it has applied nothing yet, or is not a standby.
pub fn apply_finish_s(observation: &Observation) -> Option<f64> {
    let status = &observation.status;
    let received = status.standby.as_ref()?;
    let done = Moment::of_standby(status, &observation.sample);
    let rate = done.filter(|done| done.worked_s > 0.0 && done.applied > 0);
    apply_s(received.backlog(), rate.map(|done| done.applied as f64 / done.worked_s))
}

/// Returns the seconds until the observed standby is a primary, once it has applied everything; `None`: it is not a
/// standby.
pub fn startup_s(observation: &Observation) -> Option<f64> {
    let status = &observation.status;
    let databases = status.databases.as_ref().map_or(1, Vec::len);
    let is_standby = status.role.as_deref() == Some("standby");
    is_standby.then(|| role_change_s(databases, own_write_us(&observation.sample)))
}

/// A commit that has returned is at every required destination, however far others are behind.
fn loss(destination: &Destination, now_us: Option<u64>) -> Lag {
    match destination.required {
        Some(true) => Lag::NONE,
        _ => transport_lag(destination, now_us),
    }
}

/// Returns the seconds that applying `backlog` takes; `None` without the backlog or the rate that this needs.
fn apply_s(backlog: Option<u64>, rate: Option<f64>) -> Option<f64> {
    match (backlog?, rate) {
        (0, _) => Some(0.0),
        (bytes, Some(rate)) => Some(bytes as f64 / rate),
        (_, None) => None,
    }
}

/// Seconds until a standby that has applied everything is a primary that serves that many databases.
fn role_change_s(databases: usize, write_us: Option<f64>) -> f64 {
    let (databases, write_s) = (databases as f64, write_us.map_or(WRITE_S, |us| us / 1e6));
    let writes = ROLE_CHANGE_WRITES + DATABASE_WRITES * databases;
    ROLE_CHANGE_S + DATABASE_S * databases + writes * write_s
}

/// A short write of the standby's own log, microseconds: its 10th percentile. The writes of a role change are short.
fn own_write_us(sample: &Sample) -> Option<f64> {
    sample.event(Event::RfsRandomIo)?.percentile_us(0.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use standfast_documents::Status;

    fn estimate(destinations: serde_json::Value) -> Estimate {
        let status =
            json!({ "role": "primary", "time_us": 9, "captured": 5000, "destinations": destinations });
        let mut rate = ApplyRate::default();
        rate.take(&[0.0, 1.0].map(|at_s| Moment {
            at_s,
            worked_s: at_s,
            applied: (at_s * 100.0) as u64,
            busy: false,
        }));
        let rates = BTreeMap::from([("oslo".to_owned(), rate)]);
        let status = Status::of(&status);
        Estimate::of(&Observation { name: "paris".into(), status, ..Observation::default() }, &rates)
    }

    #[test]
    fn failover_loses_no_commit_while_commits_wait_for_the_standby() {
        let estimate = estimate(json!([
            { "name": "rome", "role": "standby", "state": "streaming", "transport_lag_bytes": 0,
              "apply_lag_bytes": 0, "received": 5000, "applied": 5000 },
            { "name": "oslo", "role": "standby", "state": "connecting", "required": true,
              "transport_lag_bytes": 50, "transport_lag_s": 3.0, "received": 4950, "applied": 4750, "log_write_us": 2000 },
        ]));
        assert_eq!(estimate.target.as_deref(), Some("oslo"));
        assert_eq!(estimate.loss, Lag::NONE);
        assert_eq!(estimate.failover_s, Some(2.0 + role_change_s(1, Some(2000.0))));
    }

    #[test]
    fn data_loss_of_an_async_standby_is_its_transport_lag() {
        let estimate = estimate(json!([{ "name": "oslo", "role": "standby", "state": "streaming",
            "required": false, "transport_lag_bytes": 70, "transport_lag_s": 4.5, "received": 4930, "applied": 4930 }]));
        assert_eq!(estimate.loss, Lag { seconds: Some(4.5), bytes: Some(70) });
        assert_eq!(estimate.failover_s, Some(role_change_s(1, None)));
    }

    #[test]
    fn nothing_is_estimated_without_a_standby_or_its_state() {
        assert_eq!(estimate(json!([])), Estimate::default());
        let far = json!([{ "name": "near", "role": "far sync", "state": "streaming", "required": true }]);
        assert_eq!(estimate(far), Estimate::default());
        let silent = json!([{ "name": "rome", "role": "standby", "state": "connecting", "transport_lag_bytes": 0,
            "received": 5000, "applied": 4960 }]);
        let silent = estimate(silent);
        assert_eq!((silent.loss, silent.failover_s), (Lag::default(), None));
    }

    #[test]
    fn role_change_takes_longer_with_slow_disks_and_more_databases() {
        let fast = role_change_s(1, Some(400.0));
        assert!((0.015..0.03).contains(&fast), "{fast}");
        assert!(role_change_s(100, Some(400.0)) > 5.0 * fast && role_change_s(1, Some(8_000.0)) > 5.0 * fast);
    }
}
