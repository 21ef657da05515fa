//! How a session takes the write lock: as SQLite does, or by the inner lock where processes without the VFS are refused.
//!
//! Either form excludes both, see [`InnerLock`]. Which one is used follows from the shared memory at each transaction, so that
//! nothing has to be agreed upon when the setting changes. Neither costs more system calls than the other: the lock that is
//! held shared is kept from one transaction to the next while others are refused.

use crate::bindings::{code, shm};
use crate::main_file::MainFile;
use crate::report::{Cause, report};
use standfast_session::{InnerLock, OtherWriters};
use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::io::Error;

/// See the module.
#[derive(Default)]
pub(crate) struct WritersLock {
    /// Found at the first transaction that needs it.
    inner: RefCell<Option<InnerLock>>,
    /// The inner lock is held: the write lock is, by it.
    by_inner: Cell<bool>,
    /// SQLite's write lock is held shared.
    shared: Cell<bool>,
}

impl MainFile {
    /// Takes the write lock, without waiting.
    pub fn take_write_lock(&self) -> c_int {
        let writers = self.other_writers();
        // With the lock held shared it cannot be taken exclusively.
        if self.writers.shared.get()
            || matches!(writers, Some(OtherWriters::Refused | OtherWriters::CountedAgain))
        {
            return self.take_inner_lock().unwrap_or_else(|error| self.report_no_lock(&error));
        }
        let result = self.real_shm_lock(shm::WRITE_LOCK, 1, shm::LOCK | shm::EXCLUSIVE);
        if result & 0xFF == code::BUSY && writers.is_none() {
            // Without the shared memory nothing tells whether others hold the lock shared. If the inner lock cannot be had it
            // stays busy.
            return self.take_inner_lock().unwrap_or(result);
        }
        result
    }

    /// Releases the write lock.
    pub fn drop_write_lock(&self) -> c_int {
        if !self.writers.by_inner.replace(false) {
            return self.real_shm_lock(shm::WRITE_LOCK, 1, shm::UNLOCK | shm::EXCLUSIVE);
        }
        if let Some(inner) = self.writers.inner.borrow().as_ref() {
            inner.unlock();
        }
        self.let_others_write();
        code::OK
    }

    /// Where others are not refused any more, what keeps them out is released. To be called when no transaction writes.
    pub fn let_others_write(&self) {
        if self.writers.shared.get() && !self.writers.by_inner.get() && !self.refuses_others() {
            self.release_shared();
        }
    }

    /// The wal-index is about to be unmapped.
    pub fn forget_write_lock(&self) {
        if self.writers.by_inner.replace(false)
            && let Some(inner) = self.writers.inner.borrow().as_ref()
        {
            inner.unlock();
        }
        if self.writers.shared.get() {
            self.release_shared();
        }
        self.writers.inner.replace(None);
    }

    fn release_shared(&self) {
        self.writers.shared.set(false);
        self.real_shm_lock(shm::WRITE_LOCK, 1, shm::UNLOCK | shm::SHARED);
    }

    fn take_inner_lock(&self) -> Result<c_int, Error> {
        let mut inner = self.writers.inner.borrow_mut();
        let (lock, locked) = match inner.take().map(|known| (known.try_lock(), known)) {
            Some((Ok(locked), known)) => (known, locked),
            // SQLite may have opened the wal-index again since, in another place.
            Some((Err(_), _)) | None => {
                let found = InnerLock::of(&self.database.file)?;
                let locked = found.try_lock()?;
                (found, locked)
            }
        };
        inner.replace(lock);
        if !locked {
            return Ok(code::BUSY);
        }
        if !self.writers.shared.get() {
            let result = self.real_shm_lock(shm::WRITE_LOCK, 1, shm::LOCK | shm::SHARED);
            if result != code::OK {
                // A writer of the first form is at it.
                if let Some(inner) = inner.as_ref() {
                    inner.unlock();
                }
                return Ok(result);
            }
            self.writers.shared.set(true);
        }
        self.writers.by_inner.set(true);
        Ok(code::OK)
    }

    fn report_no_lock(&self, error: &Error) -> c_int {
        let path = &self.database.path;
        let text = format!(
            "cannot write to {path}: processes without Standfast are refused there, and the lock of those with it cannot be \
             taken: {error}. Close the database and open it again"
        );
        report(path, Cause::Lock, code::IOERR_LOCK, &text);
        code::IOERR_LOCK
    }

    /// `None`: without the shared memory nothing is known.
    fn other_writers(&self) -> Option<OtherWriters> {
        Some(self.segment()?.other_writers(self.database.marker()?.database))
    }

    fn refuses_others(&self) -> bool {
        self.other_writers() == Some(OtherWriters::Refused)
            && self.segment().is_some_and(|segment| segment.running())
    }
}
