//! Tests that need a process of their own: one that becomes a daemon, and one that shuts SQLite down and initialises it
//! again.

#![allow(clippy::unwrap_used)]

#[path = "shim/fake.rs"]
mod fake;
#[allow(dead_code, reason = "shared with the other tests, which use more of it")]
#[path = "shim/support.rs"]
mod support;

use rusqlite::ffi;
use std::path::Path;
use std::process::Command;
use support::{count, insert, load, open, protected};

/// Set to the path of the database when this program runs again as the application.
const APPLICATION: &str = "STANDFAST_TEST_APPLICATION";

/// Forks, closes every descriptor and opens others under their numbers.
fn daemon(path: &Path) -> ! {
    load();
    insert(&open(path)).unwrap();
    // SAFETY: no other thread of this process holds a lock that the child needs.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: numbers of descriptors, which nothing in this process uses from here on.
        unsafe { (3..100).for_each(|descriptor| _ = libc::close(descriptor)) };
        let others: Vec<_> = (0..50).map(|_| std::fs::File::open("/dev/null")).collect();
        let written = std::panic::catch_unwind(|| insert(&open(path)).unwrap());
        drop(others);
        // SAFETY: ends the child without running the parent's destructors.
        unsafe { libc::_exit(i32::from(written.is_err())) };
    }
    let mut status = 0;
    // SAFETY: our child, and a place for its status.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    std::process::exit(i32::from(status != 0));
}

#[test]
fn daemon_that_closed_all_descriptors_keeps_writing() {
    if let Some(path) = std::env::var_os(APPLICATION) {
        daemon(Path::new(&path));
    }
    let (_scratch, _instance, path) = protected("daemon");
    run("daemon_that_closed_all_descriptors_keeps_writing", &path);
    assert_eq!(count(&open(&path)), 2);
}

/// Runs the test of this name as the application.
fn run(test: &str, path: &Path) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test]).env(APPLICATION, path);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
}

/// Returns the role of the connection after a write, which shows whether it is protected.
fn role(connection: &rusqlite::Connection) -> Option<String> {
    insert(connection).unwrap();
    connection.query_row("SELECT standfast_role()", [], |row| row.get(0)).unwrap()
}

fn initialised_again(path: &Path) {
    load();
    assert_eq!(role(&open(path)).as_deref(), Some("primary"));
    for _ in 0..2 {
        // SAFETY: no connection is open, and no other thread uses SQLite.
        unsafe {
            assert_eq!(ffi::sqlite3_shutdown(), ffi::SQLITE_OK);
            assert_eq!(ffi::sqlite3_initialize(), ffi::SQLITE_OK);
        }
        let (first, second) = (open(path), open(path));
        assert_eq!(role(&first).as_deref(), Some("primary"));
        assert_eq!(role(&second).as_deref(), Some("primary"));
        // A connection that asks for SQLite's own VFS gets it.
        let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_WRITE;
        let own = rusqlite::Connection::open_with_flags_and_vfs(path, flags, c"unix").unwrap();
        let unprotected = "unprotected: opened before the extension was loaded";
        assert_eq!(role(&own).as_deref(), Some(unprotected));
    }
}

#[test]
fn a_process_that_initialises_sqlite_again_stays_protected() {
    if let Some(path) = std::env::var_os(APPLICATION) {
        initialised_again(Path::new(&path));
        return;
    }
    let (_scratch, instance, path) = protected("initialised");
    run("a_process_that_initialises_sqlite_again_stays_protected", &path);
    assert_eq!(count(&open(&path)), 7);
    assert_eq!(instance.segment.sessions().count(), 0);
}
