//! Finds the instance that protects one of a connection's databases.

use crate::bindings::{Sqlite3, Statement, code};
use crate::host::Host;
use crate::whereabouts::read_marker;
use standfast_session::{FileId, Marker};
use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Returns the marker of the connection's first protected database: `main`, then the attached ones in their order.
///
/// The databases may have been opened before the shim was loaded, so the lookup goes by name, not by open file.
///
/// # Errors
/// A message with the reason and the remedy, when no marker can be used.
///
/// # Safety
/// `connection` must be an open connection of `host`, used by this thread.
pub(super) unsafe fn marker(host: &Host, connection: *mut Sqlite3) -> Result<Marker, String> {
    // SAFETY: as the caller promises.
    let files = unsafe { files(host, connection) }?;
    let mut error = None;
    for file in files {
        match marker_of(&file) {
            Ok(Some(marker)) => return Ok(marker),
            Ok(None) => {}
            Err(why) => error = error.or(Some(why)),
        }
    }
    let unprotected = "no database of this connection is protected by Standfast: open or attach one that is (`standfast \
                       protect FILE` protects one), or use `standfast sql -D DIR`";
    Err(error.unwrap_or_else(|| unprotected.into()))
}

fn marker_of(file: &Path) -> Result<Option<Marker>, String> {
    let shown = file.display();
    let marker = match read_marker(file) {
        Ok(None) => return Ok(None),
        Ok(Some(marker)) => marker,
        Err(why) => {
            return Err(format!("database {shown}: {why}. Restart its instance, which writes it again"));
        }
    };
    let Some(id) = FileId::of(file) else {
        return Err(format!("database {shown} is no longer there: close and reopen it"));
    };
    match marker.check(file, id) {
        Ok(()) => Ok(Some(marker)),
        Err(foreign) => Err(format!("database {shown}: {}", marker.explain(file, &foreign))),
    }
}

/// Returns the files of all databases of the connection.
///
/// # Safety
/// As [`marker`].
unsafe fn files(host: &Host, connection: *mut Sqlite3) -> Result<Vec<PathBuf>, String> {
    const FILE: i32 = 2;
    let mut statement: *mut Statement = std::ptr::null_mut();
    let text = c"PRAGMA database_list";
    // SAFETY: the connection is the caller's, the text a C string; afterwards `statement` is null or a statement.
    let prepared =
        unsafe { (host.prepare_v2)(connection, text.as_ptr(), -1, &raw mut statement, std::ptr::null_mut()) };
    let mut files = Vec::new();
    let mut result = prepared;
    while result == code::OK || result == code::ROW {
        // SAFETY: a prepared statement that is not finalized.
        result = unsafe { (host.step)(statement) };
        if result == code::ROW {
            // SAFETY: the statement is on a row; the text lives until the next step.
            let name = unsafe { (host.column_text)(statement, FILE) };
            // SAFETY: null or a C string.
            let bytes = if name.is_null() { &[][..] } else { unsafe { CStr::from_ptr(name) }.to_bytes() };
            // In-memory databases have no file name.
            if !bytes.is_empty() {
                files.push(PathBuf::from(OsStr::from_bytes(bytes)));
            }
        }
    }
    // SAFETY: null, or a statement that is not finalized.
    unsafe { (host.finalize)(statement) };
    if result == code::DONE {
        Ok(files)
    } else {
        Err(format!("the databases cannot be listed (code {result})"))
    }
}
