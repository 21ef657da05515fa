//! Switchover: the roles of two instances are exchanged, with nothing lost or copied, or nothing has changed.

use crate::support::{
    A_WHILE, INSERT, Place, QUICK, SQLITE_READONLY, add_destination, assert_same, assert_same_files,
    await_rows, await_status, must, refuses, start,
};
use standfast_campaign::instance::Instance;
use standfast_campaign::status::Status;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

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
