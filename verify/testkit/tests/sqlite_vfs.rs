//! The simulated machine's VFS from the view of SQLite connections: locks, power loss, a full disk, threads.

mod common;

use common::{Rows, Setup, check, connect, run_history};
use rusqlite::{Connection, ErrorCode, OpenFlags};
use standfast_testkit::{Loss, Rng, SimMachine};
use std::sync::Arc;

const FULL: Setup = Setup { journal: "WAL", synchronous: "FULL" };

fn code(result: rusqlite::Result<()>) -> Option<ErrorCode> {
    result.err()?.sqlite_error_code()
}

fn count(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).expect("a readable table")
}

fn with_table(machine: &Arc<SimMachine>, journal: &str) -> Connection {
    let connection = connect(machine).expect("a running machine");
    let setup = format!("PRAGMA journal_mode = {journal}; CREATE TABLE t(a)");
    connection.execute_batch(&setup).expect("an empty database");
    connection
}

#[test]
fn readers_keep_their_snapshot_and_writers_exclude_each_other() {
    let machine = SimMachine::new(1);
    let one = with_table(&machine, "WAL");
    let two = connect(&machine).unwrap();
    two.execute_batch("BEGIN").unwrap();
    assert_eq!(count(&two), 0);
    one.execute_batch("INSERT INTO t VALUES (1)").unwrap();
    assert_eq!((count(&one), count(&two)), (1, 0));
    two.execute_batch("COMMIT").unwrap();
    assert_eq!(count(&two), 1);

    one.execute_batch("BEGIN IMMEDIATE").unwrap();
    let before = machine.clock().now_us();
    assert_eq!(code(two.execute_batch("BEGIN IMMEDIATE")), Some(ErrorCode::DatabaseBusy));
    assert!(machine.clock().now_us() > before + 1_000_000, "waiting costs simulated time only");
}

#[test]
fn a_rollback_journal_keeps_readers_and_the_writer_apart() {
    let machine = SimMachine::new(1);
    let one = with_table(&machine, "DELETE");
    let two = connect(&machine).unwrap();
    two.execute_batch("BEGIN").unwrap();
    assert_eq!(count(&two), 0);
    one.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (1)").unwrap();
    assert_eq!(code(one.execute_batch("COMMIT")), Some(ErrorCode::DatabaseBusy));
    let three = connect(&machine).unwrap();
    assert_eq!(code(three.execute_batch("SELECT * FROM t")), Some(ErrorCode::DatabaseBusy));
    two.execute_batch("COMMIT").unwrap();
    one.execute_batch("COMMIT").unwrap();
    assert_eq!((count(&two), count(&three)), (1, 1));
}

#[test]
fn connections_before_a_power_loss_are_dead_and_close_cleanly() {
    let machine = SimMachine::new(1);
    let old = with_table(&machine, "WAL");
    let reader = connect(&machine).unwrap();
    reader.execute_batch("BEGIN; SELECT * FROM t").unwrap();
    old.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES (1)").unwrap();

    machine.cut_power();
    assert_eq!(code(old.execute_batch("COMMIT")), Some(ErrorCode::SystemIoFailure));
    machine.power_loss(Loss::KeepUnsynced, &mut Rng::new(1));
    assert_eq!(code(old.execute_batch("INSERT INTO t VALUES (2)")), Some(ErrorCode::SystemIoFailure));

    let fresh = connect(&machine).unwrap();
    fresh.execute_batch("INSERT INTO t VALUES (3)").unwrap();
    let opened = machine.open_files();
    drop(old);
    drop(reader);
    assert_eq!(machine.open_files(), opened, "closing dead files does not touch the living");
    assert_eq!(count(&fresh), 1);
    assert_eq!(fresh.close().map_err(|(_, error)| error), Ok(()));
    assert_eq!(machine.open_files(), 0);
    assert_eq!(machine.contents("/db/app.db-wal"), None, "the last connection removed the log");
}

#[test]
fn full_disk_is_reported_and_the_database_resumes_with_space() {
    let machine = SimMachine::new(1);
    let connection = with_table(&machine, "WAL");
    machine.set_capacity(40_000);
    let insert = "INSERT INTO t VALUES (randomblob(60000))";
    assert_eq!(code(connection.execute_batch(insert)), Some(ErrorCode::DiskFull));
    machine.set_capacity(1 << 30);
    connection.execute_batch(insert).unwrap();
    assert_eq!(count(&connection), 1);
}

#[test]
fn a_failed_sync_fails_the_commit_that_needed_it() {
    let machine = SimMachine::new(1);
    let connection = with_table(&machine, "WAL");
    connection.execute_batch("PRAGMA synchronous = FULL; INSERT INTO t VALUES (1)").unwrap();
    machine.fail_at(1);
    assert_eq!(code(connection.execute_batch("INSERT INTO t VALUES (2)")), Some(ErrorCode::SystemIoFailure));
    connection.execute_batch("INSERT INTO t VALUES (3)").unwrap();
}

#[test]
fn missing_files_are_not_created_unless_asked() {
    let machine = SimMachine::new(1);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let opened = Connection::open_with_flags_and_vfs("/none", flags, machine.vfs_name());
    assert_eq!(code(opened.map(drop)), Some(ErrorCode::CannotOpen));
    assert_eq!(machine.open_files(), 0);
}

#[test]
fn temporary_files_vanish_when_they_are_closed() {
    let machine = SimMachine::new(1);
    let connection = with_table(&machine, "WAL");
    connection
        .execute_batch(
            "PRAGMA temp_store = FILE; PRAGMA cache_size = 2; CREATE TEMP TABLE large(a);
             INSERT INTO large WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 500)
             SELECT randomblob(500) FROM n",
        )
        .unwrap();
    drop(connection);
    assert_eq!(machine.open_files(), 0);
    let database = machine.contents(common::DATABASE).unwrap().len() as u64;
    let used = standfast_io::Disk::free_bytes(&machine.disk(), std::path::Path::new("/")).unwrap();
    assert_eq!((1 << 40) - used, database, "nothing but the database takes room");
}

#[test]
fn threads_share_a_database() {
    let machine = SimMachine::new(1);
    drop(with_table(&machine, "WAL"));
    let writer = |machine: &Arc<SimMachine>| {
        let connection = connect(machine).unwrap();
        // Simulated time: the real wait is short, and the number of attempts counts.
        connection.busy_timeout(std::time::Duration::from_secs(1_000_000)).unwrap();
        for _ in 0..40 {
            connection.execute_batch("INSERT INTO t VALUES (1)").unwrap();
        }
    };
    std::thread::scope(|scope| (0..4).for_each(|_| drop(scope.spawn(|| writer(&machine)))));
    assert_eq!(count(&connect(&machine).unwrap()), 160);
}

#[test]
fn a_machine_lives_until_its_last_connection_is_closed() {
    let machine = SimMachine::new(1);
    let weak = Arc::downgrade(&machine);
    let connection = with_table(&machine, "WAL");
    drop(machine);
    connection.execute_batch("INSERT INTO t VALUES (1)").unwrap();
    drop(connection);
    assert!(weak.upgrade().is_none(), "no file leaked");
}

#[test]
fn histories_close_what_they_open() {
    let machine = SimMachine::new(3);
    let known = run_history(&machine, FULL, 3, 20, Rows::new());
    assert_eq!(check(&machine, &known).as_ref(), Ok(&known.acknowledged));
    assert_eq!(machine.open_files(), 0);
}
