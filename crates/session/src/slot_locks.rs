//! Which sessions live: each session holds a lock on the byte of its slot, as long as its process does.
//!
//! A process number in shared memory proves nothing: it means another process in another PID namespace, is used again,
//! and anybody who may use a database can write it. A lock is kept by the kernel, is the same in all namespaces and for
//! all users, is gone with the process, and cannot be taken away. What a slot holds is a hint beside it.
//!
//! The locks are those of an *open file description*, of which a process has one for each file. Locks of a process
//! would be gone when any descriptor of the file is closed, also by another copy of this library. The file is opened
//! for the locks alone, because a mapping keeps an open file as well, and children inherit mappings. A child inherits
//! the descriptor, which would keep its parent's sessions alive, so the child closes it right after the fork. A program
//! that replaces the child does not inherit it. Two sessions of a process do not exclude each other by their locks,
//! hence [`SlotLocks::here`].
//!
//! An application that closes all descriptors loses its locks. It finds that out within a second of commits, and takes
//! new slots.

use crate::files;
use crate::index_descriptor::{Identity, identity_of};
use crate::layout::{SESSION_WORDS, SESSIONS_MAX};
use std::ffi::c_int;
use std::io::{Error, ErrorKind, Result};
use std::os::fd::{FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering::SeqCst};
use std::sync::{Mutex, Once, PoisonError};

/// Offset of the byte of the first slot, beyond the content of the file.
const AT: i64 = 1 << 40;
/// Most files whose descriptors a child closes.
const FILES_MAX: usize = 256;
const NONE: c_int = -1;

/// The locks of this process, one entry per file. Never freed, so that a child finds them without a lock.
static KNOWN: [AtomicPtr<SlotLocks>; FILES_MAX] = [const { AtomicPtr::new(std::ptr::null_mut()) }; FILES_MAX];
/// Held while an entry is added.
static ADDING: Mutex<()> = Mutex::new(());

/// The locks of this process on the slots in a file of requests, whatever mappings of it exist.
pub(crate) struct SlotLocks {
    file: Identity,
    /// The path by which it is opened again.
    path: PathBuf,
    /// [`NONE`], or open on the file unless other code of this process has closed it.
    descriptor: AtomicI32,
    /// Slots of sessions of this process.
    here: [AtomicU64; SESSION_WORDS],
    /// How often this process lost all its slots: sessions from before have none any more.
    losses: AtomicU32,
}

impl SlotLocks {
    /// The locks on `file`, which is at `path` now; the same ones for every call in this process.
    pub fn of(file: Identity, path: &Path) -> &'static SlotLocks {
        let locks = SlotLocks::known(file, path);
        // The file may not be at its path any more when a session needs it. If it cannot be opened now, the session
        // reports that.
        let _ = locks.open();
        locks
    }

    fn known(file: Identity, path: &Path) -> &'static SlotLocks {
        close_after_forks();
        let _adding = ADDING.lock().unwrap_or_else(PoisonError::into_inner);
        for place in &KNOWN {
            let known = place.load(SeqCst);
            if known.is_null() {
                let new = SlotLocks::new(file, path);
                place.store(new, SeqCst);
                // SAFETY: just made, and never freed.
                return unsafe { &*new };
            }
            // SAFETY: what is in the table is never freed.
            let known = unsafe { &*known };
            if known.file == file && known.path == path {
                return known;
            }
        }
        // The table is full: a child of this process keeps its sessions alive until it starts another program.
        // SAFETY: just made, and never freed.
        unsafe { &*SlotLocks::new(file, path) }
    }

    fn new(file: Identity, path: &Path) -> *mut SlotLocks {
        Box::into_raw(Box::new(SlotLocks {
            file,
            path: path.to_owned(),
            descriptor: AtomicI32::new(NONE),
            here: std::array::from_fn(|_| AtomicU64::new(0)),
            losses: AtomicU32::new(0),
        }))
    }

    pub fn losses(&self) -> u32 {
        self.losses.load(SeqCst)
    }

    /// Takes a slot, for a session or to reap one; false when a session has it, here or elsewhere.
    ///
    /// # Errors
    /// When the file cannot be opened: another file has replaced it, or this process has no descriptor left.
    pub fn take(&self, slot: usize) -> Result<bool> {
        let (word, bit) = self.bit(slot);
        if word.fetch_or(bit, SeqCst) & bit != 0 {
            return Ok(false);
        }
        let taken = self.open().and_then(|descriptor| lock(descriptor, libc::F_WRLCK, slot));
        match taken {
            // Set again: all bits were cleared if the descriptor was found to be gone.
            Ok(true) => word.fetch_or(bit, SeqCst),
            _ => word.fetch_and(!bit, SeqCst),
        };
        taken
    }

    /// Releases a slot of this process.
    pub fn give(&self, slot: usize) {
        let (word, bit) = self.bit(slot);
        if word.load(SeqCst) & bit == 0 {
            return;
        }
        let descriptor = self.descriptor.load(SeqCst);
        if identity_of(descriptor) == Some(self.file) {
            // If this fails, the lock goes with the process.
            let _ = lock(descriptor, libc::F_UNLCK, slot);
        }
        // Last: while the bit is set, no other session of this process takes the lock.
        word.fetch_and(!bit, SeqCst);
    }

    /// Whether a living session has the slot; true where that cannot be determined.
    pub fn is_held(&self, slot: usize) -> bool {
        let (word, bit) = self.bit(slot);
        if word.load(SeqCst) & bit != 0 {
            return true;
        }
        let Ok(descriptor) = self.open() else { return true };
        let mut asked = range(libc::F_WRLCK, slot);
        // SAFETY: a valid structure, which the kernel fills; it checks the descriptor.
        let result = unsafe { libc::fcntl(descriptor, libc::F_OFD_GETLK, &raw mut asked) };
        result != 0 || c_int::from(asked.l_type) != libc::F_UNLCK
    }

    /// Checks that the descriptor still exists, if there was one. If other code of this process has closed it, the
    /// locks are gone, and the sessions need other slots.
    pub fn check(&self) {
        let descriptor = self.descriptor.load(SeqCst);
        if descriptor != NONE && identity_of(descriptor) != Some(self.file) {
            self.lost(descriptor);
        }
    }

    /// Called when the content of the slots is gone: all sessions of this process have to take new ones.
    pub fn forget(&self) {
        let descriptor = self.descriptor.load(SeqCst);
        if descriptor == NONE {
            self.losses.fetch_add(1, SeqCst);
        } else {
            self.lost(descriptor);
        }
    }

    fn lost(&self, descriptor: c_int) {
        if self.descriptor.compare_exchange(descriptor, NONE, SeqCst, SeqCst).is_err() {
            return;
        }
        self.losses.fetch_add(1, SeqCst);
        self.here.iter().for_each(|word| word.store(0, SeqCst));
        self.close(descriptor);
    }

    /// Closes the descriptor if it still belongs to the file: the number may belong to something else by now.
    fn close(&self, descriptor: c_int) {
        if identity_of(descriptor) == Some(self.file) {
            // SAFETY: it is ours, and only the thread that has taken it out of the field closes it.
            drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
    }

    fn bit(&self, slot: usize) -> (&AtomicU64, u64) {
        let slot = slot % SESSIONS_MAX;
        (&self.here[slot / 64], 1 << (slot % 64))
    }

    /// Returns the descriptor, opened now if necessary.
    fn open(&self) -> Result<c_int> {
        self.check();
        let descriptor = self.descriptor.load(SeqCst);
        if descriptor != NONE {
            return Ok(descriptor);
        }
        let (file, metadata) = files::open(&self.path, true)?;
        if (metadata.dev(), metadata.ino()) != self.file {
            return Err(Error::new(ErrorKind::NotFound, "the shared memory was made again"));
        }
        let descriptor = file.into_raw_fd();
        match self.descriptor.compare_exchange(NONE, descriptor, SeqCst, SeqCst) {
            Ok(_) => Ok(descriptor),
            Err(other) => {
                self.close(descriptor);
                Ok(other)
            }
        }
    }
}

fn range(kind: c_int, slot: usize) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: AT + (slot % SESSIONS_MAX) as i64,
        l_len: 1,
        l_pid: 0,
    }
}

/// Takes or releases the lock of a slot, without waiting. False when another holder has it.
fn lock(descriptor: c_int, kind: c_int, slot: usize) -> Result<bool> {
    let range = range(kind, slot);
    loop {
        // SAFETY: a valid structure; the kernel checks the descriptor.
        if unsafe { libc::fcntl(descriptor, libc::F_OFD_SETLK, &raw const range) } == 0 {
            return Ok(true);
        }
        let error = Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::EACCES) => return Ok(false),
            Some(libc::EINTR) => {}
            _ => return Err(error),
        }
    }
}

/// From now on, a child of this process closes what it has inherited.
fn close_after_forks() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the handler does only what is allowed in a child of a process with many threads, and the library is
        // never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
    });
}

/// The parent's sessions remain the parent's: with its descriptor open here they would live as long as this process.
/// Closing it does not drop the locks, since the parent has it open.
extern "C" fn in_child() {
    for place in &KNOWN {
        let known = place.load(SeqCst);
        if known.is_null() {
            return;
        }
        // SAFETY: what is in the table is never freed.
        let known = unsafe { &*known };
        known.here.iter().for_each(|word| word.store(0, SeqCst));
        let descriptor = known.descriptor.swap(NONE, SeqCst);
        known.close(descriptor);
    }
}
