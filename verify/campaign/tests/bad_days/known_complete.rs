//! How a failover reports commits that may be missing: in its messages, its exit code and its JSON output.

use crate::support::{INSERT, Place, QUICK, add_destination, assert_same, await_status, must, rows, start};
use standfast_campaign::instance::Instance;
use standfast_campaign::status::Status;

#[test]
fn failover_within_the_net_timeout_is_known_to_be_complete() {
    let place = Place::new("failover-complete");
    let (mut primary, standby, database) = place.pair(&[]);
    (0..5).for_each(|_| drop(place.application(&database).run(INSERT)));
    primary.kill();
    let finished = standby.run(&["failover", "--json"]).unwrap();
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    let answer: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    assert!(answer["branch"].as_u64().is_some() && answer["known"].is_null(), "{answer}");
    assert_eq!(answer["left_out"], serde_json::json!([]));
    assert!(!finished.stderr.contains("warning"), "{}", finished.stderr);
    assert_eq!(rows(&standby.standby_database("app.db")), 6);
}

/// The standby goes down, its primary continues alone and is destroyed, and the standby fails over.
#[test]
fn failover_of_standby_that_was_down_reports_possible_loss() {
    let place = Place::new("failover-down");
    let (mut primary, mut standby, database) =
        place.pair(&["--on-timeout", "degrade", "--net-timeout-ms", "300"]);
    let mut application = place.application(&database);
    application.run(INSERT);
    assert_same(&primary, &standby, &database);
    standby.kill();
    application.run(INSERT);
    primary.kill();
    start(&mut standby);
    let finished = standby.run(&["failover", "--json"]).unwrap();
    assert_eq!(finished.code, 6, "{}", finished.stderr);
    assert!(finished.stderr.contains("warning: NOT KNOWN whether everything is here"), "{}", finished.stderr);
    let answer: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    assert_eq!(answer["known"]["complete"], false, "{answer}");
    assert_eq!(rows(&standby.standby_database("app.db")), 2);
}

/// The link is lost, not a process.
#[test]
fn failover_after_a_long_silence_reports_possible_loss() {
    let place = Place::new("failover-silent");
    let (primary, standby, database) = place.pair(&QUICK);
    let mut application = place.application(&database);
    application.run(INSERT);
    assert_same(&primary, &standby, &database);
    primary.process().unwrap().freeze(true);
    // Silence for longer than the net timeout also ends the stream at the standby.
    await_status(&standby, "the stream has ended", |status| status.json()["standby"]["connected"] == false);
    let finished = standby.run(&["failover"]).unwrap();
    assert_eq!(finished.code, 6, "{}", finished.stderr);
    assert!(finished.stderr.contains("has been silent for"), "{}", finished.stderr);
    primary.process().unwrap().freeze(false);
}

/// Fails over within the net timeout, so that the silence is not the reason for the exit code.
#[track_caller]
fn fails_over_unknown(standby: &Instance, printed: &str) {
    let finished = standby.run(&["failover"]).unwrap();
    assert_eq!(finished.code, 6, "{}", finished.stderr);
    assert!(finished.stderr.contains(printed), "{}", finished.stderr);
}

/// The primary continues alone as soon as the connection is lost.
#[test]
fn failover_with_max_failure_reports_possible_loss() {
    let place = Place::new("failover-max-failure");
    let (mut primary, database) = place.protecting();
    let standby = place.standby_of(&primary, "north");
    let attributes = format!("SERVICE={} SYNC AFFIRM MAX_FAILURE=1 DB_UNIQUE_NAME=north", standby.address);
    must(&primary, &["destination", "set", "1", &attributes]);
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    primary.kill();
    fails_over_unknown(&standby, "did not wait for this standby when it was last heard");
}

/// The operator defers the standby, and commits continue without it.
#[test]
fn failover_of_a_deferred_standby_reports_possible_loss() {
    let place = Place::new("failover-deferred");
    let (mut primary, standby, database) = place.pair(&[]);
    let mut application = place.application(&database);
    application.run(INSERT);
    assert_same(&primary, &standby, &database);
    must(&primary, &["destination", "defer", "north"]);
    await_status(&standby, "the stream has ended", |status| status.json()["standby"]["connected"] == false);
    application.run(INSERT);
    primary.kill();
    fails_over_unknown(&standby, "did not wait for this standby when it was last heard");
    assert_eq!(rows(&standby.standby_database("app.db")), 2);
}

#[test]
fn failover_of_async_standby_reports_asynchronous_shipping() {
    let place = Place::new("failover-async");
    let (mut primary, database) = place.protecting();
    let standby = place.standby_of(&primary, "north");
    add_destination(&primary, &standby, &["--mode", "async"]);
    place.application(&database).run(INSERT);
    await_status(&primary, "the standby follows", |status: &Status| status.streams() && status.settled());
    primary.kill();
    let finished = standby.run(&["failover"]).unwrap();
    assert_eq!(finished.code, 0, "{}", finished.stderr);
    assert!(finished.stderr.contains("ships asynchronously"), "{}", finished.stderr);
}

#[test]
fn failover_without_any_database_names_each_excluded_one() {
    let place = Place::new("failover-none");
    let (mut primary, database) = place.protecting();
    let other = place.database("other.db");
    must(&primary, &["protect", &other.to_string_lossy()]);
    // The databases are copied to the standby: a database that is protected later would come as a full resync image,
    // which replaces what is written here.
    let mut standby = place.standby_of(&primary, "north");
    add_destination(&primary, &standby, &["--mode", "sync-affirm"]);
    assert_same(&primary, &standby, &database);
    assert_same(&primary, &standby, &other);
    standby.stop().unwrap();
    for name in ["app.db", "other.db"] {
        let mut writer = place.foreigner(&standby.standby_database(name));
        writer.run(INSERT);
        writer.close();
    }
    start(&mut standby);
    await_status(&primary, "both are stopped", |status| {
        status.json()["destinations"][0]["stopped_databases"]
            .as_array()
            .is_some_and(|stopped| stopped.len() == 2)
    });
    primary.kill();
    let refused = standby.run(&["failover"]).unwrap();
    assert_eq!(refused.code, 3, "{}", refused.stderr);
    let finished = standby.run(&["failover", "--immediate", "--json"]).unwrap();
    assert_eq!(finished.code, 6, "{}", finished.stderr);
    let answer: serde_json::Value = serde_json::from_str(&finished.stdout).unwrap();
    for name in ["app.db", "other.db"] {
        let lines = finished.stderr.lines().filter(|line| line.contains("OFFLINE") && line.contains(name));
        assert_eq!(lines.count(), 1, "{}", finished.stderr);
        let named =
            answer["left_out"].as_array().unwrap().iter().filter(|offline| offline["database"] == name);
        assert_eq!(named.count(), 1, "{answer}");
    }
    let checked = standby.run(&["status", "--check"]).unwrap();
    assert_eq!(checked.code, 2, "{}", checked.stdout);
}
