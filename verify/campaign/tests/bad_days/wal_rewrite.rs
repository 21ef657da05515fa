//! Rewritten WALs, with the newest version of each page, and processes that die during the rewrite.

use crate::support::{
    Client, Place, QUICK, TIMEOUT, add_destination, assert_same, await_status, must, segment_of, start,
};
use standfast_campaign::application::client::Answer;
use standfast_campaign::instance::Instance;
use standfast_campaign::status::Status;
use standfast_campaign::verify::check_integrity;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

const SQLITE_BUSY: i32 = 5;
const SQLITE_IOERR: i32 = 10;
/// Changes the same few pages repeatedly.
const CHANGE: &str = "UPDATE t SET x = randomblob(100), n = n + 1 WHERE id <= 3";

/// Fault points of a rewrite: before the header, before the frames, before the wal-index.
const MOMENTS: [u32; 3] = [1, 2, 3];

fn shortly(instance: &Instance) {
    instance.configure("checkpoint", "passive_frames", 20).unwrap();
    instance.configure("checkpoint", "reset_frames", 60).unwrap();
}

fn database(place: &Place) -> PathBuf {
    let path = place.database("app.db");
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "ALTER TABLE t ADD COLUMN n INTEGER DEFAULT 0; INSERT INTO t(x, n) VALUES('b', 0), ('c', 0)",
        )
        .unwrap();
    path
}

/// Starts a primary in which `strikes` occurs while it rewrites a WAL for the second time.
fn primary_struck_at(place: &Place, moment: u32, strikes: &str) -> (Instance, PathBuf) {
    let mut primary = place.instance("south");
    shortly(&primary);
    primary.faults = Some(format!("log-rewrite={strikes}@{}", 3 + moment));
    start(&mut primary);
    let database = database(place);
    must(&primary, &["protect", &database.to_string_lossy()]);
    (primary, database)
}

/// Returns how many changes `reader` sees, which may include the commit that was in flight.
#[track_caller]
fn sees(reader: &mut Client, acknowledged: i64) -> i64 {
    let seen = reader.run("SELECT n FROM t WHERE id = 1")[0][0].as_i64().unwrap();
    assert!((acknowledged..=acknowledged + 1).contains(&seen), "{seen}, {acknowledged} acknowledged");
    seen
}

/// Asserts that the database, with `so_often` changes, takes commits after a start of the instance and has lost none.
#[track_caller]
fn resumes(primary: &mut Instance, writer: &mut Client, database: &Path, so_often: i64) {
    (0..200).for_each(|_| _ = writer.run(CHANGE));
    assert_eq!(changes(database), so_often + 200);
    must(primary, &["checkpoint"]);
    integrity_is_fine(database);
    assert!(!primary.alerts().contains("full image"), "{}", primary.alerts());
}

/// Commits until the instance is dead. Returns how many commits were acknowledged.
fn commit_until_dead(application: &mut Client, instance: &Instance) -> i64 {
    let mut acknowledged = 0;
    loop {
        application.send(CHANGE);
        loop {
            match application.answer_within(Duration::from_millis(20)) {
                Some(Answer::Rows(_)) => acknowledged += 1,
                Some(failed @ Answer::Failed { .. }) => panic!("{failed:?}"),
                None if instance.has_ended() => return acknowledged,
                None => continue,
            }
            break;
        }
    }
}

#[track_caller]
fn integrity_is_fine(path: &Path) {
    let integrity = check_integrity(path).unwrap();
    assert!(integrity.none(), "{:?}", integrity.notes);
}

fn changes(path: &Path) -> i64 {
    let connection = rusqlite::Connection::open(path).unwrap();
    connection.query_row("SELECT n FROM t WHERE id = 1", [], |row| row.get(0)).unwrap()
}

#[test]
fn wal_is_rewritten_repeatedly_and_stays_short() {
    let place = Place::new("rewrite");
    let mut primary = place.instance("south");
    shortly(&primary);
    start(&mut primary);
    let database = database(&place);
    must(&primary, &["protect", &database.to_string_lossy()]);
    let mut application = place.application(&database);
    let mut changed = 0;
    await_status(&primary, "the WAL was rewritten ten times", |status| {
        (0..20).for_each(|_| {
            application.run(CHANGE);
            changed += 1;
        });
        status.number("/checkpoints/rewrites") >= 10
    });
    assert_eq!(changes(&database), changed);
    let wal = std::fs::metadata(place.path("app.db-wal")).unwrap().len();
    assert!(wal < 300 * 4120, "{wal} bytes");
    application.close();
    primary.kill();
    start(&mut primary);
    assert_eq!(changes(&database), changed);
    integrity_is_fine(&database);
}

#[test]
fn checkpoint_and_stop_rewrite_the_wal_instead_of_syncing_it() {
    let place = Place::new("rewrite-checkpoint");
    let mut primary = place.instance("south");
    shortly(&primary);
    start(&mut primary);
    let database = database(&place);
    must(&primary, &["protect", &database.to_string_lossy()]);
    let mut application = place.application(&database);
    let rewrites = || primary.status().unwrap().number("/checkpoints/rewrites");
    // Whether the WAL qualifies for a rewrite when the command comes depends on the progress of the checkpointer.
    let (mut changed, mut lengths) = (0, (1..=40).cycle());
    await_status(&primary, "a checkpoint rewrote a WAL", |_| {
        let times = lengths.next().unwrap_or_default();
        (0..times).for_each(|_| _ = application.run(CHANGE));
        changed += times;
        let before = rewrites();
        must(&primary, &["checkpoint"]);
        let by_checkpoint = rewrites() - before;
        assert_eq!(changes(&database), changed);
        by_checkpoint > 0
    });
    (0..25).for_each(|_| _ = application.run(CHANGE));
    primary.stop().unwrap();
    integrity_is_fine(&database);
    assert_eq!(changes(&database), changed + 25);
}

/// Reads of some milliseconds that overlap, so that there is hardly a moment without one.
#[test]
fn checkpoint_resets_the_wal_under_overlapping_short_reads() {
    const READ: &str = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
                        SELECT count(*) FROM n, (SELECT n FROM t LIMIT 1)";
    const ATTEMPTS: usize = 5;
    let place = Place::new("overlapping-reads");
    let mut primary = place.instance("south");
    start(&mut primary);
    let database = database(&place);
    must(&primary, &["protect", &database.to_string_lossy()]);
    let mut writer = place.application(&database);
    (0..50).for_each(|_| _ = writer.run(CHANGE));
    let is_over = AtomicBool::new(false);
    let readers = [(); 3].map(|()| place.application(&database));
    // `mxFrame` of the wal-index.
    let frames = || {
        let index = std::fs::read(place.path("app.db-shm")).unwrap();
        u32::from_ne_bytes(index[16..20].try_into().unwrap())
    };
    assert!(frames() > 0);
    std::thread::scope(|scope| {
        for mut reader in readers {
            let is_over = &is_over;
            scope.spawn(move || {
                while !is_over.load(SeqCst) {
                    reader.run(READ);
                }
            });
        }
        // A read that takes longer than the gate on a busy machine keeps one attempt from it, not all of them.
        let attempts = || {
            for _ in 0..ATTEMPTS {
                must(&primary, &["checkpoint"]);
                if frames() == 0 {
                    break;
                }
            }
        };
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(attempts));
        is_over.store(true, SeqCst);
        done.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
    assert_eq!(frames(), 0);
}

#[test]
fn open_connections_read_everything_after_kill_in_wal_rewrite() {
    for moment in MOMENTS {
        let place = Place::new("rewrite-open");
        let (mut primary, database) = primary_struck_at(&place, moment, "kill");
        let (mut writer, mut reader) = (place.application(&database), place.application(&database));
        reader.run("SELECT n FROM t");
        let acknowledged = commit_until_dead(&mut writer, &primary);
        sees(&mut reader, acknowledged);
        primary.faults = None;
        start(&mut primary);
        // The answer to the commit that waited.
        writer.answer();
        resumes(&mut primary, &mut writer, &database, acknowledged + 1);
        assert_eq!(reader.run("SELECT n FROM t WHERE id = 1")[0][0], acknowledged + 201);
    }
}

#[test]
fn interrupted_wal_rewrite_is_not_read_after_all_processes_died() {
    for moment in MOMENTS {
        let place = Place::new("rewrite-all");
        let (mut primary, database) = primary_struck_at(&place, moment, "kill");
        let mut writer = place.application(&database);
        let acknowledged = commit_until_dead(&mut writer, &primary);
        writer.kill();
        let mut next = place.application(&database);
        next.run("PRAGMA busy_timeout=50");
        // At moment 1 the WAL is still the old one, and at moment 3 the new one is complete.
        if moment == 2 {
            next.fails("SELECT n FROM t", SQLITE_BUSY);
            assert!(next.printed().contains("an earlier state. Start the instance"), "{}", next.printed());
            // The instance's own wal-index shows that state, too.
            primary.faults = Some("recovery-apply=EIO@1".into());
            start(&mut primary);
            await_status(&primary, "it is offline", |status| status.database_state("app.db") == "left out");
            next.fails("SELECT n FROM t", SQLITE_IOERR);
            // A new connection that only reads has no session.
            place.application(&database).fails("SELECT n FROM t", SQLITE_IOERR);
            primary.kill();
        }
        primary.faults = None;
        start(&mut primary);
        let seen = sees(&mut next, acknowledged);
        resumes(&mut primary, &mut next, &database, seen);
    }
}

#[test]
fn interrupted_wal_rewrite_is_not_read_without_shared_memory() {
    let place = Place::new("rewrite-memory");
    let (mut primary, database) = primary_struck_at(&place, 2, "kill");
    let mut writer = place.application(&database);
    let acknowledged = commit_until_dead(&mut writer, &primary);
    writer.kill();
    std::fs::remove_file(segment_of(&database)).unwrap();
    primary.faults = Some("recovery-apply=EIO@1".into());
    start(&mut primary);
    await_status(&primary, "it is offline", |status| status.database_state("app.db") == "left out");
    let mut next = place.application(&database);
    next.run("PRAGMA busy_timeout=50");
    next.fails("SELECT n FROM t", SQLITE_BUSY);
    primary.kill();
    primary.faults = None;
    start(&mut primary);
    let seen = sees(&mut next, acknowledged);
    resumes(&mut primary, &mut next, &database, seen);
}

/// Connections that have the database open read everything through the wal-index; so do new ones.
#[test]
fn wal_of_a_failed_rewrite_is_readable_and_repaired_by_restart() {
    for moment in MOMENTS {
        let place = Place::new("rewrite-error");
        let (mut primary, database) = primary_struck_at(&place, moment, "EIO");
        let mut writer = place.application(&database);
        let mut acknowledged = 0;
        let refused = loop {
            match writer.try_run(CHANGE) {
                Answer::Rows(_) => acknowledged += 1,
                refused => break refused,
            }
        };
        assert!(matches!(refused, Answer::Failed { code, .. } if code & 0xff == SQLITE_IOERR), "{refused:?}");
        await_status(&primary, "the database has failed", |status| {
            status.database_state("app.db") == "failed"
        });
        sees(&mut writer, acknowledged);
        let mut next = place.application(&database);
        let seen = sees(&mut next, acknowledged);
        primary.kill();
        assert_eq!(sees(&mut next, acknowledged), seen);
        // A start that cannot complete the WAL either leaves it and its readers as they are.
        if moment > 1 {
            primary.faults = Some("wal-sync=EIO@1".into());
            start(&mut primary);
            await_status(&primary, "it is offline", |status| status.database_state("app.db") == "left out");
            assert_eq!(sees(&mut next, acknowledged), seen);
            assert_eq!(sees(&mut place.application(&database), acknowledged), seen);
            primary.kill();
        }
        primary.faults = None;
        start(&mut primary);
        resumes(&mut primary, &mut next, &database, seen);
    }
}

/// The limits of a standby are fixed: its WAL is rewritten only after about 16,000 frames.
#[test]
fn standby_killed_in_a_wal_rewrite_catches_up() {
    for moment in MOMENTS {
        let place = Place::new("rewrite-standby");
        let mut primary = place.instance("south");
        start(&mut primary);
        let path = place.database("app.db");
        let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
                    INSERT INTO t(x) SELECT randomblob(3000) FROM n";
        rusqlite::Connection::open(&path).unwrap().execute_batch(fill).unwrap();
        must(&primary, &["protect", &path.to_string_lossy()]);
        let mut standby = place.standby_of(&primary, "north");
        standby.stop().unwrap();
        standby.faults = Some(format!("log-rewrite=kill@{moment}"));
        start(&mut standby);
        add_destination(&primary, &standby, &[&["--mode", "sync-affirm"], &QUICK[..]].concat());
        await_status(&primary, "the standby follows", |status| status.streams() && status.settled());
        let mut application = place.application(&path);
        let began = Instant::now();
        // A standby that lags applies many commits as one, with fewer frames.
        while !standby.has_ended() {
            application.run("UPDATE t SET x = zeroblob(2999 + random() % 2)");
            assert!(began.elapsed() < TIMEOUT, "the standby rewrote no WAL");
        }
        standby.faults = None;
        start(&mut standby);
        (0..100).for_each(|_| _ = application.run("UPDATE t SET x = zeroblob(2999 + random() % 2)"));
        await_status(&primary, "the standby is back", Status::streams);
        assert_same(&primary, &standby, &path);
    }
}

/// Only one connection writes: no work of the instance on the WAL may cause SQLITE_BUSY.
#[test]
fn lone_writer_without_a_busy_timeout_never_gets_sqlite_busy() {
    const ROUNDS: i64 = 1_500;
    let place = Place::new("alone-without-timeout");
    let mut primary = place.instance("south");
    shortly(&primary);
    start(&mut primary);
    let database = database(&place);
    must(&primary, &["protect", &database.to_string_lossy()]);
    let mut writer = place.application(&database);
    let mut reader = place.application(&database);
    for application in [&mut writer, &mut reader] {
        application.run("PRAGMA busy_timeout=0");
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                for words in [["checkpoint"], ["switch-logfile"]] {
                    must(&primary, &words);
                }
            }
        });
        for round in 0..ROUNDS {
            reader.send("SELECT * FROM t");
            let mut answers: Vec<(&str, Answer)> = Vec::new();
            for sql in ["BEGIN", "SELECT * FROM t", CHANGE, "COMMIT", CHANGE] {
                answers.push((sql, writer.try_run(sql)));
            }
            answers.push(("the read", reader.answer()));
            for (number, (sql, answer)) in answers.into_iter().enumerate() {
                if !matches!(answer, Answer::Rows(_)) {
                    is_over.store(true, SeqCst);
                    panic!("{sql}, statement {number} of round {round}: {answer:?}");
                }
            }
        }
        is_over.store(true, SeqCst);
    });
    assert_eq!(changes(&database), 2 * ROUNDS);
}
