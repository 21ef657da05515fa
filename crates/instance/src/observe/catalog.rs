//! What an instance has and how it is configured, as JSON: log files, archived logs, destinations, settings. It is long
//! and changes rarely; `status` has what changes all the time.
//!
//! Positions are SCNs, times microseconds since the Unix epoch, sizes bytes. Unknown is null.

use crate::observe::status::groups;
use crate::role::running::{Mode, Running};
use serde_json::{Value, json};
use standfast_environment::config::attribute_text;
use standfast_environment::config::settings::{Config, DestinationConfig};
use standfast_environment::state::control::Control;
use standfast_format::LogKind;
use standfast_log::{ArchivedLog, RedoLog};
use std::sync::Arc;
use std::time::SystemTime;

/// Limit on listed archived logs, about 400 bytes each: a standby answers its primary with one frame.
const ARCHIVED_MAX: usize = 2_000;

pub fn catalog(running: &Running) -> Value {
    let environment = &running.environment;
    let control = environment.control();
    let incarnation = control.incarnation();
    let (logs, archived) = match log_of(running) {
        Some((kind, log)) => (
            logs(kind, environment.log_config(kind).block_bytes, &log),
            newest(&log.archived()).iter().map(|log| archived(&control, log)).collect(),
        ),
        None => (Value::Null, Value::Null),
    };
    json!({
        "family": control.family.to_string(),
        "role": control.role,
        "incarnation": incarnation.number,
        "incarnation_id": incarnation.id.to_string(),
        "branch": incarnation.branch,
        "incarnation_time_us": incarnation.time_us,
        "logs": logs,
        "archived": archived,
        "destinations": destinations(&running.configured(), &environment.config),
        "parameters": parameters(&environment.config),
    })
}

/// Returns the newest archived logs, so many that the catalog of a standby fits into one frame.
fn newest(all: &[ArchivedLog]) -> &[ArchivedLog] {
    &all[all.len().saturating_sub(ARCHIVED_MAX)..]
}

/// Returns the log that this instance writes in its role; `None` when it has no such role.
fn log_of(running: &Running) -> Option<(LogKind, Arc<RedoLog>)> {
    if let Some(primary) = running.primary() {
        return Some((LogKind::Online, primary.source.redo_log().clone()));
    }
    match &*running.mode() {
        Mode::Standby(standby) => Some((LogKind::Standby, standby.standby.shared().log.clone())),
        Mode::FarSync(far_sync) => Some((LogKind::Standby, far_sync.shared().log.clone())),
        _ => None,
    }
}

fn logs(kind: LogKind, block_bytes: usize, log: &RedoLog) -> Value {
    json!({
        "kind": if kind == LogKind::Online { "online" } else { "standby" },
        "block_bytes": block_bytes,
        "groups": groups(log),
    })
}

fn archived(control: &Control, log: &ArchivedLog) -> Value {
    let header = &log.header;
    let incarnation = control.incarnations.iter().find(|known| known.id == header.incarnation_id);
    let changed = std::fs::metadata(&log.path).and_then(|file| file.modified()).ok();
    let completed = changed.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    json!({
        "path": log.path,
        "sequence": header.sequence,
        "incarnation": header.incarnation,
        "incarnation_id": header.incarnation_id.to_string(),
        "branch": incarnation.map(|incarnation| incarnation.branch),
        "incarnation_time_us": incarnation.map(|incarnation| incarnation.time_us),
        "first_scn": header.first_scn,
        "first_time_us": header.first_time_us,
        "next_scn": header.next_scn,
        "bytes": log.bytes,
        "block_bytes": header.block_bytes,
        "completed_us": completed.map(|since| since.as_micros() as u64),
    })
}

fn destinations(configured: &[DestinationConfig], config: &Config) -> Value {
    let one = |at: &DestinationConfig| {
        json!({
            "id": at.id,
            "name": at.name,
            "address": at.address,
            "location": at.location,
            "state": at.state,
            "mode": at.transport_mode(),
            "net_timeout_ms": at.net_timeout_ms,
            "reopen_ms": at.reopen_ms,
            "max_failure": at.failures_allowed(),
            "delay_min": at.delay_min,
            "compression": at.compression,
            "valid_for": [at.valid_for.0, at.valid_for.1],
            "valid_for_primary": at.valid_for.of_a_primary(),
            "valid_for_standby": at.valid_for.of_a_standby(),
            "alternate": at.alternate,
            "mandatory": at.mandatory,
            "max_connections": at.max_connections,
            "insecure": config.instance.insecure,
            "attributes": attribute_text::write(at),
        })
    };
    configured.iter().map(one).collect()
}

/// Returns every setting with its value and default. Pure.
fn parameters(config: &Config) -> Value {
    let (now, default) = (json!(config), json!(Config::default()));
    let sections = now.as_object().into_iter().flatten();
    let settings = sections.filter_map(|(section, settings)| Some((section, settings.as_object()?)));
    settings
        .flat_map(|(section, settings)| {
            let default = &default[section.as_str()];
            settings.iter().map(move |(setting, value)| {
                json!({
                    "name": format!("{section}.{setting}"),
                    "value": value,
                    "default": default[setting.as_str()],
                })
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_have_defaults_and_exclude_destinations() {
        let mut config = Config::default();
        config.redo.groups = 7;
        config.destinations.push(DestinationConfig::new("oslo", "127.0.0.1:7411"));
        let all = parameters(&config);
        let all = all.as_array().unwrap();
        let groups = all.iter().find(|setting| setting["name"] == "redo.groups").unwrap();
        assert_eq!((&groups["value"], &groups["default"]), (&json!(7), &json!(3)));
        assert!(all.iter().any(|setting| setting["name"] == "standby.apply_workers"));
        assert!(all.iter().all(|setting| !setting["name"].as_str().unwrap().starts_with("destination")));
    }
}
