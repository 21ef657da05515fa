//! Frames kept in memory to be written together, and a volume that is full at any of these writes.

use crate::support::{open, protected};
use rusqlite::{Connection, ffi};
use std::cell::Cell;
use std::ffi::{CStr, c_int, c_void};
use std::path::Path;
use std::sync::Once;

thread_local! {
    /// Number of further writes of this thread that succeed before one fails; `None` is all.
    static WRITES_LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

fn is_full() -> bool {
    WRITES_LEFT.with(|left| {
        let now = left.get();
        left.set(now.and_then(|left| left.checked_sub(1)));
        if now == Some(0) {
            // SAFETY: errno of this thread.
            unsafe { *libc::__errno_location() = libc::ENOSPC };
        }
        now == Some(0)
    })
}

unsafe extern "C" fn write(file: c_int, data: *const c_void, bytes: usize) -> isize {
    // SAFETY: SQLite's arguments, forwarded.
    if is_full() { -1 } else { unsafe { libc::write(file, data, bytes) } }
}

unsafe extern "C" fn pwrite(file: c_int, data: *const c_void, bytes: usize, offset: i64) -> isize {
    // SAFETY: SQLite's arguments, forwarded.
    if is_full() { -1 } else { unsafe { libc::pwrite64(file, data, bytes, offset) } }
}

/// Replaces the write calls of SQLite's VFS by the functions above.
fn intercept() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let calls: [(&CStr, *const ()); 3] = [
            (c"write", write as *const ()),
            (c"pwrite", pwrite as *const ()),
            (c"pwrite64", pwrite as *const ()),
        ];
        // SAFETY: SQLite's own VFS has this method; each function has the signature of the call that it replaces.
        unsafe {
            let vfs = ffi::sqlite3_vfs_find(c"unix".as_ptr());
            for (name, function) in calls {
                let function = std::mem::transmute::<*const (), ffi::sqlite3_syscall_ptr>(function);
                (*vfs).xSetSystemCall.unwrap()(vfs, name.as_ptr(), function);
            }
        }
    });
}

/// An insert that SQLite rolls back alone when the volume is full, because it may violate the unique index.
fn insert(table: &str, rows: u32) -> String {
    format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
         INSERT INTO {table} SELECT randomblob(900) FROM n"
    )
}

/// Returns the rows in a copy of the files alone, without the wal-index of the processes that have the database open.
fn recovered(path: &Path) -> i64 {
    let copy = path.with_file_name("recovered.db");
    let wal = |path: &Path| format!("{}-wal", path.display());
    std::fs::copy(path, &copy).unwrap();
    std::fs::copy(wal(path), wal(&copy)).unwrap();
    let connection = Connection::open(&copy).unwrap();
    let check: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(check, "ok");
    rows_of(&connection)
}

fn rows_of(connection: &Connection) -> i64 {
    let sql = "SELECT (SELECT count(*) FROM t) + (SELECT count(*) FROM other)";
    connection.query_row(sql, [], |row| row.get(0)).unwrap()
}

#[test]
fn full_disk_error_reaches_the_transaction_of_the_frames() {
    let (_scratch, _instance, path) = protected("full-disk");
    intercept();
    let connection = open(&path);
    connection.execute_batch("PRAGMA cache_size=4; PRAGMA cache_spill=4; CREATE UNIQUE INDEX u ON t(x); CREATE TABLE other(x); INSERT INTO t VALUES(1)").unwrap();
    let mut went_on = 0;
    // In some cases frames of the first statement are still in memory and read by the next one.
    for (writes, first) in (0..100).flat_map(|writes| (1..=8).map(move |first| (writes, first))) {
        connection.execute_batch("DELETE FROM t WHERE rowid > 1; DELETE FROM other").unwrap();
        let committed = 1;
        WRITES_LEFT.with(|left| left.set(Some(writes)));
        let mut rows = committed;
        connection.execute_batch("BEGIN IMMEDIATE").unwrap();
        for (sql, inserts) in [
            (insert("other", first), i64::from(first)),
            (insert("t", 10), 10),
            ("UPDATE t SET x = randomblob(900) WHERE rowid % 3 = 0".to_owned(), 0),
            ("SELECT sum(length(x)) FROM t".to_owned(), 0),
            (insert("t", 10), 10),
            ("COMMIT".to_owned(), 0),
        ] {
            let done = connection.execute_batch(&sql);
            match connection.is_autocommit() {
                true if done.is_err() => {
                    rows = committed;
                    break;
                }
                _ if done.is_ok() => rows += inserts,
                _ => went_on += 1,
            }
        }
        if !connection.is_autocommit() {
            connection.execute_batch("ROLLBACK").unwrap();
            rows = committed;
        }
        let was_struck = WRITES_LEFT.with(|left| left.take()).is_none();
        assert_eq!(rows_of(&open(&path)), rows, "{first} rows, a full disk after {writes} writes");
        assert_eq!(recovered(&path), rows, "{first} rows, a full disk after {writes} writes");
        if !was_struck {
            assert_eq!(rows, 21 + i64::from(first));
            assert!(went_on > 0, "no transaction went on behind a statement that found the volume full");
            return;
        }
    }
    panic!("the last write was not reached");
}
