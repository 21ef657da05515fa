//! Switchover: the roles of two instances are exchanged, with nothing lost or copied, or nothing has changed.

use crate::support::{
    A_WHILE, INSERT, Place, QUICK, SQLITE_READONLY, TIMEOUT, add_destination, assert_same, assert_same_files,
    await_alert, await_rows, await_status, must, refuses, rows, start,
};
use standfast_campaign::instance::Instance;
use standfast_campaign::process::await_condition;
use standfast_campaign::status::Status;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

const SHIP: [&str; 4] = ["--mode", "sync-affirm", "--net-timeout-ms", "3000"];

fn is(role: &str) -> impl Fn(&Status) -> bool + '_ {
    move |status| status.json()["role"] == role
}

fn inode(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().ino()
}

#[track_caller]
fn await_streaming(primary: &Instance) {
    await_status(primary, "its standby follows", |status| status.streams() && status.settled());
}

#[test]
fn roles_change_and_change_back_without_a_copy() {
    let place = Place::new("switchover");
    let (south, north, database) = place.pair(&SHIP[2..]);
    let copy = north.standby_database("app.db");
    let inodes = [inode(&database), inode(&copy)];
    let (mut here, mut there) = (place.application(&database), place.application(&copy));
    here.run(INSERT);
    must(&south, &["switchover", "north"]);
    await_status(&south, "it is a standby", is("standby"));
    let archived = std::fs::read_dir(south.directory.join("archive")).unwrap().count();
    assert!(archived >= 1, "all redo of the old primary is archived");
    await_status(&north, "it is the primary", is("primary"));
    there.run(INSERT);
    here.fails(INSERT, SQLITE_READONLY);
    assert!(here.printed().contains("is a physical standby"), "{}", here.printed());
    await_streaming(&north);
    assert_same_files(&north, &south, &copy, &database);
    await_rows(&database, 3);
    // Back again: the same connections continue.
    must(&north, &["switchover", "south"]);
    here.run(INSERT);
    there.fails(INSERT, SQLITE_READONLY);
    await_streaming(&south);
    assert_same(&south, &north, &database);
    await_rows(&copy, 4);
    assert_eq!(inodes, [inode(&database), inode(&copy)], "no file was replaced");
}

#[test]
fn new_roles_last_across_restarts_and_a_third_switchover() {
    let place = Place::new("switchover-restarts");
    let (mut south, mut north, database) = place.pair(&SHIP[2..]);
    let copy = north.standby_database("app.db");
    place.insert(&database, 3);
    must(&south, &["switchover", "north"]);
    place.insert(&copy, 3);
    south.kill();
    north.kill();
    start(&mut north);
    start(&mut south);
    await_streaming(&north);
    place.insert(&copy, 3);
    assert_same_files(&north, &south, &copy, &database);
    must(&north, &["switchover", "south"]);
    south.stop().unwrap();
    start(&mut south);
    place.insert(&database, 3);
    await_streaming(&south);
    assert_same(&south, &north, &database);
    must(&south, &["switchover", "north"]);
    await_streaming(&north);
    place.insert(&copy, 3);
    assert_same_files(&north, &south, &copy, &database);
    await_rows(&database, 16);
}

#[test]
fn bystander_follows_the_new_primary() {
    let place = Place::new("switchover-bystander");
    let (south, north, database) = place.pair(&SHIP[2..]);
    let west = place.standby_of(&south, "west");
    add_destination(&south, &west, &SHIP);
    await_status(&south, "both follow", Status::settled);
    place.insert(&database, 3);
    must(&south, &["switchover", "north"]);
    let copy = north.standby_database("app.db");
    place.insert(&copy, 3);
    await_status(&north, "both follow it", |status| {
        let at = status.json()["destinations"].as_array().unwrap().clone();
        at.len() == 2 && at.iter().all(|at| at["hardened"] == status.json()["durable"])
    });
    assert_same_files(&north, &south, &copy, &database);
    assert_same(&north, &west, &copy);
}

#[test]
fn open_write_transaction_is_waited_for_and_then_nothing_has_changed() {
    let place = Place::new("switchover-drain");
    let (south, north, database) = place.pair(&SHIP[2..]);
    let (mut slow, mut other) = (place.application(&database), place.application(&database));
    slow.run("BEGIN IMMEDIATE");
    slow.run(INSERT);
    refuses(&south, &["switchover", "north", "--drain", "1"], 3, &["write transaction is open", "app.db"]);
    slow.run("COMMIT");
    other.run(INSERT);
    // One that ends in time is in the redo of both.
    slow.run("BEGIN IMMEDIATE");
    slow.run(INSERT);
    let switching = south.begin(&["switchover", "north", "--drain", "30"]).unwrap();
    std::thread::sleep(A_WHILE);
    slow.run("COMMIT");
    drop(switching);
    let copy = north.standby_database("app.db");
    await_status(&north, "it is the primary", is("primary"));
    await_rows(&copy, 4);
}

#[test]
fn standby_that_cannot_take_over_leaves_the_primary_as_it_was() {
    let place = Place::new("switchover-refused");
    let (south, mut north, database) = place.pair(&QUICK);
    refuses(&south, &["switchover", "oslo"], 3, &["no destination oslo", "destination list"]);
    refuses(&north, &["switchover", "south"], 3, &["this instance is a standby"]);
    north.kill();
    refuses(&south, &["switchover", "north"], 3, &["`north` is not ready", "nothing has been changed"]);
    place.insert(&database, 1);
    assert_eq!(south.status().unwrap().json()["incarnation"], 1);
}

/// Begins a switchover that waits for a transaction of `slow`: the standby has reported that it is ready.
fn begun_while_draining(
    place: &Place,
    south: &Instance,
    database: &Path,
) -> (crate::support::Client, standfast_campaign::process::Process) {
    let mut slow = place.application(database);
    slow.run("BEGIN IMMEDIATE");
    slow.run(INSERT);
    let switching = south.begin(&["switchover", "north", "--drain", "60"]).unwrap();
    await_alert(south, "switchover to `north` begins");
    (slow, switching)
}

#[test]
fn standby_that_dies_before_it_has_the_end_of_the_redo_leaves_the_primary() {
    let place = Place::new("switchover-dies");
    let (south, mut north, database) = place.pair(&SHIP[2..]);
    let (mut slow, _switching) = begun_while_draining(&place, &south, &database);
    north.kill();
    slow.run("COMMIT");
    await_alert(&south, "the switchover failed");
    assert_eq!(south.status().unwrap().json()["role"], "primary");
    slow.run(INSERT);
    start(&mut north);
    await_streaming(&south);
    assert_same(&south, &north, &database);
    must(&south, &["switchover", "north"]);
    await_rows(&north.standby_database("app.db"), 3);
}

#[test]
fn primary_that_dies_while_it_drains_is_the_primary_again() {
    let place = Place::new("switchover-killed");
    let (mut south, north, database) = place.pair(&SHIP[2..]);
    let (slow, _switching) = begun_while_draining(&place, &south, &database);
    south.kill();
    slow.kill();
    start(&mut south);
    assert_eq!(south.status().unwrap().json()["role"], "primary");
    place.insert(&database, 1);
    await_streaming(&south);
    assert_same(&south, &north, &database);
}

#[test]
fn primary_takes_its_role_back_when_the_standby_refuses_at_the_last_moment() {
    let place = Place::new("switchover-back");
    let (south, north, database) = place.pair(&SHIP[2..]);
    let copy = north.standby_database("app.db");
    let (mut slow, _switching) = begun_while_draining(&place, &south, &database);
    std::fs::rename(&copy, place.path("away.db")).unwrap();
    await_status(&north, "the database is stopped", |status| {
        status.json()["standby"]["stopped_databases"].as_array().is_some_and(|all| !all.is_empty())
    });
    slow.run("COMMIT");
    await_alert(&south, "`north` did not take over");
    await_status(&south, "it is the primary again", is("primary"));
    assert_eq!(south.status().unwrap().json()["incarnation"], 2);
    slow.run(INSERT);
    assert_eq!(rows(&database), 3);
    assert_eq!(north.status().unwrap().json()["role"], "standby");
}

/// Number of switchovers whose end the alert log reports.
fn ended(alerts: &str) -> usize {
    let ends = ["switchover complete", "the switchover failed", "did not take over", "whether it has: "];
    ends.iter().map(|end| alerts.matches(end).count()).sum()
}

/// Kills the old primary, the new one or both, each at another moment of a switchover. Afterwards at most one of them is
/// the primary. If both are standbys, either has all the redo.
#[test]
fn kill_at_any_moment_of_a_switchover_leaves_one_primary_and_every_commit() {
    let place = Place::new("switchover-moments");
    let (south, north, database) = place.pair(&SHIP[2..]);
    let copy = north.standby_database("app.db");
    let mut sides = [(south, database), (north, copy)];
    let mut committed = 1;
    for moment in 0..9_u64 {
        // The first one is the primary.
        let name = sides[1].0.directory.file_name().unwrap().to_string_lossy().into_owned();
        place.insert(&sides[0].1, 2);
        committed += 2;
        let begun = sides[0].0.alerts().matches("switchover to").count();
        let ended_before = ended(&sides[0].0.alerts());
        let switching = sides[0].0.begin(&["switchover", &name]).unwrap();
        await_condition("the switchover begins", TIMEOUT, || {
            let alerts = sides[0].0.alerts();
            Ok(if alerts.matches("switchover to").count() > begun { Ok(()) } else { Err(alerts) })
        })
        .unwrap_or_else(|error| panic!("{error}"));
        std::thread::sleep(Duration::from_millis(moment / 3 * 40));
        let killed: &[usize] = [&[0][..], &[1], &[0, 1]][moment as usize % 3];
        killed.iter().for_each(|side| sides[*side].0.kill());
        drop(switching);
        killed.iter().for_each(|side| start(&mut sides[*side].0));
        if !killed.contains(&0) {
            // It goes through, fails or is taken back.
            await_condition("the switchover ends", TIMEOUT, || {
                let alerts = sides[0].0.alerts();
                Ok(if ended(&alerts) > ended_before { Ok(()) } else { Err(alerts) })
            })
            .unwrap_or_else(|error| panic!("{error}"));
        }
        let is_open_primary = |side: usize| {
            let status = sides[side].0.status().unwrap();
            status.json()["role"] == "primary" && status.json()["state"] != "fenced"
        };
        let settled = |instance: &Instance| {
            await_status(instance, "its role is settled", |status| {
                ["open", "applying", "fenced"].contains(&status.json()["state"].as_str().unwrap_or_default())
            });
        };
        sides.iter().for_each(|(instance, _)| settled(instance));
        let primaries: Vec<usize> = (0..2).filter(|side| is_open_primary(*side)).collect();
        assert!(primaries.len() < 2, "moment {moment}: two primaries");
        let primary = primaries.first().copied().unwrap_or_else(|| {
            must(&sides[1].0, &["failover"]);
            1
        });
        let (instance, database) = &sides[primary];
        let mut application = place.application(database);
        application.run(INSERT);
        application.close();
        committed += 1;
        assert_eq!(rows(database), committed, "moment {moment}");
        if moment < 8 {
            await_streaming(instance);
        }
        if primary == 1 {
            sides.swap(0, 1);
        }
    }
}
