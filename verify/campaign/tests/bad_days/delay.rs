//! Standbys with an apply delay, or with apply stopped.

use crate::support::{INSERT, Place, add_destination, await_rows, await_status, must, refuses, rows, start};
use standfast_campaign::instance::Instance;
use standfast_campaign::status::Status;
use std::path::PathBuf;

/// Sets up a synchronous standby with an apply delay of an hour.
fn delayed(place: &Place) -> (Instance, Instance, PathBuf) {
    let (primary, database) = place.protecting();
    let mut standby = place.standby_of(&primary, "north");
    add_destination(&primary, &standby, &["--mode", "sync-affirm", "--on-timeout", "stall"]);
    // It has applied redo without a delay before, so a restart replays redo immediately.
    place.application(&database).run(INSERT);
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    standby.stop().unwrap();
    standby.configure("standby", "apply_delay_s", 3600).unwrap();
    start(&mut standby);
    await_status(&primary, "the standby follows again", Status::streams);
    (primary, standby, database)
}

/// Waits until the standby has everything and holds it back; asserts that none of it is applied.
#[track_caller]
fn assert_held_back(primary: &Instance, standby: &Instance) {
    let captured = primary.status().unwrap().number("/captured");
    await_status(standby, "a commit is held back", |status| {
        status.number("/standby/confirmed") >= captured && status.number("/standby/next_apply_us") > 0
    });
    assert_eq!(rows(&standby.standby_database("app.db")), 2);
}

#[test]
fn delayed_standby_applies_later_and_takes_over_with_all_redo() {
    let place = Place::new("delay");
    let (mut primary, mut standby, database) = delayed(&place);
    let mut application = place.application(&database);
    for _ in 0..5 {
        application.run(INSERT);
        // More logs than groups: the groups are reused although none of their redo is applied.
        must(&primary, &["switch-logfile"]);
    }
    assert_held_back(&primary, &standby);
    // A restart does not end the delay.
    standby.kill();
    start(&mut standby);
    application.run(INSERT);
    assert_held_back(&primary, &standby);
    standby.stop().unwrap();
    start(&mut standby);
    application.run(INSERT);
    assert_held_back(&primary, &standby);
    primary.kill();
    must(&standby, &["failover"]);
    assert_eq!(rows(&standby.standby_database("app.db")), 9);
}

#[test]
fn apply_can_be_stopped_and_started_without_delay() {
    let place = Place::new("apply-control");
    let (primary, standby, database) = delayed(&place);
    let mut application = place.application(&database);
    application.run(INSERT);
    assert_held_back(&primary, &standby);
    must(&standby, &["apply", "start", "--no-delay"]);
    let copy = standby.standby_database("app.db");
    await_rows(&copy, 3);
    must(&standby, &["apply", "stop"]);
    application.run(INSERT);
    let captured = primary.status().unwrap().number("/captured");
    let status = await_status(&standby, "it receives all the same", |status| {
        status.number("/standby/confirmed") >= captured
    });
    assert_eq!((status.text("/state"), rows(&copy)), ("apply stopped", 3));
    must(&standby, &["apply", "start", "--no-delay"]);
    await_rows(&copy, 4);
    refuses(&primary, &["apply", "stop"], 3, &["no standby", "hint: "]);
}

#[test]
fn delay_set_at_the_primary_holds_until_it_is_removed() {
    let place = Place::new("delay-primary");
    let (primary, database) = place.protecting();
    let standby = place.standby_of(&primary, "north");
    let set = |more: &str| {
        let attributes = format!("SERVICE={} SYNC AFFIRM {more} DB_UNIQUE_NAME=north", standby.address);
        must(&primary, &["destination", "set", "1", &attributes]);
    };
    set("DELAY=60");
    await_status(&standby, "it has heard of the delay", |status| status.number("/standby/delay_s") == 3600);
    let mut application = place.application(&database);
    application.run(INSERT);
    let captured = primary.status().unwrap().number("/captured");
    await_status(&standby, "the commit is held back", |status| {
        status.number("/standby/confirmed") >= captured && status.number("/standby/next_apply_us") > 0
    });
    let copy = standby.standby_database("app.db");
    assert_eq!(rows(&copy), 1);
    set("");
    await_rows(&copy, 2);
}

#[test]
fn standby_logs_are_created_by_rule_and_too_few_raise_a_warning() {
    let place = Place::new("log-rule");
    let (primary, _) = place.protecting();
    let mut standby = place.standby_of(&primary, "north");
    add_destination(&primary, &standby, &["--mode", "sync-affirm"]);
    await_status(&primary, "the standby follows", Status::streams);
    let status = standby.status().unwrap();
    let groups = |status: &Status| status.json()["log"]["groups"].as_array().unwrap().len();
    assert_eq!(groups(&status), groups(&primary.status().unwrap()) + 1);
    assert!(status.json()["standby"]["log_warning"].is_null(), "{}", status.json());

    // As if it had been created for a primary with fewer groups.
    let mut small = place.standby_of(&primary, "small");
    small.stop().unwrap();
    small.configure("redo", "groups", 2).unwrap();
    for file in ["standby_4a.log", "online_3a.log"] {
        std::fs::remove_file(small.directory.join("redo").join(file)).unwrap();
    }
    start(&mut small);
    add_destination(&primary, &small, &["--mode", "async"]);
    crate::support::await_alert(&small, "standby redo logs: 3 standby redo log groups, and the rule is 4");
    let status = small.status().unwrap();
    assert!(status.text("/standby/log_warning").contains("the rule is 4"), "{}", status.json());
    must(&standby, &["status"]);
    standby.stop().unwrap();
}
