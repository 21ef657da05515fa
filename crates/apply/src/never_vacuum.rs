//! Keeps SQLite from changing pages on its own when a transaction of raw pages commits.

use rusqlite::{Connection, ffi};
use std::ffi::{c_char, c_int, c_uint, c_void};

unsafe extern "C" fn no_pages(_: *mut c_void, _: *const c_char, _: c_uint, _: c_uint, _: c_uint) -> c_uint {
    0
}

/// Makes commits of `connection` move no page even when the database has `auto_vacuum=FULL`: the primary has vacuumed
/// already, and its redo has the result.
pub fn never_vacuum(connection: &Connection) -> Result<(), rusqlite::Error> {
    // SAFETY: the connection is open; the callback takes no argument and lives as long as the program.
    let code: c_int = unsafe {
        ffi::sqlite3_autovacuum_pages(connection.handle(), Some(no_pages), std::ptr::null_mut(), None)
    };
    if code == ffi::SQLITE_OK {
        Ok(())
    } else {
        Err(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
    }
}
