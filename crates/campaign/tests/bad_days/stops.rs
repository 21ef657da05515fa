//! The actions of an instance are not failures of a peer: stops, and destinations that were never connected.

use super::security;
use super::support::*;
use standfast_campaign::application::client::Answer;
use standfast_campaign::status::Status;
use std::time::{Duration, Instant};

/// A net timeout so long that a test that waits for it fails.
const LONG: [&str; 2] = ["--net-timeout-ms", "120000"];

fn check(instance: &standfast_campaign::instance::Instance) -> (i32, String) {
    let checked = instance.run(&["status", "--check"]).unwrap();
    (checked.code, checked.stdout)
}

#[test]
fn a_stop_of_the_primary_releases_no_commit_that_waits() {
    let place = Place::new("stop-releases-nothing");
    let (mut primary, standby, database) = place.pair(&LONG);
    let attributes =
        format!("SERVICE={} SYNC AFFIRM NET_TIMEOUT=120 MAX_FAILURE=1 DB_UNIQUE_NAME=north", standby.address);
    must(&primary, &["destination", "set", "1", &attributes]);
    await_status(&primary, "commits wait for the standby", |status| status.streams() && status.settled());
    let mut application = place.application(&database);
    application.run(INSERT);
    standby.process().unwrap().freeze(true);
    application.send(INSERT);
    await_status(&primary, "a commit waits", |status| status.json()["waiting_commits"] == 1);
    primary.stop().unwrap();
    assert!(
        !matches!(application.answer_within(A_WHILE), Some(Answer::Rows(_))),
        "the stop acknowledged a commit that the standby does not have"
    );
    let alerts = primary.alerts();
    assert!(!alerts.contains("gave up") && !alerts.contains("DEGRADED"), "{alerts}");
    standby.process().unwrap().freeze(false);
}

#[test]
fn a_standby_that_is_stopped_says_so_and_delays_no_commit() {
    let place = Place::new("stop-announced");
    let (primary, mut standby, database) = place.pair(&LONG);
    let mut application = place.application(&database);
    application.run(INSERT);
    standby.stop().unwrap();
    await_alert(&primary, "DEGRADED to asynchronous: it is being stopped");
    let began = Instant::now();
    application.run(INSERT);
    assert!(
        began.elapsed() < Duration::from_secs(60),
        "the commit waited for a standby that had said it goes"
    );
    assert_ne!(check(&primary).0, 0, "unprotected is not OK");
    start(&mut standby);
    await_alert(&primary, "resynchronised at");
    assert_same(&primary, &standby, &database);
}

#[test]
fn a_standby_that_is_stopped_is_waited_for_under_the_stall_policy() {
    let place = Place::new("stop-stall");
    let (primary, mut standby, database) = place.pair(&["--on-timeout", "stall"]);
    let mut application = place.application(&database);
    application.run(INSERT);
    standby.stop().unwrap();
    await_alert(&primary, "is being stopped");
    application.send(INSERT);
    assert!(application.answer_within(A_WHILE).is_none(), "a commit returned without the standby");
    start(&mut standby);
    assert!(matches!(application.answer(), Answer::Rows(_)));
}

#[test]
fn a_destination_that_does_not_answer_is_not_added_and_delays_nothing() {
    let place = Place::new("add-nobody");
    let (primary, database) = place.protecting();
    let mut application = place.application(&database);
    let add = ["destination", "add", "north", "127.0.0.1:1"];
    refuses(&primary, &[&add[..], &LONG].concat(), 3, &["cannot be reached at 127.0.0.1:1", "--no-wait"]);
    assert_eq!(must(&primary, &["destination", "list"]), "");
    must(&primary, &[&add[..], &LONG, &["--no-wait"]].concat());
    let began = Instant::now();
    application.run(INSERT);
    assert!(began.elapsed() < Duration::from_secs(60), "a commit waited for what was never synchronised");
    let (code, line) = check(&primary);
    assert!(code > 0 && line.contains("north"), "{code} {line}");
}

#[test]
fn a_destination_that_was_synchronised_counts_after_a_restart() {
    let place = Place::new("counts-after-restart");
    let (mut primary, mut standby, database) = place.pair(&LONG);
    place.application(&database).run(INSERT);
    primary.stop().unwrap();
    standby.kill();
    start(&mut primary);
    let mut application = place.application(&database);
    application.send(INSERT);
    assert!(application.answer_within(A_WHILE).is_none(), "a commit returned without the standby");
    start(&mut standby);
    assert!(matches!(application.answer(), Answer::Rows(_)));
    await_status(&primary, "the standby follows", Status::settled);
}

#[test]
fn another_instance_than_the_one_that_is_named_is_not_added() {
    let place = Place::new("add-other");
    let (primary, _database) = place.protecting();
    let standby = place.standby_of(&primary, "north");
    let add = ["destination", "add", "west", &standby.address];
    refuses(&primary, &add, 3, &["is `north`, not `west`"]);
    refuses(&primary, &["destination", "add", "south", &primary.address], 3, &["takes no redo"]);
    assert_eq!(must(&primary, &["destination", "list"]), "");
}

#[test]
fn a_primary_alone_and_a_standby_that_does_not_apply_are_no_ok() {
    let place = Place::new("check-alone");
    let (primary, _database) = security::primary(&place);
    let (code, line) = check(&primary);
    assert!(code == 1 && line.contains("on this machine only"), "{code} {line}");
    let standby = security::standby(&place, &primary, "north", &[]);
    add_destination(&primary, &standby, &["--mode", "sync-affirm"]);
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    assert_eq!(check(&primary).0, 0, "{}", check(&primary).1);
    must(&standby, &["apply", "stop"]);
    await_status(&primary, "the primary knows that nothing is applied", |status| {
        status.json()["destinations"][0]["stopped_total"] == 1
    });
    let (code, line) = check(&primary);
    assert!(code == 2 && line.contains("apply is stopped by command"), "{code} {line}");
    must(&standby, &["apply", "start"]);
    await_status(&primary, "it is applied again", |status| {
        status.json()["destinations"][0]["stopped_total"] == 0
    });
    assert_eq!(check(&primary).0, 0, "{}", check(&primary).1);
}

#[test]
fn a_database_that_is_protected_later_has_the_role_of_the_standby_there() {
    let place = Place::new("protected-later");
    let (primary, standby, _database) = place.pair(&QUICK);
    let later = place.database("later.db");
    must(&primary, &["protect", &later.to_string_lossy()]);
    await_status(&primary, "the standby has it", Status::settled);
    assert_same(&primary, &standby, &later);
    let mut there = place.application(&standby.standby_database("later.db"));
    assert_eq!(there.run("SELECT standfast_role()"), [[serde_json::json!("standby")]]);
    let began = Instant::now();
    there.fails(INSERT, SQLITE_READONLY);
    assert!(began.elapsed() < Duration::from_secs(4), "a write waited for an instance that runs");
}
