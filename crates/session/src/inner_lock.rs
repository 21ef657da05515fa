//! The second lock of writers, for databases that processes without the VFS must not write to.
//!
//! SQLite has one lock for writers: byte 120 of the wal-index, taken exclusively. If it were held to keep others out,
//! no session could write either. So a writer holds either that lock exclusively, or the inner lock and that lock
//! *shared*. Any two writers exclude each other, whichever form each uses. A process that holds the lock shared for
//! good lets only the second form through, and plain SQLite knows only the first.
//!
//! The inner lock is a lock of the same kind in the same file, beyond everything that SQLite locks there. It belongs to
//! the process, so the kernel drops it when the process dies, and no child inherits it. It is taken through SQLite's
//! own descriptor ([`IndexDescriptor`]).

use crate::index_descriptor::{Identity, IndexDescriptor};
use std::collections::HashMap;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};

/// Offset in the wal-index file of the locked byte, beyond every byte that SQLite locks.
const AT: i64 = 1 << 30;

/// What the connections of this process that have the same wal-index share, because its locks are those of the process.
struct Node {
    process: u32,
    held: AtomicBool,
}

static NODES: Mutex<Option<HashMap<Identity, Arc<Node>>>> = Mutex::new(None);

/// The inner lock of a database, as one connection has it. Valid as long as that connection has the wal-index mapped.
pub struct InnerLock {
    node: Arc<Node>,
    index: IndexDescriptor,
}

impl InnerLock {
    /// Finds the inner lock of `database`, whose wal-index SQLite has open in this process.
    ///
    /// # Errors
    /// `NotFound` when SQLite does not have it open, or when another file has been put in its place.
    pub fn of(database: &Path) -> Result<InnerLock> {
        let index = IndexDescriptor::of(database)?;
        let process = std::process::id();
        let mut nodes = NODES.lock().unwrap_or_else(PoisonError::into_inner);
        let nodes = nodes.get_or_insert_default();
        // Drops nodes that no connection uses any more.
        nodes.retain(|_, node| Arc::strong_count(node) > 1);
        let node = nodes
            .entry(index.file)
            .or_insert_with(|| Arc::new(Node { process, held: AtomicBool::new(false) }));
        // A child does not hold what its parent held before the fork.
        if node.process != process {
            *node = Arc::new(Node { process, held: AtomicBool::new(false) });
        }
        Ok(InnerLock { node: node.clone(), index })
    }

    /// Takes the lock; false when another connection holds it, here or in another process. Does not wait.
    ///
    /// # Errors
    /// When the descriptor no longer belongs to the file (an application has closed it behind SQLite's back), and the
    /// system's other errors.
    pub fn try_lock(&self) -> Result<bool> {
        if self.node.held.compare_exchange(false, true, SeqCst, SeqCst).is_err() {
            return Ok(false);
        }
        let locked = match self.index.is_open() {
            true => self.index.set_lock(libc::F_WRLCK, AT),
            false => Err(Error::new(ErrorKind::NotFound, "the descriptor of the wal-index was closed")),
        };
        match locked {
            Ok(()) => Ok(true),
            Err(error) => {
                self.node.held.store(false, SeqCst);
                match error.raw_os_error() {
                    Some(libc::EAGAIN | libc::EACCES) => Ok(false),
                    _ => Err(error),
                }
            }
        }
    }

    /// Releases the lock, which this connection holds.
    pub fn unlock(&self) {
        // If this fails, the file is closed, and the lock gone with it.
        let _ = self.index.set_lock(libc::F_UNLCK, AT);
        self.node.held.store(false, SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::c_int;
    use std::fs::File;
    use std::path::PathBuf;

    /// A file in place of a wal-index, open as SQLite has it.
    struct Index {
        database: PathBuf,
        _open: File,
    }

    impl Index {
        fn new(name: &str) -> Index {
            let name = format!("standfast-inner-{name}-{}", std::process::id());
            let database = std::env::temp_dir().join(name);
            let path = PathBuf::from(format!("{}-shm", database.display()));
            let open = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
            Index { database, _open: open }
        }
    }

    impl Drop for Index {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(format!("{}-shm", self.database.display()));
        }
    }

    /// Runs `work` in a child process; true when it returned true.
    fn in_child(work: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child calls only what the closures below do (no allocation that another thread could have locked
        // is relied upon: glibc makes its allocator usable after a fork), and leaves by _exit.
        unsafe {
            match libc::fork() {
                0 => libc::_exit(c_int::from(!work())),
                child => {
                    let mut status = 0;
                    assert_eq!(libc::waitpid(child, &mut status, 0), child);
                    libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0
                }
            }
        }
    }

    #[test]
    fn one_connection_of_a_process_has_the_lock_at_a_time() {
        let index = Index::new("threads");
        let (first, second) =
            (InnerLock::of(&index.database).unwrap(), InnerLock::of(&index.database).unwrap());
        assert!(first.try_lock().unwrap());
        assert!(!second.try_lock().unwrap());
        first.unlock();
        assert!(second.try_lock().unwrap());
        second.unlock();
    }

    #[test]
    fn another_process_is_excluded_until_the_holder_is_gone() {
        let index = Index::new("processes");
        let lock = InnerLock::of(&index.database).unwrap();
        assert!(lock.try_lock().unwrap());
        let child_gets = || InnerLock::of(&index.database).unwrap().try_lock().unwrap();
        assert!(!in_child(child_gets));
        lock.unlock();
        // The child ends without releasing it.
        assert!(in_child(child_gets));
        assert!(lock.try_lock().unwrap());
        lock.unlock();
    }

    #[test]
    fn missing_or_replaced_file_gives_no_inner_lock() {
        let index = Index::new("places");
        let lock = InnerLock::of(&index.database).unwrap();
        let path = format!("{}-shm", index.database.display());
        std::fs::remove_file(&path).unwrap();
        assert_eq!(InnerLock::of(&index.database).err().unwrap().kind(), ErrorKind::NotFound);
        std::fs::write(&path, "another").unwrap();
        assert_eq!(InnerLock::of(&index.database).err().unwrap().kind(), ErrorKind::NotFound);
        assert!(lock.try_lock().unwrap(), "a connection that has the old file open still has its lock");
        lock.unlock();
    }
}
