//! Bad content of one database, its WAL or its wal-index, and its effect on other databases.

use crate::support::{A_WHILE, INSERT, Place, assert_same, await_alert, must, rows, start};
use standfast_campaign::process::await_condition;
use standfast_campaign::verify::check_integrity;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

/// Frames are overwritten, rolled back, and written again before the first one that was overwritten: SQLite before
/// 3.50.2 leaves these without salts and checksums. Afterwards 20 rows are new.
const FORGOTTEN: &str = "PRAGMA busy_timeout=30000; PRAGMA wal_autocheckpoint=0; PRAGMA cache_size=5; \
    BEGIN; SAVEPOINT s; \
    UPDATE t SET x = randomblob(900) WHERE id BETWEEN 100 AND 200; \
    UPDATE t SET x = randomblob(900) WHERE id BETWEEN 195 AND 200; \
    UPDATE t SET x = randomblob(900) WHERE id > 150; \
    ROLLBACK TO s; \
    UPDATE t SET x = 'new' WHERE id <= 20; \
    COMMIT;";

const NEW: &str = "SELECT count(*) FROM t WHERE x = 'new'";

fn fill(place: &Place, database: &Path) {
    let mut application = place.application(database);
    application.run(
        "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i < 200) \
         INSERT INTO t SELECT i, randomblob(900) FROM n",
    );
    application.close();
}

/// Runs `sql` in the machine's sqlite3, whatever its version.
fn sqlite3(sql: &str, before: &[String], database: &Path) {
    let mut command = Command::new("sqlite3");
    command.arg("-bail").arg(if before.is_empty() { database } else { Path::new(":memory:") });
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let text = format!("{}\n{sql}\n", before.join("\n"));
    process.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(process.wait_with_output().unwrap().status.success());
}

fn new_rows(database: &Path) -> i64 {
    rusqlite::Connection::open(database).unwrap().query_row(NEW, [], |row| row.get(0)).unwrap()
}

/// Counts the new rows in the files alone, as after a crash of all processes that had the database open.
fn recovered(place: &Place, database: &Path) -> i64 {
    let copy = place.path("recovered.db");
    for suffix in ["", "-wal"] {
        std::fs::copy(format!("{}{suffix}", database.display()), format!("{}{suffix}", copy.display()))
            .unwrap();
    }
    let found = new_rows(&copy);
    assert!(check_integrity(&copy).unwrap().none());
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", copy.display()));
    }
    found
}

#[test]
fn spilled_savepoint_of_old_sqlite_commits_valid_frames() {
    let place = Place::new("frames-shim");
    let (mut primary, standby, database) = place.pair(&[]);
    fill(&place, &database);
    let load = format!(".load {}", place.programs.extension.display());
    sqlite3(FORGOTTEN, &[load, format!(".open {}", database.display())], &database);
    assert_eq!(new_rows(&database), 20);
    assert_eq!(recovered(&place, &database), 20);
    assert_same(&primary, &standby, &database);
    primary.kill();
    start(&mut primary);
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    assert_eq!(new_rows(&standby.standby_database("app.db")), 20);
}

#[test]
fn frames_of_a_plain_process_without_checksums_survive() {
    let place = Place::new("frames-plain");
    let (mut primary, standby, database) = place.pair(&[]);
    fill(&place, &database);
    let mut application = place.application(&database);
    application.run("SELECT count(*) FROM t");
    sqlite3(FORGOTTEN, &[], &database);
    let copy = standby.standby_database("app.db");
    await_condition("the standby has it", A_WHILE, || {
        Ok(if new_rows(&copy) == 20 { Ok(()) } else { Err("not yet".into()) })
    })
    .unwrap();
    await_condition("the frames are valid", A_WHILE, || {
        Ok(if recovered(&place, &database) == 20 { Ok(()) } else { Err("not yet".into()) })
    })
    .unwrap();
    application.run(INSERT);
    assert_same(&primary, &standby, &database);
    // No frame is lost with the wal-index, and no full resync is needed.
    application.kill();
    primary.kill();
    start(&mut primary);
    place.application(&database).run(INSERT);
    assert_same(&primary, &standby, &database);
    assert_eq!((new_rows(&copy), rows(&copy)), (20, 202));
    assert!(!primary.alerts().contains("full image"), "{}", primary.alerts());
}

#[test]
fn truncated_wal_index_takes_its_database_offline_alone() {
    let place = Place::new("frames-index");
    let (mut primary, standby, database) = place.pair(&[]);
    place.application(&database).run(INSERT);
    let other = place.database("other.db");
    must(&primary, &["protect", &other.to_string_lossy()]);
    let index = format!("{}-shm", database.display());
    std::fs::File::options().write(true).open(index).unwrap().set_len(0).unwrap();
    await_alert(&primary, "database app.db has failed");
    let mut application = place.application(&other);
    application.run(INSERT);
    application.run(INSERT);
    assert!(!primary.has_ended());
    primary.kill();
    start(&mut primary);
    place.application(&database).run(INSERT);
    application.run(INSERT);
    assert_same(&primary, &standby, &database);
    assert_eq!((rows(&database), rows(&other)), (3, 4));
}

#[test]
fn thread_that_dies_ends_the_instance_with_its_reason() {
    let place = Place::new("frames-thread");
    let (mut primary, standby, database) = place.pair(&[]);
    primary.stop().unwrap();
    primary.faults = Some("capture=panic@2".into());
    start(&mut primary);
    let mut application = place.application(&database);
    application.run(INSERT);
    application.send(INSERT);
    await_condition("the instance has ended", A_WHILE, || {
        Ok(if primary.has_ended() { Ok(()) } else { Err("it runs".into()) })
    })
    .unwrap();
    await_alert(&primary, "THREAD DIED: `lgwr` panicked");
    primary.kill();
    primary.faults = None;
    start(&mut primary);
    application.answer();
    assert_same(&primary, &standby, &database);
    assert_eq!(rows(&standby.standby_database("app.db")), 3);
}
