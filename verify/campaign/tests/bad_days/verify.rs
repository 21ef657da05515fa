//! `standfast verify`: pages of a standby that differ from the primary.

use crate::damage::{damage, first_row};
use crate::support::{
    INSERT, Place, add_destination, assert_same, await_alert, await_status, must, refuses, start,
};
use standfast_campaign::instance::Instance;
use standfast_campaign::status::Status;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Sets up a pair whose standby has one damaged page that no transaction touches.
fn with_damaged_page(place: &Place) -> (Instance, Instance, PathBuf) {
    let (primary, database) = place.protecting();
    let mut standby = place.standby_of(&primary, "north");
    standby.stop().unwrap();
    damage(&standby.standby_database("app.db"), b"first", b"f?rst");
    start(&mut standby);
    add_destination(&primary, &standby, &["--mode", "sync-affirm"]);
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    (primary, standby, database)
}

/// Runs `verify --json`; returns its exit code and its result.
fn verify(primary: &Instance, more: &[&str]) -> (i32, Status) {
    let finished = primary.run(&[&["verify", "--json"], more].concat()).unwrap();
    let found =
        Status::parse(&finished.stdout).unwrap_or_else(|error| panic!("{error}: {}", finished.stderr));
    (finished.code, found)
}

#[test]
fn a_damaged_cold_page_of_a_standby_is_named_and_repaired() {
    let place = Place::new("verify");
    let (primary, mut standby, database) = with_damaged_page(&place);
    let mut application = place.application(&database);
    application.run("CREATE TABLE other(x)");
    await_status(&primary, "the standby has applied everything", Status::settled);

    let (code, found) = verify(&primary, &[]);
    let at = "/databases/0/destinations/0";
    assert_eq!((code, found.text(&format!("{at}/outcome"))), (1, "differs"), "{}", found.json());
    assert_eq!(found.number(&format!("{at}/differing")), 1, "{}", found.json());
    assert_eq!(found.number(&format!("{at}/pages/0/page")), 2, "{}", found.json());
    assert!(found.number(&format!("{at}/pages/0/scn")) > 0, "{}", found.json());
    let printed = primary.run(&["verify"]).unwrap();
    assert!(printed.stdout.contains("app.db at north: page 2 as of SCN "), "{}", printed.stdout);

    // Both ends report the difference, also after a restart of the standby; redo is still applied.
    let check = primary.run(&["status", "--check"]).unwrap();
    assert_eq!(check.code, 2, "{}", check.stdout);
    assert!(check.stdout.contains("north: 1 pages of app.db differ"), "{}", check.stdout);
    assert!(must(&primary, &["status"]).contains("DIFFERS at north: 1 pages of app.db, page 2 as of SCN"));
    await_alert(&standby, "database app.db: DIFFERS from the primary in 1 pages, page 2");
    await_alert(&primary, "DIFFERS: 1 pages of database app.db there");
    standby.kill();
    start(&mut standby);
    await_status(&primary, "it is known after a restart of the standby", |status| {
        status.streams() && status.number("/destinations/0/differing_pages") == 1
    });
    application.run("INSERT INTO other VALUES(1)");
    await_status(&primary, "the standby has applied everything", Status::settled);
    assert_eq!(first_row(&standby.standby_database("app.db")), "f?rst");

    let (code, found) = verify(&primary, &["--repair"]);
    assert_eq!((code, found.number("/databases/0/repaired")), (0, 1), "{}", found.json());
    assert_eq!(first_row(&standby.standby_database("app.db")), "first");
    await_status(&primary, "nothing differs any more", |status| {
        status.number("/destinations/0/differing_pages") == 0
    });
    assert_eq!(verify(&primary, &["app.db"]).0, 0);
    assert_same(&primary, &standby, &database);
    // A standby that reads the same redo again reaches the same state.
    standby.kill();
    start(&mut standby);
    await_status(&primary, "the standby is back", Status::streams);
    application.run(INSERT);
    assert_same(&primary, &standby, &database);
}

#[test]
fn differing_page_is_reported_at_the_failover() {
    let place = Place::new("verify-failover");
    let (mut primary, standby, _) = with_damaged_page(&place);
    assert_eq!(verify(&primary, &[]).0, 1);
    primary.kill();
    let failover = standby.run(&["failover"]).unwrap();
    assert_eq!(failover.code, 6, "{}", failover.stderr);
    assert!(
        failover.stderr.contains("warning: PAGES DIFFER: 1 pages of database app.db"),
        "{}",
        failover.stderr
    );
    assert!(
        standby.alerts().contains("failover: 1 pages of database app.db were not what"),
        "{}",
        standby.alerts()
    );
    let check = standby.run(&["status", "--check"]).unwrap();
    assert!(check.code == 2 && check.stdout.contains("1 pages of app.db here differ"), "{}", check.stdout);
}

#[test]
fn verification_under_load_finds_no_difference() {
    let place = Place::new("verify-load");
    let (primary, standby, database) = place.pair(&[]);
    let mut application = place.application(&database);
    application.run("INSERT INTO t(x) SELECT randomblob(900) FROM (WITH RECURSIVE n(i) AS (VALUES(1) UNION ALL SELECT i+1 FROM n WHERE i<2000) SELECT i FROM n)");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for round in 0.. {
                if done.load(SeqCst) {
                    break;
                }
                application.run("UPDATE t SET x = randomblob(900) WHERE id % 37 = abs(random()) % 37");
                application.run("INSERT INTO t(x) VALUES(randomblob(5000))");
                application.run("DELETE FROM t WHERE id > 2000 AND id % 3 = 0");
                if round % 20 == 19 {
                    application.run("VACUUM");
                }
            }
        });
        // When they are read slowly, most pages of a chunk change before their checksums are in the redo.
        let rates = ["1000000000", "2000000", "1000000000", "2000000"];
        let found: Vec<_> = rates.iter().map(|rate| verify(&primary, &["--rate", rate])).collect();
        done.store(true, SeqCst);
        let mut compared = 0;
        for (code, found) in found {
            assert_eq!(code, 0, "{}", found.json());
            // A fast writer may change each page of a slow run before it is compared.
            compared += found.number("/databases/0/pages");
        }
        assert!(compared > 0);
    });
    assert_eq!(verify(&primary, &[]).0, 0);
    assert_same(&primary, &standby, &database);
}

#[test]
fn verification_survives_a_restart_of_the_primary() {
    let place = Place::new("verify-restart");
    let (mut primary, standby, database) = place.pair(&[]);
    let mut application = place.application(&database);
    application.run(INSERT);
    assert_eq!(verify(&primary, &[]).0, 0);
    primary.kill();
    start(&mut primary);
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    application.run(INSERT);
    assert_eq!(verify(&primary, &[]).0, 0);
    assert_same(&primary, &standby, &database);
}

#[test]
fn verification_without_a_standby_or_a_database_is_refused() {
    let place = Place::new("verify-refused");
    let (primary, _) = place.protecting();
    refuses(&primary, &["verify"], 3, &["no standby to compare with", "destination add"]);
    let standby = place.standby_of(&primary, "north");
    add_destination(&primary, &standby, &[]);
    refuses(&primary, &["verify", "nothing.db"], 3, &["nothing.db is not protected"]);
    refuses(&standby, &["verify"], 3, &["is a standby"]);
}
