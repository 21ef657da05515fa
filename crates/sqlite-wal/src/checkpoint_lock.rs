//! The checkpoint lock, held for good and yet shared: `sqlite3_snapshot_open` takes it, shared, while it looks whether the frames
//! of its snapshot are still in the log. Held exclusively all the time it would make that fail for ever.
//!
//! Shared is enough to keep all other connections from checkpoints: they need it exclusively. This instance makes it exclusive
//! only while SQLite decides how far a checkpoint goes, up to the sync of the WAL, which comes after the index says so. A lock of
//! fcntl is converted in one step, so no other process gets in between; SQLite's own VFS has no call for that, and believes that
//! the lock is exclusive all the time, which keeps other connections of this process away.

use standfast_session::IndexDescriptor;
use std::ffi::c_int;
use std::io::Result;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Where SQLite's locks begin in a wal-index, and which of them is that of checkpoints.
const CHECKPOINT_BYTE: i64 = 120 + 1;
/// The opening of a snapshot holds the lock for some memory accesses; a process that was stopped there keeps checkpoints away.
const WAIT: Duration = Duration::from_millis(50);
const LOOK_AGAIN: Duration = Duration::from_micros(50);

/// See the module; of one open database file.
#[derive(Default)]
pub(crate) struct CheckpointLock {
    /// Where SQLite has the wal-index open, while this connection has the lock; `None`: the lock stays exclusive.
    index: Mutex<Option<IndexDescriptor>>,
}

impl CheckpointLock {
    /// The lock was taken, exclusively: shares it from now on. Where SQLite's descriptor is not found, as in a VFS that has no
    /// files, it stays exclusive.
    pub fn taken(&self, database: &Path) {
        *self.lock_index() = IndexDescriptor::of(database).ok();
        self.share();
    }

    /// The lock is about to be given back.
    pub fn given_back(&self) {
        *self.lock_index() = None;
    }

    /// Others may take it, shared.
    pub fn share(&self) {
        // To give something up never conflicts. Where the descriptor is gone the lock is, and the next checkpoint finds out.
        let _ = self.convert(libc::F_RDLCK);
    }

    /// Makes it exclusive; false when another process still has it after a while.
    ///
    /// # Errors
    /// When the lock cannot be had at all: SQLite's descriptor was closed behind its back, or the system has no locks left.
    pub fn exclude(&self) -> Result<bool> {
        let begun = Instant::now();
        while !self.convert(libc::F_WRLCK)? {
            if begun.elapsed() >= WAIT {
                return Ok(false);
            }
            // To wait for a lock of other processes could be a deadlock with them.
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(true)
    }

    /// False while another process has a lock that conflicts.
    fn convert(&self, kind: c_int) -> Result<bool> {
        let Some(index) = *self.lock_index() else { return Ok(true) };
        match index.set_lock(kind, CHECKPOINT_BYTE) {
            Ok(()) => Ok(true),
            Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn lock_index(&self) -> MutexGuard<'_, Option<IndexDescriptor>> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
