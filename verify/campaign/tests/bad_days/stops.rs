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
fn primary_stop_releases_no_waiting_commit() {
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

/// A row that is changed and changed back leaves its page as it was, and the standby's WAL is empty after its stop.
#[test]
fn commit_that_changes_no_page_reaches_a_standby_that_was_restarted() {
    let place = Place::new("stop-no-page");
    let (primary, mut standby, database) = place.pair(&LONG);
    let mut application = place.application(&database);
    application.run("CREATE TABLE same(id INTEGER PRIMARY KEY, x)");
    application.run("INSERT INTO same VALUES(1, 5)");
    await_status(&primary, "the standby has applied it", Status::settled);
    standby.stop().unwrap();
    start(&mut standby);
    await_status(&primary, "the standby is back", Status::streams);
    for sql in
        ["BEGIN", "UPDATE same SET x = 6", "UPDATE same SET x = 5", "COMMIT", "INSERT INTO same VALUES(2, 5)"]
    {
        application.run(sql);
    }
    assert_same(&primary, &standby, &database);
}

#[test]
fn stopping_standby_announces_it_and_delays_no_commit() {
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
        "the commit waited for a standby that had announced its stop"
    );
    assert_ne!(check(&primary).0, 0, "unprotected is not OK");
    start(&mut standby);
    await_alert(&primary, "resynchronised at");
    assert_same(&primary, &standby, &database);
}

#[test]
fn stall_policy_waits_for_a_stopped_standby() {
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
fn unreachable_destination_is_not_added_and_delays_no_commit() {
    let place = Place::new("add-absent");
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
fn synchronised_destination_stays_required_after_a_restart() {
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
fn instance_with_another_name_is_not_added_as_destination() {
    let place = Place::new("add-other");
    let (primary, _database) = place.protecting();
    let standby = place.standby_of(&primary, "north");
    let add = ["destination", "add", "west", &standby.address];
    refuses(&primary, &add, 3, &["is `north`, not `west`"]);
    refuses(&primary, &["destination", "add", "south", &primary.address], 3, &["takes no redo"]);
    assert_eq!(must(&primary, &["destination", "list"]), "");
}

#[test]
fn status_check_fails_without_standby_or_with_apply_stopped() {
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
fn database_protected_later_has_the_standby_role_at_the_standby() {
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
