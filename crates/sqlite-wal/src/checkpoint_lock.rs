//! The checkpoint lock, held for good and yet shared: `sqlite3_snapshot_open` takes it shared while it checks whether
//! the frames of its snapshot are still in the WAL. If the instance held the lock exclusively all the time, that call
//! would always fail.
//!
//! A shared hold is enough to keep all other connections from checkpoints, because they need the lock exclusively. This
//! instance makes it exclusive only while SQLite decides how far a checkpoint goes, up to the sync of the WAL, which
//! comes after the index says so. fcntl converts a lock in one step, so no other process gets in between. SQLite's own
//! VFS has no call for a conversion. It takes the lock for exclusive all the time, which keeps out other connections of
//! this process.

use standfast_session::IndexDescriptor;
use std::ffi::c_int;
use std::io::Result;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// SQLite's locks begin at byte 120 of a wal-index; the second of them is the checkpoint lock.
const CHECKPOINT_BYTE: i64 = 120 + 1;
/// Longest wait for the exclusive lock. Opening a snapshot holds the lock for a few memory accesses; a process that is
/// stopped there keeps checkpoints away.
const WAIT: Duration = Duration::from_millis(50);
const LOOK_AGAIN: Duration = Duration::from_micros(50);

/// The checkpoint lock of one open database file.
#[derive(Default)]
pub(crate) struct CheckpointLock {
    /// SQLite's descriptor of the wal-index, while this connection has the lock; `None`: the lock stays exclusive.
    index: Mutex<Option<IndexDescriptor>>,
}

impl CheckpointLock {
    /// Called when the lock was taken exclusively: shares it from now on. If SQLite's descriptor is not found, as with
    /// a VFS that has no files, the lock stays exclusive.
    pub fn taken(&self, database: &Path) {
        *self.lock_index() = IndexDescriptor::of(database).ok();
        self.share();
    }

    /// Called before the lock is released.
    pub fn given_back(&self) {
        *self.lock_index() = None;
    }

    /// Converts the lock to shared, so that others may share it.
    pub fn share(&self) {
        // Weakening a lock never conflicts. If the descriptor is gone, so is the lock, and the next checkpoint finds
        // out.
        let _ = self.convert(libc::F_RDLCK);
    }

    /// Makes the lock exclusive; false when another process still has it after [`WAIT`].
    ///
    /// # Errors
    /// When the lock cannot be taken at all: SQLite's descriptor was closed behind its back, or the system has no locks
    /// left.
    pub fn exclude(&self) -> Result<bool> {
        let begun = Instant::now();
        while !self.convert(libc::F_WRLCK)? {
            if begun.elapsed() >= WAIT {
                return Ok(false);
            }
            // Waiting for a lock of other processes could deadlock with them.
            std::thread::sleep(LOOK_AGAIN);
        }
        Ok(true)
    }

    /// Returns false while another process has a lock that conflicts.
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
