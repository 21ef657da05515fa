//! What an instance has and how it is configured, as a document: log files, archived logs, destinations, settings. It is long
//! and changes rarely; `status` has what changes all the time.
//!
//! Positions are SCNs, times microseconds since the Unix epoch, sizes bytes. Unknown is `None`.

use crate::observe::status::{groups, path, word};
use crate::role::running::{Mode, Running};
use serde_json::json;
use standfast_documents::Catalog;
use standfast_documents::catalog::{ArchivedLog, ConfiguredDestination, Logs, Parameter};
use standfast_environment::config::attribute_text;
use standfast_environment::config::settings::{Config, DestinationConfig};
use standfast_environment::state::control::Control;
use standfast_format::LogKind;
use standfast_log::RedoLog;
use std::sync::Arc;
use std::time::SystemTime;

/// Limit on listed archived logs, about 400 bytes each: a standby answers its primary with one frame.
const ARCHIVED_MAX: usize = 2_000;

pub fn catalog(running: &Running) -> Catalog {
    let environment = &running.environment;
    let control = environment.control();
    let incarnation = control.incarnation();
    let log = log_of(running);
    let newest = |log: &RedoLog| newest(&log.archived()).iter().map(|log| archived(&control, log)).collect();
    Catalog {
        family: Some(control.family.to_string()),
        role: Some(control.role.to_string()),
        incarnation: Some(incarnation.number.into()),
        incarnation_id: Some(incarnation.id.to_string()),
        branch: Some(incarnation.branch.0),
        incarnation_time_us: Some(incarnation.time_us),
        logs: log.as_ref().map(|(kind, log)| logs(*kind, environment.log_config(*kind).block_bytes, log)),
        archived: log.as_ref().map(|(_, log)| newest(log)),
        destinations: Some(destinations(&running.configured(), &environment.config)),
        parameters: Some(parameters(&environment.config)),
    }
}

/// Returns the newest archived logs, so many that the catalog of a standby fits into one frame.
fn newest(all: &[standfast_log::ArchivedLog]) -> &[standfast_log::ArchivedLog] {
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

fn logs(kind: LogKind, block_bytes: usize, log: &RedoLog) -> Logs {
    Logs {
        kind: Some(if kind == LogKind::Online { "online" } else { "standby" }.into()),
        block_bytes: Some(block_bytes as u64),
        groups: Some(groups(log)),
    }
}

fn archived(control: &Control, log: &standfast_log::ArchivedLog) -> ArchivedLog {
    let header = &log.header;
    let incarnation = control.incarnations.iter().find(|known| known.id == header.incarnation_id);
    let changed = std::fs::metadata(&log.path).and_then(|file| file.modified()).ok();
    let completed = changed.and_then(|time| time.duration_since(SystemTime::UNIX_EPOCH).ok());
    ArchivedLog {
        path: Some(path(&log.path)),
        sequence: Some(header.sequence),
        incarnation: Some(header.incarnation.into()),
        incarnation_id: Some(header.incarnation_id.to_string()),
        branch: incarnation.map(|incarnation| incarnation.branch.0),
        incarnation_time_us: incarnation.map(|incarnation| incarnation.time_us),
        first_scn: Some(header.first_scn.0),
        first_time_us: Some(header.first_time_us),
        next_scn: header.next_scn.map(|scn| scn.0),
        bytes: Some(log.bytes),
        block_bytes: Some(header.block_bytes.into()),
        completed_us: completed.map(|since| since.as_micros() as u64),
    }
}

fn destinations(configured: &[DestinationConfig], config: &Config) -> Vec<ConfiguredDestination> {
    configured.iter().map(|at| destination(at, config)).collect()
}

fn destination(at: &DestinationConfig, config: &Config) -> ConfiguredDestination {
    ConfiguredDestination {
        id: Some(at.id.into()),
        name: Some(at.name.clone()),
        address: Some(at.address.clone()),
        location: at.location.as_deref().map(path),
        state: word(&at.state),
        mode: word(&at.transport_mode()),
        net_timeout_ms: Some(at.net_timeout_ms),
        reopen_ms: Some(at.reopen_ms),
        max_failure: Some(at.failures_allowed().into()),
        delay_min: Some(at.delay_min.into()),
        compression: word(&at.compression),
        valid_for: Some([word(&at.valid_for.0), word(&at.valid_for.1)].into_iter().flatten().collect()),
        valid_for_primary: Some(at.valid_for.of_a_primary()),
        valid_for_standby: Some(at.valid_for.of_a_standby()),
        alternate: at.alternate.clone(),
        mandatory: Some(at.mandatory),
        max_connections: Some(at.max_connections.into()),
        insecure: Some(config.instance.insecure),
        attributes: Some(attribute_text::write(at)),
    }
}

/// Returns every setting with its value and default. Pure.
fn parameters(config: &Config) -> Vec<Parameter> {
    let (now, default) = (json!(config), json!(Config::default()));
    let sections = now.as_object().into_iter().flatten();
    let settings = sections.filter_map(|(section, settings)| Some((section, settings.as_object()?)));
    settings
        .flat_map(|(section, settings)| {
            let default = &default[section.as_str()];
            settings.iter().map(move |(setting, value)| Parameter {
                name: Some(format!("{section}.{setting}")),
                value: Some(value.clone()),
                default: Some(default[setting.as_str()].clone()),
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
        let named = |name: &str| all.iter().find(|setting| setting.name.as_deref() == Some(name));
        let groups = named("redo.groups").unwrap();
        assert_eq!((&groups.value, &groups.default), (&Some(json!(7)), &Some(json!(3))));
        assert!(named("standby.apply_workers").is_some());
        assert!(all.iter().all(|setting| !setting.name.as_ref().unwrap().starts_with("destination")));
    }
}
