//! The time between two snapshots, with what was noted in it. Pure.

use serde_json::Value;
use standfast_instruments::{Activity, Metric, Observation};

/// An observation with its number in the repository.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moment {
    /// Number of the snapshot; `None` when it is not in the repository.
    pub id: Option<i64>,
    pub observation: Observation,
    pub parameters: Value,
}

/// A row of activity with its weight.
#[derive(Clone, Debug, PartialEq)]
pub struct Weighted {
    pub activity: Activity,
    /// Seconds that the row stands for.
    pub seconds: f64,
}

/// The time between two moments, with the events noted in it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Period {
    pub from: Moment,
    pub to: Moment,
    /// New lines of the alert log.
    pub alerts: Vec<String>,
    /// Sorted, the oldest first.
    pub metrics: Vec<Metric>,
    /// Sorted, the oldest first.
    pub activity: Vec<Weighted>,
}

impl Period {
    /// Returns the period between two observations that are not in a repository; a row of activity stands for 1 s.
    pub fn between(from: Observation, to: Observation, parameters: Value) -> Period {
        let moment = |observation| Moment { id: None, observation, parameters: parameters.clone() };
        let old = from.status.alerts();
        let new = to.status.alerts().iter().filter(|line| !old.contains(line));
        let alerts = new.cloned().collect();
        let begin_us = from.sample.time_us;
        let later = |activity: &&Activity| activity.time_us > begin_us;
        let activity = to.history.activity.iter().filter(later).cloned();
        let activity = activity.map(|activity| Weighted { activity, seconds: 1.0 }).collect();
        let metrics = to.history.metrics.iter().filter(|metric| metric.end_us > begin_us).cloned().collect();
        Period { from: moment(from), to: moment(to), alerts, metrics, activity }
    }
}
