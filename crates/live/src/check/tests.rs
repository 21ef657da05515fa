//! The line and exit code for monitoring plugins.

use super::*;
use serde_json::{Value, json};

fn checked(status: Value) -> (Severity, String) {
    line("paris", &Status::of(&status), &Thresholds::default())
}

fn primary(destination: Value) -> Value {
    json!({ "role": "primary", "state": "open", "time_us": 1, "destinations": [destination] })
}

fn oslo(state: &str, lag_s: Value) -> Value {
    let bytes = if lag_s == 0.0 { json!(0) } else { json!(1000) };
    json!({ "name": "oslo", "role": "standby", "state": state, "transport_lag_bytes": bytes,
        "transport_lag_s": lag_s, "apply_lag_bytes": bytes, "apply_lag_s": lag_s })
}

#[test]
fn healthy_pair_is_ok_and_reports_its_lags() {
    let (severity, line) = checked(primary(oslo("streaming", json!(0.0))));
    let data = "oslo_transport_lag=0.000s;10;60 oslo_apply_lag=0.000s;30;300";
    assert_eq!((severity.exit_code(), line), (0, format!("STANDFAST OK - paris (primary): open | {data}")));
}

#[test]
fn unrenewed_certificate_is_a_warning_and_expiry_is_critical() {
    let with = |certificate: Value| {
        let mut status = primary(oslo("streaming", json!(0.0)));
        status["security"] = json!({ "certificate": certificate });
        checked(status)
    };
    for state in ["valid", "due"] {
        let (severity, line) = with(json!({ "state": state, "days_left": 0 }));
        assert_eq!(severity.exit_code(), 0, "{line}");
    }
    let failed = json!({ "state": "renewal failed", "days_left": 100, "renewal_failure": "away" });
    let (severity, line) = with(failed);
    assert!(severity == Severity::Warning, "{line}");
    assert!(line.contains("the certificate cannot be renewed, 100 days left: away"), "{line}");
    assert!(with(json!({ "state": "ending", "days_left": 29 })).0 == Severity::Warning);
    for state in ["expired", "not valid yet"] {
        let why = "the clock of this host is 24.0 h ahead of that of `paris`";
        let (severity, line) = with(json!({ "state": state, "days_left": -1, "renewal_failure": why }));
        assert!(severity == Severity::Critical && line.contains(why), "{line}");
    }
}

#[test]
fn lag_above_its_threshold_is_reported_with_the_standby() {
    let (severity, line) = checked(primary(oslo("streaming", json!(10.5))));
    assert_eq!(severity.exit_code(), 1);
    assert!(line.starts_with("STANDFAST WARNING - paris (primary): oslo: transport lag 11 s |"), "{line}");
    assert_eq!(checked(primary(oslo("streaming", json!(61)))).0.exit_code(), 2);
}

#[test]
fn instance_thresholds_override_the_default_thresholds() {
    let mut status = primary(oslo("streaming", json!(10.5)));
    status["thresholds"] = json!({ "transport_lag_warn_s": 11, "apply_lag_critical_s": 10 });
    let own = Thresholds::of(&Status::of(&status));
    assert_eq!(own.transport, Limits { warn_s: 11.0, critical_s: 60.0 });
    assert_eq!(own.apply, Limits { warn_s: 30.0, critical_s: 10.0 });
    let (severity, line) = line("paris", &Status::of(&status), &own);
    assert!(severity == Severity::Critical && line.contains("oslo: apply lag"), "{line}");
}

#[test]
fn missing_lag_is_reported_as_unknown_and_never_ok() {
    let (severity, line) = checked(primary(oslo("streaming", json!(null))));
    assert_eq!(severity.exit_code(), 3);
    assert!(line.contains("oslo_transport_lag=U"), "{line}");
    assert_eq!(checked(json!(null)).0.exit_code(), 3);
}

#[test]
fn an_unprotected_file_in_a_protected_directory_is_a_warning() {
    let files = json!(["/a/1.db", "/a/2.db", "/a/3.db", "/a/4.db"]);
    let (severity, line) =
        checked(json!({ "role": "primary", "state": "open", "time_us": 1, "unprotected_files": files }));
    assert_eq!(severity, Severity::Warning);
    assert!(line.contains("/a/1.db, /a/2.db, /a/3.db and 1 more"), "{line}");
}

#[test]
fn recent_commits_without_the_vfs_are_a_warning() {
    let at = |time_us: u64| {
        let database = json!({ "name": "app.db", "state": "open", "foreign_commits": 3, "foreign_seen_us": 5_000_000,
            "foreign_processes": [{ "pid": 7, "name": "cron", "access": "no_extension" }] });
        checked(json!({ "role": "primary", "state": "open", "time_us": time_us, "databases": [database] }))
    };
    let (severity, line) = at(15_000_000);
    assert_eq!(severity, Severity::Warning);
    assert!(line.contains("app.db: 3 commits without Standfast") && line.contains("cron (pid 7)"), "{line}");
    assert_eq!(at(2_000_000_000).0, Severity::Ok);
}

#[test]
fn disconnected_standby_and_failed_instance_are_critical() {
    assert_eq!(checked(primary(oslo("connecting", json!(1)))).0.exit_code(), 2);
    let failed = json!({ "role": "primary", "state": "failed", "failure": "disk\nhint: another" });
    let (severity, line) = checked(failed);
    assert_eq!(severity.exit_code(), 2);
    assert!(line.ends_with("failed: disk"), "{line}");
}

fn primary_with(key: &str, value: Value) -> Value {
    let mut status = primary(oslo("streaming", json!(0.0)));
    status[key] = value;
    status
}

#[test]
fn maximum_availability_without_sync_standby_is_a_warning() {
    let protection =
        |mode: &str, level: &str| primary_with("protection", json!({ "mode": mode, "level": level }));
    let (severity, line) = checked(protection("maximum-availability", "maximum-performance"));
    assert_eq!(severity, Severity::Warning);
    assert!(line.contains("commits are on this machine only"), "{line}");
    assert_eq!(checked(protection("maximum-availability", "resynchronization")).0, Severity::Warning);
    assert_eq!(checked(protection("maximum-availability", "maximum-availability")).0, Severity::Ok);
    assert_eq!(checked(protection("maximum-performance", "maximum-performance")).0, Severity::Ok);
}

#[test]
fn databases_not_in_service_are_counted_and_listed() {
    let states = |states: &[&str]| {
        let database = |state: &&str| json!({ "name": format!("{state}.db"), "state": state });
        primary_with("databases", states.iter().map(database).collect())
    };
    assert_eq!(checked(states(&["open", "open"])).0, Severity::Ok);
    let (severity, line) = checked(states(&["open", "failed", "left out"]));
    assert_eq!(severity, Severity::Critical);
    assert!(line.contains("`failed`: 1 (failed.db)") && line.contains("`left out`: 1"), "{line}");
    assert_eq!(checked(primary_with("databases", json!([{}]))).0, Severity::Critical, "unknown is not OK");
}

#[test]
fn database_still_admitting_foreign_writers_is_a_warning() {
    let of = |writers: &str| {
        let database = json!({ "name": "app.db", "state": "open", "foreign_writers": writers });
        checked(primary_with("databases", json!([database])))
    };
    assert_eq!((of("refused").0, of("counted").0), (Severity::Ok, Severity::Ok));
    let (severity, line) = of("refusing");
    assert_eq!(severity, Severity::Warning);
    assert!(line.contains("not refused yet") && line.contains("1 (app.db)"), "{line}");
}

#[test]
fn standby_with_stopped_apply_is_critical_at_its_primary() {
    let mut status = primary(oslo("streaming", json!(0.0)));
    status["destinations"][0]["stopped_total"] = json!(1);
    status["destinations"][0]["stopped_databases"] =
        json!([{ "database": "(all)", "applied": 5, "reason": "apply is stopped by command" }]);
    let (severity, line) = checked(status.clone());
    assert_eq!(severity, Severity::Critical);
    assert!(line.contains("oslo: redo is not applied to any database: apply is stopped"), "{line}");
    status["destinations"][0]["stopped_databases"] = json!([{ "database": "a.db", "reason": "x" }]);
    assert!(checked(status).1.contains("not applied to 1 databases (a.db)"));
}

#[test]
fn plain_tcp_is_a_warning_with_its_remedy() {
    let (severity, line) = checked(primary_with("security", json!({ "insecure": true })));
    assert_eq!(severity, Severity::Warning);
    assert!(line.contains("plain TCP") && line.contains("standfast cert join"), "{line}");
    assert_eq!(checked(primary_with("security", json!({ "insecure": false }))).0, Severity::Ok);
}

#[test]
fn a_file_that_is_not_in_its_place_is_critical() {
    let (severity, line) = checked(primary_with("moved_files", json!(["lock file /d/lock was removed"])));
    assert_eq!(severity, Severity::Critical);
    assert!(line.contains("not in its place: lock file /d/lock was removed"), "{line}");
}

#[test]
fn never_synchronised_destination_is_a_warning() {
    let mut status = primary(oslo("streaming", json!(0.0)));
    status["destinations"][0]["standing"] = json!("new");
    let (severity, line) = checked(status);
    assert_eq!(severity, Severity::Warning);
    assert!(line.contains("oslo: commits do not wait for it yet"), "{line}");
}

#[test]
fn differing_pages_are_critical_at_primary_and_standby() {
    let mut differs = oslo("streaming", json!(0.0));
    differs["differing_pages"] = json!(2);
    differs["verified_databases"] = json!([{ "database": "a.db", "differing": 2, "pages": [] },
        { "database": "b.db", "differing": 0, "pages": [] }]);
    let (severity, line) = checked(primary(differs));
    assert!(line.contains("oslo: 2 pages of a.db differ from those of the primary"), "{line}");
    assert_eq!(severity.exit_code(), 2);
    let mut here = primary(oslo("streaming", json!(0.0)));
    here["differing_pages"] = json!([{ "database": "a.db", "page": 4, "scn": 9 }]);
    let (severity, line) = checked(here);
    assert!(line.contains("1 pages of a.db here differ from those of a former primary"), "{line}");
    assert_eq!(severity.exit_code(), 2);
}

#[test]
fn configured_apply_delay_is_no_finding() {
    let standby = |delay: u64| {
        json!({ "role": "standby", "state": "applying", "standby": { "connected": true,
        "transport_lag_s": 0.0, "transport_lag_bytes": 0, "apply_lag_bytes": 5, "apply_lag_s": 3600.0,
        "delay_s": delay } })
    };
    assert_eq!(checked(standby(3600)).0, Severity::Ok);
    assert_eq!(checked(standby(0)).0, Severity::Critical);
    // Its primary does not warn either.
    let at_primary = |delay: u64| {
        let mut oslo = oslo("streaming", json!(0.0));
        for (field, value) in [("apply_lag_bytes", 1000), ("apply_lag_s", 3600), ("delay_s", delay)] {
            oslo[field] = json!(value);
        }
        checked(primary(oslo))
    };
    assert_eq!(at_primary(3600).0, Severity::Ok, "{}", at_primary(3600).1);
    assert!(at_primary(3600).1.contains("oslo_apply_lag=3600.000s;3630;3900"), "{}", at_primary(3600).1);
    assert_eq!(at_primary(0).0, Severity::Critical);
}
