//! An open file of the guard, and its calls of the real file below.

use super::state::GuardState;
use crate::wal_index::{WalIndexHeader, WalIndexView};
use rusqlite::ffi;
use standfast_io::part::PartlySynced;
use standfast_types::{FrameRun, PageNo};
use std::ffi::{c_int, c_void};
use std::sync::MutexGuard;

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Main,
    Wal,
    Other,
}

/// Our part of an open file; the real file's structure follows it in the same allocation.
#[repr(C)]
pub struct GuardFile {
    pub(super) base: ffi::sqlite3_file,
    pub(super) kind: Kind,
    /// For Main: its own state. For Wal: that of the main file, null when unknown.
    pub(super) state: *mut GuardState,
    /// For Wal: the main file, null when unknown.
    pub(super) main: *mut GuardFile,
    /// For Wal, with SQLite's own VFS: syncs a part of the file; null for others. Closing it drops no lock: the locks
    /// are on the database file and the wal-index.
    pub(super) part: *mut PartlySynced,
    pub(super) real: *mut ffi::sqlite3_file,
}

impl GuardFile {
    pub fn state(&self) -> Option<&GuardState> {
        // SAFETY: state is null or a box owned by the open main file; a WAL is closed before its main file.
        unsafe { self.state.as_ref() }
    }

    /// The frames on their way into this file, if it is a WAL whose state is known.
    pub(super) fn wal_frames(&self) -> Option<MutexGuard<'_, FrameRun>> {
        self.state().filter(|_| self.kind == Kind::Wal).map(GuardState::frames)
    }

    /// The header that the index of this WAL publishes; `None` where that is not known.
    pub(super) fn index_header(&self) -> Option<WalIndexHeader> {
        // SAFETY: null or the open main file; a WAL is closed before its main file.
        unsafe { self.main.as_ref() }?.wal_index()?.settled_header()
    }

    /// The wal-index of this main database file, if it has one.
    pub(super) fn wal_index(&self) -> Option<WalIndexView> {
        let region = self.shm_region(0);
        // SAFETY: region 0, mapped for as long as this file is open.
        (!region.is_null()).then(|| unsafe { WalIndexView::new(region) })
    }

    pub(super) fn write_below(&self, offset: u64, data: &[u8]) -> Result<(), c_int> {
        // SAFETY: real is the open file below; data has its length.
        let code = unsafe {
            (*(*self.real).pMethods).xWrite.map_or(ffi::SQLITE_IOERR_WRITE, |write| {
                write(self.real, data.as_ptr().cast(), data.len() as c_int, offset as ffi::sqlite3_int64)
            })
        };
        if code == ffi::SQLITE_OK { Ok(()) } else { Err(code) }
    }

    /// Calls the real xShmLock, whatever locks are held for good.
    pub fn shm_lock(&self, offset: c_int, count: c_int, flags: c_int) -> c_int {
        // SAFETY: real is the open file below; methods of version 2 have xShmLock.
        unsafe {
            match (*(*self.real).pMethods).xShmLock {
                Some(lock) => lock(self.real, offset, count, flags),
                None => ffi::SQLITE_IOERR_SHMLOCK,
            }
        }
    }

    /// Reads a page of this main database file; false when the file ends before it.
    pub fn read_page(&self, out: &mut [u8], page_no: PageNo) -> Result<bool, c_int> {
        let offset = i64::from(page_no - 1) * out.len() as i64;
        // SAFETY: real is the open file below; out has the length that is passed.
        let code = unsafe {
            (*(*self.real).pMethods).xRead.map_or(ffi::SQLITE_IOERR_READ, |read| {
                read(self.real, out.as_mut_ptr().cast(), out.len() as c_int, offset)
            })
        };
        match code {
            ffi::SQLITE_OK => Ok(true),
            ffi::SQLITE_IOERR_SHORT_READ => Ok(false),
            code => Err(code),
        }
    }

    /// The address of a region of the wal-index; null on error, and when no region has this number.
    pub fn shm_region(&self, number: c_int) -> *mut c_void {
        let mut region: *mut c_void = std::ptr::null_mut();
        // SAFETY: as for shm_lock; region receives the address. The size is the one that SQLite uses.
        unsafe {
            if let Some(map) = (*(*self.real).pMethods).xShmMap {
                let code = map(self.real, number, 32 * 1024, 0, (&raw mut region).cast());
                if code != ffi::SQLITE_OK {
                    return std::ptr::null_mut();
                }
            }
        }
        region
    }
}
