//! How a session takes the write lock: as SQLite does, or by the inner lock where processes without the VFS are
//! refused.
//!
//! Each form excludes writers of both, see [`InnerLock`]. The shared memory selects the form for each transaction, so a
//! change of the setting needs no agreement between processes. Both forms cost the same number of system calls: while
//! other writers are refused, the session keeps the shared lock from one transaction to the next.

use crate::bindings::{code, shm};
use crate::main_file::MainFile;
use crate::report::{Cause, report};
use standfast_session::{InnerLock, OtherWriters};
use std::ffi::c_int;
use std::io::Error;

impl MainFile {
    /// Takes the write lock, without waiting.
    pub fn take_write_lock(&self) -> c_int {
        let writers = self.other_writers();
        // A connection that holds the lock shared cannot take it exclusively.
        if self.writers.shared.get()
            || matches!(writers, Some(OtherWriters::Refused | OtherWriters::CountedAgain))
        {
            return self.take_inner_lock().unwrap_or_else(|error| self.report_no_lock(&error));
        }
        let result = self.real_shm_lock(shm::WRITE_LOCK, 1, shm::LOCK | shm::EXCLUSIVE);
        if result & 0xFF == code::BUSY && writers.is_none() {
            // Without the shared memory it is unknown whether other sessions hold the lock shared. If the inner lock
            // cannot be taken, the result stays busy.
            return self.take_inner_lock().unwrap_or(result);
        }
        result
    }

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

    /// Releases the shared lock where other writers are no longer refused. Called when no transaction writes.
    pub fn let_others_write(&self) {
        if self.writers.shared.get() && !self.writers.by_inner.get() && !self.refuses_others() {
            self.release_shared();
        }
    }

    /// Releases both locks before the wal-index is unmapped.
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
            // SQLite may have opened the wal-index again since, as another file.
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
                // A writer that uses SQLite's lock alone holds it.
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

    /// Returns the published setting; `None` without the shared memory.
    fn other_writers(&self) -> Option<OtherWriters> {
        Some(self.segment()?.other_writers(self.database.marker()?.database))
    }

    fn refuses_others(&self) -> bool {
        self.other_writers() == Some(OtherWriters::Refused)
            && self.segment().is_some_and(|segment| segment.running())
    }
}
