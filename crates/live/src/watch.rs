//! Crossings of thresholds, in both directions, as lines for the alert log.
//!
//! A crossing is reported only after it has lasted, and its end only when the value is clearly back: a lag that hovers
//! around its threshold is one line, not one per second.

use crate::check::{Limits, Thresholds};
use crate::figure;
use crate::lags::{apply_lag, is_heard, transport_lag};
use standfast_documents::Status;
use std::collections::BTreeMap;

/// A lag is over when it is below this share of its threshold.
const OVER: f64 = 0.5;
/// Time that a threshold must be crossed, or no longer be, before it is reported, microseconds.
const LASTS_US: u64 = 5_000_000;
/// Time after which a lost connection is reported, microseconds.
const DISCONNECTED_US: u64 = 30_000_000;

/// What is watched of a standby.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Matter {
    Transport,
    Apply,
    Connection,
}

enum Now {
    Bad,
    Good,
    /// Between both, or unknown: the last report stands.
    Between,
}

#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    reported: bool,
    /// Since when the state differs from the last report.
    otherwise_since_us: Option<u64>,
}

impl Standing {
    /// Returns true when the state has changed for long enough to be reported.
    fn turns(&mut self, now: &Now, time_us: u64, lasts_us: u64) -> bool {
        let otherwise = matches!((now, self.reported), (Now::Bad, false) | (Now::Good, true));
        if !otherwise {
            self.otherwise_since_us = None;
            return false;
        }
        let since = *self.otherwise_since_us.get_or_insert(time_us);
        let turns = time_us.saturating_sub(since) >= lasts_us;
        if turns {
            *self = Standing { reported: !self.reported, otherwise_since_us: None };
        }
        turns
    }
}

#[derive(Clone, Debug, Default)]
pub struct Watch {
    standings: BTreeMap<(String, Matter), Standing>,
}

impl Watch {
    /// Evaluates a status; returns the lines to report.
    pub fn look(&mut self, name: &str, status: &Status, thresholds: &Thresholds) -> Vec<String> {
        let Some(time_us) = status.time_us else { return Vec::new() };
        let mut lines = Vec::new();
        let mut names: Vec<&str> = Vec::new();
        for at in status.destinations() {
            names.push(at.label());
            let apply = thresholds.apply.beyond_delay(at.delay_s);
            let lags = [
                (Matter::Transport, transport_lag(at, status.time_us).seconds, &thresholds.transport),
                (Matter::Apply, apply_lag(at, status.time_us).seconds, &apply),
            ];
            for (matter, lag, limits) in lags {
                lines.extend(self.lag(at.label(), matter, lag, limits, time_us));
            }
            lines.extend(self.connection(at.label(), is_heard(at, status.time_us), time_us));
        }
        if let Some(received) = &status.standby {
            names.push(name);
            let apply = thresholds.apply.beyond_delay(received.delay_s);
            lines.extend(self.lag(
                name,
                Matter::Transport,
                received.transport_lag_s,
                &thresholds.transport,
                time_us,
            ));
            lines.extend(self.lag(name, Matter::Apply, received.apply_lag_s, &apply, time_us));
            lines.extend(self.connection(name, received.connected == Some(true), time_us));
        }
        self.standings.retain(|(standby, _), _| names.contains(&standby.as_str()));
        lines
    }

    fn lag(
        &mut self,
        name: &str,
        matter: Matter,
        lag: Option<f64>,
        limits: &Limits,
        time_us: u64,
    ) -> Option<String> {
        let now = match lag {
            Some(lag) if lag > limits.warn_s => Now::Bad,
            Some(lag) if lag <= limits.warn_s * OVER => Now::Good,
            _ => Now::Between,
        };
        let standing = self.standings.entry((name.to_owned(), matter)).or_default();
        if !standing.turns(&now, time_us, LASTS_US) {
            return None;
        }
        let what = if matter == Matter::Apply { "apply lag" } else { "transport lag" };
        let lag = figure::seconds(lag.unwrap_or_default());
        let limit = figure::seconds(limits.warn_s);
        Some(match standing.reported {
            true => format!("THRESHOLD {name}: {what} {lag}, above {limit}"),
            false => format!("THRESHOLD {name}: {what} {lag}, well below {limit} again"),
        })
    }

    fn connection(&mut self, name: &str, up: bool, time_us: u64) -> Option<String> {
        let now = if up { Now::Good } else { Now::Bad };
        let standing = self.standings.entry((name.to_owned(), Matter::Connection)).or_default();
        let lasts = if up { LASTS_US } else { DISCONNECTED_US };
        if !standing.turns(&now, time_us, lasts) {
            return None;
        }
        Some(match standing.reported {
            true => format!("THRESHOLD {name}: not connected for {}", figure::seconds(lasts as f64 / 1e6)),
            false => format!("THRESHOLD {name}: connected again"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    struct Scene {
        watch: Watch,
        second: u64,
    }

    impl Scene {
        fn new() -> Scene {
            Scene { watch: Watch::default(), second: 1000 }
        }

        /// One call of `look` per second, for that many seconds.
        fn looks(&mut self, seconds: u64, state: &str, lag_s: Value) -> Vec<String> {
            (0..seconds).flat_map(|_| self.look(state, &lag_s)).collect()
        }

        fn look(&mut self, state: &str, lag_s: &Value) -> Vec<String> {
            self.second += 1;
            let status = json!({ "role": "primary", "time_us": self.second * 1_000_000, "destinations": [{
                "name": "oslo", "state": state, "transport_lag_bytes": 7, "transport_lag_s": lag_s }] });
            self.watch.look("paris", &Status::of(&status), &Thresholds::default())
        }
    }

    #[test]
    fn lasting_lag_is_reported_once_and_again_when_it_ends() {
        let mut scene = Scene::new();
        assert_eq!(scene.looks(100, "streaming", json!(1.0)), [""; 0]);
        assert_eq!(
            scene.looks(60, "streaming", json!(12.0)),
            ["THRESHOLD oslo: transport lag 12 s, above 10 s"]
        );
        assert_eq!(scene.looks(60, "streaming", json!(7.0)), [""; 0]);
        let over = ["THRESHOLD oslo: transport lag 2.0 s, well below 10 s again"];
        assert_eq!(scene.looks(60, "streaming", json!(2.0)), over);
    }

    #[test]
    fn apply_delay_is_not_reported_as_a_lag_by_either_end() {
        let reported = |delay_s: u64| {
            let lag = json!({ "name": "oslo", "state": "streaming", "connected": true, "transport_lag_bytes": 0,
                "transport_lag_s": 0.0, "apply_lag_bytes": 7, "apply_lag_s": 3600.0, "delay_s": delay_s });
            let (mut at_primary, mut at_standby) = (Watch::default(), Watch::default());
            let mut lines = Vec::new();
            for second in 1000..1060 {
                let time_us = second * 1_000_000;
                let primary = json!({ "role": "primary", "time_us": time_us, "destinations": [lag] });
                let standby = json!({ "role": "standby", "time_us": time_us, "standby": lag });
                lines.extend(at_primary.look("paris", &Status::of(&primary), &Thresholds::default()));
                lines.extend(at_standby.look("oslo", &Status::of(&standby), &Thresholds::default()));
            }
            lines
        };
        assert_eq!(reported(3600), [""; 0]);
        let without = reported(0);
        assert_eq!(without.len(), 2, "{without:?}");
        assert!(without.iter().all(|line| line.starts_with("THRESHOLD oslo: apply lag")), "{without:?}");
    }

    #[test]
    fn lag_oscillating_around_its_threshold_is_reported_once() {
        let mut scene = Scene::new();
        let mut reported = scene.looks(10, "streaming", json!(11.0));
        for _ in 0..100 {
            reported.extend(scene.looks(7, "streaming", json!(9.0)));
            reported.extend(scene.looks(7, "streaming", json!(11.0)));
        }
        assert_eq!(reported.len(), 1, "{reported:?}");
    }

    #[test]
    fn short_peaks_and_unknown_lags_are_not_reported() {
        let mut scene = Scene::new();
        assert_eq!(scene.looks(4, "streaming", json!(50.0)), [""; 0]);
        assert_eq!(scene.looks(4, "streaming", json!(1.0)), [""; 0]);
        assert_eq!(scene.looks(100, "streaming", json!(null)), [""; 0]);
    }

    #[test]
    fn long_disconnection_is_reported_and_so_is_the_reconnection() {
        let mut scene = Scene::new();
        assert_eq!(scene.looks(20, "connecting", json!(1.0)), [""; 0]);
        assert_eq!(scene.looks(20, "streaming", json!(1.0)), [""; 0]);
        assert_eq!(scene.looks(90, "connecting", json!(1.0)), ["THRESHOLD oslo: not connected for 30 s"]);
        assert_eq!(scene.looks(90, "streaming", json!(1.0)), ["THRESHOLD oslo: connected again"]);
    }
}
