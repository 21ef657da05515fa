//! The instance as a whole: v$database, the alert log, settings.

use super::builder::{Builder, cell};
use super::logs::list;
use super::text::{capitals, time_of};
use serde_json::Value;
use standfast_documents::Status;
use standfast_instruments::Observation;

pub fn database(rows: &mut Builder, at: &Observation) {
    let (status, catalog) = (&at.status, &at.catalog);
    let role = status.role.as_deref();
    let received = status.standby.as_ref();
    let protection = status.protection.as_ref();
    let by_role = |primary, standby, far_sync| match role {
        Some("primary") => Some(primary),
        Some("standby") => Some(standby),
        Some("far sync") => Some(far_sync),
        _ => None,
    };
    let current = match role {
        Some("primary") => status.durable,
        Some("standby") => received.and_then(|received| received.applied),
        _ => received.and_then(|received| received.hardened),
    };
    let archived = list(&catalog.archived).iter().filter_map(|log| log.next_scn).max();
    let fast_start = status.fast_start_failover.as_ref();
    let target = fast_start.and_then(|at| at.target.as_deref()).filter(|target| !target.is_empty());
    let observer = fast_start.and_then(|at| at.observer.as_deref()).and_then(|at| at.split_once('@'));
    let observer = observer.map(|(_, address)| address.rsplit_once(':').map_or(address, |(host, _)| host));
    let failed_over = role == Some("primary") && catalog.incarnation > Some(1);
    rows.row([
        ("dbid", cell(&catalog.family)),
        ("name", cell(at.name.as_str())),
        ("resetlogs_change_no", cell(catalog.branch)),
        ("resetlogs_time", cell(time_of(catalog.incarnation_time_us))),
        ("log_mode", cell("ARCHIVELOG")),
        ("checkpoint_change_no", cell(status.log.as_ref().and_then(|log| log.checkpoint))),
        ("archive_change_no", cell(archived)),
        ("controlfile_type", cell(by_role("CURRENT", "STANDBY", "FAR SYNC"))),
        ("open_mode", cell(open_mode(status))),
        ("protection_mode", cell(protection.and_then(|at| at.mode.as_deref()).map(capitals))),
        ("protection_level", cell(protection.and_then(|at| at.level.as_deref()).map(capitals))),
        ("remote_archive", cell("ENABLED")),
        ("activation_no", cell(&catalog.incarnation_id)),
        ("switchover_no", cell(&catalog.incarnation_id)),
        ("database_role", cell(by_role("PRIMARY", standby_role(status), "FAR SYNC"))),
        ("archivelog_change_no", cell(archived)),
        ("dataguard_broker", cell("DISABLED")),
        ("guard_status", cell(by_role("NONE", "ALL", "NONE"))),
        ("force_logging", cell(true)),
        ("current_scn", cell(current)),
        ("flashback_on", cell(false)),
        ("db_unique_name", cell(at.name.as_str())),
        ("standby_became_primary_scn", cell(catalog.branch.filter(|_| failed_over))),
        ("fs_failover_mode", cell(fast_start.map_or("DISABLED", |_| "ZERO DATA LOSS"))),
        ("fs_failover_status", cell(fast_start.map_or(Some("DISABLED"), |at| at.status.as_deref()))),
        ("fs_failover_current_target", cell(target)),
        (
            "fs_failover_threshold",
            cell(fast_start.and_then(|at| at.threshold_ms).map(|ms| ms.div_ceil(1_000))),
        ),
        ("fs_failover_observer_present", cell(fast_start.and_then(|at| at.observed))),
        ("fs_failover_observer_host", cell(observer)),
        ("controlfile_converted", cell(false)),
        ("primary_db_unique_name", cell(primary_of(at))),
    ]);
}

fn standby_role(status: &Status) -> &'static str {
    let is_snapshot = status.standby.as_ref().is_some_and(|standby| standby.snapshot.is_some());
    if is_snapshot { "SNAPSHOT STANDBY" } else { "PHYSICAL STANDBY" }
}

fn open_mode(status: &Status) -> Option<&'static str> {
    Some(match (status.role.as_deref()?, status.state.as_deref()?) {
        ("primary", "open") | ("standby", "snapshot standby") => "READ WRITE",
        ("primary", "poisoned" | "failed") => "READ ONLY",
        ("standby", "applying") => "READ ONLY WITH APPLY",
        ("standby", "apply stopped" | "apply error") => "READ ONLY",
        _ => "MOUNTED",
    })
}

/// The primary that the redo comes from, as far as this instance knows.
fn primary_of(at: &Observation) -> Option<&str> {
    if at.status.is_primary() {
        return Some(&at.name);
    }
    let source = at.status.standby.as_ref()?.source.as_ref()?;
    match source.role.as_deref() {
        Some("primary") => source.name.as_deref(),
        _ => source.via.as_ref()?.first().map(String::as_str),
    }
}

pub fn dataguard_status(rows: &mut Builder, at: &Observation) {
    for (number, line) in at.status.alerts().iter().enumerate() {
        // `2026-11-21T10:00:00.123Z message`.
        let (stamp, message) = line.split_once(' ').unwrap_or(("", line.as_str()));
        let stamp = stamp.get(..19).map(|stamp| stamp.replace('T', " "));
        let severity = severity(message);
        rows.row([
            ("facility", cell(facility(message))),
            ("severity", cell(severity)),
            ("dest_id", cell(destination(at, message))),
            ("message_num", cell(number + 1)),
            ("callout", cell(matches!(severity, "Error" | "Fatal"))),
            ("timestamp", cell(stamp)),
            ("message", cell(message)),
        ]);
    }
}

/// Severity of an alert log line, derived from its words.
fn severity(message: &str) -> &'static str {
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if has(&["FENCED", "STOPPING", "poisoned", "POISONED"]) {
        "Fatal"
    } else if has(&["LEFT BEHIND", "cannot", "failed", "FAILED", "refused", "NOT APPLIED", "differs"]) {
        "Error"
    } else if has(&["degraded", "DEGRADED", "stalled", "STALLED", "given up", "lost", "warning", "WARNING"]) {
        "Warning"
    } else if has(&["starting", "opened", "stopped", "added", "removed", "enabled", "deferred", "failover"]) {
        "Control"
    } else {
        "Informational"
    }
}

fn facility(message: &str) -> Option<&'static str> {
    let has = |words: &[&str]| words.iter().any(|word| message.contains(word));
    if has(&["destination"]) {
        Some("Log Transport Services")
    } else if has(&["apply", "applied"]) {
        Some("Log Apply Services")
    } else if has(&["stream from", "source", "gap"]) {
        Some("Remote File Server")
    } else {
        None
    }
}

/// Number of the destination that a line names.
fn destination(at: &Observation, message: &str) -> Option<u64> {
    let (_, rest) = message.split_once("destination ")?;
    let name = rest.split([' ', ':', ',', ';']).next()?.trim_matches('`');
    list(&at.catalog.destinations).iter().find(|at| at.name.as_deref() == Some(name))?.id
}

pub fn parameter(rows: &mut Builder, at: &Observation) {
    let settings = list(&at.catalog.parameters).iter().map(|setting| {
        let is_default = setting.value == setting.default;
        (setting.name.clone(), setting.value.clone(), is_default)
    });
    let destinations = list(&at.catalog.destinations).iter().map(|destination| {
        let name = destination.id.map(|id| format!("log_archive_dest_{id}"));
        (name, destination.attributes.clone().map(Value::String), false)
    });
    for (number, (name, value, is_default)) in settings.chain(destinations).enumerate() {
        let kind: u64 = match &value {
            Some(Value::Bool(_)) => 1,
            Some(Value::Number(_)) => 3,
            _ => 2,
        };
        let shown = match value {
            None | Some(Value::Null) => None,
            Some(Value::Bool(value)) => Some(value.to_string().to_uppercase()),
            Some(Value::String(text)) => Some(text),
            Some(other) => Some(other.to_string()),
        };
        rows.row([
            ("num", cell(number + 1)),
            ("name", cell(name)),
            ("type", cell(kind)),
            ("value", cell(shown.clone())),
            ("display_value", cell(shown)),
            ("isdefault", cell(if is_default { "TRUE" } else { "FALSE" })),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use crate::views::example::{self, Shown};
    use standfast_documents::status::FastStartFailover;

    #[test]
    fn each_instance_has_a_row_with_its_role() {
        let shown = Shown::of("v$database", &example::family());
        let columns =
            ["db_unique_name", "database_role", "open_mode", "current_scn", "primary_db_unique_name"];
        let expected = [
            ["south", "PRIMARY", "READ WRITE", "9000", "south"],
            ["north", "PHYSICAL STANDBY", "READ ONLY WITH APPLY", "9000", "south"],
        ];
        assert_eq!(shown.all(&columns), expected);
        let columns = ["protection_mode", "protection_level", "standby_became_primary_scn"];
        assert_eq!(shown.all(&columns)[0], ["MAXIMUM AVAILABILITY", "RESYNCHRONIZATION", "-"]);
    }

    #[test]
    fn failover_scn_is_shown_and_a_fenced_primary_is_mounted() {
        let mut at = example::primary();
        at.catalog.incarnation = Some(2);
        let became = |at: &_| Shown::of("v$database", at).only(&["standby_became_primary_scn", "open_mode"]);
        assert_eq!(became(&at), ["4096", "READ WRITE"]);
        at.status.state = Some("fenced".into());
        assert_eq!(became(&at)[1], "MOUNTED");
    }

    #[test]
    fn fast_start_failover_is_shown_as_the_member_sees_it() {
        let columns = [
            "fs_failover_mode",
            "fs_failover_status",
            "fs_failover_current_target",
            "fs_failover_threshold",
            "fs_failover_observer_present",
            "fs_failover_observer_host",
        ];
        let mut at = example::primary();
        assert_eq!(Shown::of("v$database", &at).only(&columns), ["DISABLED", "DISABLED", "-", "-", "-", "-"]);
        at.status.fast_start_failover = Some(FastStartFailover {
            status: Some("SYNCHRONIZED".into()),
            target: Some("north".into()),
            observer: Some("tokyo@10.0.0.3:7413".into()),
            observed: Some(true),
            observer_error: Some(String::new()),
            threshold_ms: Some(1_500),
        });
        let shown = Shown::of("v$database", &at).only(&columns);
        assert_eq!(shown, ["ZERO DATA LOSS", "SYNCHRONIZED", "north", "2", "YES", "10.0.0.3"]);
    }

    #[test]
    fn alert_log_rows_have_time_severity_and_destination() {
        let rows = Shown::of("v$dataguard_status", &example::primary()).all(&[
            "timestamp",
            "severity",
            "dest_id",
            "callout",
            "message",
        ]);
        assert_eq!(rows[0], ["2026-11-21 10:00:00", "Control", "-", "NO", "primary opened at SCN 4096"]);
        assert_eq!(rows[1][1..4], ["Error", "1", "YES"]);
    }

    #[test]
    fn parameters_show_types_and_destinations_as_attribute_text() {
        let shown = Shown::of("v$parameter", &example::primary());
        let columns = ["type", "value", "isdefault"];
        assert_eq!(shown.clone().with("name", "redo.groups").only(&columns), ["3", "4", "FALSE"]);
        let shown = shown.with("name", "log_archive_dest_1");
        assert_eq!(shown.only(&columns), ["2", "SERVICE=127.0.0.1:7411", "FALSE"]);
    }
}
