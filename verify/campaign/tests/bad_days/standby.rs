//! A standby can be read, refuses writes, and fails over.

use crate::shared_configuration::await_configuration;
use crate::support::{
    A_WHILE, INSERT, Place, SQLITE_IOERR, SQLITE_READONLY, TIMEOUT, add_destination, assert_same,
    await_alert, await_status, must, refuses, rows, start,
};
use standfast_campaign::application::client::Answer;
use standfast_campaign::instance::Instance;
use standfast_campaign::process::await_condition;
use standfast_campaign::status::Status;
use std::path::PathBuf;

#[test]
fn standby_serves_reads_and_refuses_writes() {
    let place = Place::new("standby-write");
    let (primary, standby, database) = place.pair(&[]);
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    let copy = standby.standby_database("app.db");
    let mut application = place.application(&copy);
    assert_eq!(application.run("SELECT count(*) FROM t")[0][0], 2);
    assert_eq!(application.run("SELECT standfast_role()")[0][0], "standby");
    application.fails(INSERT, SQLITE_READONLY);
    let printed = application.printed();
    for word in ["physical standby", "north", "failover"] {
        assert!(printed.contains(word), "{printed}");
    }
    // Without the extension there is no explanation, but the write must be refused as well.
    let mut foreigner = place.foreigner(&copy);
    foreigner.run("PRAGMA busy_timeout=200");
    assert_eq!(foreigner.run("SELECT count(*) FROM t")[0][0], 2);
    let answer = foreigner.try_run(INSERT);
    assert!(matches!(answer, Answer::Failed { .. }), "{answer:?}");
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
}

#[test]
fn standby_reader_keeps_its_snapshot_while_redo_is_applied() {
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
fn failover_is_refused_while_the_primary_is_heard() {
    let place = Place::new("failover-heard");
    let (mut primary, standby, database) = place.pair(&[]);
    let mut application = place.application(&database);
    application.run(INSERT);
    let printed = ["`south`, is alive", "standfast switchover north", "failover --force"];
    refuses(&standby, &["failover"], 3, &printed);
    await_status(&primary, "nothing has changed", |status| status.streams() && status.settled());
    application.run(INSERT);
    // One that stands still is not heard. When it continues, it is told.
    primary.process().unwrap().freeze(true);
    must(&standby, &["failover"]);
    primary.process().unwrap().freeze(false);
    await_status(&primary, "it is fenced", |status| status.text("/state") == "fenced");
    assert_eq!(rows(&standby.standby_database("app.db")), 3);
    primary.kill();
}

/// Its stream is silent for longer than a heartbeat, because what came is not on disk yet.
#[test]
fn failover_is_refused_while_the_disk_of_the_standby_is_slow() {
    let place = Place::new("failover-slow");
    let (primary, database) = place.protecting();
    let mut standby = place.standby_of(&primary, "north");
    standby.stop().unwrap();
    standby.faults = Some("received=sleep:4000@1+".into());
    start(&mut standby);
    add_destination(&primary, &standby, &["--mode", "async"]);
    await_configuration(&primary, &standby);
    let mut application = place.application(&database);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(std::sync::atomic::Ordering::SeqCst) {
                application.run(INSERT);
            }
        });
        let finished = standby.run(&["failover"]);
        is_over.store(true, std::sync::atomic::Ordering::SeqCst);
        let finished = finished.unwrap();
        assert!(finished.code == 3 && finished.stderr.contains("`south`, is alive"), "{}", finished.stderr);
    });
}

#[test]
fn forced_failover_takes_over_from_a_primary_that_is_alive() {
    let place = Place::new("failover-forced");
    let (primary, standby, database) = place.pair(&[]);
    place.application(&database).run(INSERT);
    assert_eq!(standby.run(&["failover", "--force"]).unwrap().code, 0);
    await_status(&primary, "it is fenced", |status| status.text("/state") == "fenced");
    assert_eq!(rows(&standby.standby_database("app.db")), 2);
}

#[test]
fn standby_takes_over_with_everything_and_fences_old_primary() {
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
    application.send(INSERT);
    await_alert(&primary, "destination north: FENCED");
    let answer = application.answer_within(4 * A_WHILE);
    assert!(!matches!(answer, Some(Answer::Rows(_))), "the old primary acknowledged a commit");
    let status = primary.status().unwrap();
    assert!(status.json().to_string().contains("fenced"), "{}", status.json());
    // A session that writes there is told where to write, not to restart an instance that has not failed.
    let mut late = place.application(&database);
    late.fails(INSERT, SQLITE_IOERR);
    let printed = late.printed();
    assert!(printed.contains("another one has taken over") && !printed.contains("has failed"), "{printed}");

    // The new primary stays a primary over restarts.
    standby.kill();
    start(&mut standby);
    assert_eq!(standby.status().unwrap().role(), "primary");
    moved.run(INSERT);
    assert_eq!(rows(&copy), 13);
}

#[test]
fn primary_fenced_while_it_opens_acknowledges_nothing() {
    let place = Place::new("late-successor");
    let (mut primary, standby, database) = place.pair(&["--on-timeout", "stall"]);
    // Many databases take long to open, and the destination answers immediately.
    for number in 0..10 {
        let other = place.database(&format!("other-{number}.db"));
        must(&primary, &["protect", &other.to_string_lossy()]);
    }
    await_status(&primary, "the standby has them", Status::settled);
    primary.kill();
    must(&standby, &["failover"]);
    let mut application = place.application(&database);
    start(&mut primary);
    await_status(&primary, "the old primary is fenced", |status| {
        status.json().to_string().contains("fenced")
    });
    let name = standby.directory.file_name().unwrap().to_string_lossy().into_owned();
    let _ = primary.run(&["destination", "remove", &name]);
    application.send(INSERT);
    let answer = application.answer_within(4 * A_WHILE);
    assert!(!matches!(answer, Some(Answer::Rows(_))), "the old primary acknowledged a commit");
}

#[test]
fn database_protected_after_standby_creation_reaches_it() {
    let place = Place::new("protected-between");
    let (primary, database) = place.protecting();
    let standby = place.standby_of(&primary, "north");
    let between = place.database("between.db");
    must(&primary, &["protect", &between.to_string_lossy()]);
    add_destination(&primary, &standby, &["--mode", "sync-affirm"]);
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    for database in [&database, &between] {
        assert_same(&primary, &standby, database);
        place.application(database).run(INSERT);
        assert_same(&primary, &standby, database);
    }

    // The same while there is no destination.
    must(&primary, &["destination", "remove", "north"]);
    let without = place.database("without.db");
    must(&primary, &["protect", &without.to_string_lossy()]);
    place.application(&without).run(INSERT);
    add_destination(&primary, &standby, &["--mode", "sync-affirm"]);
    await_status(&primary, "the standby follows again", |status| status.streams() && status.settled());
    assert_same(&primary, &standby, &without);
}

#[test]
fn a_change_of_one_destination_does_not_interrupt_the_others() {
    let place = Place::new("other-destinations");
    let (primary, standby, database) = place.pair(&["--on-timeout", "stall"]);
    let mut application = place.application(&database);
    application.run(INSERT);
    let connections = |alerts: &str| alerts.matches("destination north: connected").count();
    let before = connections(&primary.alerts());
    must(&primary, &["destination", "add", "west", "127.0.0.1:1", "--mode", "async", "--no-wait"]);
    application.run(INSERT);
    must(&primary, &["destination", "add", "west", "127.0.0.1:2", "--mode", "async", "--no-wait"]);
    application.run(INSERT);
    must(&primary, &["destination", "remove", "west"]);
    application.run(INSERT);
    assert_same(&primary, &standby, &database);
    let alerts = primary.alerts();
    assert_eq!(connections(&alerts), before, "{alerts}");
    assert!(!alerts.contains("destination north: disconnected"), "{alerts}");
    // A destination that is changed itself reconnects.
    add_destination(&primary, &standby, &["--mode", "async"]);
    await_alert(&primary, "destination north: disconnected");
}

#[test]
fn standby_killed_while_applying_resumes_where_it_stopped() {
    let place = Place::new("apply-kill");
    let (primary, mut standby, database) =
        place.pair(&["--on-timeout", "degrade", "--net-timeout-ms", "300"]);
    let mut application = place.application(&database);
    for point in ["apply-commit=kill@5", "apply-committed=kill@5", "received=kill@5"] {
        standby.kill();
        standby.faults = Some(point.into());
        start(&mut standby);
        // How much redo one step applies depends on the machine, so the number of commits that this takes is unknown.
        await_condition(&format!("{point} strikes"), TIMEOUT, || {
            application.run(INSERT);
            let ended = standby.process().unwrap().ended_within(std::time::Duration::from_millis(10));
            Ok(if ended { Ok(()) } else { Err("it runs".into()) })
        })
        .unwrap_or_else(|error| panic!("{error}"));
        standby.kill();
        standby.faults = None;
        start(&mut standby);
        await_status(&primary, "the standby has caught up", |status| status.streams() && status.settled());
        assert_same(&primary, &standby, &database);
    }
}

#[test]
fn failed_failover_leaves_a_working_standby_and_is_repeatable() {
    let place = Place::new("failover-fails");
    let (mut primary, standby, database) = place.pair(&["--on-timeout", "stall"]);
    let mut application = place.application(&database);
    application.run(INSERT);
    // The control file cannot be replaced, because a directory has the name of its new version.
    let in_the_way = standby.directory.join("control.new");
    std::fs::create_dir(&in_the_way).unwrap();
    for round in 0..2 {
        let words = ["control", "still a standby", "hint: ", "standfast failover"];
        refuses(&standby, &["failover", "--force"], 1, &words);
        let status = standby.status().unwrap();
        assert_eq!(status.role(), "standby", "round {round}: {}", status.json());
        // It receives and applies again.
        application.run(INSERT);
        assert_same(&primary, &standby, &database);
    }
    await_alert(&standby, "the failover failed");
    // The control file cannot record that standby logs are free either, which does not end apply.
    await_alert(&standby, "standby logs stay occupied");
    assert!(!standby.alerts().contains("apply has ended"), "{}", standby.alerts());
    std::fs::remove_dir(&in_the_way).unwrap();
    primary.kill();
    must(&standby, &["failover"]);
    let copy = standby.standby_database("app.db");
    assert_eq!(rows(&copy), 4);
    place.application(&copy).run(INSERT);
}

/// Sets up a standby that has much to apply when its primary is lost, with faults that strike it then; returns its copy
/// of a database of 3 rows.
fn behind(place: &Place, faults: &str) -> (Instance, PathBuf) {
    let (mut primary, database) = place.protecting();
    let mut standby = place.standby_of(&primary, "north");
    standby.stop().unwrap();
    standby.faults = Some(faults.into());
    start(&mut standby);
    must(&standby, &["apply", "stop"]);
    add_destination(&primary, &standby, &["--mode", "sync-affirm"]);
    await_status(&primary, "commits wait for the standby", |status| {
        status.json()["destinations"][0]["required"] == true
    });
    let mut application = place.application(&database);
    // More frames than apply leaves in the WAL, and more than one batch of redo.
    (0..2).for_each(|_| drop(application.run("INSERT INTO t(x) VALUES(randomblob(20000000))")));
    application.close();
    primary.kill();
    let copy = standby.standby_database("app.db");
    (standby, copy)
}

#[test]
fn checkpoint_that_fails_once_in_a_failover_is_retried() {
    let place = Place::new("failover-checkpoint");
    let (standby, copy) = behind(&place, "database-write=ENOSPC@1");
    must(&standby, &["failover"]);
    assert!(standby.alerts().contains("are tried again"), "{}", standby.alerts());
    assert_eq!(rows(&copy), 3);
    place.application(&copy).run(INSERT);
}

#[test]
fn a_failover_is_refused_while_a_database_cannot_be_written() {
    let place = Place::new("failover-full");
    let (mut standby, copy) = behind(&place, "apply-commit=ENOSPC@1+,recovery-apply=ENOSPC@2+");
    let printed = [
        "would leave 1 of its databases offline",
        "app.db",
        "No space left",
        "still a standby",
        "--immediate",
    ];
    refuses(&standby, &["failover"], 3, &printed);
    let status = standby.status().unwrap();
    assert_eq!(status.role(), "standby");
    // The volume is still full, and the operator fails over without the database.
    let forced = standby.run(&["failover", "--immediate"]).unwrap();
    assert_eq!(forced.code, 6, "{}{}", forced.stdout, forced.stderr);
    for word in ["warning: OFFLINE", "app.db", "its redo is kept from SCN"] {
        assert!(forced.stderr.contains(word), "{}", forced.stderr);
    }
    assert_eq!(rows(&copy), 1);
    await_status(&standby, "it is offline", |status| status.database_state("app.db") == "left out");
    // Once there is space, a start repairs it.
    standby.stop().unwrap();
    standby.faults = None;
    start(&mut standby);
    await_status(&standby, "it is open", |status| status.database_state("app.db") == "open");
    assert_eq!(rows(&copy), 3);
    place.application(&copy).run(INSERT);
    let mut second = place.standby_of(&standby, "west");
    add_destination(&standby, &second, &["--mode", "sync-affirm"]);
    assert_same(&standby, &second, &copy);
    second.kill();
}

#[test]
fn database_that_has_space_again_is_not_excluded() {
    let place = Place::new("failover-room");
    // Applying it fails in the failover, and so does the first attempt to recover it.
    let (standby, copy) = behind(&place, "apply-commit=ENOSPC@1,recovery-apply=ENOSPC@2");
    must(&standby, &["failover"]);
    assert_eq!(rows(&copy), 3);
    place.application(&copy).run(INSERT);
}

#[test]
fn standby_killed_in_its_failover_checkpoint_fails_over_later() {
    let place = Place::new("failover-killed");
    let (mut standby, copy) = behind(&place, "database-write=kill@20");
    assert_ne!(standby.run(&["failover"]).unwrap().code, 0);
    await_condition("the standby to die", TIMEOUT, || {
        Ok(if standby.has_ended() { Ok(()) } else { Err("it runs".into()) })
    })
    .unwrap();
    standby.faults = None;
    start(&mut standby);
    assert_eq!(standby.status().unwrap().json()["role"], "standby");
    must(&standby, &["failover"]);
    assert_eq!(rows(&copy), 3);
    place.application(&copy).run(INSERT);
}
