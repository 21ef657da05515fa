//! The wal-index: SQLite's locks in it, some of which the instance holds for good, and its mapped regions.
//!
//! SQLite calls the `extern` functions with a file that this VFS has opened, and with valid arguments as its
//! documentation of the methods says.

use super::file::GuardFile;
use super::state::{BY_INNER, EXCLUSIVELY, NOT};
use crate::mapped::MappedRegions;
use crate::opening;
use rusqlite::ffi;
use std::ffi::{c_int, c_void};
use std::sync::atomic::Ordering::SeqCst;

const WRITE_LOCK: c_int = 0;
const CHECKPOINT_LOCK: c_int = 1;
/// The lock of readers that read the database file without the WAL, which was fully backfilled when their transactions
/// began.
pub const READ_FILE_LOCK: c_int = 3;
/// The locks of readers of the WAL, one for each read mark: the first, and their number.
const READ_MARK_LOCKS: (c_int, c_int) = (READ_FILE_LOCK + 1, 4);
/// The locks of all readers: the first, and their number.
pub const READ_LOCKS: (c_int, c_int) = (READ_FILE_LOCK, READ_MARK_LOCKS.1 + 1);

impl GuardFile {
    /// Takes the write lock without waiting: exclusively, or, where others hold it shared, by the [inner
    /// lock](InnerLock).
    pub fn take_write_lock(&self) -> c_int {
        self.report_write_lock(true);
        let code = self.try_write_lock();
        if code != ffi::SQLITE_OK {
            self.report_write_lock(false);
        }
        code
    }

    pub fn drop_write_lock(&self) -> c_int {
        let code = self.give_write_lock();
        self.report_write_lock(false);
        code
    }

    /// Calls [`super::WriteLockHook`].
    pub fn report_write_lock(&self, held: bool) {
        if let Some(state) = self.state() {
            state.report_write_lock(held);
        }
    }

    fn try_write_lock(&self) -> c_int {
        const SHARED: c_int = ffi::SQLITE_SHM_LOCK | ffi::SQLITE_SHM_SHARED;
        let exclusively = || self.shm_lock(WRITE_LOCK, 1, ffi::SQLITE_SHM_LOCK | ffi::SQLITE_SHM_EXCLUSIVE);
        let Some(state) = self.state() else { return exclusively() };
        let is_refusing = state.others_refused.load(SeqCst);
        if !is_refusing {
            match exclusively() {
                ffi::SQLITE_OK => {
                    state.write_form.store(EXCLUSIVELY, SeqCst);
                    return ffi::SQLITE_OK;
                }
                ffi::SQLITE_BUSY => {}
                code => return code,
            }
        }
        match state.try_inner_lock() {
            Ok(true) => {}
            Ok(false) => return ffi::SQLITE_BUSY,
            Err(_) if is_refusing => return ffi::SQLITE_IOERR_SHMLOCK,
            // Without an inner lock (on a simulated file system, say) the write lock is simply busy.
            Err(_) => return ffi::SQLITE_BUSY,
        }
        let code = if is_refusing { ffi::SQLITE_OK } else { self.shm_lock(WRITE_LOCK, 1, SHARED) };
        match code {
            ffi::SQLITE_OK => state.write_form.store(BY_INNER, SeqCst),
            _ => state.unlock_inner(),
        }
        code
    }

    fn give_write_lock(&self) -> c_int {
        const EXCLUSIVE: c_int = ffi::SQLITE_SHM_UNLOCK | ffi::SQLITE_SHM_EXCLUSIVE;
        const SHARED: c_int = ffi::SQLITE_SHM_UNLOCK | ffi::SQLITE_SHM_SHARED;
        let Some(state) = self.state() else { return self.shm_lock(WRITE_LOCK, 1, EXCLUSIVE) };
        if state.write_form.swap(NOT, SeqCst) != BY_INNER {
            return self.shm_lock(WRITE_LOCK, 1, EXCLUSIVE);
        }
        state.unlock_inner();
        if state.others_refused.load(SeqCst) {
            return ffi::SQLITE_OK;
        }
        self.shm_lock(WRITE_LOCK, 1, SHARED)
    }
}

pub(super) unsafe extern "C" fn shm_lock(
    file: *mut ffi::sqlite3_file,
    offset: c_int,
    count: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: see the module.
    let guard = unsafe { &*file.cast::<GuardFile>() };
    let (mut offset, mut count) = (offset, count);
    if let Some(state) = guard.state() {
        if flags & ffi::SQLITE_SHM_LOCK != 0 && state.is_index_lost() {
            return ffi::SQLITE_IOERR_SHMLOCK;
        }
        if offset == WRITE_LOCK {
            state.frames().clear();
            state.written.store(0, SeqCst);
        }
        if offset == WRITE_LOCK && state.write_held.load(SeqCst) {
            (offset, count) = (offset + 1, count - 1);
        }
        if count > 0 && offset == CHECKPOINT_LOCK && state.checkpoint_held.load(SeqCst) {
            if flags & ffi::SQLITE_SHM_EXCLUSIVE != 0 {
                match flags & ffi::SQLITE_SHM_LOCK != 0 {
                    true => match state.checkpoint_lock.exclude() {
                        Ok(true) => {}
                        Ok(false) => return ffi::SQLITE_BUSY,
                        Err(_) => return ffi::SQLITE_IOERR_SHMLOCK,
                    },
                    false => state.checkpoint_lock.share(),
                }
            }
            (offset, count) = (offset + 1, count - 1);
        }
        // A checkpoint is about to reset the WAL. A reader of the file alone could then not start to write, although no
        // other connection has written. So the lock of those readers is taken with the others, unless this connection
        // has it itself.
        if (offset, count) == READ_MARK_LOCKS && !state.reads_file.load(SeqCst) {
            (offset, count) = READ_LOCKS;
        }
    }
    let is_write_lock = offset == WRITE_LOCK && count == 1 && flags & ffi::SQLITE_SHM_EXCLUSIVE != 0;
    match (count, is_write_lock) {
        (0, _) => ffi::SQLITE_OK,
        (_, true) if flags & ffi::SQLITE_SHM_LOCK != 0 => guard.take_write_lock(),
        (_, true) => guard.drop_write_lock(),
        (_, false) => {
            let code = guard.shm_lock(offset, count, flags);
            if offset == READ_FILE_LOCK
                && flags & ffi::SQLITE_SHM_SHARED != 0
                && code == ffi::SQLITE_OK
                && let Some(state) = guard.state()
            {
                state.reads_file.store(flags & ffi::SQLITE_SHM_LOCK != 0, SeqCst);
            }
            code
        }
    }
}

pub(super) unsafe extern "C" fn shm_map(
    file: *mut ffi::sqlite3_file,
    page: c_int,
    size: c_int,
    extend: c_int,
    out: *mut *mut c_void,
) -> c_int {
    // SAFETY: see the module; `out` receives the address.
    unsafe {
        let guard = &*file.cast::<GuardFile>();
        let methods = &*(*guard.real).pMethods;
        opening::take_leased();
        let code =
            methods.xShmMap.map_or(ffi::SQLITE_IOERR_SHMMAP, |map| map(guard.real, page, size, extend, out));
        if opening::is_leased() {
            // SQLite has opened it for reading only, or not at all.
            methods.xShmUnmap.map(|unmap| unmap(guard.real, 0));
            *out = std::ptr::null_mut();
            return ffi::SQLITE_BUSY;
        }
        if code == ffi::SQLITE_OK
            && !(*out).is_null()
            && let Some(state) = guard.state()
        {
            state.mapped().add(*out);
        }
        code
    }
}

/// Called when the connection closes. SQLite does not know the locks that are held for good, so this releases them.
pub(super) unsafe extern "C" fn shm_unmap(file: *mut ffi::sqlite3_file, delete: c_int) -> c_int {
    // SAFETY: see the module.
    unsafe {
        let guard = &*file.cast::<GuardFile>();
        if let Some(state) = guard.state() {
            *state.mapped() = MappedRegions::default();
            if state.write_held.swap(false, SeqCst) {
                guard.drop_write_lock();
            }
            if state.others_refused.swap(false, SeqCst) {
                guard.shm_lock(WRITE_LOCK, 1, ffi::SQLITE_SHM_UNLOCK | ffi::SQLITE_SHM_SHARED);
            }
            *state.inner() = None;
            if state.checkpoint_held.swap(false, SeqCst) {
                state.checkpoint_lock.given_back();
                guard.shm_lock(CHECKPOINT_LOCK, 1, ffi::SQLITE_SHM_UNLOCK | ffi::SQLITE_SHM_EXCLUSIVE);
            }
        }
        (*(*guard.real).pMethods).xShmUnmap.map_or(ffi::SQLITE_OK, |unmap| unmap(guard.real, delete))
    }
}

pub(super) unsafe extern "C" fn shm_barrier(file: *mut ffi::sqlite3_file) {
    // SAFETY: see the module.
    unsafe {
        let real = (*file.cast::<GuardFile>()).real;
        if let Some(barrier) = (*(*real).pMethods).xShmBarrier {
            barrier(real);
        }
    }
}
