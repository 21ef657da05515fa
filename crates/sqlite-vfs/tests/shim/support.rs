//! A scratch directory with a fake instance and protected databases.

use crate::fake::FakeInstance;
use rusqlite::{Connection, ffi};
use standfast_session::marker_path;
use standfast_sqlite_vfs::initialise_extension;
use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Once, atomic::AtomicPtr, atomic::Ordering::SeqCst};
use std::time::Duration;

/// The table of functions that SQLite passes to extensions.
pub static API: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

unsafe extern "C" fn on_open(db: *mut ffi::sqlite3, error: *mut *mut c_char, api: *const c_void) -> c_int {
    API.store(api.cast_mut(), SeqCst);
    // SAFETY: called by SQLite as an extension's initialiser.
    match unsafe { initialise_extension(db.cast(), error, api) } {
        256 => 0,
        other => other,
    }
}

/// Loads the shim into the SQLite of this process as an extension.
pub fn load() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: set before any other thread of this process uses SQLite or the environment.
        unsafe { std::env::set_var("STANDFAST_WRITE_WAIT_MS", "50") };
        type Init = unsafe extern "C" fn(*mut ffi::sqlite3, *mut *mut c_char, *const c_void) -> c_int;
        type Auto = unsafe extern "C" fn(
            *mut ffi::sqlite3,
            *mut *mut c_char,
            *const ffi::sqlite3_api_routines,
        ) -> c_int;
        // SAFETY: both are the same function type but for the names of the pointees.
        let init = unsafe { std::mem::transmute::<Init, Auto>(on_open) };
        // SAFETY: an initialiser that lives as long as the process.
        assert_eq!(unsafe { ffi::sqlite3_auto_extension(Some(init)) }, ffi::SQLITE_OK);
        Connection::open_in_memory().unwrap();
        // SAFETY: the same initialiser.
        unsafe { ffi::sqlite3_cancel_auto_extension(Some(init)) };
    });
}

/// A scratch directory; removed at the end.
pub struct Scratch {
    pub path: PathBuf,
}

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        load();
        let path = std::env::temp_dir().join(format!("standfast-vfs-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Scratch { path }
    }

    pub fn instance(&self) -> FakeInstance {
        FakeInstance::start(&self.path.join("instance"))
    }

    /// Path of a new WAL database with a table `t(x)`, kept in WAL mode by a connection that is never
    /// closed.
    pub fn database(&self, name: &str) -> PathBuf {
        let path = self.path.join(name);
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "journal_mode", "wal").unwrap();
        connection.execute_batch("CREATE TABLE t(x)").unwrap();
        std::mem::forget(connection);
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// A scratch directory with a running instance and one protected database, number 3.
pub fn protected(name: &str) -> (Scratch, FakeInstance, PathBuf) {
    let scratch = Scratch::new(name);
    let path = scratch.database("app.db");
    let instance = scratch.instance();
    instance.protect(&path, 3);
    (scratch, instance, path)
}

/// A connection with a busy timeout of 5 s.
pub fn open(path: &Path) -> Connection {
    let connection = Connection::open(path).unwrap();
    connection.busy_timeout(Duration::from_secs(5)).unwrap();
    connection
}

pub fn count(connection: &Connection) -> i64 {
    connection.query_row("SELECT count(*) FROM t", [], |row| row.get(0)).unwrap()
}

pub fn insert(connection: &Connection) -> rusqlite::Result<usize> {
    connection.execute("INSERT INTO t VALUES(1)", [])
}

/// Extended result code of an error.
pub fn code(error: &rusqlite::Error) -> c_int {
    match error {
        rusqlite::Error::SqliteFailure(failure, _) => failure.extended_code,
        other => panic!("not an error of SQLite: {other}"),
    }
}

/// Waits until `condition` holds; fails after 10 s.
#[track_caller]
pub fn until(what: &str, condition: impl FnMut() -> bool) {
    standfast_testkit::wait_until(what, Duration::from_secs(10), condition);
}

pub fn status(connection: &Connection) -> String {
    connection.query_row("SELECT standfast_status()", [], |row| row.get(0)).unwrap()
}

pub fn unprotect(path: &Path) {
    std::fs::remove_file(marker_path(path)).unwrap();
}
