//! `libstandfast.so`, the loadable extension.
//!
//! Load it once in a process, on any connection (`.load libstandfast`, `load_extension('libstandfast')`); protected
//! databases opened afterwards are handled by the shim, and all others pass straight through. It stays loaded when the
//! connection that loaded it closes.

use standfast_sqlite_vfs::{Sqlite3, initialise_extension};
use std::ffi::{c_char, c_int, c_void};

/// The entry point that SQLite looks for first.
///
/// # Safety
/// Called by SQLite.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_extension_init(
    connection: *mut Sqlite3,
    message: *mut *mut c_char,
    api: *const c_void,
) -> c_int {
    // SAFETY: SQLite's own arguments, forwarded.
    unsafe { initialise_extension(connection, message, api) }
}

/// The entry point under the name that SQLite derives from that of the file, for applications that link several
/// extensions statically and distinguish them by name.
///
/// # Safety
/// Called by SQLite.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sqlite3_standfast_init(
    connection: *mut Sqlite3,
    message: *mut *mut c_char,
    api: *const c_void,
) -> c_int {
    // SAFETY: SQLite's own arguments, forwarded.
    unsafe { initialise_extension(connection, message, api) }
}
