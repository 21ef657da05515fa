//! What a new connection gets from the shim: the SQL functions and the views.

use crate::bindings::{Sqlite3, code};
use crate::host::{self, Host};
use crate::report::shield;
use crate::{sql, views};
use std::ffi::{c_char, c_int, c_void};

/// Registers the SQL functions and the views on a connection.
///
/// # Safety
/// `connection` must be an open connection of `host`.
pub(crate) unsafe fn offer(host: &Host, connection: *mut Sqlite3) -> c_int {
    // SAFETY: as the caller promises.
    match unsafe { sql::register(host, connection) } {
        // SAFETY: as above.
        code::OK => unsafe { views::register(host, connection) },
        failed => failed,
    }
}

/// Called by SQLite for every new connection.
pub(crate) unsafe extern "C" fn on_new_connection(
    connection: *mut Sqlite3,
    _message: *mut *mut c_char,
    _api: *const c_void,
) -> c_int {
    shield(|| match host::host() {
        // SAFETY: SQLite passes the connection that is being opened.
        Some(host) => unsafe { offer(host, connection) },
        None => code::OK,
    })
}
