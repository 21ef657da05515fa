//! The file methods, except those of the wal-index.
//!
//! SQLite calls the `extern` functions with a file that this VFS has opened, and with valid arguments as its
//! documentation of the methods says.

use super::file::{GuardFile, Kind};
use super::shm::{shm_barrier, shm_lock, shm_map, shm_unmap};
use super::state::GuardState;
use crate::pace::{AfterPortion, PAUSE_MAX};
use rusqlite::ffi;
use standfast_io::fault::{self, Fault};
use standfast_types::PageNo;
use std::ffi::{c_int, c_void};
use std::sync::PoisonError;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Instant;

/// Version 2: without xFetch, so that every page goes through xRead.
pub(super) static METHODS: ffi::sqlite3_io_methods = ffi::sqlite3_io_methods {
    iVersion: 2,
    xClose: Some(close),
    xRead: Some(read),
    xWrite: Some(write),
    xTruncate: Some(truncate),
    xSync: Some(sync),
    xFileSize: Some(file_size),
    xLock: Some(lock),
    xUnlock: Some(unlock),
    xCheckReservedLock: Some(check_reserved),
    xFileControl: Some(file_control),
    xSectorSize: Some(sector_size),
    xDeviceCharacteristics: Some(characteristics),
    xShmMap: Some(shm_map),
    xShmLock: Some(shm_lock),
    xShmBarrier: Some(shm_barrier),
    xShmUnmap: Some(shm_unmap),
    xFetch: None,
    xUnfetch: None,
};

impl GuardFile {
    /// Syncs the part of this WAL that is in use: what its index publishes, and what the open transaction of this
    /// connection has written. `None` for other files, and where that is not known.
    fn sync_used(&self) -> Option<std::io::Result<()>> {
        // SAFETY: null or a box that is owned by this file.
        let part = unsafe { self.part.as_ref() }?;
        let header = self.index_header()?;
        let written = self.state()?.written.load(SeqCst);
        Some(part.sync_first(header.log_bytes()?.max(written)))
    }

    /// Asks the [`AllBackfilled`] hook when SQLite syncs this main database file by itself. SQLite does so only at the end
    /// of a checkpoint that has backfilled everything in the WAL (`walCheckpoint`), and keeps the checkpoint lock.
    fn may_report_all_backfilled(&self) -> bool {
        let Some(state) = self.state() else { return true };
        let hook = state.all_backfilled.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Some(hook) = hook.as_ref() else { return true };
        match self.wal_index().map(|index| (index.attempted(), index.settled_header())) {
            // A WAL that has grown meanwhile, or is about to, is not reset.
            Some((attempted, Some(header))) if header.frames() == attempted => hook(attempted),
            _ => true,
        }
    }
}

unsafe extern "C" fn close(file: *mut ffi::sqlite3_file) -> c_int {
    // SAFETY: see the module.
    unsafe {
        let guard: *mut GuardFile = file.cast();
        let real = (*guard).real;
        let code = match (*(*real).pMethods).xClose {
            Some(close) => close(real),
            None => ffi::SQLITE_OK,
        };
        if (*guard).kind == Kind::Main && !(*guard).state.is_null() {
            drop(Box::from_raw((*guard).state));
            (*guard).state = std::ptr::null_mut();
        }
        if !(*guard).part.is_null() {
            drop(Box::from_raw((*guard).part));
            (*guard).part = std::ptr::null_mut();
        }
        (*guard).base.pMethods = std::ptr::null();
        code
    }
}

unsafe extern "C" fn truncate(file: *mut ffi::sqlite3_file, size: ffi::sqlite3_int64) -> c_int {
    // SAFETY: see the module.
    unsafe {
        let guard: *mut GuardFile = file.cast();
        if (*guard).kind == Kind::Wal {
            return ffi::SQLITE_OK;
        }
        let real = (*guard).real;
        (*(*real).pMethods).xTruncate.map_or(ffi::SQLITE_IOERR_TRUNCATE, |truncate| truncate(real, size))
    }
}

unsafe extern "C" fn sync(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: see the module.
    let guard = unsafe { &*file.cast::<GuardFile>() };
    if let Some(mut frames) = guard.wal_frames()
        && let Err(code) = frames.write_out(|offset, run| guard.write_below(offset, run))
    {
        return code;
    }
    if guard.kind == Kind::Wal
        && let Some(state) = guard.state()
    {
        // The index now says how far the checkpoint goes, so a snapshot that is opened now sees it. Shared before the
        // hook, which may wait.
        state.checkpoint_lock.share();
        let hook = state.before_backfill.lock().unwrap_or_else(PoisonError::into_inner);
        if hook.as_ref().is_some_and(|hook| !hook()) {
            return ffi::SQLITE_BUSY;
        }
        state.seen.store(guard.index_header().map_or(0, |header| header.frames()), SeqCst);
    }
    // SAFETY: as above.
    let code = unsafe { sync_kind(file, flags) };
    if code == ffi::SQLITE_OK && guard.kind == Kind::Main && !guard.may_report_all_backfilled() {
        return ffi::SQLITE_BUSY;
    }
    code
}

/// Calls the real xSync, or syncs a part. Fails when the index is lost, and where tests make it fail.
// SAFETY: called only by functions of this file, with a file that SQLite has opened through this VFS.
unsafe fn sync_kind(file: *mut ffi::sqlite3_file, flags: c_int) -> c_int {
    // SAFETY: see the module.
    let kind = unsafe { (*file.cast::<GuardFile>()).kind };
    // SAFETY: see the module.
    let is_index_lost = unsafe { &*file.cast::<GuardFile>() }.state().is_some_and(GuardState::is_index_lost);
    let failed = is_index_lost
        || match kind {
            Kind::Main => fault::check(Fault::DatabaseSync).is_err(),
            Kind::Wal => fault::check(Fault::WalSync).is_err(),
            Kind::Other => false,
        };
    // SAFETY: as above.
    let guard = unsafe { &*file.cast::<GuardFile>() };
    // Before the sync, which need not cover frames that are written meanwhile.
    let header = if kind == Kind::Wal { guard.index_header() } else { None };
    let code = match (!failed).then(|| guard.sync_used()) {
        None | Some(Some(Err(_))) => ffi::SQLITE_IOERR_FSYNC,
        Some(Some(Ok(()))) => ffi::SQLITE_OK,
        // SAFETY: as above.
        Some(None) => unsafe { sync_below(file, flags) },
    };
    if code == ffi::SQLITE_OK
        && kind == Kind::Wal
        && let Some(state) = guard.state()
    {
        state.note_synced(header.map(|header| (header.raw_salts(), header.frames())));
    }
    if code == ffi::SQLITE_OK
        && guard.kind == Kind::Main
        && let Some(state) = guard.state()
    {
        state.unsynced.store(false, SeqCst);
    }
    code
}

/// Syncs a main database file that was written to since its last sync.
///
/// # Safety
/// `guard` is that of a connection that is open and not in use.
pub unsafe fn sync_written(guard: *mut GuardFile) -> c_int {
    // SAFETY: the caller promises an open file.
    unsafe {
        match (*guard).state() {
            Some(state) if state.unsynced.load(SeqCst) => {
                sync_kind(guard.cast(), ffi::SQLITE_SYNC_NORMAL | ffi::SQLITE_SYNC_DATAONLY)
            }
            _ => ffi::SQLITE_OK,
        }
    }
}

/// Writes a page of a main database file, as a checkpoint does.
///
/// # Safety
/// `guard` is that of a connection that is open and not in use.
pub unsafe fn write_page(guard: *mut GuardFile, image: &[u8], page_no: PageNo) -> c_int {
    let offset = i64::from(page_no - 1) * image.len() as i64;
    // SAFETY: the caller promises an open file; the image has the length that is passed.
    unsafe { write(guard.cast(), image.as_ptr().cast(), image.len() as c_int, offset) }
}

unsafe extern "C" fn read(
    file: *mut ffi::sqlite3_file,
    out: *mut c_void,
    bytes: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: see the module.
    let guard = unsafe { &*file.cast::<GuardFile>() };
    if let Some(mut frames) = guard.wal_frames()
        && let Err(code) =
            frames.before_read(offset as u64, bytes as usize, |offset, run| guard.write_below(offset, run))
    {
        return code;
    }
    // SAFETY: as above.
    unsafe { read_below(file, out, bytes, offset) }
}

unsafe extern "C" fn write(
    file: *mut ffi::sqlite3_file,
    data: *const c_void,
    bytes: c_int,
    offset: ffi::sqlite3_int64,
) -> c_int {
    // SAFETY: see the module.
    let guard = unsafe { &*file.cast::<GuardFile>() };
    // SAFETY: SQLite passes that many bytes.
    let data = unsafe { std::slice::from_raw_parts(data.cast::<u8>(), bytes as usize) };
    if guard.kind == Kind::Main && guard.state().is_some_and(GuardState::is_index_lost) {
        return ffi::SQLITE_IOERR_WRITE;
    }
    if guard.kind == Kind::Main
        && let Err(error) = fault::check(Fault::DatabaseWrite)
    {
        // SQLite's own VFS makes the same distinction.
        let full = error.raw_os_error() == Some(libc::ENOSPC);
        return if full { ffi::SQLITE_FULL } else { ffi::SQLITE_IOERR_WRITE };
    }
    if guard.kind == Kind::Wal
        && let Some(state) = guard.state()
    {
        state.written.fetch_max(offset as u64 + bytes as u64, SeqCst);
    }
    let written = match guard.wal_frames() {
        Some(mut frames) => frames.write(offset as u64, data, |offset, data| guard.write_below(offset, data)),
        None => guard.write_below(offset as u64, data),
    };
    if let Err(code) = written {
        return code;
    }
    let Some(state) = guard.state().filter(|_| guard.kind == Kind::Main) else { return ffi::SQLITE_OK };
    state.unsynced.store(true, SeqCst);
    let portion = state.portions().page_written();
    // SAFETY: as above.
    portion.map_or(ffi::SQLITE_OK, |after| unsafe { end_portion(file, after) })
}

/// Syncs what was written of the database and then, when throttled, leaves the disk to others for a while.
// SAFETY: as for `sync_kind`.
unsafe fn end_portion(file: *mut ffi::sqlite3_file, after: AfterPortion) -> c_int {
    let begun = Instant::now();
    // SAFETY: see the module.
    let synced = unsafe { sync_kind(file, ffi::SQLITE_SYNC_NORMAL | ffi::SQLITE_SYNC_DATAONLY) };
    if after == AfterPortion::Pause {
        // There is no notification of the log writer's next write, so the pause is as long as the sync.
        std::thread::sleep(begun.elapsed().min(PAUSE_MAX));
    }
    synced
}

/// A file method that only forwards to the file below.
macro_rules! forward {
    ($name:ident, $method:ident, $missing:expr $(, $arg:ident: $ty:ty)*) => {
        unsafe extern "C" fn $name(file: *mut ffi::sqlite3_file $(, $arg: $ty)*) -> c_int {
            // SAFETY: see the module.
            unsafe {
                let real = (*file.cast::<GuardFile>()).real;
                (*(*real).pMethods).$method.map_or($missing, |method| method(real $(, $arg)*))
            }
        }
    };
}

forward!(read_below, xRead, ffi::SQLITE_IOERR_READ, out: *mut c_void, bytes: c_int, offset: ffi::sqlite3_int64);
forward!(sync_below, xSync, ffi::SQLITE_IOERR_FSYNC, flags: c_int);
forward!(file_size, xFileSize, ffi::SQLITE_IOERR_FSTAT, out: *mut ffi::sqlite3_int64);
forward!(lock, xLock, ffi::SQLITE_IOERR_LOCK, level: c_int);
forward!(unlock, xUnlock, ffi::SQLITE_IOERR_UNLOCK, level: c_int);
forward!(check_reserved, xCheckReservedLock, ffi::SQLITE_IOERR_CHECKRESERVEDLOCK, out: *mut c_int);
forward!(file_control, xFileControl, ffi::SQLITE_NOTFOUND, op: c_int, arg: *mut c_void);
forward!(sector_size, xSectorSize, 4096);
forward!(characteristics, xDeviceCharacteristics, 0);
