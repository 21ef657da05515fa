//! Reduces an observation to what is worth keeping for a year. Pure.
//!
//! Kept: all counts, the state, the attributes of destinations, and what happened since the previous snapshot. Not
//! kept: single databases without a failure, long lists, activity between the kept samples.

use standfast_documents::status::Database;
use standfast_documents::{Catalog, Status};
use standfast_instruments::{Activity, History, Observation};

/// Maximum rows of activity in a snapshot; the sampling interval is doubled until they fit.
const ACTIVITY_MAX: usize = 96;
/// Shortest interval of the kept samples of activity, seconds, as in DBA_HIST_ACTIVE_SESS_HISTORY.
const ACTIVITY_EVERY_S: u32 = 10;
/// Longer lists of the catalog (archived logs) change all the time and are not kept.
const LIST_MAX: usize = 64;
/// Maximum databases that a snapshot names because they are not in order.
const DATABASES_MAX: usize = 16;

/// The end of the previous snapshot: only what came after it is kept.
#[derive(Clone, Debug, Default)]
pub struct Before {
    pub time_us: u64,
    /// The newest line of its alert log.
    pub last_alert: Option<String>,
}

impl Before {
    /// Returns the end of a snapshot that was just taken.
    pub fn of(observation: &Observation) -> Before {
        let last_alert = observation.status.alerts().last().cloned();
        Before { time_us: observation.sample.time_us, last_alert }
    }
}

/// Returns the document to keep, and the seconds that each row of its activity stands for.
pub fn condensed(observation: &Observation, before: &Before) -> (Observation, u32) {
    let mut kept = alone(observation, before);
    let (activity, every_s) = activity(&observation.history.activity, before.time_us);
    kept.history.activity = activity;
    kept.history.metrics = observation.history.metrics.clone();
    // Metrics of 15 s serve live views; those of 60 s are kept.
    kept.history.metrics.retain(|metric| metric.group_s == 60 && metric.end_us > before.time_us);
    kept.standbys = observation.standbys.clone();
    for standby in &mut kept.standbys {
        if let Some(of) = &mut standby.observation {
            **of = alone(of, before);
        }
    }
    (kept, every_s)
}

/// Returns the observation without its standbys, and of its history only the lag counts.
fn alone(observation: &Observation, before: &Before) -> Observation {
    Observation {
        name: observation.name.clone(),
        sample: observation.sample.clone(),
        status: status(&observation.status, before),
        catalog: catalog(&observation.catalog),
        history: History { lags: observation.history.lags.clone(), ..History::default() },
        standbys: Vec::new(),
    }
}

fn status(status: &Status, before: &Before) -> Status {
    let mut kept = status.clone();
    if let Some(databases) = &status.databases {
        let is_well = |database: &&Database| {
            database.failure.is_none() && matches!(database.state.as_deref(), Some("open" | "standby"))
        };
        let unwell = databases.iter().filter(|database| !is_well(database)).take(DATABASES_MAX);
        kept.databases = Some(unwell.map(short).collect());
        kept.databases_total = Some(databases.len() as u64);
    }
    for destination in kept.destinations.iter_mut().flatten() {
        // Long, and the events of the primary have the same.
        destination.responses = None;
    }
    if let Some(lines) = &status.alerts {
        let last = before.last_alert.as_ref();
        let seen = lines.iter().rposition(|line| last == Some(line));
        kept.alerts = Some(lines[seen.map_or(0, |seen| seen + 1)..].to_vec());
    }
    kept
}

fn short(database: &Database) -> Database {
    Database {
        name: database.name.clone(),
        state: database.state.clone(),
        failure: database.failure.clone(),
        ..Database::default()
    }
}

fn catalog(catalog: &Catalog) -> Catalog {
    let mut kept = catalog.clone();
    kept.archived = kept.archived.filter(|archived| archived.len() <= LIST_MAX);
    kept.parameters = kept.parameters.filter(|parameters| parameters.len() <= LIST_MAX);
    kept
}

/// Keeps every tenth second, or fewer: a regular sample, so that a row can be weighted by the interval.
fn activity(all: &[Activity], after_us: u64) -> (Vec<Activity>, u32) {
    let mut every_s = ACTIVITY_EVERY_S;
    loop {
        let taken = |row: &&Activity| {
            row.time_us > after_us && (row.time_us / 1_000_000).is_multiple_of(u64::from(every_s))
        };
        let kept: Vec<Activity> = all.iter().filter(taken).cloned().collect();
        // A snapshot has at most one sample at intervals above an hour.
        if kept.len() <= ACTIVITY_MAX {
            return (kept, every_s);
        }
        if every_s > 3600 {
            return (Vec::new(), every_s);
        }
        every_s *= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::activity as row;
    use serde_json::json;

    #[test]
    fn healthy_databases_are_counted_and_others_listed() {
        let of = Status::of(&json!({ "databases": [
            { "name": "a", "state": "open", "failure": null, "scn": 1 },
            { "name": "b", "state": "failed", "failure": "disk", "scn": 2 },
        ] }));
        let kept = status(&of, &Before::default());
        let b = Database::of(&json!({ "name": "b", "state": "failed", "failure": "disk" }));
        assert_eq!((kept.databases, kept.databases_total), (Some(vec![b]), Some(2)));
    }

    #[test]
    fn destination_status_is_kept_without_response_times() {
        let of = json!({ "destinations": [{ "name": "oslo", "received": 7, "responses": [0, 5, 9] }] });
        let kept = status(&Status::of(&of), &Before::default());
        assert_eq!(kept, Status::of(&json!({ "destinations": [{ "name": "oslo", "received": 7 }] })));
    }

    #[test]
    fn alert_log_lines_are_kept_only_once() {
        let of = Status::of(&json!({ "alerts": ["one", "two", "three"] }));
        let after = |last: Option<&str>| {
            status(&of, &Before { time_us: 0, last_alert: last.map(str::to_owned) }).alerts.unwrap()
        };
        assert_eq!(after(Some("two")), ["three"]);
        assert_eq!(after(Some("three")), [""; 0]);
        assert_eq!(after(Some("long ago")), ["one", "two", "three"]);
        assert_eq!(after(None), ["one", "two", "three"]);
    }

    #[test]
    fn busy_period_is_sampled_at_a_longer_stated_interval() {
        let rows = |sessions: u32| -> Vec<Activity> {
            (1..=600).flat_map(|second| (0..sessions).map(move |n| row(second, n, "log file sync"))).collect()
        };
        let (kept, every_s) = activity(&rows(1), 0);
        assert_eq!((kept.len(), every_s), (60, 10));
        let (kept, every_s) = activity(&rows(10), 0);
        assert_eq!(every_s, 80);
        assert_eq!(kept.len(), 70);
        let (kept, _) = activity(&rows(1), 300_000_000);
        assert_eq!(kept.len(), 30, "what the snapshot before has is not kept again");
    }
}
