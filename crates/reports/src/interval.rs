//! Figures of the time between two snapshots. Pure.
//!
//! Counts of two processes are never subtracted: across a restart they are unknown, and the report says so.

use crate::counters::Counters;
use crate::period::{Moment, Period};
use crate::replication::{StandbyFigures, standbys};
use serde::Serialize;
use serde_json::{Map, Value, json};
use standfast_documents::Status;
use standfast_documents::status::Protection;
use standfast_instruments::Observation;

/// A setting that differs between the two ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Changed {
    pub name: String,
    /// Value at the begin; null when not set.
    pub before: Value,
    /// Value at the end; null when not set.
    pub after: Value,
}

/// Figures of a period. `None`: unknown.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Interval {
    pub schema_version: u32,
    pub name: String,
    pub role: Option<String>,
    pub state: Option<String>,
    pub version: Option<String>,
    pub incarnation: Option<u64>,
    /// Protection mode and level at the end.
    pub protection: Option<Protection>,
    /// Number of the first snapshot; `None` when it is not in the repository.
    pub from: Option<i64>,
    /// Number of the second snapshot; `None` when it is not in the repository.
    pub to: Option<i64>,
    pub begin_us: u64,
    pub end_us: u64,
    pub seconds: f64,
    /// Start of the process that counted at the end, microseconds since the Unix epoch.
    pub started_us: u64,
    /// Why figures are unknown: restarts, resets, clocks.
    pub flags: Vec<String>,
    /// `None` across a restart.
    pub counters: Option<Counters>,
    pub standbys: Vec<StandbyFigures>,
    /// What commits wait for at the end.
    pub waiting_for: Option<String>,
    /// Commits that wait at the end.
    pub waiting_commits: Option<u64>,
    /// Size of a group of the online redo log, bytes.
    pub group_bytes: Option<u64>,
    /// Number of groups of the online redo log.
    pub groups: Option<usize>,
    /// Block size of the redo log, bytes.
    pub block_bytes: Option<u64>,
    pub sessions: Option<u64>,
    pub changed: Vec<Changed>,
    /// New lines of the alert log.
    pub alerts: Vec<String>,
    pub parameters: Value,
}

/// Version of [`Interval`] as JSON.
pub const SCHEMA_VERSION: u32 = 1;

impl Interval {
    /// Computes the figures of a period.
    pub fn of(period: &Period) -> Interval {
        let (from, to) = (&period.from.observation, &period.to.observation);
        let status = &to.status;
        let log = status.log.as_ref();
        let same_process = from.sample.started_us == to.sample.started_us;
        let counters = Counters::between(&from.sample, &to.sample);
        let standbys = standbys(from, to, same_process);
        Interval {
            schema_version: SCHEMA_VERSION,
            name: to.name.clone(),
            role: status.role.clone(),
            state: status.state.clone(),
            version: status.version.clone(),
            incarnation: status.incarnation,
            protection: status.protection.clone(),
            from: period.from.id,
            to: period.to.id,
            begin_us: from.sample.time_us,
            end_us: to.sample.time_us,
            seconds: to.sample.seconds_since(&from.sample),
            started_us: to.sample.started_us,
            flags: flags(period, counters.as_ref(), &standbys),
            counters,
            standbys,
            waiting_for: status.blocked_by().map(str::to_owned),
            waiting_commits: status.waiting_commits,
            group_bytes: log.and_then(|log| log.group_bytes),
            groups: log.and_then(|log| Some(log.groups.as_ref()?.len())),
            block_bytes: log.and_then(|log| log.block_bytes),
            sessions: status.sessions,
            changed: changed(&period.from, &period.to),
            alerts: period.alerts.clone(),
            parameters: period.to.parameters.clone(),
        }
    }

    /// Returns a number of the configuration by its dotted name.
    pub fn parameter(&self, name: &str) -> Option<f64> {
        self.parameters.pointer(&format!("/{}", name.replace('.', "/")))?.as_f64()
    }

    /// Returns a number of a destination's configuration.
    pub fn destination_parameter(&self, destination: &str, name: &str) -> Option<f64> {
        let mut all = self.parameters.get("destination")?.as_array()?.iter();
        all.find(|at| at.get("name").is_some_and(|at| at == destination))?.get(name)?.as_f64()
    }
}

fn flags(period: &Period, counters: Option<&Counters>, standbys: &[StandbyFigures]) -> Vec<String> {
    let (from, to) = (&period.from.observation, &period.to.observation);
    let mut flags = Vec::new();
    if from.sample.started_us != to.sample.started_us {
        flags.push(
            "RESTART: the instance was restarted in the interval; what it counted before is not subtracted, so \
             figures of the interval are not known"
                .to_owned(),
        );
    } else if to.sample.time_us <= from.sample.time_us {
        flags.push("CLOCK: the second snapshot is not later by the clock; there are no figures".to_owned());
    }
    if from.name != to.name || from.status.instance != to.status.instance {
        flags.push(format!("OTHER INSTANCE: the first snapshot is of `{}`", from.name));
    }
    if from.status.role != to.status.role {
        let role = |of: &Observation| of.status.role.clone().unwrap_or_else(|| "unknown".into());
        flags.push(format!("ROLE: {} at the begin, {} at the end", role(from), role(to)));
    }
    for reset in counters.map_or(&[][..], |counters| &counters.resets) {
        flags.push(format!("RESET: `{reset}` began again in the interval; its figures are not known"));
    }
    for standby in standbys {
        let name = &standby.name;
        if standby.restarted {
            flags.push(format!("RESTART: standby {name} was restarted; its own figures are not known"));
        }
        if let Some(why) = &standby.silent {
            flags.push(format!("SILENT: standby {name} says nothing of itself: {why}"));
        }
        for reset in standby.counters.as_ref().map_or(&[][..], |counters| &counters.resets) {
            flags.push(format!("RESET: `{reset}` of standby {name} began again; its figures are not known"));
        }
    }
    if period.to.parameters.is_null() {
        flags.push("SETTINGS: the configuration could not be read; no setting is judged".to_owned());
    }
    flags
}

/// The fields of the status that hold settings, not state.
fn settings_in(status: &Status) -> Value {
    let log = status.log.as_ref();
    json!({
        "version": status.version,
        "incarnation": status.incarnation,
        "listen": status.listen,
        "security": { "insecure": status.security.as_ref().and_then(|security| security.insecure) },
        "protection": { "mode": status.protection.as_ref().and_then(|protection| protection.mode.as_ref()) },
        "log": {
            "group_bytes": log.and_then(|log| log.group_bytes),
            "block_bytes": log.and_then(|log| log.block_bytes),
        },
    })
}

fn changed(from: &Moment, to: &Moment) -> Vec<Changed> {
    let settings = |of: &Moment| {
        let mut all = Map::new();
        flatten("", &of.parameters, &mut all);
        flatten("destinations", &json!(of.observation.catalog.destinations), &mut all);
        flatten("", &settings_in(&of.observation.status), &mut all);
        all
    };
    let (before, after) = (settings(from), settings(to));
    let mut names: Vec<&String> = before.keys().chain(after.keys()).collect();
    names.sort();
    names.dedup();
    let value = |of: &Map<String, Value>, name: &String| of.get(name).cloned().unwrap_or(Value::Null);
    let changed = |name: &String| Changed {
        name: name.clone(),
        before: value(&before, name),
        after: value(&after, name),
    };
    names.into_iter().map(changed).filter(|changed| changed.before != changed.after).collect()
}

/// Flattens `{"a": {"b": 1}}` to `a.b`; members of a list go by their `name`, or else by their index.
fn flatten(prefix: &str, value: &Value, out: &mut Map<String, Value>) {
    let join = |key: &str| if prefix.is_empty() { key.to_owned() } else { format!("{prefix}.{key}") };
    match value {
        Value::Null => {}
        Value::Object(fields) => fields.iter().for_each(|(key, value)| flatten(&join(key), value, out)),
        Value::Array(values) if values.iter().any(Value::is_object) => {
            for (index, value) in values.iter().enumerate() {
                let name = value
                    .get("name")
                    .and_then(Value::as_str)
                    .map_or_else(|| index.to_string(), str::to_owned);
                flatten(&join(&name), value, out);
            }
        }
        leaf => {
            out.insert(prefix.to_owned(), leaf.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Load, pair};
    use standfast_instruments::{Event, Statistic};

    #[test]
    fn interval_contains_only_what_happened_between_snapshots() {
        let interval = Interval::of(&pair(&Load::healthy()));
        let counters = interval.counters.as_ref().unwrap();
        assert_eq!(interval.flags, Vec::<String>::new());
        assert_eq!(counters.seconds, 600.0);
        assert_eq!(counters.statistic(Statistic::UserCommits), Some(600_000));
        assert_eq!(counters.per_second(Statistic::UserCommits), Some(1000.0));
        assert!(counters.mean_us(Event::LogFileSync).is_some_and(|us| (us - 400.0).abs() < 1.0));
        let standby = &interval.standbys[0];
        assert_eq!((standby.name.as_str(), standby.is_sync(), standby.restarted), ("oslo", true, false));
        assert!(standby.counters.as_ref().unwrap().mean_us(Event::RfsRandomIo).is_some());
    }

    #[test]
    fn interval_without_a_configuration_is_flagged() {
        let mut period = pair(&Load::healthy());
        period.to.parameters = serde_json::Value::Null;
        let interval = Interval::of(&period);
        assert_eq!(interval.parameter("redo.buffer_bytes"), None);
        assert!(
            matches!(&interval.flags[..], [flag] if flag.starts_with("SETTINGS")),
            "{:?}",
            interval.flags
        );
    }

    #[test]
    fn no_figures_are_subtracted_across_a_primary_restart() {
        let mut period = pair(&Load::healthy());
        period.to.observation.sample.started_us += 1;
        let interval = Interval::of(&period);
        assert_eq!(interval.counters, None);
        assert_eq!(interval.standbys[0].sent_bytes, None);
        assert!(interval.standbys[0].counters.is_some(), "the standby was not restarted");
        assert!(interval.flags[0].starts_with("RESTART"), "{:?}", interval.flags);
    }

    #[test]
    fn standby_restart_leaves_the_primary_figures_known() {
        let mut period = pair(&Load::healthy());
        period.to.observation.standbys[0].observation.as_mut().unwrap().sample.started_us += 1;
        let interval = Interval::of(&period);
        assert!(interval.counters.is_some());
        assert!(interval.standbys[0].restarted && interval.standbys[0].counters.is_none());
        assert!(interval.flags[0].contains("standby oslo"), "{:?}", interval.flags);
    }

    #[test]
    fn reset_counters_are_unknown_and_listed() {
        let mut period = pair(&Load::healthy());
        let sample = &mut period.from.observation.sample;
        sample.put_event(Event::LogFileSync, crate::synthetic::counts(700_000, 400.0));
        sample.put_statistic("redo writes", 400_000);
        let interval = Interval::of(&period);
        let counters = interval.counters.as_ref().unwrap();
        assert_eq!(counters.event(Event::LogFileSync), None);
        assert_eq!(counters.statistic(Statistic::RedoWrites), None);
        assert!(counters.statistic(Statistic::RedoSize).is_some());
        assert_eq!(counters.resets, ["log file sync", "redo writes"]);
        assert_eq!(counters.db_time_s(), None, "a sum with an unknown part is unknown");
        assert_eq!(interval.flags.len(), 2);
    }

    #[test]
    fn changed_settings_are_listed_but_state_is_not() {
        let mut period = pair(&Load::healthy());
        period.from.parameters = json!({ "redo": { "groups": 3, "members": ["a"] }, "destination": [{ "name": "oslo", "sdu_bytes": 0 }] });
        period.to.parameters = json!({ "redo": { "groups": 3, "members": ["a", "b"] }, "destination": [{ "name": "oslo", "sdu_bytes": 512 }] });
        let changed = Interval::of(&period).changed;
        let names: Vec<&str> = changed.iter().map(|changed| changed.name.as_str()).collect();
        assert_eq!(names, ["destination.oslo.sdu_bytes", "redo.members"]);
    }
}
