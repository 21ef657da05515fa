//! Effects of role changes: names of log files, incarnations, and which standby follows which primary. Tested with
//! missing logs, restarts, and a second and third failover.

use crate::support::{
    INSERT, INSERT_BULK, Place, TIMEOUT, add_destination, assert_same, await_alert, await_status, must, rows,
    start,
};
use standfast_campaign::instance::Instance;
use standfast_campaign::process::await_condition;
use standfast_campaign::status::Status;
use std::path::{Path, PathBuf};

/// Number of half-megabyte rows that fill three logs, whatever the size of their groups.
const THREE_LOGS: i64 = 48;
const ROW_BYTES: u64 = 500_000;
const SHIP: [&str; 6] = ["--mode", "sync-affirm", "--max-connections", "2", "--net-timeout-ms", "3000"];

/// Starts an instance that fetches missing logs over several connections, in small units.
fn with_archivers(instance: &mut Instance) {
    instance.configure("redo", "archive_processes", 4).unwrap();
    instance.configure("redo", "archive_unit_bytes", 1 << 20).unwrap();
    start(instance);
}

fn standby_of(place: &Place, primary: &Instance, name: &str) -> Instance {
    let mut standby = Instance::standby_of(primary, &place.path(name), name).unwrap();
    with_archivers(&mut standby);
    standby
}

/// Writes three logs at `primary`; they are archived when this returns.
fn write_logs(place: &Place, primary: &Instance, database: &Path) {
    let before = primary.status().unwrap().number("/durable");
    let mut application = place.application(database);
    application.run("PRAGMA standfast_commit_write = 'nowait'");
    for row in 1..=THREE_LOGS {
        application.run(INSERT_BULK);
        if row % (THREE_LOGS / 3) == 0 {
            await_status(primary, "it is in the log", |status| {
                status.number("/durable") > before + row as u64 * ROW_BYTES
            });
            must(primary, &["switch-logfile"]);
        }
    }
    application.close();
    await_archived(primary);
}

fn await_archived(instance: &Instance) {
    await_status(instance, "all full logs are archived", |status| {
        let groups = status.json()["log"]["groups"].as_array().unwrap();
        groups.iter().all(|group| group["state"] != "active" || group["archived"] == true)
    });
}

/// Lets `standby` miss three logs of `primary`; it fetches them as archived logs when it restarts.
fn miss_logs(place: &Place, primary: &Instance, standby: &mut Instance, database: &Path) {
    standby.kill();
    write_logs(place, primary, database);
    let resolved = standby.alerts().matches("gap resolved: logs").count();
    start(standby);
    await_status(primary, "the standby has everything", |status| status.streams() && status.settled());
    // The alert comes after the redo has arrived.
    await_condition("the gap is reported as resolved", TIMEOUT, || {
        let alerts = standby.alerts();
        Ok(if alerts.matches("gap resolved: logs").count() > resolved { Ok(()) } else { Err(alerts) })
    })
    .unwrap_or_else(|error| panic!("{error}"));
    assert_same(primary, standby, database);
}

fn archive(instance: &Instance) -> Vec<PathBuf> {
    let files = std::fs::read_dir(instance.directory.join("archive")).unwrap();
    let mut logs: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    logs.retain(|path| path.extension().is_some_and(|extension| extension == "arc"));
    logs.sort();
    logs
}

#[test]
fn missing_logs_arrive_after_one_two_and_three_failovers() {
    let place = Place::new("roles-gaps");
    let (mut south, database) = (place.instance("south"), place.database("app.db"));
    with_archivers(&mut south);
    must(&south, &["protect", &database.to_string_lossy()]);
    let (mut north, mut west) = (standby_of(&place, &south, "north"), standby_of(&place, &south, "west"));
    add_destination(&south, &north, &SHIP);
    add_destination(&south, &west, &SHIP);
    await_status(&south, "both follow", Status::settled);
    // Logs that the standby `north` archives, and logs that it writes as primary.
    west.kill();
    write_logs(&place, &south, &database);
    await_status(&south, "one follows", |status| {
        status.number("/destinations/0/hardened") == status.number("/durable")
    });
    south.kill();
    must(&north, &["failover"]);
    let copy = north.standby_database("app.db");
    write_logs(&place, &north, &copy);
    add_destination(&north, &west, &SHIP);
    start(&mut west);
    await_status(&north, "the old standby follows", |status| status.streams() && status.settled());
    await_alert(&west, "gap resolved: logs");
    assert_same(&north, &west, &copy);
    // A standby that was created from the new primary.
    let mut east = standby_of(&place, &north, "east");
    add_destination(&north, &east, &SHIP);
    await_status(&north, "the new standby follows", Status::settled);
    miss_logs(&place, &north, &mut east, &copy);
    must(&north, &["destination", "remove", "east"]);
    east.stop().unwrap();
    start(&mut east);
    add_destination(&north, &east, &SHIP);
    place.application(&copy).run(INSERT);
    await_status(&north, "it follows after a restart", Status::settled);

    // Second failover: standbys of both kinds follow, across a restart of the new primary.
    north.kill();
    must(&west, &["failover"]);
    west.stop().unwrap();
    start(&mut west);
    let copy = west.standby_database("app.db");
    add_destination(&west, &east, &SHIP);
    await_status(&west, "the standby follows", Status::settled);
    miss_logs(&place, &west, &mut east, &copy);

    // Third failover.
    west.kill();
    must(&east, &["failover"]);
    east.kill();
    start(&mut east);
    let copy = east.standby_database("app.db");
    let mut last = standby_of(&place, &east, "last");
    add_destination(&east, &last, &SHIP);
    await_status(&east, "its standby follows", Status::settled);
    miss_logs(&place, &east, &mut last, &copy);
    assert_eq!(rows(&copy), 2 + 5 * THREE_LOGS);
}

#[test]
fn logs_of_a_new_primary_are_registered_by_hand() {
    let place = Place::new("roles-register");
    let (mut south, north, _) = place.pair(&[]);
    south.kill();
    must(&north, &["failover"]);
    let copy = north.standby_database("app.db");
    let east = standby_of(&place, &north, "east");
    add_destination(&north, &east, &["--mode", "async"]);
    await_status(&north, "the standby follows", Status::settled);
    must(&north, &["destination", "remove", "east"]);
    let before = archive(&north).len();
    let mut application = place.application(&copy);
    for _ in 0..2 {
        application.run(INSERT_BULK);
        must(&north, &["switch-logfile"]);
    }
    await_archived(&north);
    await_status(&north, "two more logs are archived", |_| archive(&north).len() >= before + 2);
    for log in &archive(&north)[before..] {
        must(&east, &["register", "logfile", &log.to_string_lossy()]);
    }
    add_destination(&north, &east, &SHIP);
    application.run(INSERT);
    assert_same(&north, &east, &copy);
}

/// The old primary has no destination that could inform it.
#[test]
fn a_new_primary_that_dials_the_old_one_fences_it() {
    let place = Place::new("roles-dial");
    let (south, north, database) = place.pair(&[]);
    must(&south, &["destination", "remove", "north"]);
    must(&north, &["failover", "--force"]);
    place.application(&database).run(INSERT);
    add_destination(&north, &south, &["--mode", "async", "--no-wait"]);
    await_status(&south, "it is fenced", |status| status.text("/state") == "fenced");
    await_alert(&north, "has been told that it is replaced");
    let copy = north.standby_database("app.db");
    place.application(&copy).run(INSERT);
}
