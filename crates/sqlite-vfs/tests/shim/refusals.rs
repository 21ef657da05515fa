//! What a protected database refuses, with which messages; other databases are unaffected.

use crate::fake::FakeInstance;
use crate::support::{Scratch, code, count, insert, open, protected, status, unprotect, until};
use rusqlite::{Connection, ffi};
use standfast_session::{DatabaseState, marker_path};
use standfast_testkit::{thread_id, until_asleep};
use standfast_types::WAL_HEADER_BYTES;
use std::sync::mpsc;
use std::time::{Duration, Instant};

#[test]
fn a_database_without_a_marker_gets_the_hosts_own_file_methods() {
    let scratch = Scratch::new("plain");
    let path = scratch.database("plain.db");
    let (connection, memory) = (open(&path), Connection::open_in_memory().unwrap());
    insert(&connection).unwrap();
    let mode: String =
        connection.query_row("PRAGMA journal_mode=delete", [], |row| row.get(0)).unwrap_or_default();
    // The connection that keeps the WAL of the test's databases open makes this busy, not refused.
    assert_ne!(mode, "refused");
    assert_eq!(vfs_name(&connection), vfs_name_of_unix(&path));
    for connection in [&connection, &memory] {
        let role: Option<String> =
            connection.query_row("SELECT standfast_role()", [], |row| row.get(0)).unwrap();
        assert_eq!(role, None);
    }
    let (_scratch, _instance, path) = protected("named");
    assert_eq!(vfs_name(&open(&path)), "standfast/unix");
}

fn vfs_name(connection: &Connection) -> String {
    let mut name: *mut std::ffi::c_char = std::ptr::null_mut();
    // SAFETY: an open connection, and the place of a string that is freed below.
    unsafe {
        ffi::sqlite3_file_control(
            connection.handle(),
            c"main".as_ptr(),
            ffi::SQLITE_FCNTL_VFSNAME,
            (&raw mut name).cast(),
        );
        let text = std::ffi::CStr::from_ptr(name).to_str().unwrap().to_owned();
        ffi::sqlite3_free(name.cast());
        text
    }
}

fn vfs_name_of_unix(path: &std::path::Path) -> String {
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
    let connection = Connection::open_with_flags_and_vfs(path, flags, c"unix").unwrap();
    let name = vfs_name(&connection);
    std::mem::forget(connection);
    name
}

#[test]
fn standby_is_readable_and_its_status_names_the_instance() {
    let (_scratch, instance, path) = protected("standby");
    let connection = open(&path);
    insert(&connection).unwrap();
    instance.segment.set_state(3, DatabaseState::Standby);
    assert_eq!(code(&insert(&connection).unwrap_err()), ffi::SQLITE_READONLY);
    assert_eq!(count(&connection), 1);
    let role: String = connection.query_row("SELECT standfast_role('main')", [], |row| row.get(0)).unwrap();
    assert_eq!(role, "standby");
    let status = status(&connection);
    assert!(status.contains("physical standby at instance fake"), "{status}");
    instance.segment.set_state(3, DatabaseState::Open);
    insert(&connection).unwrap();
}

#[test]
fn pragmas_that_end_wal_mode_are_refused() {
    let (_scratch, _instance, path) = protected("pragmas");
    let connection = open(&path);
    insert(&connection).unwrap();
    let pragma = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, rusqlite::types::Value>(0));
    for sql in
        ["PRAGMA journal_mode=DELETE", "PRAGMA main.journal_mode='off'", "PRAGMA locking_mode=EXCLUSIVE"]
    {
        let error = pragma(sql).unwrap_err().to_string();
        assert!(error.contains("standfast unprotect"), "{sql}: {error}");
    }
    assert_eq!(pragma("PRAGMA journal_mode").unwrap(), "wal".to_string().into());
    assert_eq!(pragma("PRAGMA journal_mode=wal").unwrap(), "wal".to_string().into());
    // SQLite ignores page_size in WAL mode, also in a VACUUM.
    connection.execute_batch("PRAGMA page_size=1024; PRAGMA synchronous=off; VACUUM").unwrap();
    assert_eq!(pragma("PRAGMA page_size").unwrap(), 4096.into());
    insert(&connection).unwrap();
    let busy: i64 = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0)).unwrap();
    assert_eq!(busy, 1, "only the instance checkpoints");
}

#[test]
fn exclusive_locking_of_an_attached_database_fails_the_write() {
    let (scratch, _instance, path) = protected("exclusive");
    let plain = scratch.database("plain.db");
    let connection = open(&plain);
    connection.execute("ATTACH ?1 AS p", [path.to_str().unwrap()]).unwrap();
    connection.execute_batch("INSERT INTO p.t VALUES(1)").unwrap();
    // Unqualified, the PRAGMA applies to all databases, but SQLite sends the file control only to main.
    connection.execute_batch("PRAGMA locking_mode=EXCLUSIVE").unwrap();
    let result = connection.execute_batch("INSERT INTO p.t VALUES(2); INSERT INTO p.t VALUES(3)");
    assert!(result.is_err(), "a commit of which no instance would have heard");
    let switch = connection.query_row("PRAGMA p.journal_mode=delete", [], |row| row.get::<_, String>(0));
    assert!(switch.is_err());
    drop(connection);
    assert_eq!(count(&open(&path)), 1);
}

#[test]
fn last_connection_to_close_leaves_the_wal_in_place() {
    let (_scratch, _instance, path) = protected("close");
    insert(&open(&path)).unwrap();
    let log = path.with_file_name("app.db-wal");
    assert!(std::fs::metadata(log).unwrap().len() > WAL_HEADER_BYTES as u64);
}

#[test]
fn without_an_instance_reads_work_and_writes_fail_after_a_wait() {
    let scratch = Scratch::new("later");
    let path = scratch.database("app.db");
    // The marker of an instance that has not run since the machine started: no shared memory.
    let instance = scratch.instance();
    let directory = instance.directory.clone();
    std::fs::write(marker_path(&path), instance.marker(&path, 3).to_string()).unwrap();
    drop(instance);
    std::fs::remove_file(directory.join("segment")).unwrap();
    let connection = open(&path);
    assert_eq!(count(&connection), 0);
    let start = Instant::now();
    assert_eq!(code(&insert(&connection).unwrap_err()), ffi::SQLITE_READONLY_CANTLOCK);
    assert!(start.elapsed() >= Duration::from_millis(50), "gave up at once");
    let text = status(&connection);
    assert!(text.contains("its instance fake") && text.contains(directory.to_str().unwrap()), "{text}");
    let role: String = connection.query_row("SELECT standfast_role()", [], |row| row.get(0)).unwrap();
    assert_eq!(role, "unknown");
    // An instance started later is found without opening the database again.
    let instance = FakeInstance::start(&directory);
    instance.protect(&path, 3);
    insert(&connection).unwrap();
    let role: String = connection.query_row("SELECT standfast_role()", [], |row| row.get(0)).unwrap();
    assert_eq!(role, "primary");
    until("the commit is numbered", || {
        connection.query_row("SELECT standfast_scn()", [], |row| row.get::<_, i64>(0)).unwrap() > 0
    });
}

#[test]
fn waiting_writer_resumes_when_its_instance_starts() {
    let (_scratch, instance, path) = protected("starting");
    let (_other_scratch, other_instance, other_path) = protected("not-starting");
    let (mut connection, other) = (open(&path), open(&other_path));
    insert(&connection).unwrap();
    insert(&other).unwrap();
    let config = standfast_session::SegmentConfig { write_wait_ms: 30_000, ..crate::fake::CONFIG };
    instance.segment.set_running(false, &config);
    other_instance.segment.set_running(false, &crate::fake::CONFIG);
    let moved = &mut connection;
    std::thread::scope(|scope| {
        let (tell, reported) = mpsc::channel();
        let writer = scope.spawn(move || {
            tell.send(thread_id()).unwrap();
            insert(moved).map(|_| ()).map_err(|error| code(&error))
        });
        until_asleep(reported.recv().unwrap());
        // A connection that waits for another instance, with the usual limit, gives up meanwhile.
        assert_eq!(code(&insert(&other).unwrap_err()), ffi::SQLITE_READONLY_CANTLOCK);
        assert!(!writer.is_finished());
        assert_eq!(count(&open(&path)), 1, "written without an instance");
        instance.segment.set_running(true, &config);
        assert_eq!(writer.join().unwrap(), Ok(()));
    });
}

#[test]
fn unusable_marker_makes_the_database_read_only() {
    let scratch = Scratch::new("marker");
    let path = scratch.database("app.db");
    insert(&open(&path)).unwrap();
    std::fs::write(marker_path(&path), "standfast-marker 9\n").unwrap();
    let connection = open(&path);
    assert_eq!(count(&connection), 1);
    assert_eq!(code(&insert(&connection).unwrap_err()), ffi::SQLITE_READONLY_CANTLOCK);
    assert!(status(&connection).contains("malformed marker file"));
    // The instance rewrites the marker: the connection need not be opened again.
    let instance = scratch.instance();
    instance.protect(&path, 3);
    insert(&connection).unwrap();
}

#[test]
fn copy_with_the_originals_marker_is_read_only() {
    let (scratch, instance, path) = protected("copied");
    insert(&open(&path)).unwrap();
    std::fs::create_dir(scratch.path.join("other")).unwrap();
    let copy = scratch.path.join("other/app.db");
    for suffix in ["", "-wal", "-standfast"] {
        let from = format!("{}{suffix}", path.display());
        std::fs::copy(from, format!("{}{suffix}", copy.display())).unwrap();
    }
    let before = instance.segment.epoch(3);
    let connection = open(&copy);
    assert_eq!(count(&connection), 1);
    do_not_wait(&connection);
    assert_eq!(code(&insert(&connection).unwrap_err()), ffi::SQLITE_READONLY_CANTLOCK);
    let text = status(&connection);
    for word in [path.to_str().unwrap(), copy.to_str().unwrap(), "Remove the marker", "standfast protect"] {
        assert!(text.contains(word), "{text} does not say {word}");
    }
    let role: String = connection.query_row("SELECT standfast_role()", [], |row| row.get(0)).unwrap();
    assert_eq!(role, "unknown");
    assert_eq!(instance.segment.sessions().count(), 0, "a session of the original");
    assert_eq!(instance.segment.epoch(3), before);
    drop(connection);
    std::fs::remove_file(marker_path(&copy)).unwrap();
    insert(&open(&copy)).unwrap();
    // The original is unaffected.
    insert(&open(&path)).unwrap();
    assert_eq!((count(&open(&copy)), count(&open(&path))), (2, 2));
}

#[test]
fn replaced_file_is_refused_until_the_instance_restarts() {
    let (scratch, instance, path) = protected("replaced-file");
    let old = open(&path);
    insert(&old).unwrap();
    let restored = scratch.database("restored.db");
    std::fs::rename(&restored, &path).unwrap();
    for suffix in ["-wal", "-shm"] {
        std::fs::rename(format!("{}{suffix}", restored.display()), format!("{}{suffix}", path.display()))
            .unwrap();
    }
    let new = open(&path);
    do_not_wait(&new);
    assert_eq!(code(&insert(&new).unwrap_err()), ffi::SQLITE_READONLY_CANTLOCK);
    assert!(status(&new).contains("Restart instance fake"), "{}", status(&new));
    // The instance restarts: it could still have the old file open.
    instance.segment.set_running(false, &crate::fake::CONFIG);
    assert_eq!(code(&insert(&old).unwrap_err()), ffi::SQLITE_READONLY_CANTLOCK);
    instance.protect(&path, 3);
    instance.segment.set_running(true, &crate::fake::CONFIG);
    insert(&new).unwrap();
    // No instance serves the file that the other connection has open.
    assert_eq!(code(&insert(&old).unwrap_err()), ffi::SQLITE_READONLY_CANTLOCK);
    assert!(status(&old).contains("close and reopen"), "{}", status(&old));
}

#[test]
fn connection_that_outlives_protection_fails_with_a_remedy() {
    let (_scratch, instance, path) = protected("unprotected");
    let connection = open(&path);
    insert(&connection).unwrap();
    unprotect(&path);
    instance.segment.set_state(3, DatabaseState::Absent);
    insert(&connection).unwrap_err();
    assert!(status(&connection).contains("no longer protected: close and reopen"));
    insert(&open(&path)).unwrap();
}

/// Without the refusal, the commit would wait for ever.
fn do_not_wait(connection: &Connection) {
    connection.query_row("PRAGMA standfast_commit_write=nowait", [], |_| Ok(())).unwrap();
}

#[test]
fn file_name_too_long_for_a_marker_means_unprotected() {
    let scratch = Scratch::new("long-name");
    let connection = open(&scratch.path.join("n".repeat(246)));
    connection.execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE t(x)").unwrap();
    insert(&connection).unwrap();
    assert_eq!(vfs_name(&connection), "unix");
}
