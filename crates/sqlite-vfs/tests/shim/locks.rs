//! The queue for the write lock and the checkpoint gate, through SQLite's own busy handling.

use crate::fake::FakeInstance;
use crate::support::{code, count, insert, open, protected, until};
use rusqlite::{Connection, ffi};
use standfast_session::SessionWait;
use standfast_testkit::{thread_id, until_asleep};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Barrier, atomic::AtomicU32, atomic::Ordering::SeqCst, mpsc};
use std::time::{Duration, Instant};

/// Eight connections execute `sql` until it has run `times` times; returns how often each ran it.
fn eight_writers(path: &Path, timeout: Duration, sql: &str, times: u32) -> Vec<u32> {
    let (begun, start) = (AtomicU32::new(0), Barrier::new(8));
    let write = |connection: Connection| {
        start.wait();
        let mut mine = 0;
        while begun.fetch_add(1, SeqCst) < times {
            connection.execute_batch(sql).unwrap();
            mine += 1;
        }
        mine
    };
    let connections: Vec<_> = (0..8).map(|_| open(path)).collect();
    std::thread::scope(|scope| {
        let start = |connection: Connection| {
            connection.busy_timeout(timeout).unwrap();
            scope.spawn(|| write(connection))
        };
        let writers: Vec<_> = connections.into_iter().map(start).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    })
}

#[test]
fn eight_writers_on_one_database_all_progress() {
    let (_scratch, _instance, path) = protected("writers");
    let transaction = "BEGIN IMMEDIATE; INSERT INTO t VALUES(1); COMMIT";
    let commits = eight_writers(&path, Duration::from_secs(5), transaction, 12_000);
    let (least, most) = (commits.iter().min().unwrap(), commits.iter().max().unwrap());
    assert_eq!(i64::from(commits.iter().sum::<u32>()), count(&open(&path)));
    assert!(least * 4 > *most, "unfair: {commits:?}");
    eprintln!("commits per writer: {commits:?}");
}

#[test]
fn eight_writers_with_a_short_busy_timeout_all_get_the_lock() {
    let (_scratch, _instance, path) = protected("short-timeout");
    eight_writers(&path, Duration::from_millis(1000), "INSERT INTO t VALUES(1)", 12_000);
    assert_eq!(count(&open(&path)), 12_000);
}

/// The default busy handler counts its sleeps, not time: if a sleep in the queue were shorter than requested, the
/// handler would give up after a few dozen sleeps.
#[test]
fn wakes_without_the_lock_do_not_use_up_the_busy_timeout() {
    let (_scratch, instance, path) = protected("timeout");
    let (holder, other) = (open(&path), open(&path));
    holder.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES(1)").unwrap();
    let sleeps = || instance.segment.counts().lock_sleeps;
    let mut before = sleeps();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(move || insert(&other));
        for _ in 0..100 {
            until("the other sleeps in the queue", || sleeps() > before || waiter.is_finished());
            assert!(!waiter.is_finished(), "{:?}", waiter.join());
            before = sleeps();
            // Wakes the first waiter while the lock is still held.
            instance.segment.open_gate(3);
        }
        holder.execute_batch("COMMIT").unwrap();
        assert_eq!(waiter.join().unwrap(), Ok(1));
    });
}

#[test]
fn others_wait_for_a_long_transaction_only_until_their_timeout() {
    let (_scratch, instance, path) = protected("long");
    let (holder, mut other) = (open(&path), open(&path));
    holder.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES(1)").unwrap();
    other.busy_timeout(Duration::from_millis(100)).unwrap();
    let start = Instant::now();
    let error = insert(&other).unwrap_err();
    assert_eq!(code(&error), ffi::SQLITE_BUSY);
    let waited = start.elapsed();
    assert!(waited >= Duration::from_millis(90) && waited < Duration::from_secs(20), "{waited:?}");
    other.busy_timeout(Duration::from_secs(5)).unwrap();
    // Its place in the queue is still the earlier one, which is not counted again; its sleeps are counted.
    let before = instance.segment.counts().lock_sleeps;
    let moved = &mut other;
    std::thread::scope(|scope| {
        let waiter = scope.spawn(move || insert(moved).unwrap());
        until("the other waits in the queue", || instance.segment.counts().lock_sleeps > before);
        assert!(!waiter.is_finished());
        holder.execute_batch("COMMIT").unwrap();
        waiter.join().unwrap();
    });
    assert!(!instance.segment.owned(3));
}

/// A writer that gave up must not stay first in the queue: the lock would be reserved for it again and again.
#[test]
fn writer_that_timed_out_does_not_slow_other_writers() {
    let (_scratch, instance, path) = protected("gave-up");
    let (holder, quitter) = (open(&path), open(&path));
    quitter.busy_timeout(Duration::from_millis(20)).unwrap();
    holder.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES(1)").unwrap();
    insert(&quitter).unwrap_err();
    holder.execute_batch("COMMIT").unwrap();
    for _ in 0..200 {
        insert(&holder).unwrap();
    }
    assert!(instance.segment.counts().reservations <= 1, "{:?}", instance.segment.counts());
}

#[test]
fn upgrade_from_a_stale_snapshot_returns_busy_snapshot() {
    let (_scratch, _instance, path) = protected("snapshot");
    let (reader, writer) = (open(&path), open(&path));
    reader.execute_batch("BEGIN").unwrap();
    assert_eq!(count(&reader), 0);
    insert(&writer).unwrap();
    let error = insert(&reader).unwrap_err();
    assert_eq!(code(&error), ffi::SQLITE_BUSY_SNAPSHOT);
    reader.execute_batch("ROLLBACK").unwrap();
    insert(&reader).unwrap();
}

#[test]
fn writer_polls_while_a_nonqueuing_process_holds_the_lock() {
    let (_scratch, instance, path) = protected("foreign");
    let foreign =
        Connection::open_with_flags_and_vfs(&path, rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE, c"unix")
            .unwrap();
    foreign.execute_batch("BEGIN IMMEDIATE; INSERT INTO t VALUES(1)").unwrap();
    let mut waiter = open(&path);
    let moved = &mut waiter;
    std::thread::scope(|scope| {
        let (tell, reported) = mpsc::channel();
        let waiting = scope.spawn(move || {
            tell.send(thread_id()).unwrap();
            insert(moved).unwrap()
        });
        until_asleep(reported.recv().unwrap());
        assert!(!waiting.is_finished());
        let waited = || instance.segment.wait_counts(SessionWait::WriteLock);
        until("three of its sleeps are counted", || waited().buckets.iter().sum::<u64>() >= 3);
        assert!(waited().time_ns >= 8_000_000, "1, 2 and 5 ms: {:?}", waited());
        foreign.execute_batch("COMMIT").unwrap();
        waiting.join().unwrap();
    });
    assert_eq!(count(&waiter), 2);
    std::mem::forget(foreign);
}

#[test]
fn checkpoint_gate_holds_new_transactions_until_it_opens() {
    let (_scratch, instance, path) = protected("gate");
    let connection = open(&path);
    connection.busy_timeout(Duration::ZERO).unwrap();
    insert(&connection).unwrap();
    instance.segment.close_gate(3);
    std::thread::scope(|scope| {
        let (tell, reported) = mpsc::channel();
        let moved = connection;
        let writer = scope.spawn(move || {
            tell.send(thread_id()).unwrap();
            (insert(&moved), Instant::now(), moved)
        });
        until_asleep(reported.recv().unwrap());
        assert!(!writer.is_finished());
        let opened = Instant::now();
        instance.segment.open_gate(3);
        let (inserted, ended, connection) = writer.join().unwrap();
        assert!(inserted == Ok(1) && ended >= opened, "{inserted:?} before the gate was opened");
        // The instance is stopped behind its gate: the session waits once.
        instance.segment.close_gate(3);
        let start = Instant::now();
        insert(&connection).unwrap();
        let first = start.elapsed();
        assert!(first >= Duration::from_millis(900), "went through: {first:?}");
        let start = Instant::now();
        for _ in 0..3 {
            insert(&connection).unwrap();
        }
        assert!(start.elapsed() < first, "{:?} after {first:?}", start.elapsed());
        instance.segment.open_gate(3);
    });
}

/// Holds the write lock as the instance does, until it is dropped.
struct InstanceWrites<'a>(&'a FakeInstance, Connection);

impl<'a> InstanceWrites<'a> {
    fn begin(instance: &'a FakeInstance, path: &Path) -> InstanceWrites<'a> {
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
        let connection = Connection::open_with_flags_and_vfs(path, flags, c"unix").unwrap();
        instance.segment.note_write_lock(3, true);
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        InstanceWrites(instance, connection)
    }
}

impl Drop for InstanceWrites<'_> {
    fn drop(&mut self) {
        self.1.execute_batch("ROLLBACK").unwrap();
        self.0.segment.note_write_lock(3, false);
    }
}

/// Runs `sql` without a busy timeout while the instance has the write lock; the instance releases it once the
/// connection sleeps.
fn run_while_the_instance_writes(
    instance: &FakeInstance,
    path: &Path,
    connection: &mut Connection,
    sql: &str,
) {
    connection.busy_timeout(Duration::ZERO).unwrap();
    let writes = InstanceWrites::begin(instance, path);
    std::thread::scope(|scope| {
        let (tell, reported) = mpsc::channel();
        let writer = scope.spawn(move || {
            tell.send(thread_id()).unwrap();
            connection.execute_batch(sql)
        });
        until_asleep(reported.recv().unwrap());
        drop(writes);
        assert_eq!(writer.join().unwrap(), Ok(()));
    });
}

#[test]
fn connection_without_busy_timeout_waits_only_for_the_instance() {
    let (_scratch, instance, path) = protected("instance-writes");
    let mut connection = open(&path);
    run_while_the_instance_writes(&instance, &path, &mut connection, "INSERT INTO t VALUES(1)");
    // In a transaction that began before.
    connection.execute_batch("BEGIN; SELECT * FROM t").unwrap();
    run_while_the_instance_writes(&instance, &path, &mut connection, "INSERT INTO t VALUES(2)");
    connection.execute_batch("COMMIT").unwrap();
    // Also behind the gate, where no other session keeps the instance waiting.
    connection.execute_batch("BEGIN; SELECT * FROM t").unwrap();
    instance.segment.close_gate(3);
    run_while_the_instance_writes(&instance, &path, &mut connection, "INSERT INTO t VALUES(3)");
    connection.execute_batch("COMMIT").unwrap();
    instance.segment.open_gate(3);
    assert_eq!(count(&connection), 3);
    // The connection does not wait for another writer.
    let other = open(&path);
    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    assert_eq!(code(&insert(&connection).unwrap_err()), ffi::SQLITE_BUSY);
    other.execute_batch("ROLLBACK").unwrap();
    let foreign = InstanceWrites::begin(&instance, &path);
    instance.segment.note_write_lock(3, false);
    assert_eq!(code(&insert(&connection).unwrap_err()), ffi::SQLITE_BUSY);
    drop(foreign);
}

/// Makes the header of the wal-index invalid until it is dropped, as it is while a writer publishes it.
struct TornHeader {
    index: std::fs::File,
    first_copy: [u8; 4],
}

impl TornHeader {
    /// Byte of the first copy of the header that differs from the second.
    const CHANGED: u64 = 16;

    fn of(path: &Path) -> TornHeader {
        let mut index = path.as_os_str().to_owned();
        index.push("-shm");
        let index = std::fs::File::options().read(true).write(true).open(index).unwrap();
        let mut first_copy = [0; 4];
        index.read_exact_at(&mut first_copy, TornHeader::CHANGED).unwrap();
        index.write_all_at(&first_copy.map(|byte| !byte), TornHeader::CHANGED).unwrap();
        TornHeader { index, first_copy }
    }
}

impl Drop for TornHeader {
    fn drop(&mut self) {
        self.index.write_all_at(&self.first_copy, TornHeader::CHANGED).unwrap();
    }
}

#[test]
fn half_published_header_is_refused_only_if_the_instance_died_while_it_rewrote_the_wal() {
    let (_scratch, mut instance, path) = protected("rewriting");
    let reader = open(&path);
    insert(&reader).unwrap();
    reader.busy_timeout(Duration::ZERO).unwrap();
    let read =
        |reader: &Connection| reader.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, i64>(0));
    instance.segment.begin_rewriting(3);
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
    let writer = Connection::open_with_flags_and_vfs(&path, flags, c"unix").unwrap();
    writer.execute_batch("BEGIN IMMEDIATE").unwrap();
    let torn = TornHeader::of(&path);
    let reader = std::thread::scope(|scope| {
        let (tell, reported) = mpsc::channel();
        let reading = scope.spawn(move || {
            tell.send(thread_id()).unwrap();
            (read(&reader), reader)
        });
        until_asleep(reported.recv().unwrap());
        drop(torn);
        let (rows, reader) = reading.join().unwrap();
        assert_eq!(rows, Ok(1));
        reader
    });
    instance.kill();
    let _torn = TornHeader::of(&path);
    assert_eq!(code(&read(&reader).unwrap_err()) & 0xFF, ffi::SQLITE_BUSY);
}

#[test]
fn transaction_of_many_sessions_yields_to_the_closed_gate() {
    let (_scratch, instance, path) = protected("instance-gate");
    let (connection, other) = (open(&path), open(&path));
    insert(&other).unwrap();
    connection.busy_timeout(Duration::ZERO).unwrap();
    connection.execute_batch("BEGIN; SELECT * FROM t").unwrap();
    instance.segment.close_gate(3);
    let writes = InstanceWrites::begin(&instance, &path);
    assert_eq!(code(&insert(&connection).unwrap_err()), ffi::SQLITE_BUSY);
    drop(writes);
    instance.segment.open_gate(3);
}

#[test]
fn stale_lock_owner_of_a_dead_process_is_cleared() {
    let (_scratch, instance, path) = protected("stale");
    let dead = standfast_session::Session::attach(instance.segment, 3, 1, 1).unwrap();
    assert!(dead.try_turn());
    let connection = open(&path);
    insert(&connection).unwrap();
    until("no session owns the lock", || !instance.segment.owned(3));
}

#[test]
fn session_lasts_from_the_first_write_to_close() {
    let (_scratch, instance, path) = protected("sessions");
    let connection = open(&path);
    count(&connection);
    assert_eq!(instance.segment.sessions().count(), 0, "a reader needs none");
    insert(&connection).unwrap();
    insert(&connection).unwrap();
    let sessions: Vec<_> = instance.segment.sessions().collect();
    assert!(sessions.len() == 1 && sessions[0].1 == std::process::id() && sessions[0].2 > 0, "{sessions:?}");
    drop(connection);
    assert_eq!(instance.segment.sessions().count(), 0);
}

#[test]
fn connection_with_an_open_cursor_commits_repeatedly() {
    let (_scratch, _instance, path) = protected("cursor");
    let (connection, other) = (open(&path), open(&path));
    connection.execute_batch("CREATE TABLE copy(x); INSERT INTO t VALUES(1),(2),(3)").unwrap();
    let mut reading = connection.prepare("SELECT x FROM t").unwrap();
    let mut rows = reading.query([]).unwrap();
    while let Some(row) = rows.next().unwrap() {
        let x: i64 = row.get(0).unwrap();
        connection.execute("INSERT INTO copy VALUES(?1)", [x]).unwrap();
    }
    let copied = |connection: &Connection| {
        connection.query_row("SELECT count(*) FROM copy", [], |row| row.get::<_, i64>(0)).unwrap()
    };
    assert_eq!(copied(&other), 3);
    drop(rows);
    // Commits of other connections meanwhile still make the snapshot of the cursor stale.
    let mut rows = reading.query([]).unwrap();
    rows.next().unwrap().expect("a row");
    insert(&other).unwrap();
    let error = insert(&connection).unwrap_err();
    assert_eq!(code(&error), ffi::SQLITE_BUSY_SNAPSHOT);
}

/// Returns the methods of the file, as SQLite calls them, and the file.
fn methods(
    connection: &Connection,
    operation: i32,
) -> (&'static ffi::sqlite3_io_methods, *mut ffi::sqlite3_file) {
    let mut file: *mut ffi::sqlite3_file = std::ptr::null_mut();
    // SAFETY: an open connection, whose file and methods outlive their use by the test.
    unsafe {
        let place = (&raw mut file).cast();
        assert_eq!(ffi::sqlite3_file_control(connection.handle(), c"main".as_ptr(), operation, place), 0);
        (&*(*file).pMethods, file)
    }
}

/// SQLite built with SQLITE_ENABLE_SETLK_TIMEOUT asks whether locks may block before it takes the write lock first.
#[test]
fn blocking_locks_are_refused_and_an_early_write_lock_may_write() {
    let (_scratch, instance, path) = protected("write-first");
    let connection = open(&path);
    assert_eq!(count(&connection), 0);
    let (main, file) = methods(&connection, ffi::SQLITE_FCNTL_FILE_POINTER);
    let (wal, wal_file) = methods(&connection, ffi::SQLITE_FCNTL_JOURNAL_POINTER);
    let mut timeout = 100;
    let mut header = [0u8; 32];
    // SAFETY: methods of open files, with arguments as SQLite passes them.
    unsafe {
        let asked =
            main.xFileControl.unwrap()(file, ffi::SQLITE_FCNTL_LOCK_TIMEOUT, (&raw mut timeout).cast());
        assert_eq!(asked, ffi::SQLITE_NOTFOUND);
        let lock = |offset, flags| main.xShmLock.unwrap()(file, offset, 1, flags);
        let (take, give) = (ffi::SQLITE_SHM_LOCK, ffi::SQLITE_SHM_UNLOCK);
        assert_eq!(lock(0, take | ffi::SQLITE_SHM_EXCLUSIVE), ffi::SQLITE_OK);
        assert_eq!(lock(4, take | ffi::SQLITE_SHM_SHARED), ffi::SQLITE_OK);
        assert!(instance.segment.owned(3), "others queue");
        assert_eq!(wal.xRead.unwrap()(wal_file, header.as_mut_ptr().cast(), 32, 0), ffi::SQLITE_OK);
        assert_eq!(wal.xWrite.unwrap()(wal_file, header.as_ptr().cast(), 32, 0), ffi::SQLITE_OK);
        assert_eq!(lock(0, give | ffi::SQLITE_SHM_EXCLUSIVE), ffi::SQLITE_OK);
        assert_eq!(lock(4, give | ffi::SQLITE_SHM_SHARED), ffi::SQLITE_OK);
    }
    assert!(!instance.segment.owned(3));
    insert(&connection).unwrap();
}

#[test]
fn stale_owner_hint_is_not_taken_for_a_held_lock() {
    let (_scratch, instance, path) = protected("stale-at-once");
    let connection = open(&path);
    insert(&connection).unwrap();
    connection.busy_timeout(Duration::ZERO).unwrap();
    // SAFETY: the child only takes a session and ends; no other thread of this process holds a lock that it needs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let owner = standfast_session::Session::attach(instance.segment, 3, std::process::id(), 1);
        let is_owner = owner.is_ok_and(|owner| owner.try_turn());
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(i32::from(!is_owner)) };
    }
    let mut status = 0;
    // SAFETY: our child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0, "the child failed");
    assert!(instance.segment.owned(3), "by a session that has died");
    insert(&connection).unwrap();
    // A live session is granted the lock and does not come for it.
    let idle = standfast_session::Session::attach(instance.segment, 3, std::process::id(), 1).unwrap();
    assert!(idle.try_turn());
    assert_eq!(code(&insert(&connection).unwrap_err()), ffi::SQLITE_BUSY);
    until("the lock itself is asked", || insert(&connection).is_ok());
}
