//! Cascading standbys: standbys that receive redo from a standby.

use crate::support::{
    INSERT, Place, add_destination, await_alert, await_rows, await_status, must, rows, start,
};
use crate::writers::Writers;
use standfast_campaign::instance::Instance;
use standfast_campaign::status::Status;
use standfast_campaign::verify::{check_integrity, compare_pages};
use std::path::{Path, PathBuf};

/// Creates a chain: `south` ships synchronously to `middle`, which forwards to `far`.
fn chain(place: &Place) -> (Instance, Instance, Instance, PathBuf) {
    let (primary, database) = place.protecting();
    let middle = place.standby_of(&primary, "middle");
    let far = place.standby_of(&primary, "far");
    add_destination(&middle, &far, &["--mode", "async"]);
    add_destination(&primary, &middle, &["--mode", "sync-affirm", "--on-timeout", "stall"]);
    await_status(&primary, "the first standby follows", |status| status.streams() && status.settled());
    await_status(&middle, "the second standby follows", Status::streams);
    (primary, middle, far, database)
}

/// Waits until `far` has applied all that `primary` has captured, and compares.
#[track_caller]
fn assert_same_at(primary: &Instance, far: &Instance, database: &Path) {
    let captured = await_status(primary, "it rests", Status::settled).number("/captured");
    await_status(far, "the end of the chain has everything", |status| {
        status.number("/standby/applied") >= captured
    });
    let copy = far.standby_database("app.db");
    let found = compare_pages(database, &copy).unwrap_or_else(|error| panic!("{error}")).findings;
    assert!(found.none(), "{:?}", found.notes);
    assert!(check_integrity(&copy).unwrap().none());
}

#[test]
fn cascading_standby_forwards_redo_and_both_show_its_source() {
    let place = Place::new("cascade");
    let (primary, middle, far, database) = chain(&place);
    let mut application = place.application(&database);
    for _ in 0..20 {
        application.run(INSERT);
    }
    must(&primary, &["switch-logfile"]);
    application.run(INSERT);
    assert_same_at(&primary, &far, &database);
    let status = middle.status().unwrap();
    assert_eq!(status.text("/destinations/0/name"), "far", "{}", status.json());
    assert_eq!(status.json()["destinations"][0]["required"], false, "{}", status.json());
    assert_eq!(status.text("/standby/source/name"), "south");
    let status = far.status().unwrap();
    assert_eq!(status.text("/standby/source/name"), "middle", "{}", status.json());
    assert_eq!(status.text("/standby/source/role"), "standby");
    assert_eq!(status.text("/standby/source/via/0"), "south");
    // A database that is protected later takes the same path.
    let late = place.database("late.db");
    must(&primary, &["protect", &late.to_string_lossy()]);
    place.application(&late).run(INSERT);
    assert_same_at(&primary, &far, &database);
    await_rows(&far.standby_database("late.db"), 2);
}

#[test]
fn end_of_chain_takes_over_with_all_acknowledged_commits() {
    let place = Place::new("cascade-failover");
    let (mut primary, middle, far, database) = chain(&place);
    let writers = Writers::start(&place, &database, 4);
    for _ in 0..5 {
        writers.await_progress();
    }
    primary.kill();
    let acknowledged = writers.noted();
    // Includes redo that the primary had no time to confirm.
    let end = middle.status().unwrap().number("/standby/hardened");
    await_status(&far, "it has what the first standby has", |status| {
        status.number("/standby/hardened") >= end
    });
    must(&far, &["failover"]);
    acknowledged.all_in(&far.standby_database("app.db"));
}

#[test]
fn cascading_standby_killed_repeatedly_loses_nothing() {
    let place = Place::new("cascade-kill");
    let (primary, mut middle, mut far, database) = chain(&place);
    let writers = Writers::start(&place, &database, 4);
    for round in 0..6 {
        writers.await_progress();
        if round % 3 == 2 {
            far.kill();
            start(&mut far);
        }
        middle.kill();
        start(&mut middle);
    }
    writers.await_progress();
    let acknowledged = writers.finish();
    assert_same_at(&primary, &far, &database);
    for standby in [&middle, &far] {
        acknowledged.all_in(&standby.standby_database("app.db"));
    }
}

/// The primary dies between sending and writing redo, so its standby holds a divergent suffix. When the primary
/// returns, the suffix is truncated there and at the end of the chain.
#[test]
fn divergent_suffix_is_truncated_down_to_the_end_of_the_chain() {
    let place = Place::new("cascade-surplus");
    let (mut primary, middle, far, database) = chain(&place);
    let writers = Writers::start(&place, &database, 4);
    for _ in 0..6 {
        writers.await_progress();
        primary.kill();
        primary.faults = Some("log-write=kill@40".into());
        start(&mut primary);
        let process = primary.take_process().unwrap();
        assert!(process.ended_within(crate::support::TIMEOUT), "the fault did not strike");
        primary.faults = None;
        start(&mut primary);
    }
    writers.await_progress();
    let acknowledged = writers.finish();
    assert_same_at(&primary, &far, &database);
    acknowledged.all_in(&far.standby_database("app.db"));
    let cuts = |instance: &Instance| instance.alerts().matches("dropped redo").count();
    assert!(cuts(&middle) > 0 && cuts(&far) > 0, "{} {}", cuts(&middle), cuts(&far));
}

#[test]
fn failover_propagates_down_the_whole_chain() {
    let place = Place::new("cascade-incarnation");
    let (mut primary, middle, far, database) = chain(&place);
    let east = place.standby_of(&primary, "east");
    add_destination(&primary, &east, &["--mode", "sync-affirm", "--on-timeout", "stall"]);
    await_status(&primary, "both standbys follow", |status| {
        status.text("/destinations/1/state") == "streaming" && status.settled()
    });
    let mut application = place.application(&database);
    for _ in 0..5 {
        application.run(INSERT);
    }
    primary.kill();
    must(&east, &["failover"]);
    let database = east.standby_database("app.db");
    add_destination(&east, &middle, &["--mode", "sync-affirm"]);
    let mut application = place.application(&database);
    for _ in 0..5 {
        application.run(INSERT);
    }
    await_rows(&far.standby_database("app.db"), 11);
    let status = far.status().unwrap();
    assert_eq!(status.number("/incarnation"), 2, "{}", status.json());
    assert_eq!(status.text("/standby/source/via/0"), "east");
    // It can fail over in turn.
    must(&far, &["failover", "--force"]);
    assert_eq!(rows(&far.standby_database("app.db")), 11);
    assert_eq!(far.status().unwrap().number("/incarnation"), 3);
}

#[test]
fn redo_is_not_sent_in_a_loop() {
    let place = Place::new("cascade-circle");
    let (primary, middle, far, database) = chain(&place);
    add_destination(&far, &middle, &["--mode", "async", "--no-wait"]);
    await_status(&far, "it is not sent back", |status| {
        status.text("/destinations/0/last_trouble").contains("not sent back")
    });
    // Under another name the instance itself detects the loop.
    must(&far, &["destination", "remove", "middle"]);
    must(&far, &["destination", "add", "absent", &middle.address, "--mode", "async", "--no-wait"]);
    await_alert(&middle, "[loop]");
    place.application(&database).run(INSERT);
    assert_same_at(&primary, &far, &database);
    // Redo does not return to the primary either.
    must(&far, &["destination", "add", "absent", &primary.address, "--mode", "async", "--no-wait"]);
    await_alert(&far, "`south` answers where `absent` is configured");
    place.application(&database).run(INSERT);
    assert_same_at(&primary, &far, &database);
}

/// GROUP and PRIORITY among the destinations of a standby for which commits of the primary wait.
#[test]
fn best_reachable_destination_of_cascaded_group_serves() {
    let place = Place::new("cascade-group");
    let (mut primary, database) = place.protecting();
    let mut middle = place.standby_of(&primary, "middle");
    let mut north = place.standby_of(&primary, "north");
    let east = place.standby_of(&primary, "east");
    for (id, standby, name, priority) in [("3", &east, "east", 2), ("2", &north, "north", 1)] {
        let attributes = format!(
            "SERVICE={} SYNC AFFIRM REOPEN=1 NET_TIMEOUT=60 GROUP=1 PRIORITY={priority} \
             VALID_FOR=(STANDBY_LOGFILE,STANDBY_ROLE) DB_UNIQUE_NAME={name}",
            standby.address
        );
        must(&middle, &["destination", "set", id, &attributes]);
    }
    add_destination(&primary, &middle, &["--mode", "sync-affirm", "--on-timeout", "stall"]);
    let serves = |status: &Status, name: &str| {
        let all = status.json()["destinations"].as_array().cloned().unwrap_or_default();
        all.iter().any(|at| at["name"] == name && at["required"] == true && at["state"] == "streaming")
    };
    let alone = |status: &Status| status.json()["destinations"].as_array().is_some_and(|all| all.len() == 1);
    await_status(&middle, "the better one is in use, and only that", |status| {
        serves(status, "north") && alone(status)
    });
    let writers = Writers::start(&place, &database, 4);
    writers.await_progress();
    north.kill();
    await_status(&middle, "the other one has taken over", |status| serves(status, "east"));
    writers.await_progress();
    start(&mut north);
    await_status(&middle, "the better one is back in use", |status| serves(status, "north") && alone(status));
    writers.await_progress();
    north.kill();
    await_status(&middle, "the other one once more", |status| serves(status, "east"));
    writers.await_progress();
    primary.kill();
    middle.kill();
    let acknowledged = writers.noted();
    assert_eq!(
        east.run(&["failover"]).unwrap().code,
        6,
        "it cannot know that it has all: its source is gone"
    );
    acknowledged.all_in(&east.standby_database("app.db"));
}

#[test]
fn destination_abandoned_by_standby_is_retried_when_enabled() {
    let place = Place::new("cascade-enable");
    let (primary, database) = place.protecting();
    let middle = place.standby_of(&primary, "middle");
    let mut north = place.standby_of(&primary, "north");
    let attributes = format!(
        "SERVICE={} ASYNC REOPEN=1 MAX_FAILURE=1 VALID_FOR=(STANDBY_LOGFILE,STANDBY_ROLE) DB_UNIQUE_NAME=north",
        north.address
    );
    must(&middle, &["destination", "set", "2", &attributes]);
    add_destination(&primary, &middle, &["--mode", "sync-affirm"]);
    let is = |state: &'static str| move |status: &Status| status.text("/destinations/0/state") == state;
    await_status(&middle, "it is served", is("streaming"));
    north.kill();
    await_status(&middle, "it is given up", is("failed"));
    start(&mut north);
    place.application(&database).run(INSERT);
    must(&middle, &["destination", "enable", "north"]);
    await_status(&middle, "it is served again", is("streaming"));
    assert_same_at(&primary, &north, &database);
}
