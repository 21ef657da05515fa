//! The checkpoint lock, held for good and yet shared: `sqlite3_snapshot_open` takes it, shared, while it looks whether the frames
//! of its snapshot are still in the log. Held exclusively all the time it would make that fail for ever.
//!
//! Shared is enough to keep all other connections from checkpoints: they need it exclusively. This instance makes it exclusive
//! only while SQLite decides how far a checkpoint goes, up to the sync of the WAL, which comes after the index says so. A lock of
//! fcntl is converted in one step, so no other process gets in between; SQLite's own VFS has no call for that, and believes that
//! the lock is exclusive all the time, which keeps other connections of this process away.

use std::ffi::c_int;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicI32, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Where SQLite's locks begin in a wal-index, and which of them is that of checkpoints.
const CHECKPOINT_BYTE: i64 = 120 + 1;
/// The opening of a snapshot holds the lock for some memory accesses; a process that was stopped there keeps checkpoints away.
const WAIT: Duration = Duration::from_millis(50);
const LOOK_AGAIN: Duration = Duration::from_micros(50);
const NONE: c_int = -1;

/// See the module; of one open database file.
pub(crate) struct CheckpointLock {
    /// SQLite's own descriptor of the wal-index: to close one of ours would drop the locks of this process.
    descriptor: AtomicI32,
}

impl Default for CheckpointLock {
    fn default() -> Self {
        CheckpointLock { descriptor: AtomicI32::new(NONE) }
    }
}

impl CheckpointLock {
    /// The lock was taken, exclusively: shares it from now on. Where SQLite's descriptor is not found, as in a VFS that has no
    /// files, it stays exclusive.
    pub fn taken(&self, database: &Path) {
        self.descriptor.store(descriptor_of_index(database).unwrap_or(NONE), SeqCst);
        self.share();
    }

    /// The lock is about to be given back.
    pub fn given_back(&self) {
        self.descriptor.store(NONE, SeqCst);
    }

    /// Others may take it, shared.
    pub fn share(&self) {
        // To give something up never conflicts.
        self.convert(libc::F_RDLCK);
    }

    /// Makes it exclusive; false when another process still has it after a while.
    pub fn exclude(&self) -> bool {
        let begun = Instant::now();
        while !self.convert(libc::F_WRLCK) {
            if begun.elapsed() >= WAIT {
                return false;
            }
            // To wait for a lock of other processes could be a deadlock with them.
            std::thread::sleep(LOOK_AGAIN);
        }
        true
    }

    fn convert(&self, kind: c_int) -> bool {
        let descriptor = self.descriptor.load(SeqCst);
        if descriptor == NONE {
            return true;
        }
        let range = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: CHECKPOINT_BYTE,
            l_len: 1,
            l_pid: 0,
        };
        // SAFETY: a lock as fcntl wants it. The descriptor is open: SQLite closes it with the last connection to the wal-index in
        // this process, and ours, which has the lock, is one.
        unsafe { libc::fcntl(descriptor, libc::F_SETLK, &raw const range) == 0 }
    }
}

/// The descriptor of this process under which SQLite has the wal-index of a database open.
fn descriptor_of_index(database: &Path) -> Option<c_int> {
    let mut path = database.as_os_str().to_owned();
    path.push("-shm");
    let index = std::fs::metadata(path).ok()?;
    let is_index = |descriptor: &c_int| {
        let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: room for the answer, which is there when the result is 0; any number may be asked.
        let found = unsafe { libc::fstat(*descriptor, status.as_mut_ptr()) == 0 };
        // SAFETY: zeroed, and filled when it was found.
        let status = unsafe { status.assume_init() };
        found && (status.st_dev, status.st_ino) == (index.dev(), index.ino())
    };
    let open = std::fs::read_dir("/proc/self/fd").ok()?;
    let numbers = open.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    // Locks belong to process and file: any descriptor does, but this one stays open as long as the lock is held.
    numbers.collect::<Vec<c_int>>().into_iter().find(is_index)
}
