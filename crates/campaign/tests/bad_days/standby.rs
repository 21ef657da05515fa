//! The standby: it can be read, not written, and it takes over.

use crate::support::{
    A_WHILE, INSERT, Place, SQLITE_READONLY, assert_same, await_alert, await_status, must, refuses, rows,
    start,
};
use standfast_campaign::application::client::Answer;

#[test]
fn a_standby_is_read_as_it_is_and_refuses_writes() {
    let place = Place::new("standby-write");
    let (primary, standby, database) = place.pair(&[]);
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    let copy = standby.standby_database("app.db");
    let mut application = place.application(&copy);
    assert_eq!(application.run("SELECT count(*) FROM t")[0][0], 2);
    assert_eq!(application.run("SELECT standfast_role()")[0][0], "standby");
    application.fails(INSERT, SQLITE_READONLY);
    let said = application.said();
    for word in ["physical standby", "north", "failover"] {
        assert!(said.contains(word), "{said}");
    }
    // Without the extension there is nobody to explain, but it must not get through either.
    let mut foreigner = place.foreigner(&copy);
    foreigner.run("PRAGMA busy_timeout=200");
    assert_eq!(foreigner.run("SELECT count(*) FROM t")[0][0], 2);
    let answer = foreigner.try_run(INSERT);
    assert!(matches!(answer, Answer::Failed { .. }), "{answer:?}");
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
}

#[test]
fn a_reader_on_the_standby_keeps_its_snapshot_while_redo_is_applied() {
    let place = Place::new("standby-snapshot");
    let (primary, standby, database) = place.pair(&[]);
    let mut reader = place.foreigner(&standby.standby_database("app.db"));
    reader.run("BEGIN");
    assert_eq!(reader.run("SELECT count(*) FROM t")[0][0], 1);
    let mut application = place.application(&database);
    for _ in 0..20 {
        application.run(INSERT);
    }
    assert_same(&primary, &standby, &database);
    assert_eq!(reader.run("SELECT count(*) FROM t")[0][0], 1);
    reader.run("COMMIT");
    assert_eq!(reader.run("SELECT count(*) FROM t")[0][0], 21);
}

#[test]
fn only_a_standby_can_take_over() {
    let place = Place::new("failover-primary");
    let (primary, _) = place.protecting();
    refuses(&primary, &["failover"], 3, &["hint: "]);
}

#[test]
fn a_standby_takes_over_with_everything_and_the_old_primary_is_fenced() {
    let place = Place::new("failover");
    let (mut primary, mut standby, database) = place.pair(&["--on-timeout", "stall"]);
    let mut application = place.application(&database);
    for _ in 0..10 {
        application.run(INSERT);
    }
    primary.kill();
    must(&standby, &["failover"]);
    await_status(&standby, "it is the primary", |status| status.role() == "primary");
    let copy = standby.standby_database("app.db");
    assert_eq!(rows(&copy), 11);
    let mut moved = place.application(&copy);
    moved.run(INSERT);

    start(&mut primary);
    await_alert(&primary, "north");
    application.send(INSERT);
    let answer = application.answer_within(4 * A_WHILE);
    assert!(!matches!(answer, Some(Answer::Rows(_))), "the old primary acknowledged a commit");
    let status = primary.status().unwrap();
    assert!(status.json().to_string().contains("fenced"), "{}", status.json());

    // The new primary outlives restarts as primary.
    standby.kill();
    start(&mut standby);
    assert_eq!(standby.status().unwrap().role(), "primary");
    moved.run(INSERT);
    assert_eq!(rows(&copy), 13);
}

#[test]
fn a_standby_killed_in_the_middle_of_applying_goes_on_where_it_was() {
    let place = Place::new("apply-kill");
    let (primary, mut standby, database) =
        place.pair(&["--on-timeout", "degrade", "--net-timeout-ms", "300"]);
    let mut application = place.application(&database);
    for point in ["apply-commit=kill@5", "apply-committed=kill@5", "received=kill@5"] {
        standby.kill();
        standby.faults = Some(point.into());
        start(&mut standby);
        for _ in 0..100 {
            application.run(INSERT);
            if standby.process().unwrap().ended_within(std::time::Duration::from_millis(10)) {
                break;
            }
        }
        assert!(standby.process().unwrap().ended_within(std::time::Duration::ZERO), "{point} did not strike");
        standby.kill();
        standby.faults = None;
        start(&mut standby);
        await_status(&primary, "the standby has caught up", |status| status.streams() && status.settled());
        assert_same(&primary, &standby, &database);
    }
}

#[test]
fn a_failover_that_fails_leaves_a_standby_that_goes_on_and_can_be_failed_over_again() {
    let place = Place::new("failover-fails");
    let (mut primary, standby, database) = place.pair(&["--on-timeout", "stall"]);
    let mut application = place.application(&database);
    application.run(INSERT);
    // The control file cannot be replaced: its new version has no place.
    let in_the_way = standby.directory.join("control.new");
    std::fs::create_dir(&in_the_way).unwrap();
    for round in 0..2 {
        let words = ["control", "still a standby", "hint: ", "standfast failover"];
        refuses(&standby, &["failover"], 1, &words);
        let status = standby.status().unwrap();
        assert_eq!(status.role(), "standby", "round {round}: {}", status.json());
        // It receives and applies again.
        application.run(INSERT);
        assert_same(&primary, &standby, &database);
    }
    await_alert(&standby, "the failover failed");
    // Nor can it be noted that standby logs are free, which is no reason to end apply.
    await_alert(&standby, "standby logs stay occupied");
    assert!(!standby.alerts().contains("apply has ended"), "{}", standby.alerts());
    std::fs::remove_dir(&in_the_way).unwrap();
    primary.kill();
    must(&standby, &["failover"]);
    let copy = standby.standby_database("app.db");
    assert_eq!(rows(&copy), 4);
    place.application(&copy).run(INSERT);
}
