//! Snapshot standby: applications write to copies of the databases, and redo arrives as before.

use crate::support::{INSERT, Place, QUICK, assert_same, await_status, must, refuses, rows, start};
use crate::writers::Writers;
use standfast_campaign::instance::Instance;
use standfast_campaign::status::Status;
use std::path::{Path, PathBuf};

const REFUSED: i32 = 3;
const SNAPSHOT: [&str; 2] = ["convert", "snapshot-standby"];
const PHYSICAL: [&str; 3] = ["convert", "physical-standby", "--yes"];

/// Names of the files in a directory that belong to app.db.
fn files(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("app.db"))
        .collect();
    names.sort();
    names
}

/// Writes to a database of a snapshot standby, as a program without the extension and one with it.
fn write_there(place: &Place, copy: &Path) {
    place.foreigner(copy).run("CREATE TABLE mine(x)");
    let mut application = place.application(copy);
    application.run("INSERT INTO mine VALUES(1)");
    application.run("DELETE FROM t");
    assert_eq!(rows(copy), 0);
}

fn is_snapshot(status: &Status) -> bool {
    status.text("/state") == "snapshot standby"
}

#[test]
fn snapshot_standby_is_written_to_and_follows_again_with_all_redo() {
    let place = Place::new("snapshot");
    let (primary, standby, database) = place.pair(&[&QUICK[..], &["--on-timeout", "stall"]].concat());
    let copy = standby.standby_database("app.db");
    let before = files(copy.parent().unwrap());
    place.insert(&database, 3);
    await_status(&primary, "it is applied", Status::settled);
    let writers = Writers::start(&place, &database, 4);
    writers.await_progress();
    must(&standby, &SNAPSHOT);
    // Commits of the primary wait for it as before, and it takes redo.
    writers.await_progress();
    write_there(&place, &copy);
    let status = await_status(&standby, "it is a snapshot standby", is_snapshot);
    assert!(status.number("/standby/snapshot/since_us") > 0, "{}", status.json());
    assert_eq!(status.role(), "standby");
    let role = must(&standby, &["sql", "SELECT database_role, open_mode FROM v$database"]);
    assert!(role.contains("SNAPSHOT STANDBY") && role.contains("READ WRITE"), "{role}");
    let status = await_status(&primary, "the primary knows", |status| {
        status.json()["destinations"][0]["stopped_databases"].to_string().contains("snapshot standby")
    });
    assert!(status.streams(), "{}", status.json());
    // What it cannot do meanwhile.
    refuses(&standby, &SNAPSHOT, REFUSED, &["is a snapshot standby already"]);
    refuses(&standby, &["apply", "start"], REFUSED, &["is a snapshot standby"]);
    refuses(&primary, &["switchover", "north"], REFUSED, &["it is a snapshot standby"]);
    refuses(&standby, &["convert", "physical-standby"], 1, &["nothing was done; --yes does it"]);
    writers.await_progress();
    let shown = must(&standby, &PHYSICAL);
    assert!(shown.contains("this instance is a physical standby; redo to apply: "), "{shown}");
    writers.await_progress();
    let acknowledged = writers.finish();
    assert_same(&primary, &standby, &database);
    acknowledged.all_in(&copy);
    assert_eq!(files(copy.parent().unwrap()), before);
    refuses(&standby, &PHYSICAL, REFUSED, &["is no snapshot standby"]);
    // And once more, by the commands of DGMGRL.
    must(&standby, &["dg", "convert database north to snapshot standby"]);
    write_there(&place, &copy);
    place.insert(&database, 1);
    must(&standby, &["dg", "convert database north to physical standby"]);
    assert_same(&primary, &standby, &database);
}

#[test]
fn snapshot_standby_takes_over_with_everything_that_was_acknowledged() {
    let place = Place::new("snapshot-failover");
    let (mut primary, standby, database) = place.pair(&[&QUICK[..], &["--on-timeout", "stall"]].concat());
    let copy = standby.standby_database("app.db");
    must(&standby, &SNAPSHOT);
    write_there(&place, &copy);
    let writers = Writers::start(&place, &database, 4);
    writers.await_progress();
    refuses(&standby, &["failover"], REFUSED, &["switchover"]);
    await_status(&standby, "it stays a snapshot standby", is_snapshot);
    primary.kill();
    let acknowledged = writers.noted();
    must(&standby, &["failover"]);
    acknowledged.all_in(&copy);
    // What was written there is gone.
    place.application(&copy).fails("SELECT * FROM mine", 1);
    place.insert(&copy, 1);
}

#[test]
fn snapshot_standby_stays_one_over_restarts() {
    let place = Place::new("snapshot-restart");
    let (primary, mut standby, database) = place.pair(&QUICK);
    let copy = standby.standby_database("app.db");
    must(&standby, &SNAPSHOT);
    write_there(&place, &copy);
    for clean in [true, false] {
        if clean {
            standby.stop().unwrap();
            refuses(&standby, &["reinstate"], REFUSED, &["is a snapshot standby"]);
        } else {
            standby.kill();
        }
        start(&mut standby);
        await_status(&standby, "it is a snapshot standby", is_snapshot);
        place.application(&copy).run("INSERT INTO mine VALUES(2)");
        await_status(&primary, "the stream is open", Status::streams);
        place.insert(&database, 2);
    }
    must(&standby, &PHYSICAL);
    assert_same(&primary, &standby, &database);
}

/// Starts the standby so that it fails at the `step`th step of a conversion, and converts it; returns whether it failed.
fn fails_at(standby: &mut Instance, what: &str, step: u32, command: &[&str]) -> bool {
    standby.stop().unwrap();
    standby.faults = Some(format!("convert={what}@{step}"));
    start(standby);
    let done = standby.run(command).is_ok_and(|finished| finished.code == 0);
    standby.kill();
    standby.faults = None;
    start(standby);
    !done
}

/// Whatever the step, the next start makes it what it was or what it was to be.
fn interrupted_at_each_step(what: &str) {
    let place = Place::new(&format!("snapshot-{}", what.to_ascii_lowercase()));
    let (primary, mut standby, database) = place.pair(&QUICK);
    let copy = standby.standby_database("app.db");
    let before = files(copy.parent().unwrap());
    let mut rows_there = 1;
    let mut insert = || {
        place.insert(&database, 1);
        rows_there += 1;
        rows_there
    };
    let mut step = 1;
    while fails_at(&mut standby, what, step, &SNAPSHOT) {
        await_status(&standby, "it applies redo", |status| status.text("/state") == "applying");
        assert_eq!(files(copy.parent().unwrap()), before, "step {step}");
        insert();
        assert_same(&primary, &standby, &database);
        step += 1;
    }
    assert!(step > 6, "{step} steps only");
    let mut step = 1;
    loop {
        await_status(&standby, "it is a snapshot standby", is_snapshot);
        write_there(&place, &copy);
        insert();
        let failed = fails_at(&mut standby, what, step, &PHYSICAL);
        let status = await_status(&standby, "it is open", |status| {
            is_snapshot(status) || status.text("/state") == "applying"
        });
        if is_snapshot(&status) {
            assert_eq!(step, 1, "nothing had begun");
            must(&standby, &PHYSICAL);
        }
        assert_same(&primary, &standby, &database);
        assert_eq!(files(copy.parent().unwrap()), before, "step {step}");
        if !failed {
            break;
        }
        must(&standby, &SNAPSHOT);
        step += 1;
    }
    assert!(step > 6, "{step} steps only");
    assert_eq!(rows(&copy), insert() - 1);
}

#[test]
fn standby_killed_at_any_step_of_a_conversion_lacks_nothing() {
    interrupted_at_each_step("kill");
}

#[test]
fn standby_whose_disk_fails_at_any_step_of_a_conversion_lacks_nothing() {
    interrupted_at_each_step("EIO");
}

#[test]
fn conversion_that_fails_leaves_the_standby_as_it_was() {
    let place = Place::new("snapshot-fails");
    let (primary, mut standby, database) = place.pair(&QUICK);
    let copy: PathBuf = standby.standby_database("app.db");
    // Something else has the name of the copy.
    let taken = PathBuf::from(format!("{}-snapshot", copy.display()));
    std::fs::create_dir(&taken).unwrap();
    refuses(&standby, &SNAPSHOT, 1, &["app.db-snapshot"]);
    std::fs::remove_dir(&taken).unwrap();
    place.insert(&database, 1);
    assert_same(&primary, &standby, &database);
    // A database that is stopped is not copied.
    standby.stop().unwrap();
    place.foreigner(&copy).run(INSERT);
    start(&mut standby);
    await_status(&standby, "it is stopped", |status| status.text("/state") == "apply error");
    refuses(&standby, &SNAPSHOT, REFUSED, &["redo is not applied to database app.db"]);
    // Nor is a primary converted.
    refuses(&primary, &SNAPSHOT, REFUSED, &["not open as a standby"]);
}
