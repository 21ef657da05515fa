//! Damaged pages on the disk of the primary or the standby.

use crate::support::{INSERT, Place, add_destination, assert_same, await_status, must, refuses, rows, start};
use standfast_campaign::instance::Instance;
use standfast_campaign::status::Status;
use std::path::{Path, PathBuf};

/// Overwrites the first occurrence of `from` in a file that no process has open.
pub fn damage(path: &Path, from: &[u8], to: &[u8]) {
    let mut bytes = std::fs::read(path).unwrap();
    let at = bytes.windows(from.len()).position(|window| window == from).expect("the content is in the file");
    bytes[at..at + to.len()].copy_from_slice(to);
    // A disk that damages a block leaves the times of its file unchanged.
    let written = std::fs::metadata(path).unwrap().modified().unwrap();
    std::fs::write(path, bytes).unwrap();
    std::fs::File::options().write(true).open(path).unwrap().set_modified(written).unwrap();
}

pub fn first_row(database: &Path) -> String {
    let connection = standfast_campaign::verify::open_plain(database).unwrap();
    connection.query_row("SELECT x FROM t WHERE id=1", [], |row| row.get(0)).unwrap()
}

/// Waits until the primary reports that redo is not applied to `app.db`.
#[track_caller]
fn await_stopped(primary: &Instance) -> Status {
    await_status(primary, "the primary knows that app.db is stopped there", |status| {
        status.text("/destinations/0/stopped_databases/0/database") == "app.db"
    })
}

/// Sets up a pair with two databases, in which a page of `app.db` is damaged on the standby and not found yet.
fn damaged_copy(place: &Place) -> (Instance, Instance, PathBuf, PathBuf) {
    let (primary, database) = place.protecting();
    let other = place.database("other.db");
    must(&primary, &["protect", &other.to_string_lossy()]);
    let mut standby = place.standby_of(&primary, "north");
    standby.stop().unwrap();
    damage(&standby.standby_database("app.db"), b"first", b"f?rst");
    start(&mut standby);
    add_destination(&primary, &standby, &["--mode", "sync-affirm"]);
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    let before = primary.status().unwrap();
    assert_eq!(before.number("/destinations/0/stopped_total"), 0, "{}", before.json());
    (primary, standby, database, other)
}

#[test]
fn stopped_standby_database_shows_on_primary_until_resync() {
    let place = Place::new("stopped");
    let (primary, mut standby, database, other) = damaged_copy(&place);
    let copy = standby.standby_database("app.db");
    let mut application = place.application(&database);
    application.run(INSERT);
    let status = await_stopped(&primary);
    let reason = status.text("/destinations/0/stopped_databases/0/reason");
    assert!(reason.contains("page 2") && reason.contains("hint: "), "{reason}");
    let applied = status.number("/destinations/0/stopped_databases/0/applied");
    assert!(applied > 0 && applied < status.number("/captured"), "{}", status.json());
    assert_eq!(standby.status().unwrap().database_state("app.db"), "stopped");

    // The other databases continue, and the missing redo counts as lag.
    place.application(&other).run(INSERT);
    assert_same(&primary, &standby, &other);
    let status = await_stopped(&primary);
    assert!(
        status.number("/destinations/0/apply_lag_bytes") >= status.number("/captured") - applied,
        "{}",
        status.json()
    );
    let printed = must(&primary, &["status"]);
    assert!(printed.contains(&format!("NOT APPLIED at north to app.db since SCN {applied}: ")), "{printed}");

    // The state persists over a restart of the standby, and is not reported again.
    standby.kill();
    start(&mut standby);
    await_status(&primary, "the standby is back", Status::streams);
    application.run(INSERT);
    await_stopped(&primary);
    let alerts = primary.alerts();
    assert_eq!(alerts.matches("NOT APPLIED to database app.db").count(), 1, "{alerts}");

    must(&primary, &["unprotect", "app.db"]);
    must(&primary, &["protect", &database.to_string_lossy()]);
    let status = await_status(&primary, "it is copied again", |status| {
        status.settled() && status.number("/destinations/0/stopped_total") == 0
    });
    assert!(status.json()["destinations"][0]["apply_lag_bytes"].is_u64(), "{}", status.json());
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    assert_eq!(rows(&copy), 4);
}

#[test]
fn failover_excludes_and_reports_a_database_that_lacks_redo() {
    let place = Place::new("stopped-failover");
    let (mut primary, standby, database, other) = damaged_copy(&place);
    place.application(&other).run(INSERT);
    let mut application = place.application(&database);
    application.run(INSERT);
    await_stopped(&primary);
    primary.kill();
    let refused = ["would leave 1 of its databases offline", "is not in database app.db", "--immediate"];
    refuses(&standby, &["failover"], 3, &refused);
    let forced = standby.run(&["failover", "--immediate"]).unwrap();
    assert_eq!(forced.code, 6, "{}{}", forced.stdout, forced.stderr);
    assert!(forced.stderr.contains("warning: OFFLINE"), "{}", forced.stderr);
    let alerts = standby.alerts();
    assert!(alerts.contains("is not in database app.db"), "{alerts}");
    assert!(!alerts.contains("is not in database other.db"), "{alerts}");
    await_status(&standby, "it is offline", |status| status.database_state("app.db") == "left out");
    assert_eq!(rows(&standby.standby_database("app.db")), 1);
    assert_eq!(rows(&standby.standby_database("other.db")), 2);
    // The remedy that the failover names.
    assert!(forced.stderr.contains("`standfast database resolve app.db`"), "{}", forced.stderr);
    refuses(&standby, &["database", "resolve", "app.db", "--keep", "redo"], 3, &["cannot be made again"]);
    must(&standby, &["database", "resolve", "app.db", "--keep", "file"]);
    let copy = standby.standby_database("app.db");
    place.application(&copy).run(INSERT);
    assert_eq!(rows(&copy), 2);
}

#[test]
fn damaged_page_is_not_shipped_and_its_next_change_detects_it() {
    let place = Place::new("damaged-primary");
    let (mut primary, standby, database) = place.pair(&[]);
    let mut application = place.application(&database);
    application.run(INSERT);
    application.run("CREATE TABLE elsewhere(x)");
    // The page is backfilled into the file, and the WAL no longer holds it.
    must(&primary, &["checkpoint"]);
    application.run("INSERT INTO elsewhere VALUES(1)");
    application.close();
    assert_same(&primary, &standby, &database);
    primary.stop().unwrap();
    damage(&database, b"first", b"f?rst");
    start(&mut primary);
    let copy = standby.standby_database("app.db");

    // Redo consists of what transactions write: other pages carry none of the damage.
    let mut application = place.application(&database);
    application.run("INSERT INTO elsewhere VALUES(2)");
    await_status(&primary, "the standby has applied everything", Status::settled);
    assert_eq!((first_row(&database).as_str(), first_row(&copy).as_str()), ("f?rst", "first"));

    // The damaged page is written: only the change of the transaction is shipped, and the checksums differ.
    application.run(INSERT);
    let status = await_stopped(&primary);
    let reason = status.text("/destinations/0/stopped_databases/0/reason");
    assert!(reason.contains("page 2 is not what the primary has"), "{reason}");
    assert_eq!((first_row(&copy).as_str(), rows(&copy)), ("first", 2));
}
