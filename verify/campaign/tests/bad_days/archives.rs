//! Which archived logs are kept for a standby that is down, and for how long.

use crate::support::{
    INSERT, INSERT_BULK, Place, add_destination, assert_same, await_alert, await_status, must, start,
};
use standfast_campaign::instance::Instance;
use standfast_campaign::status::Status;
use std::path::PathBuf;

const ARCHIVE_BYTES_MAX: i64 = 16 << 20;
/// Number of half-megabyte rows that fill five logs of 8 MiB.
const FIVE_LOGS: usize = 84;

/// Creates a primary that keeps few archived logs, and a standby that is not a destination yet.
fn frugal(place: &Place) -> (Instance, Instance, PathBuf) {
    let (mut primary, database) = (place.instance("south"), place.database("app.db"));
    primary.configure("redo", "archive_bytes_max", ARCHIVE_BYTES_MAX).unwrap();
    start(&mut primary);
    must(&primary, &["protect", &database.to_string_lossy()]);
    let standby = place.standby_of(&primary, "north");
    (primary, standby, database)
}

fn archived_bytes(instance: &Instance) -> i64 {
    let files = std::fs::read_dir(instance.directory.join("archive")).unwrap();
    files.filter_map(|file| file.unwrap().metadata().ok()).map(|file| file.len() as i64).sum()
}

/// Waits until all full logs are archived, and archived logs beyond the limit are removed.
fn await_archived(primary: &Instance) {
    await_status(primary, "everything is archived", |status| {
        let groups = status.json()["log"]["groups"].as_array().unwrap();
        groups.iter().all(|group| {
            group["state"] == "current" || group["state"] == "unused" || group["archived"] == true
        })
    });
}

#[test]
fn absent_standby_is_left_behind_before_it_fills_the_volume() {
    let place = Place::new("left-behind");
    let (primary, mut standby, database) = frugal(&place);
    add_destination(&primary, &standby, &["--mode", "async"]);
    await_status(&primary, "the standby follows", Status::settled);
    // Archived logs that a new standby may need are kept until it has connected.
    standby.kill();
    let mut application = place.application(&database);
    for _ in 0..FIVE_LOGS {
        application.run(INSERT_BULK);
    }
    await_archived(&primary);
    await_alert(&primary, "destination north: LEFT BEHIND");
    let alerts = primary.alerts();
    assert_eq!(alerts.matches("LEFT BEHIND").count(), 1, "{alerts}");
    must(&primary, &["switch-logfile"]);
    await_archived(&primary);
    let bytes = archived_bytes(&primary);
    assert!(bytes <= ARCHIVE_BYTES_MAX + (8 << 20), "{bytes} bytes are kept");

    start(&mut standby);
    await_alert(&primary, "[gap]");
    assert!(primary.alerts().contains("`standfast reinstate` there"), "{}", primary.alerts());
    application.run(INSERT);
    // What the alerts say helps.
    standby.stop().unwrap();
    must(&standby, &["reinstate", "--yes", "--from", &primary.address]);
    start(&mut standby);
    assert_same(&primary, &standby, &database);
}

#[test]
fn redo_for_required_standby_outlives_archive_limit_and_restart() {
    let place = Place::new("needed-redo");
    let (mut primary, mut standby, database) = frugal(&place);
    // The timeout is longer than the test, so the standby stays required.
    let forever = ["--mode", "sync-affirm", "--on-timeout", "degrade", "--net-timeout-ms", "600000"];
    add_destination(&primary, &standby, &forever);
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    standby.kill();
    for round in 0..2 {
        // Commits with `nowait` continue without it.
        let mut application = place.application(&database);
        application.run("PRAGMA standfast_commit_write = 'nowait'");
        for _ in 0..FIVE_LOGS / 2 {
            application.run(INSERT_BULK);
        }
        let written = (round + 1) * (FIVE_LOGS as u64 / 2) * 500_000;
        await_status(&primary, "all of it is in the log", |status| status.number("/durable") > written);
        await_archived(&primary);
        application.close();
        if round == 0 {
            primary.kill();
            start(&mut primary);
        }
    }
    must(&primary, &["switch-logfile"]);
    await_archived(&primary);
    assert!(archived_bytes(&primary) > ARCHIVE_BYTES_MAX + (8 << 20), "nothing was beyond the volume");
    start(&mut standby);
    await_status(&primary, "the standby has caught up", Status::settled);
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    for words in ["[gap]", "LEFT BEHIND", "DEGRADED"] {
        assert!(!primary.alerts().contains(words), "{}", primary.alerts());
    }
}
