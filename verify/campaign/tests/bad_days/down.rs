//! The instance is down, or restarts under a running application.

use crate::support::{
    A_WHILE, INSERT, Place, SQLITE_IOERR, SQLITE_READONLY, TIMEOUT, assert_same, await_rows, must, rows,
    segment_of, start,
};
use standfast_campaign::application::client::Answer;
use standfast_campaign::process::await_condition;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::time::Instant;

#[test]
fn without_instance_reads_work_and_writes_fail_after_the_wait() {
    let place = Place::new("down");
    let mut primary = place.instance("south");
    primary.configure("commit", "write_wait_ms", 300).unwrap();
    primary.configure("commit", "outcome_wait_ms", 300).unwrap();
    start(&mut primary);
    let database = place.database("app.db");
    must(&primary, &["protect", &database.to_string_lossy()]);
    let mut application = place.application(&database);
    application.run(INSERT);
    for orderly in [true, false] {
        if orderly {
            primary.stop().unwrap();
        } else {
            primary.kill();
            // Its death is detected within a second. Until then a commit may enter the WAL, with unknown outcome.
            if let Answer::Failed { code, .. } = application.try_run(INSERT) {
                assert!(
                    [SQLITE_READONLY, SQLITE_IOERR].contains(&(code & 0xff)),
                    "{code}: {}",
                    application.printed()
                );
            } else {
                panic!("acknowledged without an instance");
            }
        }
        let before = rows(&database);
        for client in [&mut application, &mut place.application(&database)] {
            let begun = Instant::now();
            client.fails(INSERT, SQLITE_READONLY);
            let waited = begun.elapsed().as_millis();
            assert!((300..5_000).contains(&waited), "waited {waited} ms");
            let status = client.run("SELECT standfast_status()")[0][0].to_string();
            let directory = primary.directory.to_string_lossy().into_owned();
            for word in ["south", &directory, "standfast start"] {
                assert!(status.contains(word), "{status} does not say {word}");
                assert!(client.printed().contains(word), "{} does not say {word}", client.printed());
            }
            assert_eq!(client.run("SELECT count(*) FROM t")[0][0], before);
        }
        start(&mut primary);
        application.run(INSERT);
        assert_eq!(rows(&database), before + 1);
    }
}

#[test]
fn writers_wait_for_a_restarted_instance_and_then_continue() {
    let place = Place::new("restart");
    let mut primary = place.instance("south");
    primary.configure("commit", "write_wait_ms", 60_000).unwrap();
    start(&mut primary);
    let database = place.database("app.db");
    must(&primary, &["protect", &database.to_string_lossy()]);
    let mut application = place.application(&database);
    application.run(INSERT);
    for round in 0..3 {
        primary.kill();
        application.send(INSERT);
        // The death of the instance is detected within a second, and the statement may have entered the WAL before.
        let early = application.answer_within(A_WHILE);
        assert_eq!(early, None, "round {round}");
        start(&mut primary);
        assert_eq!(application.answer(), Answer::Rows(vec![]), "round {round}: {}", application.printed());
    }
    application.run(INSERT);
    assert_eq!(rows(&database), 6);
}

#[test]
fn commit_waiting_for_durability_survives_a_killed_instance() {
    let place = Place::new("in-flight");
    let (mut primary, standby, database) = place.pair(&["--on-timeout", "stall"]);
    let mut application = place.application(&database);
    application.run(INSERT);
    assert_same(&primary, &standby, &database);
    primary.process().unwrap().freeze(true);
    application.send(INSERT);
    // In the WAL and visible, but not in the redo.
    await_rows(&database, 3);
    assert_eq!(application.answer_within(A_WHILE), None, "acknowledged by a frozen instance");
    assert_eq!(rows(&standby.standby_database("app.db")), 2);
    primary.kill();
    start(&mut primary);
    assert_eq!(application.answer(), Answer::Rows(vec![]), "{}", application.printed());
    assert_same(&primary, &standby, &database);
}

#[test]
fn killed_application_leaves_no_lock_and_no_uncaptured_commit() {
    let place = Place::new("dead-application");
    let (primary, standby, database) = place.pair(&[]);
    for _ in 0..5 {
        let mut dying = place.application(&database);
        dying.run(INSERT);
        dying.run("BEGIN IMMEDIATE; INSERT INTO t(x) VALUES('never committed')");
        dying.kill();
        place.application(&database).run(INSERT);
    }
    assert_same(&primary, &standby, &database);
    assert_eq!(rows(&database), 11);
}

#[test]
fn commit_whose_shared_memory_is_recreated_is_not_acknowledged() {
    for loss in ["removed", "of another release"] {
        let place = Place::new("memory");
        let (mut primary, database) = place.protecting();
        let segment = segment_of(&database);
        let mut application = place.application(&database);
        application.run(INSERT);
        application.run("BEGIN IMMEDIATE");
        application.run(INSERT);
        let old = std::fs::metadata(&segment).unwrap().ino();
        primary.kill();
        if loss == "removed" {
            std::fs::remove_file(&segment).unwrap();
        } else {
            let file = std::fs::File::options().write(true).open(&segment).unwrap();
            file.write_all_at(&99u32.to_le_bytes(), 8).unwrap();
        }
        std::thread::scope(|scope| {
            let committing = scope.spawn(|| {
                await_condition("new shared memory", TIMEOUT, || {
                    let found = std::fs::metadata(&segment).map(|metadata| metadata.ino());
                    let new = found.as_ref().is_ok_and(|inode| *inode != old);
                    Ok(if new { Ok(()) } else { Err(format!("{found:?}")) })
                })
                .unwrap_or_else(|error| panic!("{error}"));
                application.fails("COMMIT", SQLITE_IOERR);
                assert!(
                    application.printed().contains("new shared memory"),
                    "{loss}: {}",
                    application.printed()
                );
            });
            // It creates the memory, then waits for the writer. Must run on this thread, because the instance is killed
            // with the thread that started it.
            start(&mut primary);
            committing.join().unwrap();
        });
        application.run(INSERT);
        assert_eq!(rows(&database), 4, "{loss}: committed and visible");
    }
}
