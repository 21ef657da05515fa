//! The VFS under the instance's own connections. It forwards everything to the VFS below, and
//! - keeps the locks that the instance holds for good: the connection's own lock and unlock calls for them do nothing,
//!   so that SQLite's code can "take" a lock that the instance already has; the checkpoint lock is shared while no
//!   checkpoint is decided upon ([`crate::checkpoint_lock`]);
//! - asks before the WAL is synced for a checkpoint, so that nothing reaches the database file that is not captured and
//!   durable in the redo log (redo before data);
//! - writes the frames of a transaction together;
//! - runs a checkpoint at the requested pace;
//! - resets no WAL while a connection reads the database file alone, because that connection may be about to write;
//! - never waits for leases on files, nor for locks beyond the caller's time limit ([`crate::opening`]);
//! - keeps the WAL file at its length, because a truncated WAL has to be allocated again;
//! - syncs the part of a WAL file that is in use, not what a longer WAL left behind it;
//! - knows no rollback journals and deletes only WALs, so that no file that another user has put beside the database is
//!   rolled back or deleted ([`crate::journal`]).
//!
//! This file has the registration and the opening of files; `methods` and `shm` have the methods of an open file,
//! `file` the file itself, and `state` its state.

#![allow(clippy::missing_safety_doc)]

mod file;
mod methods;
mod shm;
mod state;

pub use file::GuardFile;
pub use methods::{sync_written, write_page};
pub use shm::{READ_FILE_LOCK, READ_LOCKS};
pub use state::{AllBackfilled, BeforeBackfill, GuardState, WriteLockHook};

use crate::opening;
use file::Kind;
use methods::METHODS;
use rusqlite::ffi;
use standfast_io::part::PartlySynced;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Registers a guard over `base` (`None`: the default VFS) under `name`.
pub fn register(base: Option<&CStr>, name: &CStr) -> Result<(), c_int> {
    // SAFETY: base is null or NUL-terminated; the result is null or a registered VFS, which SQLite never frees.
    let below = unsafe { ffi::sqlite3_vfs_find(base.map_or(std::ptr::null(), CStr::as_ptr)) };
    if below.is_null() {
        return Err(ffi::SQLITE_NOTFOUND);
    }
    // SAFETY: below is a registered VFS.
    let real = unsafe { &*below };
    // SAFETY: as above.
    unsafe {
        if is_sqlites_own(below) {
            opening::never_wait(below)?;
        }
    }
    let vfs = Box::new(ffi::sqlite3_vfs {
        iVersion: real.iVersion.min(2),
        szOsFile: (real_offset() + real.szOsFile as usize) as c_int,
        mxPathname: real.mxPathname,
        pNext: std::ptr::null_mut(),
        zName: CString::from(name).into_raw(),
        pAppData: below.cast(),
        xOpen: Some(open),
        xDelete: Some(delete),
        xAccess: Some(access),
        xFullPathname: Some(full_pathname),
        xDlOpen: None,
        xDlError: None,
        xDlSym: None,
        xDlClose: None,
        xRandomness: Some(randomness),
        xSleep: Some(sleep),
        xCurrentTime: Some(current_time),
        xGetLastError: Some(last_error),
        xCurrentTimeInt64: real.xCurrentTimeInt64.and(Some(current_time_64)),
        xSetSystemCall: None,
        xGetSystemCall: None,
        xNextSystemCall: None,
    });
    // SAFETY: the VFS and its name are leaked, so they live for the rest of the process as SQLite requires.
    match unsafe { ffi::sqlite3_vfs_register(Box::into_raw(vfs), 0) } {
        ffi::SQLITE_OK => Ok(()),
        code => Err(code),
    }
}

/// The guard of an open main database file.
///
/// # Safety
/// `file` is the file pointer of a live connection.
pub unsafe fn guard_of(file: *mut ffi::sqlite3_file) -> Option<*mut GuardFile> {
    // SAFETY: the caller promises a live file; pMethods is set while it is open.
    let ours = !file.is_null() && unsafe { std::ptr::eq((*file).pMethods, &METHODS) };
    ours.then(|| file.cast())
}

fn real_offset() -> usize {
    size_of::<GuardFile>().next_multiple_of(16)
}

/// SAFETY (all functions below): SQLite calls them with the VFS that was registered here, or a file that
/// `open` filled in, and with valid arguments as its documentation of the methods says.
unsafe fn below(vfs: *mut ffi::sqlite3_vfs) -> *mut ffi::sqlite3_vfs {
    // SAFETY: pAppData was set at registration.
    unsafe { (*vfs).pAppData.cast() }
}

/// Whether `vfs` is one of SQLite's own VFSs for Unix, whose files are real files.
// SAFETY: called with a registered VFS.
unsafe fn is_sqlites_own(vfs: *mut ffi::sqlite3_vfs) -> bool {
    // SAFETY: a registered VFS has a name.
    unsafe { CStr::from_ptr((*vfs).zName) }.to_bytes().starts_with(b"unix")
}

unsafe extern "C" fn open(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    file: *mut ffi::sqlite3_file,
    flags: c_int,
    out_flags: *mut c_int,
) -> c_int {
    // SAFETY: see `below`; file has szOsFile bytes, of which ours are the first.
    unsafe {
        let guard: *mut GuardFile = file.cast();
        let real = file.cast::<u8>().add(real_offset()).cast::<ffi::sqlite3_file>();
        (*real).pMethods = std::ptr::null();
        (*guard).base.pMethods = std::ptr::null();
        (*guard).state = std::ptr::null_mut();
        (*guard).main = std::ptr::null_mut();
        (*guard).part = std::ptr::null_mut();
        (*guard).real = real;
        // A database in WAL mode has no journal, and a file that another user has put there may be a FIFO.
        if flags & (ffi::SQLITE_OPEN_MAIN_JOURNAL | ffi::SQLITE_OPEN_SUPER_JOURNAL) != 0 {
            return ffi::SQLITE_CANTOPEN;
        }
        let lower = below(vfs);
        let Some(real_open) = (*lower).xOpen else { return ffi::SQLITE_CANTOPEN };
        opening::take_leased();
        let code = real_open(lower, name, real, flags, out_flags);
        if opening::is_leased() {
            // A lease on a file that others write leaves SQLite a file that it may only read.
            if let Some(methods) = (*real).pMethods.as_ref() {
                methods.xClose.map(|close| close(real));
                (*real).pMethods = std::ptr::null();
            }
            return ffi::SQLITE_BUSY;
        }
        if (*real).pMethods.is_null() {
            return code;
        }
        (*guard).kind = Kind::Other;
        if flags & ffi::SQLITE_OPEN_MAIN_DB != 0 {
            (*guard).kind = Kind::Main;
            let path = if name.is_null() {
                PathBuf::new()
            } else {
                PathBuf::from(OsStr::from_bytes(CStr::from_ptr(name).to_bytes()))
            };
            let path = if is_sqlites_own(lower) { path } else { PathBuf::new() };
            (*guard).state = Box::into_raw(Box::new(GuardState::new(path)));
        } else if flags & ffi::SQLITE_OPEN_WAL != 0 {
            (*guard).kind = Kind::Wal;
            if let Some(main) = guard_of(ffi::sqlite3_database_file_object(name)) {
                (*guard).state = (*main).state;
                (*guard).main = main;
            }
            if is_sqlites_own(lower) {
                let path = Path::new(OsStr::from_bytes(CStr::from_ptr(name).to_bytes()));
                // Without it a sync covers more than it has to.
                (*guard).part = PartlySynced::open(path)
                    .map_or(std::ptr::null_mut(), |part| Box::into_raw(Box::new(part)));
            }
        }
        (*guard).base.pMethods = &METHODS;
        code
    }
}

/// Deletes WALs only. SQLite deletes a WAL beside an empty database, and the file that a rollback journal names.
unsafe extern "C" fn delete(vfs: *mut ffi::sqlite3_vfs, name: *const c_char, sync_directory: c_int) -> c_int {
    // SAFETY: see `below`; a name is NUL-terminated.
    unsafe {
        match CStr::from_ptr(name).to_bytes().ends_with(b"-wal") {
            true => delete_below(vfs, name, sync_directory),
            false => ffi::SQLITE_IOERR_DELETE,
        }
    }
}

unsafe extern "C" fn access(
    vfs: *mut ffi::sqlite3_vfs,
    name: *const c_char,
    flags: c_int,
    out: *mut c_int,
) -> c_int {
    // SAFETY: see `below`; a name is NUL-terminated, and out receives the answer.
    unsafe {
        if CStr::from_ptr(name).to_bytes().ends_with(b"-journal") {
            *out = 0;
            return ffi::SQLITE_OK;
        }
        access_below(vfs, name, flags, out)
    }
}

unsafe extern "C" fn sleep(vfs: *mut ffi::sqlite3_vfs, microseconds: c_int) -> c_int {
    match opening::cut_short(microseconds) {
        0 => 0,
        // SAFETY: see `below`.
        left => unsafe { sleep_below(vfs, left) },
    }
}

/// A VFS method that only forwards to the VFS below.
macro_rules! forward_vfs {
    ($name:ident, $method:ident, $missing:expr $(, $arg:ident: $ty:ty)*) => {
        unsafe extern "C" fn $name(vfs: *mut ffi::sqlite3_vfs $(, $arg: $ty)*) -> c_int {
            // SAFETY: see `below`.
            unsafe {
                let lower = below(vfs);
                (*lower).$method.map_or($missing, |method| method(lower $(, $arg)*))
            }
        }
    };
}

forward_vfs!(delete_below, xDelete, ffi::SQLITE_IOERR_DELETE, name: *const c_char, sync_directory: c_int);
forward_vfs!(access_below, xAccess, ffi::SQLITE_IOERR_ACCESS, name: *const c_char, flags: c_int, out: *mut c_int);
forward_vfs!(full_pathname, xFullPathname, ffi::SQLITE_CANTOPEN, name: *const c_char, size: c_int, out: *mut c_char);
forward_vfs!(randomness, xRandomness, 0, bytes: c_int, out: *mut c_char);
forward_vfs!(sleep_below, xSleep, 0, microseconds: c_int);
forward_vfs!(current_time, xCurrentTime, ffi::SQLITE_ERROR, out: *mut f64);
forward_vfs!(last_error, xGetLastError, 0, size: c_int, out: *mut c_char);
forward_vfs!(current_time_64, xCurrentTimeInt64, ffi::SQLITE_ERROR, out: *mut ffi::sqlite3_int64);
