//! Processes without the VFS that open a protected database.

use crate::support::{
    A_WHILE, INSERT, Place, TIMEOUT, assert_same, await_alert, await_rows, await_status, must, refuses, rows,
    start,
};
use standfast_campaign::application::client::Answer;
use standfast_campaign::isolation::wal_index;
use standfast_campaign::verify::compare_pages;
use std::time::Instant;

#[test]
fn writes_of_a_foreign_process_are_captured() {
    let place = Place::new("foreign");
    let (primary, standby, database) = place.pair(&[]);
    let mut foreigner = place.foreigner(&database);
    // There is no notification: the instance has to find the commits by itself, without any application.
    let copy = standby.standby_database("app.db");
    for number in 2..=11 {
        foreigner.run(INSERT);
        await_status(&primary, "the instance finds the foreign commit", |_| rows(&copy) == number);
    }
    // The alert log reports commits that wait for no standby.
    await_alert(&primary, "database app.db: COMMITS WITHOUT STANDFAST");
    place.application(&database).run(INSERT);
    foreigner.run(INSERT);
    foreigner.close();
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    assert_eq!(rows(&copy), 14);
}

#[test]
fn foreign_process_cannot_reset_the_wal_or_leave_wal_mode() {
    let place = Place::new("foreign-reset");
    let (primary, standby, database) = place.pair(&[]);
    let mut foreigner = place.foreigner(&database);
    foreigner.run(INSERT);
    // The lock is never granted, so a short timeout suffices.
    foreigner.run("PRAGMA busy_timeout=200");
    let checkpoint = foreigner.try_run("PRAGMA wal_checkpoint(TRUNCATE)");
    let mode = foreigner.try_run("PRAGMA journal_mode=DELETE");
    foreigner.run("PRAGMA busy_timeout=60000");
    foreigner.run(INSERT);
    assert_eq!(foreigner.run("PRAGMA journal_mode")[0][0], "wal", "after {mode:?}, {checkpoint:?}");
    foreigner.close();
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    assert_eq!(rows(&standby.standby_database("app.db")), 4);
}

/// A database needs a full resync, and an open write transaction keeps the resync from beginning.
#[test]
fn blocked_full_resync_is_a_named_wait_and_is_retried() {
    let place = Place::new("copy-held-up");
    let (mut primary, standby, database) = place.pair(&[]);
    primary.stop().unwrap();
    // Gives the writer time to begin before the resync.
    let refused = vec!["fresh-copy=EIO@1"; 15].join(",");
    primary.faults = Some(format!("capture=EIO@1,{refused}"));
    start(&mut primary);
    let (mut application, mut writer) = (place.application(&database), place.application(&database));
    application.send(INSERT);
    await_alert(&primary, "the full resync of database app.db cannot begin and will be tried again");
    writer.run("BEGIN IMMEDIATE");
    await_alert(&primary, "lock of the database is held by another connection");
    await_status(&primary, "the wait has its name", |status| {
        status.text("/waiting_for") == "full resync of database app.db"
            && status.number("/waiting_commits") == 1
    });
    assert_eq!(application.answer_within(A_WHILE), None);

    writer.run("ROLLBACK");
    assert_eq!(application.answer(), Answer::Rows(vec![]), "{}", application.printed());
    await_status(&primary, "nothing waits", |status| status.text("/waiting_for").is_empty());
    assert_same(&primary, &standby, &database);
    assert_eq!(rows(&standby.standby_database("app.db")), 2);
}

#[test]
fn bad_wal_index_takes_a_database_awaiting_resync_offline() {
    let place = Place::new("copy-bad-index");
    let (mut primary, _standby, database) = place.pair(&[]);
    primary.stop().unwrap();
    // Gives the test time to damage the wal-index before the resync.
    let refused = vec!["fresh-copy=EIO@1"; 15].join(",");
    primary.faults = Some(format!("capture=EIO@1,{refused}"));
    start(&mut primary);
    let mut application = place.application(&database);
    application.send(INSERT);
    await_alert(&primary, "the full resync of database app.db cannot begin and will be tried again");
    wal_index::publish(&database, wal_index::Number::Frames(1 << 20)).unwrap();
    await_alert(&primary, "database app.db has failed: it cannot be copied: the wal-index does not fit");
    assert!(matches!(application.answer(), Answer::Failed { .. }), "{}", application.printed());
    assert!(primary.run(&["status", "--check"]).unwrap().code != 0, "the database is not protected");
}

#[test]
fn foreign_writes_while_instance_is_down_are_captured_at_start() {
    let place = Place::new("foreign-down");
    let (mut primary, standby, database) = place.pair(&[]);
    for orderly in [true, false] {
        if orderly {
            primary.stop().unwrap()
        } else {
            primary.kill()
        }
        let mut foreigner = place.foreigner(&database);
        foreigner.run("PRAGMA wal_autocheckpoint=0");
        foreigner.run(INSERT);
        // Killed, so that closing does not reset the WAL.
        foreigner.kill();
        start(&mut primary);
        place.application(&database).run(INSERT);
        assert_same(&primary, &standby, &database);
    }
    assert_eq!(rows(&standby.standby_database("app.db")), 5);
}

#[test]
fn wal_reset_while_the_instance_is_down_causes_a_full_resync() {
    let place = Place::new("reset-down");
    let (mut primary, standby, database) = place.pair(&[]);
    place.application(&database).run(INSERT);
    for orderly in [true, false] {
        if orderly {
            primary.stop().unwrap()
        } else {
            primary.kill()
        }
        let mut foreigner = place.foreigner(&database);
        foreigner.run("INSERT INTO t(x) VALUES('lost on the way')");
        foreigner.run("PRAGMA wal_checkpoint(TRUNCATE)");
        foreigner.run(INSERT);
        foreigner.kill();
        start(&mut primary);
        place.application(&database).run(INSERT);
        assert_same(&primary, &standby, &database);
    }
    let alerts = primary.alerts();
    assert_eq!(
        alerts.matches("full image in the redo: its write-ahead log was reset by a process").count(),
        2,
        "{alerts}"
    );
    assert_eq!(rows(&standby.standby_database("app.db")), 2 + 2 * 3);
}

#[test]
fn wal_removed_while_instance_is_down_loses_no_foreign_commit() {
    let place = Place::new("removed-down");
    let (mut primary, standby, database) = place.pair(&[]);
    place.application(&database).run(INSERT);
    primary.stop().unwrap();
    // The last connection to close backfills everything into the database and removes the WAL.
    let mut foreigner = place.foreigner(&database);
    foreigner.run(INSERT);
    foreigner.close();
    start(&mut primary);
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    assert_eq!(rows(&standby.standby_database("app.db")), 4);
}

/// The last connection to close backfills the WAL into the database and removes it, so that no WAL position shows what
/// it wrote.
#[test]
fn plain_write_after_a_crash_is_kept_and_reaches_the_standby() {
    let place = Place::new("plain-write-down");
    let (mut primary, standby, database) = place.pair(&[]);
    let mut application = place.application(&database);
    application.run(INSERT);
    application.close();
    primary.kill();
    let mut foreigner = place.foreigner(&database);
    foreigner.run(INSERT);
    foreigner.close();
    start(&mut primary);
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    assert_eq!(rows(&standby.standby_database("app.db")), 4);
}

#[test]
fn unprotected_database_is_ordinary_and_can_be_protected_again() {
    let place = Place::new("unprotect");
    let (mut primary, standby, database) = place.pair(&[]);
    let file = database.to_string_lossy();
    must(&primary, &["unprotect", &file]);
    assert!(!std::path::Path::new(&format!("{file}-standfast")).exists());
    primary.stop().unwrap();
    let mut application = place.application(&database);
    application.run(INSERT);
    assert_eq!(application.run("PRAGMA journal_mode=DELETE")[0][0], "delete");
    assert_eq!(application.run("PRAGMA journal_mode=WAL")[0][0], "wal");
    application.close();
    start(&mut primary);
    must(&primary, &["protect", &file]);
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    assert_eq!(rows(&standby.standby_database("app.db")), 3);
}

/// The schema has syntax of a newer SQLite: the instance reads pages and does not need to understand the schema.
#[test]
fn unparsable_schema_survives_restart_and_failover() {
    let place = Place::new("newer-schema");
    let (mut primary, mut standby, database) = place.pair(&[]);
    let mut application = place.application(&database);
    application.run(
        "CREATE INDEX newer ON t(x); PRAGMA writable_schema=ON; \
         UPDATE sqlite_schema SET sql = 'CREATE INDEX newer ON t(x) AS ONLY A LATER SQLITE CAN' WHERE name = 'newer'",
    );
    application.close();
    let insert = "PRAGMA writable_schema=ON; INSERT INTO t(x) VALUES('row')";
    place.application(&database).fails("SELECT 1 FROM t", 11);
    primary.stop().unwrap();
    start(&mut primary);
    place.application(&database).run(insert);
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    let copy = standby.standby_database("app.db");
    assert!(compare_pages(&database, &copy).unwrap().findings.none());
    // Also after a full resync.
    must(&primary, &["unprotect", "app.db"]);
    must(&primary, &["protect", &database.to_string_lossy()]);
    place.application(&database).run(insert);
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    assert!(compare_pages(&database, &copy).unwrap().findings.none());
    primary.kill();
    must(&standby, &["failover"]);
    place.application(&copy).run(insert);
    standby.stop().unwrap();
    start(&mut standby);
    place.application(&copy).run(insert);
}

#[test]
fn restarted_standby_applies_a_database_protected_again() {
    let place = Place::new("protected-again");
    let (primary, mut standby, database) = place.pair(&[]);
    let file = database.to_string_lossy();
    for _ in 0..2 {
        place.application(&database).run(INSERT);
        must(&primary, &["unprotect", &file]);
        must(&primary, &["protect", &file]);
    }
    place.application(&database).run(INSERT);
    for orderly in [true, false] {
        await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
        if orderly {
            standby.stop().unwrap()
        } else {
            standby.kill()
        }
        start(&mut standby);
        place.application(&database).run(INSERT);
        assert_same(&primary, &standby, &database);
    }
    assert_eq!(rows(&standby.standby_database("app.db")), 6);
}

/// All numbers have been used once, so another database gets the number of one that is gone.
#[test]
fn standby_follows_a_reused_database_number() {
    use standfast_environment::state::control::Control;
    use standfast_io::DirectDisk;
    let place = Place::new("numbers");
    let (mut primary, mut standby, database) = place.pair(&[]);
    primary.stop().unwrap();
    let control = primary.directory.join("control");
    let mut changed = Control::load(&DirectDisk, &control).unwrap();
    changed.next_database = 1024;
    changed.store(&DirectDisk, &control).unwrap();
    start(&mut primary);
    let other = place.database("other.db");
    // Number 2 was never assigned.
    must(&primary, &["protect", &other.to_string_lossy()]);
    let mut old = place.application(&database);
    old.run(INSERT);
    must(&primary, &["unprotect", "app.db"]);
    let third = place.database("third.db");
    must(&primary, &["checkpoint"]);
    must(&primary, &["protect", &third.to_string_lossy()]);
    let status = await_status(&primary, "three databases were known", |_| true);
    assert_ne!(status.number("/databases/0/id"), 1, "a session of the one before has the number");
    old.close();
    must(&primary, &["protect", "--name", "again.db", &database.to_string_lossy()]);
    let status = await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    assert_eq!(status.number("/databases/0/id"), 1);
    standby.stop().unwrap();
    start(&mut standby);
    for path in [&other, &third, &database] {
        place.application(path).run(INSERT);
    }
    await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    for (path, name) in [(&other, "other.db"), (&third, "third.db"), (&database, "again.db")] {
        let found = compare_pages(path, &standby.standby_database(name)).unwrap().findings;
        assert!(found.none(), "{name}: {:?}", found.notes);
    }
}

#[test]
fn protect_is_refused_before_descriptors_run_out() {
    let place = Place::new("descriptors");
    let (primary, database) = place.protecting();
    let pid = await_status(&primary, "the process", |_| true).number("/pid");
    let open = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count() as u64;
    let limit = libc::rlimit { rlim_cur: open + 80, rlim_max: open + 80 };
    // SAFETY: the structure is valid; the process is the instance of this test.
    let set = unsafe { libc::prlimit(pid as libc::pid_t, libc::RLIMIT_NOFILE, &limit, std::ptr::null_mut()) };
    assert_eq!(set, 0);
    let other = place.database("other.db");
    refuses(&primary, &["protect", &other.to_string_lossy()], 3, &["limit of open files", "LimitNOFILE"]);
    // The descriptors that are reserved for the log are available.
    must(&primary, &["switch-logfile"]);
    place.application(&database).run(INSERT);
}

/// Notifications of another database never stop, so the log writer is never idle, which is when it polls databases
/// without notifications.
#[test]
fn foreign_commits_are_captured_while_another_database_is_busy() {
    let place = Place::new("foreign-busy");
    let (primary, standby, database) = place.pair(&[]);
    let other = place.database("busy.db");
    must(&primary, &["protect", &other.to_string_lossy()]);
    let mut busy = place.application(&other);
    let mut foreigner = place.foreigner(&database);
    let copy = standby.standby_database("app.db");
    for number in 2..=4 {
        foreigner.run(INSERT);
        let begun = Instant::now();
        while rows(&copy) != number {
            assert!(begun.elapsed() < TIMEOUT / 4, "{} of {number} rows at the standby", rows(&copy));
            for _ in 0..5 {
                busy.run(INSERT);
            }
        }
    }
    assert_same(&primary, &standby, &database);
}

#[test]
fn a_clean_stop_captures_foreign_commits() {
    let place = Place::new("foreign-stop");
    let (mut primary, standby, database) = place.pair(&[]);
    let copy = standby.standby_database("app.db");
    let mut foreigner = place.foreigner(&database);
    for number in 2..=4 {
        foreigner.run(INSERT);
        primary.stop().unwrap();
        await_rows(&copy, number);
        start(&mut primary);
        await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
    }
}

#[test]
fn foreign_commits_are_counted_and_their_process_named() {
    let place = Place::new("foreign-count");
    let (primary, _standby, database) = place.pair(&[]);
    let mut application = place.application(&database);
    let mut foreigner = place.foreigner(&database);
    for _ in 0..3 {
        application.run(INSERT);
        foreigner.run(INSERT);
        application.run(INSERT);
    }
    let status = await_status(&primary, "the foreign commits are counted", |status| {
        status.number("/databases/0/foreign_commits") == 3
            && status.number("/databases/0/foreign_processes/0/pid") != 0
    });
    assert_eq!(status.text("/databases/0/foreign_processes/0/access"), "no_extension");
    warns(&primary, "app.db: 3 commits without Standfast");
    assert!(must(&primary, &["status"]).contains("COMMITS WITHOUT STANDFAST app.db: 3"));
    await_alert(&primary, "database app.db: COMMITS WITHOUT STANDFAST");
    let diagnosis = primary.run(&["diagnose"]).unwrap();
    assert!(diagnosis.stdout.contains("R30") && diagnosis.stdout.contains("commits without Standfast"));
}

/// Asserts that `status --check` is a warning with these words.
#[track_caller]
fn warns(primary: &standfast_campaign::instance::Instance, words: &str) {
    let checked = primary.run(&["status", "--check"]).unwrap();
    assert_eq!(checked.code, 1, "{}", checked.stdout);
    assert!(checked.stdout.contains(words), "{}", checked.stdout);
}

#[test]
fn an_application_killed_while_it_commits_is_not_foreign() {
    let place = Place::new("foreign-killed");
    let (primary, standby, database) = place.pair(&[]);
    for _ in 0..10 {
        let mut application = place.application(&database);
        application.run(INSERT);
        application.send(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<50) INSERT INTO t(x) SELECT i FROM n",
        );
        application.kill();
    }
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    // Waits three intervals for what must not happen.
    let since = Instant::now();
    let status = await_status(&primary, "intervals pass", |_| since.elapsed().as_secs() >= 3);
    assert_eq!(status.number("/databases/0/foreign_commits"), 0);
}

#[test]
fn new_database_in_protected_directory_is_named_until_protected() {
    let place = Place::new("new-file");
    let primary = place.primary("south");
    let directory = place.path("data");
    std::fs::create_dir(&directory).unwrap();
    place.database("data/a.db");
    let path = directory.to_string_lossy();
    must(&primary, &["protect", &path]);
    place.database("data/new.db");
    let is_named =
        |status: &standfast_campaign::status::Status| !status.text("/unprotected_files/0").is_empty();
    await_status(&primary, "the new file is named", is_named);
    warns(&primary, "new.db");
    await_alert(&primary, "NOT PROTECTED");
    must(&primary, &["protect", &path]);
    await_status(&primary, "none is left", |status| !is_named(status));
}
