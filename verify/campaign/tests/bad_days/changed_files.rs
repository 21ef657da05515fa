//! Files of a primary's databases that are not as the instance left them: rolled back, truncated, removed, replaced, or
//! read and written by a plain process. Redo is the truth: afterwards everything acknowledged is at both ends, or the
//! database is offline and both file and redo are kept.

use crate::support::{INSERT, Place, assert_same, await_alert, await_status, beside, must, rows, start};
use standfast_campaign::instance::Instance;
use standfast_campaign::status::Status;
use std::path::{Path, PathBuf};

/// Number of commits in each of two halves: a copy of the files, taken between them, holds only the first half.
const HALF: i64 = 150;

/// Contents of a database file and its WAL.
struct Copy {
    database: Vec<u8>,
    wal: Vec<u8>,
}

impl Copy {
    fn of(database: &Path) -> Copy {
        let read = |path: &Path| std::fs::read(path).unwrap();
        Copy { database: read(database), wal: read(&beside(database, "-wal")) }
    }

    /// Writes both back into the same files and removes the wal-index, as a restart of the machine does.
    fn put_back(&self, database: &Path) {
        std::fs::write(database, &self.database).unwrap();
        std::fs::write(beside(database, "-wal"), &self.wal).unwrap();
        std::fs::remove_file(beside(database, "-shm")).unwrap();
    }
}

/// Sets up a pair with acknowledged commits and a copy of its files after the first half of them; kills the primary.
fn pair_with_copy(place: &Place) -> (Instance, Instance, PathBuf, Copy) {
    let (mut primary, standby, database) = place.pair(&[]);
    place.insert(&database, HALF);
    let copy = Copy::of(&database);
    place.insert(&database, HALF);
    assert_same(&primary, &standby, &database);
    primary.kill();
    (primary, standby, database, copy)
}

/// Whether the machine restarts with the instance, so that the shared memory is lost as well.
const MACHINE_RESTARTS: [bool; 2] = [false, true];

fn start_after(primary: &mut Instance, machine_restarts: bool) {
    if machine_restarts {
        primary.forget_shared_memory();
    }
    start(primary);
}

/// Asserts that both ends have all rows and take more.
#[track_caller]
fn assert_nothing_lost(
    place: &Place,
    primary: &Instance,
    standby: &Instance,
    database: &Path,
    expected: i64,
) {
    assert_eq!(rows(database), expected, "{}", primary.alerts());
    place.application(database).run(INSERT);
    assert_same(primary, standby, database);
    assert_eq!(rows(&standby.standby_database("app.db")), expected + 1);
}

#[track_caller]
fn assert_offline(primary: &Instance, standby: &Instance, kept: i64) {
    await_status(primary, "the database is offline", |status: &Status| {
        status.database_state("app.db") == "left out"
    });
    assert_eq!(rows(&standby.standby_database("app.db")), kept, "no image replaces the better copy");
}

#[test]
fn a_plain_read_after_a_power_loss_loses_nothing() {
    for restarts in MACHINE_RESTARTS {
        let place = Place::new("plain-read");
        let (mut primary, standby, database, copy) = pair_with_copy(&place);
        copy.put_back(&database);
        // Recovers, backfills the rest of the WAL into the file and removes the WAL.
        let mut reader = place.foreigner(&database);
        assert_eq!(reader.run("SELECT count(*) FROM t")[0][0], 1 + HALF);
        reader.close();
        assert!(!beside(&database, "-wal").exists());
        start_after(&mut primary, restarts);
        assert_nothing_lost(&place, &primary, &standby, &database, 1 + 2 * HALF);
    }
}

#[test]
fn files_rolled_back_to_an_earlier_state_are_rolled_forward() {
    for restarts in MACHINE_RESTARTS {
        let place = Place::new("rolled-back");
        let (mut primary, standby, database, copy) = pair_with_copy(&place);
        copy.put_back(&database);
        start_after(&mut primary, restarts);
        assert_nothing_lost(&place, &primary, &standby, &database, 1 + 2 * HALF);
    }
}

#[test]
fn files_rolled_back_below_the_checkpoint_are_rolled_forward() {
    let place = Place::new("below-checkpoint");
    let (mut primary, standby, database) = place.pair(&[]);
    place.insert(&database, HALF);
    let copy = Copy::of(&database);
    place.insert(&database, HALF);
    must(&primary, &["switch-logfile"]);
    must(&primary, &["checkpoint"]);
    place.insert(&database, 1);
    assert_same(&primary, &standby, &database);
    for orderly in [true, false] {
        if orderly {
            primary.stop().unwrap()
        } else {
            primary.kill()
        }
        copy.put_back(&database);
        start_after(&mut primary, !orderly);
    }
    assert_nothing_lost(&place, &primary, &standby, &database, 2 + 2 * HALF);
}

#[test]
fn a_removed_wal_loses_nothing() {
    let place = Place::new("removed-wal");
    let (mut primary, standby, database) = place.pair(&[]);
    place.insert(&database, HALF);
    for orderly in [true, false] {
        if orderly {
            primary.stop().unwrap()
        } else {
            primary.kill()
        }
        let _ = std::fs::remove_file(beside(&database, "-wal"));
        let _ = std::fs::remove_file(beside(&database, "-shm"));
        start_after(&mut primary, !orderly);
        place.insert(&database, 1);
    }
    assert_nothing_lost(&place, &primary, &standby, &database, 3 + HALF);
}

#[test]
fn a_wal_removed_under_a_running_application_loses_nothing() {
    let place = Place::new("removed-live");
    let (mut primary, standby, database) = place.pair(&[]);
    let mut application = place.application(&database);
    for _ in 0..HALF {
        application.run(INSERT);
    }
    std::fs::remove_file(beside(&database, "-wal")).unwrap();
    let mut acknowledged = HALF;
    while acknowledged < 2 * HALF
        && matches!(application.try_run(INSERT), standfast_campaign::application::client::Answer::Rows(_))
    {
        acknowledged += 1;
    }
    primary.kill();
    application.kill();
    let _ = std::fs::remove_file(beside(&database, "-shm"));
    start(&mut primary);
    let found = rows(&database);
    assert!(found > acknowledged, "{found} rows of {acknowledged} acknowledged and one before");
    assert_nothing_lost(&place, &primary, &standby, &database, found);
}

#[test]
fn wal_truncated_to_three_frames_loses_nothing() {
    let place = Place::new("cut-wal");
    let (mut primary, standby, database) = place.pair(&[]);
    place.insert(&database, HALF);
    for orderly in [true, false] {
        if orderly {
            primary.stop().unwrap()
        } else {
            primary.kill()
        }
        let wal = std::fs::OpenOptions::new().write(true).open(beside(&database, "-wal")).unwrap();
        wal.set_len(wal.metadata().unwrap().len().min(32 + 3 * (24 + 4096))).unwrap();
        let _ = std::fs::remove_file(beside(&database, "-shm"));
        start(&mut primary);
        place.insert(&database, 1);
    }
    assert_nothing_lost(&place, &primary, &standby, &database, 3 + HALF);
}

#[test]
fn an_older_wal_beside_a_newer_database_loses_nothing() {
    let place = Place::new("older-wal");
    let (mut primary, standby, database) = place.pair(&[]);
    place.insert(&database, HALF);
    let wal = std::fs::read(beside(&database, "-wal")).unwrap();
    place.insert(&database, HALF);
    must(&primary, &["checkpoint"]);
    place.insert(&database, 1);
    assert_same(&primary, &standby, &database);
    primary.kill();
    std::fs::write(beside(&database, "-wal"), &wal).unwrap();
    std::fs::remove_file(beside(&database, "-shm")).unwrap();
    start_after(&mut primary, true);
    assert_nothing_lost(&place, &primary, &standby, &database, 2 + 2 * HALF);
}

/// What the plain process wrote fits neither state: only the operator can decide.
#[test]
fn plain_writer_on_earlier_state_takes_the_database_offline() {
    for stays_open in [false, true] {
        let place = Place::new("plain-writer");
        let (mut primary, standby, database, copy) = pair_with_copy(&place);
        copy.put_back(&database);
        let mut writer = place.foreigner(&database);
        writer.run("INSERT INTO t(x) VALUES('a plain process wrote this')");
        let writer = if stays_open {
            Some(writer)
        } else {
            writer.close();
            None
        };
        start(&mut primary);
        assert_offline(&primary, &standby, 1 + 2 * HALF);
        await_alert(&primary, "does not stand where the redo says");
        assert_eq!(rows(&database), 2 + HALF, "the file is kept");
        drop(writer);
    }
}

#[test]
fn another_file_in_the_place_of_a_database_takes_it_offline() {
    let place = Place::new("another-file");
    let (mut primary, standby, database) = place.pair(&[]);
    place.insert(&database, HALF);
    let backup = place.path("backup.db");
    rusqlite::Connection::open(&database)
        .unwrap()
        .execute("VACUUM INTO ?1", [backup.to_string_lossy()])
        .unwrap();
    place.insert(&database, HALF);
    assert_same(&primary, &standby, &database);
    for empty in [true, false] {
        primary.stop().unwrap();
        for suffix in ["", "-wal", "-shm"] {
            let _ = std::fs::remove_file(beside(&database, suffix));
        }
        if empty {
            // Like an application that starts before its volume is mounted.
            assert_eq!(place.database("app.db"), database);
        } else {
            std::fs::rename(&backup, &database).unwrap();
        }
        start(&mut primary);
        assert_offline(&primary, &standby, 1 + 2 * HALF);
        await_alert(&primary, "another file is at");
    }
}

/// The file keeps its inode, and has an older content and the present WAL.
#[test]
fn older_database_content_with_current_wal_loses_nothing() {
    let place = Place::new("older-content");
    let (mut primary, standby, database) = place.pair(&[]);
    place.insert(&database, HALF);
    must(&primary, &["checkpoint"]);
    let copy = std::fs::read(&database).unwrap();
    place.insert(&database, HALF);
    must(&primary, &["checkpoint"]);
    place.insert(&database, 1);
    assert_same(&primary, &standby, &database);
    primary.kill();
    std::fs::write(&database, &copy).unwrap();
    start(&mut primary);
    assert_nothing_lost(&place, &primary, &standby, &database, 2 + 2 * HALF);
}

#[test]
fn plain_read_after_clean_stop_causes_no_full_resync() {
    let place = Place::new("read-after-stop");
    let (mut primary, standby, database) = place.pair(&[]);
    place.insert(&database, HALF);
    primary.stop().unwrap();
    let mut reader = place.foreigner(&database);
    assert_eq!(reader.run("SELECT count(*) FROM t")[0][0], 1 + HALF);
    reader.close();
    start(&mut primary);
    assert!(!primary.alerts().contains("full image"), "{}", primary.alerts());
    assert_nothing_lost(&place, &primary, &standby, &database, 1 + HALF);
}

/// The second program creates files of its own under the same names: its commits are in no redo.
#[test]
fn program_on_replaced_files_gets_no_acknowledgement() {
    for shm_only in [false, true] {
        let place = Place::new("other-files");
        let (mut primary, standby, database) = place.pair(&[]);
        let mut application = place.application(&database);
        for _ in 0..HALF {
            application.run(INSERT);
        }
        std::fs::remove_file(beside(&database, "-shm")).unwrap();
        if !shm_only {
            std::fs::remove_file(beside(&database, "-wal")).unwrap();
        }
        let mut second = place.application(&database);
        let answer = second.try_run("INSERT INTO t(x) VALUES('from the second program')");
        await_status(&primary, "the database is offline", |status: &Status| {
            status.database_state("app.db") != "open"
        });
        await_alert(&primary, "database app.db");
        second.kill();
        application.kill();
        primary.kill();
        for suffix in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(beside(&database, suffix));
        }
        start(&mut primary);
        assert!(
            matches!(answer, standfast_campaign::application::client::Answer::Failed { .. }),
            "acknowledged, and in no redo: {answer:?}"
        );
        assert_nothing_lost(&place, &primary, &standby, &database, 1 + HALF);
    }
}
