//! Switchover: the roles of two instances are exchanged, with nothing lost or copied, or nothing has changed.

use crate::support::{
    Client, INSERT, Place, QUICK, SQLITE_READONLY, TIMEOUT, add_destination, assert_same, assert_same_files,
    await_alert, await_another_alert, await_rows, await_status, must, refuses, rows, start,
};
use standfast_campaign::application::client::Answer;
use standfast_campaign::instance::Instance;
use standfast_campaign::process::{Process, await_condition};
use standfast_campaign::status::Status;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

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

/// Begins a switchover, and returns once the standby has reported that it is ready.
#[track_caller]
fn begin(primary: &Instance, to: &str) -> Process {
    let begins = format!("switchover to `{to}` begins");
    let before = primary.alerts().matches(&begins).count();
    let switching = primary.begin(&["switchover", to, "--drain", "60"]).unwrap();
    await_another_alert(primary, &begins, before);
    switching
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
    let _switching = begin(&south, "north");
    slow.run("COMMIT");
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
fn begun_while_draining(place: &Place, south: &Instance, database: &Path) -> (Client, Process) {
    let mut slow = place.application(database);
    slow.run("BEGIN IMMEDIATE");
    slow.run(INSERT);
    let switching = begin(south, "north");
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

/// Steps of a switchover by the alert log of the old primary (0) or of the new one (1).
const STEPS: [(usize, &str); 6] = [
    (0, "begins"),
    (0, "log switch to sequence"),
    (0, "the sender is stopped"),
    (0, "standby opened"),
    (1, "taking over"),
    (1, "primary opened"),
];

/// Kills the old primary, the new one or both after each step of a switchover. Afterwards at most one of them is the
/// primary. If both are standbys, either has all the redo.
#[test]
fn kill_after_any_step_of_a_switchover_leaves_one_primary_and_every_commit() {
    let place = Place::new("switchover-steps");
    let (south, north, database) = place.pair(&SHIP[2..]);
    let copy = north.standby_database("app.db");
    // The first one is the primary.
    let mut sides = [(south, database), (north, copy)];
    let mut committed = 1;
    for (at, words) in STEPS {
        for killed in [&[0][..], &[1], &[0, 1]] {
            place.insert(&sides[0].1, 2);
            committed += 2;
            let (before, ended_before) =
                (sides[at].0.alerts().matches(words).count(), ended(&sides[0].0.alerts()));
            let switching = begin(&sides[0].0, &name_of(&sides[1].0));
            await_another_alert(&sides[at].0, words, before);
            killed.iter().for_each(|side| sides[*side].0.kill());
            drop(switching);
            killed.iter().for_each(|side| start(&mut sides[*side].0));
            if !killed.contains(&0) {
                await_end(&sides[0].0, ended_before);
            }
            let primary = the_primary(&sides, &format!("{words}, {killed:?} killed"));
            let (instance, database) = &sides[primary];
            place.insert(database, 1);
            committed += 1;
            assert_eq!(rows(database), committed, "{words}, {killed:?} killed");
            await_streaming(instance);
            if primary == 1 {
                sides.swap(0, 1);
            }
        }
    }
}

fn name_of(instance: &Instance) -> String {
    instance.directory.file_name().unwrap().to_string_lossy().into_owned()
}

/// Waits until the switchover that `primary` has begun goes through, fails or is taken back.
fn await_end(primary: &Instance, before: usize) {
    await_condition("the switchover ends", TIMEOUT, || {
        let alerts = primary.alerts();
        Ok(if ended(&alerts) > before { Ok(()) } else { Err(alerts) })
    })
    .unwrap_or_else(|error| panic!("{error}"));
}

/// Returns which of the two is the primary, once neither changes its role; makes the second one the primary if both are
/// standbys.
fn the_primary(sides: &[(Instance, PathBuf); 2], when: &str) -> usize {
    let is_primary = |(instance, _): &(Instance, PathBuf)| {
        let status = await_status(instance, "its role is settled", |status| {
            ["open", "applying", "fenced"].contains(&status.json()["state"].as_str().unwrap_or_default())
        });
        status.json()["role"] == "primary" && status.json()["state"] == "open"
    };
    let primaries: Vec<usize> = (0..2).filter(|side| is_primary(&sides[*side])).collect();
    assert!(primaries.len() < 2, "{when}: two primaries");
    primaries.first().copied().unwrap_or_else(|| {
        must(&sides[1].0, &["failover"]);
        1
    })
}

/// Each client writes all the time, so that others wait for the write lock with older snapshots.
#[test]
fn switchover_under_load_goes_through_and_keeps_every_commit() {
    const CLIENTS: usize = 8;
    let place = Place::new("switchover-load");
    let (south, north, database) = place.pair(&SHIP[2..]);
    let copy = north.standby_database("app.db");
    let acknowledged = AtomicI64::new(1);
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            let mut application = place.application(&database);
            application.run("PRAGMA busy_timeout = 60000");
            let acknowledged = &acknowledged;
            scope.spawn(move || {
                loop {
                    match application.try_run(INSERT) {
                        Answer::Rows(_) => acknowledged.fetch_add(1, SeqCst),
                        Answer::Failed { code, message } => {
                            return assert_eq!(code & 0xff, SQLITE_READONLY, "{message}");
                        }
                    };
                }
            });
        }
        await_condition("all write", TIMEOUT, || {
            let count = acknowledged.load(SeqCst);
            Ok(if count > 50 * CLIENTS as i64 { Ok(()) } else { Err(format!("{count} commits")) })
        })
        .unwrap_or_else(|error| panic!("{error}"));
        must(&south, &["switchover", "north"]);
    });
    assert_eq!(rows(&copy), acknowledged.load(SeqCst), "what was acknowledged, and no more");
    place.insert(&copy, 1);
    await_streaming(&north);
    assert_same_files(&north, &south, &copy, &database);
}
