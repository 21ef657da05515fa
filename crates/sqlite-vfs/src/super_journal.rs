//! The super-journal of a transaction over several databases that have rollback journals.
//!
//! SQLite makes one when one transaction writes two or more such databases, and then ignores the results of all second
//! phases: COMMIT would return OK although the wait for a protected database in the same transaction has failed. So the
//! shim refuses that transaction before any of it is committed. SQLite first writes the names of the journals of all
//! databases of the transaction into the super-journal, also of those in WAL mode; an error of that write ends the
//! transaction.

use crate::bindings::{File, IoMethods, code};
use crate::report::{Cause, report, shield};
use crate::shim_file::{self, real};
use standfast_session::Marker;
use std::ffi::{OsStr, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(crate) static METHODS: IoMethods = IoMethods {
    version: 1,
    close: Some(shim_file::close),
    read: Some(read),
    write: Some(write),
    truncate: Some(truncate),
    sync: Some(sync),
    file_size: Some(shim_file::file_size),
    lock: Some(lock),
    unlock: Some(shim_file::unlock),
    check_reserved_lock: Some(shim_file::check_reserved_lock),
    file_control: Some(file_control),
    sector_size: Some(shim_file::sector_size),
    device_characteristics: Some(shim_file::device_characteristics),
    shm_map: None,
    shm_lock: None,
    shm_barrier: None,
    shm_unmap: None,
    fetch: None,
    unfetch: None,
};

unsafe extern "C" fn read(file: *mut File, buffer: *mut c_void, count: c_int, offset: i64) -> c_int {
    real!(file, read(buffer, count, offset))
}

unsafe extern "C" fn write(file: *mut File, buffer: *const c_void, count: c_int, offset: i64) -> c_int {
    shield(|| {
        // SAFETY: SQLite passes `count` bytes.
        let name = unsafe { std::slice::from_raw_parts(buffer.cast::<u8>(), count as usize) };
        match protected_in(name) {
            Some(path) => refuse(&path.to_string_lossy()),
            None => real!(file, write(buffer, count, offset)),
        }
    })
}

unsafe extern "C" fn truncate(file: *mut File, size: i64) -> c_int {
    real!(file, truncate(size))
}

unsafe extern "C" fn sync(file: *mut File, flags: c_int) -> c_int {
    real!(file, sync(flags))
}

unsafe extern "C" fn lock(file: *mut File, level: c_int) -> c_int {
    real!(file, lock(level))
}

unsafe extern "C" fn file_control(file: *mut File, operation: c_int, argument: *mut c_void) -> c_int {
    real!(file, file_control(operation, argument))
}

/// Returns the protected database to whose journal `name` belongs; `name` ends with a zero byte.
fn protected_in(name: &[u8]) -> Option<&Path> {
    let database = name.strip_suffix(&[0]).unwrap_or(name).strip_suffix(b"-journal")?;
    let path = Path::new(OsStr::from_bytes(database));
    // An unreadable marker does not mean that there is no protection.
    (!matches!(Marker::read(path), Ok(None))).then_some(path)
}

fn refuse(path: &str) -> c_int {
    let text = format!(
        "refused a transaction over the protected database {path} and two or more databases with rollback journals: SQLite \
         would return OK from its COMMIT even when the wait for {path} fails. Nothing of it is committed. Commit the \
         others in a transaction of their own, or put them into WAL mode with `PRAGMA journal_mode=WAL`"
    );
    report(path, Cause::SuperJournal, code::READONLY, &text);
    code::READONLY
}
