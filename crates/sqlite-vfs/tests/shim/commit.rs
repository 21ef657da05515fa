//! When commits return, and what they wait for.

use crate::fake::{FakeInstance, Loss};
use crate::support::{Scratch, code, count, insert, open, protected, status, until};
use rusqlite::ffi;
use standfast_session::{DatabaseState, SessionWait, WaitCounts};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

#[test]
fn commit_returns_only_when_it_is_durable() {
    let (_scratch, instance, path) = protected("wait");
    let other = open(&path);
    instance.hold(true);
    let returned = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            insert(&open(&path)).unwrap();
            returned.store(true, SeqCst);
        });
        // Early lock release: the commit is visible and its lock is free while it waits.
        until("the commit waits without the lock", || {
            instance.segment.has_commit_waiters(3) && !instance.segment.owned(3)
        });
        assert_eq!(count(&other), 1);
        assert!(!returned.load(SeqCst));
        instance.hold(false);
        writer.join().unwrap();
    });
    assert!(returned.load(SeqCst) && !instance.segment.has_commit_waiters(3));
}

#[test]
fn commits_of_several_connections_are_released_together() {
    let (_scratch, instance, path) = protected("group");
    instance.hold(true);
    let before = instance.releases();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..4).map(|_| scope.spawn(|| insert(&open(&path)).unwrap())).collect();
        let reader = open(&path);
        until("all four are committed", || count(&reader) == 4);
        assert!(writers.iter().all(|writer| !writer.is_finished()));
        instance.hold(false);
        writers.into_iter().for_each(|writer| assert_eq!(writer.join().unwrap(), 1));
    });
    assert!(instance.releases() - before <= 3, "each commit needed a release of its own");
}

#[test]
fn two_database_transaction_waits_after_releasing_both_locks() {
    let scratch = Scratch::new("attached");
    let (one, two) = (scratch.database("one.db"), scratch.database("two.db"));
    let instance = scratch.instance();
    instance.protect(&one, 3);
    instance.protect(&two, 70);
    let other = open(&two);
    instance.hold(true);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let connection = open(&one);
            connection.execute("ATTACH ?1 AS b", [two.to_str().unwrap()]).unwrap();
            connection
                .execute_batch("BEGIN; INSERT INTO main.t VALUES(1); INSERT INTO b.t VALUES(2); COMMIT")
                .unwrap();
        });
        // While both write locks are free, another writer can commit in the second database.
        until("the commit waits for the first database", || {
            instance.segment.has_commit_waiters(3)
                && !instance.segment.owned(3)
                && !instance.segment.owned(70)
        });
        assert_eq!(count(&other), 1);
        // The second wait begins once the first database is durable; here both become durable together.
        instance.hold(false);
        writer.join().unwrap();
    });
    assert!(!instance.segment.has_commit_waiters(3) && !instance.segment.has_commit_waiters(70));
}

/// SQLite ignores the results of second phases when it has made a super-journal.
#[test]
fn transaction_with_two_rollback_journals_is_refused() {
    let (scratch, instance, path) = protected("super-journal");
    let plain = ["one.db", "two.db"].map(|name| scratch.path.join(name));
    for path in &plain {
        rusqlite::Connection::open(path).unwrap().execute_batch("CREATE TABLE t(x)").unwrap();
    }
    let connection = open(&plain[0]);
    connection.execute("ATTACH ?1 AS two", [plain[1].to_str().unwrap()]).unwrap();
    connection.execute("ATTACH ?1 AS safe", [path.to_str().unwrap()]).unwrap();
    let counts = || [&plain[0], &plain[1], &path].map(|path| count(&open(path)));
    let all = "BEGIN; INSERT INTO main.t VALUES(1); INSERT INTO two.t VALUES(1); INSERT INTO safe.t VALUES(1); COMMIT";
    instance.hold(true);
    let error = connection.execute_batch(all).unwrap_err();
    assert_eq!(code(&error), ffi::SQLITE_READONLY);
    instance.hold(false);
    assert_eq!(counts(), [0, 0, 0], "nothing of it is committed");
    let text: String = connection.query_row("SELECT standfast_status('safe')", [], |row| row.get(0)).unwrap();
    assert!(text.contains("journal_mode=WAL"), "{text}");
    connection
        .execute_batch("BEGIN; INSERT INTO main.t VALUES(1); INSERT INTO two.t VALUES(1); COMMIT")
        .unwrap();
    connection.execute_batch("PRAGMA two.journal_mode=WAL").unwrap();
    connection.execute_batch(all).unwrap();
    assert_eq!(counts(), [2, 2, 1]);
    let left = std::fs::read_dir(&scratch.path).unwrap().map(|entry| entry.unwrap().file_name());
    assert_eq!(left.filter(|name| name.to_string_lossy().contains("-mj")).count(), 0);
}

#[test]
fn rolled_back_transaction_does_not_wait_for_durability() {
    let (_scratch, instance, path) = protected("rollback");
    let connection = open(&path);
    insert(&connection).unwrap();
    instance.hold(true);
    connection.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES(2); ROLLBACK").unwrap();
    connection.execute_batch("BEGIN IMMEDIATE; COMMIT").unwrap();
    instance.hold(false);
    assert_eq!(count(&connection), 1);
}

#[test]
fn nowait_commit_returns_immediately_until_wait_is_set() {
    let (_scratch, instance, path) = protected("nowait");
    let connection = open(&path);
    let pragma = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, String>(0));
    assert_eq!(pragma("PRAGMA standfast_commit_write").unwrap(), "wait,immediate");
    assert_eq!(pragma("PRAGMA standfast_commit_write='nowait,batch'").unwrap(), "nowait,batch");
    instance.hold(true);
    insert(&connection).unwrap();
    insert(&connection).unwrap();
    assert!(!instance.segment.has_commit_waiters(3));
    assert_eq!(pragma("PRAGMA standfast_commit_write=wait").unwrap(), "wait,batch");
    instance.hold(false);
    insert(&connection).unwrap();
    let error = pragma("PRAGMA standfast_commit_write='soon'").unwrap_err().to_string();
    assert!(error.contains("`soon`") && error.contains("nowait"), "{error}");
}

#[test]
fn batch_mode_asks_the_instance_to_delay() {
    let (_scratch, instance, path) = protected("batch");
    let connection = open(&path);
    instance.segment.take_batch();
    connection.query_row("PRAGMA standfast_commit_write='batch,nowait'", [], |_| Ok(())).unwrap();
    insert(&connection).unwrap();
    assert!(instance.segment.take_batch());
}

#[test]
fn vanished_instance_leaves_the_commit_outcome_unknown() {
    let (_scratch, mut instance, path) = protected("unknown");
    let connection = open(&path);
    insert(&connection).unwrap();
    // The last liveness check is less than a second old, so this commit proceeds.
    instance.kill();
    let error = insert(&connection).unwrap_err();
    assert_eq!(code(&error), ffi::SQLITE_IOERR_FSYNC);
    assert_eq!(count(&connection), 2, "committed and visible");
    let error = insert(&connection).unwrap_err();
    assert_eq!(code(&error), ffi::SQLITE_READONLY_CANTLOCK);
    let status = crate::support::status(&connection);
    assert!(status.contains("standfast start -D") && status.contains("\"running\":false"), "{status}");
    let directory = instance.directory.clone();
    drop(instance);
    let again = crate::fake::FakeInstance::start(&directory);
    again.protect(&path, 3);
    insert(&connection).unwrap();
    assert_eq!(count(&connection), 3);
}

#[test]
fn commit_in_flight_survives_an_instance_restart() {
    let (_scratch, mut instance, path) = protected("restart");
    let mut connection = open(&path);
    insert(&connection).unwrap();
    instance.segment.set_running(
        true,
        &standfast_session::SegmentConfig { commit_wait_ms: 60_000, ..crate::fake::CONFIG },
    );
    let directory = instance.directory.clone();
    instance.kill();
    let moved = &mut connection;
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || insert(moved).map(|_| ()).map_err(|error| code(&error)));
        until("the commit waits", || instance.segment.has_commit_waiters(3));
        // The waiting commit notifies again after each check of the instance.
        instance.segment.take_dirty();
        until("the commit has looked", || !instance.segment.take_dirty().is_empty());
        let again = crate::fake::FakeInstance::start(&directory);
        again.protect(&path, 3);
        assert_eq!(writer.join().unwrap(), Ok(()));
    });
}

#[test]
fn failed_database_fails_commits_in_flight_and_refuses_new_ones() {
    let (_scratch, instance, path) = protected("failed");
    let connection = open(&path);
    insert(&connection).unwrap();
    instance.hold(true);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| insert(&open(&path)).unwrap_err());
        until("the commit waits", || instance.segment.has_commit_waiters(3));
        instance.segment.set_state(3, DatabaseState::Failed);
        instance.segment.wake_all(3);
        assert_eq!(code(&writer.join().unwrap()), ffi::SQLITE_IOERR_FSYNC);
    });
    let error = insert(&connection).unwrap_err();
    assert_eq!(code(&error) & 0xFF, ffi::SQLITE_IOERR);
    assert_eq!(count(&connection), 2, "reading continues");
}

#[test]
fn commit_after_a_wal_reset_waits_in_the_new_generation() {
    let (scratch, instance, path) = protected("generation");
    let mut connection = open(&path);
    for _ in 0..20 {
        insert(&connection).unwrap();
    }
    let before = instance.segment.epoch(3);
    // The instance checkpoints, here with the host's own VFS, bypassing the shim.
    let plain = rusqlite::Connection::open_with_flags_and_vfs(
        &path,
        rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE,
        c"unix",
    )
    .unwrap();
    let busy: i64 = plain.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get(0)).unwrap();
    assert_eq!(busy, 0);
    instance.hold(true);
    let moved = &mut connection;
    std::thread::scope(|scope| {
        let writer = scope.spawn(move || insert(moved).unwrap());
        until("the commit waits", || instance.segment.has_commit_waiters(3));
        until("the instance has seen the new generation", || instance.segment.epoch(3) != before);
        let after = instance.segment.epoch(3);
        let is_next = after.0 == before.0 + 1 && after.1 != before.1;
        instance.hold(false);
        assert!(is_next, "{before:?} {after:?}");
        writer.join().unwrap();
    });
    std::mem::forget(plain);
    drop(scratch);
}

/// More pages than a cache of four holds, so that some are spilled; fewer than fill a run that is written before the
/// commit.
const BIG: &str = "INSERT INTO big WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<12)
     SELECT NULL, randomblob(3000) FROM n";

fn total(connection: &rusqlite::Connection) -> i64 {
    connection.query_row("SELECT sum(length(a)) FROM big", [], |row| row.get(0)).unwrap()
}

#[test]
fn transaction_reads_its_own_frames_not_yet_in_the_wal() {
    let (_scratch, _instance, path) = protected("spilled");
    let connection = open(&path);
    connection
        .execute_batch(
            "CREATE TABLE big(id INTEGER PRIMARY KEY, a BLOB); PRAGMA cache_size=4; BEGIN IMMEDIATE",
        )
        .unwrap();
    connection.execute_batch(BIG).unwrap();
    assert_eq!(total(&connection), 36_000);
    connection.execute_batch("COMMIT").unwrap();
    assert_eq!(total(&open(&path)), 36_000);
}

/// Frames of a transaction wait for its commit frame. Frames of a rolled-back transaction must not be written while
/// another connection has the lock, whatever their own connection reads next.
#[test]
fn rolled_back_frames_never_reach_the_wal() {
    let (_scratch, _instance, path) = protected("rolled-back");
    let (first, second) = (open(&path), open(&path));
    first.execute_batch("CREATE TABLE big(id INTEGER PRIMARY KEY, a BLOB); PRAGMA cache_size=4").unwrap();
    first.execute_batch(&format!("BEGIN IMMEDIATE; {BIG}; ROLLBACK")).unwrap();
    for round in 1..=3 {
        second.execute_batch(BIG).unwrap();
        // Reads the pages that the other connection has just written, where the frames of this one would have gone.
        assert_eq!(total(&first), round * 36_000);
    }
    let verdict: String = open(&path).query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}

const LOSSES: [Loss; 2] = [Loss::Removed, Loss::OtherRelease];

#[test]
fn commit_begun_in_replaced_shared_memory_is_never_acknowledged() {
    for loss in LOSSES {
        let (_scratch, instance, path) = protected(&format!("replaced-{loss:?}"));
        let connection = open(&path);
        insert(&connection).unwrap();
        connection.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES(2)").unwrap();
        let instance = instance.restart_with_new_memory(loss, &path, 3);
        // No position published from now on may acknowledge this commit, which was not announced in the new memory.
        instance.hold(true);
        let error = connection.execute_batch("COMMIT").unwrap_err();
        assert_eq!(code(&error), ffi::SQLITE_IOERR_FSYNC, "{loss:?}");
        assert!(status(&connection).contains("new shared memory"), "{loss:?}: {}", status(&connection));
        instance.hold(false);
        assert_eq!(count(&connection), 2, "committed and visible");
        // The next transaction finds the new shared memory and waits in it.
        insert(&connection).unwrap();
        instance.hold(true);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| insert(&open(&path)).unwrap());
            until("the commit waits in the new memory", || instance.segment.has_commit_waiters(3));
            instance.hold(false);
            writer.join().unwrap();
        });
    }
}

#[test]
fn commit_waiting_in_replaced_shared_memory_ends_with_an_error() {
    for loss in LOSSES {
        let (_scratch, instance, path) = protected(&format!("replaced-wait-{loss:?}"));
        // The commit waits, however long the instance is gone.
        let patient = standfast_session::SegmentConfig { commit_wait_ms: 60_000, ..crate::fake::CONFIG };
        instance.segment.set_running(true, &patient);
        instance.hold(true);
        let connection = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let connection = open(&path);
                let error = insert(&connection).unwrap_err();
                assert_eq!(code(&error), ffi::SQLITE_IOERR_FSYNC, "{loss:?}");
                assert!(
                    status(&connection).contains("new shared memory"),
                    "{loss:?}: {}",
                    status(&connection)
                );
                connection
            });
            until("the commit waits", || instance.segment.has_commit_waiters(3));
            std::mem::forget(instance.restart_with_new_memory(loss, &path, 3));
            writer.join().unwrap()
        });
        insert(&connection).unwrap();
        assert_eq!(count(&connection), 2);
    }
}

#[test]
fn two_database_commit_fails_when_one_lost_its_session() {
    let scratch = Scratch::new("replaced-attached");
    let (one, two) = (scratch.database("one.db"), scratch.database("two.db"));
    let instance = crate::fake::FakeInstance::start(&scratch.path.join("first"));
    let second = crate::fake::FakeInstance::start(&scratch.path.join("second"));
    instance.protect(&one, 3);
    second.protect(&two, 70);
    let connection = open(&one);
    connection.execute("ATTACH ?1 AS b", [two.to_str().unwrap()]).unwrap();
    connection
        .execute_batch("BEGIN IMMEDIATE; INSERT INTO main.t VALUES(1); INSERT INTO b.t VALUES(2)")
        .unwrap();
    let _instance = instance.restart_with_new_memory(Loss::OtherRelease, &one, 3);
    let error = connection.execute_batch("COMMIT").unwrap_err();
    assert_eq!(code(&error), ffi::SQLITE_IOERR_FSYNC);
    drop(connection);
    assert_eq!((count(&open(&one)), count(&open(&two))), (1, 1));
}

/// Returns the time by which the transaction of a commit was lengthened after it was durable; checks that it is counted
/// as one.
fn end_of_transaction(instance: &FakeInstance, commit: impl FnOnce() + Send) -> u64 {
    let counts = || instance.segment.wait_counts(SessionWait::Transaction);
    let number = |counts: &WaitCounts| counts.buckets.iter().sum::<u64>();
    instance.hold(true);
    let before = number(&counts());
    let waiting = std::thread::scope(|scope| {
        let writer = scope.spawn(commit);
        until("its commit waits", || number(&counts()) == before + 1);
        let waiting = counts();
        instance.hold(false);
        writer.join().unwrap();
        waiting
    });
    let ended = counts();
    assert_eq!(number(&ended), number(&waiting), "the same transaction");
    ended.time_ns - waiting.time_ns
}

#[test]
fn time_after_the_commit_wait_counts_in_the_transaction() {
    let (_scratch, instance, path) = protected("ends");
    let writes = || assert_eq!(insert(&open(&path)).unwrap(), 1);
    // On a busy machine the end of a transaction may come too late to be counted as its end.
    assert!((0..100).any(|_| end_of_transaction(&instance, writes) > 0));
    // The application's later reads, or pauses while a statement is open, are not part of its transaction.
    let pages = "WITH RECURSIVE row(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM row WHERE n < 50)
        INSERT INTO t SELECT randomblob(2000) FROM row";
    open(&path).execute_batch(pages).unwrap();
    let with_open_statement = |resumes: &dyn Fn(&mut rusqlite::Rows<'_>)| {
        let connection = open(&path);
        let mut reading = connection.prepare("SELECT x FROM t").unwrap();
        let mut rows = reading.query([]).unwrap();
        rows.next().unwrap().expect("a row");
        insert(&connection).unwrap();
        resumes(&mut rows);
    };
    let reads = || with_open_statement(&|rows| assert!((0..40).all(|_| rows.next().unwrap().is_some())));
    assert_eq!(end_of_transaction(&instance, reads), 0);
    let pauses = || {
        with_open_statement(&|_| {
            let durable = Instant::now();
            until("more time has passed than the end of a transaction may take", || {
                durable.elapsed() > Duration::from_millis(25)
            });
        });
    };
    assert_eq!(end_of_transaction(&instance, pauses), 0);
}
