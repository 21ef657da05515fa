//! Files of a standby's databases that another process writes, reads or removes while the standby is down.

use crate::support::{
    Client, INSERT, Place, assert_same, await_alert, await_status, beside, must, refuses, rows, start,
};
use standfast_campaign::application::client::Answer;
use standfast_campaign::instance::Instance;
use std::path::{Path, PathBuf};

const COLD: &str = "CREATE TABLE cold(x); INSERT INTO cold VALUES('as the primary has it')";
/// Changes a page that no later redo of the test touches.
const WRITE_COLD: &str = "UPDATE cold SET x='written at the standby'";

/// Sets up a pair with a database of some commits and a table that is not changed any more.
fn pair(place: &Place) -> (Instance, Instance, PathBuf, PathBuf) {
    let (primary, standby, database) = place.pair(&["--on-timeout", "degrade", "--net-timeout-ms", "300"]);
    let mut application = place.application(&database);
    application.run(COLD);
    (0..20).for_each(|_| drop(application.run(INSERT)));
    application.close();
    assert_same(&primary, &standby, &database);
    let copy = standby.standby_database("app.db");
    (primary, standby, database, copy)
}

fn end(standby: &mut Instance, cleanly: bool) {
    if cleanly { standby.stop().unwrap() } else { standby.kill() }
}

/// Asserts that both ends report that redo is not applied to app.db, that a failover is refused, and that the full
/// resync that the hint names repairs it.
#[track_caller]
fn assert_stopped(place: &Place, primary: &Instance, standby: &Instance, database: &Path, words: &str) {
    await_alert(primary, "NOT APPLIED to database app.db");
    assert!(standby.alerts().contains(words), "{}", standby.alerts());
    for instance in [primary, standby] {
        let checked = instance.run(&["status", "--check"]).unwrap();
        assert!(
            checked.code == 2 && checked.stdout.contains("app.db"),
            "{} {}",
            checked.code,
            checked.stdout
        );
        let reported = instance.run(&["diagnose"]).unwrap();
        assert!(reported.stdout.contains("app.db"), "{}{}", reported.stdout, reported.stderr);
    }
    place.application(database).run(INSERT);
    let printed = ["would leave 1 of its databases offline", "app.db", "--immediate"];
    refuses(standby, &["failover", "--force"], 3, &printed);
    must(primary, &["unprotect", "app.db"]);
    must(primary, &["protect", &database.to_string_lossy()]);
    place.application(database).run(INSERT);
    await_status(primary, "nothing is stopped", |status| {
        status.json()["destinations"][0]["stopped_databases"].as_array().is_none_or(Vec::is_empty)
    });
    assert_same(primary, standby, database);
}

#[test]
fn a_write_to_a_stopped_standby_stops_its_database() {
    for cleanly in [true, false] {
        let place = Place::new("written-standby");
        let (primary, mut standby, database, copy) = pair(&place);
        end(&mut standby, cleanly);
        let mut writer = place.foreigner(&copy);
        writer.run(WRITE_COLD);
        start(&mut standby);
        assert_stopped(&place, &primary, &standby, &database, "wrote to it while this standby did not run");
        writer.kill();
        // The state is remembered: another start reports the same.
        assert_eq!(rows(&standby.standby_database("app.db")), 23);
    }
}

#[test]
fn write_checkpointed_before_standby_start_stops_its_database() {
    let place = Place::new("checkpointed-standby");
    let (primary, mut standby, database, copy) = pair(&place);
    standby.stop().unwrap();
    let mut writer = place.foreigner(&copy);
    writer.run(WRITE_COLD);
    writer.close();
    assert!(!beside(&copy, "-wal").exists());
    start(&mut standby);
    await_alert(&primary, "NOT APPLIED to database app.db");
    // Also over another restart.
    standby.stop().unwrap();
    start(&mut standby);
    assert_stopped(&place, &primary, &standby, &database, "its file was written to");
}

#[test]
fn an_older_copy_at_a_standby_stops_its_database() {
    let place = Place::new("older-standby");
    let (primary, mut standby, database, copy) = pair(&place);
    standby.stop().unwrap();
    let older = std::fs::read(&copy).unwrap();
    start(&mut standby);
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    standby.stop().unwrap();
    std::fs::write(&copy, older).unwrap();
    start(&mut standby);
    assert_stopped(&place, &primary, &standby, &database, "its file was written to");
}

#[test]
fn a_plain_read_of_a_stopped_standby_changes_nothing() {
    for cleanly in [true, false] {
        let place = Place::new("read-standby");
        let (primary, mut standby, database, copy) = pair(&place);
        for stays_open in [false, true] {
            end(&mut standby, cleanly);
            let mut reader = place.foreigner(&copy);
            reader.run("SELECT count(*) FROM t");
            let reader = if stays_open {
                Some(reader)
            } else {
                reader.close();
                None
            };
            place.application(&database).run(INSERT);
            start(&mut standby);
            place.application(&database).run(INSERT);
            assert_same(&primary, &standby, &database);
            drop(reader);
        }
        assert!(!standby.alerts().contains("wrote to it"), "{}", standby.alerts());
    }
}

#[test]
fn readers_open_over_a_clean_stop_are_not_taken_for_writers() {
    for is_old in [false, true] {
        let place = Place::new("reader-over-stop");
        let (primary, mut standby, database, copy) = pair(&place);
        let mut reader = place.foreigner(&copy);
        reader.run("BEGIN; SELECT count(*) FROM t");
        if is_old {
            place.application(&database).run(INSERT);
            assert_same(&primary, &standby, &database);
        }
        standby.stop().unwrap();
        start(&mut standby);
        place.application(&database).run(INSERT);
        assert_same(&primary, &standby, &database);
        standby.stop().unwrap();
        if !is_old {
            reader.run("COMMIT");
            reader.close();
        }
        start(&mut standby);
        place.application(&database).run(INSERT);
        assert_same(&primary, &standby, &database);
        assert!(!standby.alerts().contains("wrote to it"), "{}", standby.alerts());
    }
}

#[test]
fn a_wal_removed_at_a_killed_standby_loses_nothing() {
    let place = Place::new("standby-wal-removed");
    let (primary, mut standby, database, copy) = pair(&place);
    standby.kill();
    std::fs::remove_file(beside(&copy, "-wal")).unwrap();
    std::fs::remove_file(beside(&copy, "-shm")).unwrap();
    start(&mut standby);
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
}

/// The process opened the database before the standby or after it, is idle, and tries to write or to leave WAL mode.
#[test]
fn a_process_that_has_a_standby_database_open_cannot_write() {
    let place = Place::new("open-before");
    let (primary, mut standby, database, copy) = pair(&place);
    standby.stop().unwrap();
    let open = |sql: &str| -> Client {
        let mut client = place.foreigner(&copy);
        client.run("PRAGMA busy_timeout=50");
        client.run(sql);
        client
    };
    let mut before = open("SELECT count(*) FROM t");
    start(&mut standby);
    let mut after = open("SELECT count(*) FROM t");
    for client in [&mut before, &mut after] {
        for sql in [WRITE_COLD, "PRAGMA journal_mode=DELETE", "PRAGMA journal_mode=TRUNCATE", "VACUUM"] {
            let answer = client.try_run(sql);
            let is_refused = match &answer {
                Answer::Failed { .. } => true,
                Answer::Rows(rows) => rows.first().is_some_and(|row| row[0] == "wal"),
            };
            assert!(is_refused, "{sql}: {answer:?}");
        }
    }
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
}
