//! Destinations other than a single SYNC AFFIRM standby.

use crate::shared_configuration::await_configuration;
use crate::support::{INSERT, Place, TIMEOUT, add_destination, await_alert, await_status, must, start};
use crate::writers::Writers;
use standfast_campaign::instance::Instance;
use standfast_campaign::process::await_condition;
use standfast_campaign::status::Status;
use std::ffi::OsString;
use std::path::Path;

/// Creates a standby so slow that commits that do not wait for it have not arrived when the primary dies.
fn slow(place: &Place, primary: &Instance, name: &str) -> Instance {
    let mut standby = place.standby_of(primary, name);
    standby.stop().unwrap();
    standby.faults = Some("received=sleep:300@1+".into());
    start(&mut standby);
    standby
}

fn both_stream(status: &Status) -> bool {
    (0..2).all(|number| status.text(&format!("/destinations/{number}/state")) == "streaming")
}

/// FASTSYNC: redo that the standby had only in memory when the primary died is written before the failover.
#[test]
fn fastsync_standby_takes_over_with_all_acknowledged_commits() {
    let place = Place::new("fastsync");
    let (mut primary, database) = place.protecting();
    let standby = slow(&place, &primary, "north");
    add_destination(&primary, &standby, &["--mode", "fastsync", "--on-timeout", "stall"]);
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    let writers = Writers::start(&place, &database, 4);
    for _ in 0..5 {
        writers.await_progress();
    }
    primary.kill();
    let acknowledged = writers.noted();
    must(&standby, &["failover"]);
    acknowledged.all_in(&standby.standby_database("app.db"));
}

/// Every required destination has what was acknowledged, whatever its mode; one that reconnects receives what it lacks.
#[test]
fn either_standby_takes_over_with_all_acknowledged_commits() {
    let place = Place::new("two-standbys");
    let (mut primary, database) = place.protecting();
    let mut north = slow(&place, &primary, "north");
    let east = slow(&place, &primary, "east");
    add_destination(&primary, &north, &["--mode", "sync-affirm", "--on-timeout", "stall"]);
    add_destination(&primary, &east, &["--mode", "fastsync", "--on-timeout", "stall"]);
    await_status(&primary, "both standbys follow", |status| both_stream(status) && status.settled());
    // Each takes over by itself: neither follows the other.
    must(&primary, &["dg", "edit configuration set property BystandersFollowRoleChange = NONE"]);
    await_configuration(&primary, &east);
    let writers = Writers::start(&place, &database, 4);
    for _ in 0..3 {
        writers.await_progress();
        north.kill();
        start(&mut north);
    }
    writers.await_progress();
    primary.kill();
    let acknowledged = writers.noted();
    // Each by itself: neither depends on the other.
    for standby in [&east, &north] {
        must(standby, &["failover"]);
        acknowledged.all_in(&standby.standby_database("app.db"));
    }
}

/// All have the same content when the writers finish without a fault.
#[test]
fn two_standbys_in_different_modes_end_up_identical() {
    let place = Place::new("two-modes");
    let (primary, database) = place.protecting();
    let north = place.standby_of(&primary, "north");
    let east = place.standby_of(&primary, "east");
    add_destination(&primary, &north, &["--mode", "fastsync"]);
    add_destination(&primary, &east, &["--mode", "async"]);
    let writers = Writers::start(&place, &database, 4);
    writers.await_progress();
    let acknowledged = writers.finish();
    await_status(&primary, "both have applied everything", |status| {
        status.settled() && status.number("/destinations/1/applied") >= status.number("/captured")
    });
    for path in [&database, &north.standby_database("app.db"), &east.standby_database("app.db")] {
        acknowledged.all_in(path);
    }
}

/// GROUP and PRIORITY: the second destination takes over before commits are released without a standby, and gives way
/// when the first one is back.
#[test]
fn best_reachable_destination_of_group_serves_without_loss() {
    let place = Place::new("group");
    let (mut primary, database) = place.protecting();
    let mut north = place.standby_of(&primary, "north");
    let east = place.standby_of(&primary, "east");
    let set = |id: &str, standby: &Instance, name: &str, priority: u8| {
        let service = format!("SERVICE={} SYNC AFFIRM REOPEN=1 GROUP=1 PRIORITY={priority}", standby.address);
        must(&primary, &["destination", "set", id, &format!("{service} DB_UNIQUE_NAME={name}")]);
    };
    set("3", &east, "east", 2);
    set("2", &north, "north", 1);
    let only = |status: &Status, name: &str| {
        status.json()["destinations"].as_array().is_some_and(|all| all.len() == 1)
            && status.text("/destinations/0/name") == name
            && status.streams()
    };
    await_status(&primary, "the better one is in use, and only that", |status| only(status, "north"));
    let writers = Writers::start(&place, &database, 4);
    writers.await_progress();
    north.kill();
    writers.await_progress();
    let serves = |status: &Status, name: &str| {
        let all = status.json()["destinations"].as_array().cloned().unwrap_or_default();
        all.iter().any(|at| at["name"] == name && at["required"] == true && at["state"] == "streaming")
    };
    await_status(&primary, "the other one has taken over", |status| serves(status, "east"));
    writers.await_progress();
    start(&mut north);
    await_status(&primary, "the better one is back in use", |status| only(status, "north"));
    writers.await_progress();
    north.kill();
    await_status(&primary, "the other one once more", |status| serves(status, "east"));
    writers.await_progress();
    primary.kill();
    let acknowledged = writers.noted();
    must(&east, &["failover"]);
    acknowledged.all_in(&east.standby_database("app.db"));
}

fn files(directory: &Path) -> Vec<(OsString, Vec<u8>)> {
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().extension().is_some_and(|end| end == "arc"))
        .map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap()))
        .collect();
    files.sort();
    files
}

fn local_status(status: &Status) -> Vec<String> {
    let all = status.json()["local_destinations"].as_array().cloned().unwrap_or_default();
    all.iter().map(|at| at["status"].as_str().unwrap().to_owned()).collect()
}

/// MANDATORY: logs are not reused, and commits wait with a named wait, until the directory can be written.
#[test]
fn unwritable_mandatory_destination_holds_logs_until_archived() {
    let place = Place::new("mandatory");
    let (primary, database) = place.protecting();
    let copies = place.path("copies");
    let attributes = format!("LOCATION={} MANDATORY REOPEN=1 DB_UNIQUE_NAME=nas", copies.display());
    must(&primary, &["destination", "set", "5", &attributes]);
    must(&primary, &["switch-logfile"]);
    await_alert(&primary, "destination nas: archiving failed");
    let mut application = place.application(&database);
    application.run(INSERT);
    must(&primary, &["switch-logfile"]);
    application.run(INSERT);
    let stuck = primary.begin(&["switch-logfile"]).unwrap();
    await_status(&primary, "the switch waits for the destination", |status| {
        status.text("/waiting_for").contains("archiving needed")
    });
    application.send(INSERT);
    assert_eq!(local_status(&primary.status().unwrap()), ["ERROR"]);
    std::fs::create_dir(&copies).unwrap();
    application.answer();
    assert!(stuck.wait_for_end(TIMEOUT).unwrap().success());
    await_status(&primary, "it is served", |status| local_status(status) == ["VALID"]);
    must(&primary, &["switch-logfile"]);
    let archive = primary.directory.join("archive");
    await_condition("every archived log is there", TIMEOUT, || {
        let (here, there) = (files(&archive), files(&copies));
        Ok(if here.len() >= 4 && here == there {
            Ok(())
        } else {
            Err(format!("{} and {}", here.len(), there.len()))
        })
    })
    .unwrap_or_else(|error| panic!("{error}"));
}

/// ALTERNATE: another directory replaces the first one only while that fails.
#[test]
fn alternate_replaces_a_local_destination_while_it_fails() {
    let place = Place::new("alternate");
    let (primary, database) = place.protecting();
    let (first, spare) = (place.path("first"), place.path("spare"));
    std::fs::create_dir(&spare).unwrap();
    let spare_is = format!("LOCATION={} STATE=ALTERNATE DB_UNIQUE_NAME=spare", spare.display());
    must(&primary, &["destination", "set", "6", &spare_is]);
    let first_is =
        format!("LOCATION={} MAX_FAILURE=1 REOPEN=1 ALTERNATE=spare DB_UNIQUE_NAME=first", first.display());
    must(&primary, &["destination", "set", "5", &first_is]);
    let mut application = place.application(&database);
    application.run(INSERT);
    must(&primary, &["switch-logfile"]);
    await_alert(&primary, "destination spare stands in for it");
    await_status(&primary, "the spare one is in use", |status| local_status(status) == ["DISABLED", "VALID"]);
    await_condition("the spare one has the log", TIMEOUT, || {
        Ok(if files(&spare).is_empty() { Err("nothing".to_owned()) } else { Ok(()) })
    })
    .unwrap_or_else(|error| panic!("{error}"));
    std::fs::create_dir(&first).unwrap();
    await_status(&primary, "the first one is back", |status| local_status(status) == ["VALID", "ALTERNATE"]);
    assert_eq!(files(&first), files(&primary.directory.join("archive")));
}

#[test]
fn lag_above_threshold_is_reported_and_so_is_its_end() {
    let place = Place::new("threshold");
    let (mut primary, database) = place.protecting();
    primary.stop().unwrap();
    primary.configure("alert", "transport_lag_warn_s", 1).unwrap();
    start(&mut primary);
    let mut standby = place.standby_of(&primary, "north");
    add_destination(&primary, &standby, &["--mode", "async"]);
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    standby.stop().unwrap();
    place.application(&database).run(INSERT);
    await_alert(&primary, ", above 1.0 s");
    assert!(primary.alerts().contains("THRESHOLD north: transport lag"), "{}", primary.alerts());
    start(&mut standby);
    await_alert(&primary, ", well below 1.0 s again");
}
