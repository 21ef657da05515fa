//! The doors to the disk. Every station writes through [`Disk`] and [`LogFile`], so that the same code runs
//! on a real file system and on the simulated disk that loses power (`standfast-testkit`).
//!
//! Contract, for the real and the simulated disk alike:
//! - [`LogFile::write_durable`] has returned Ok: the bytes survive a power loss. It failed: any part of them
//!   may or may not survive, and the file must not be written again (the caller poisons its log).
//! - Bytes of [`LogFile::write`] survive a power loss only after a later [`LogFile::sync`] returned Ok.
//! - [`Disk::replace`] is atomic and durable: after a power loss the file has the old or the new content.

mod aligned;
pub mod behind;
mod direct;
pub mod fault;
pub mod listening;
pub mod memory;
pub mod outside;
pub mod part;
mod remedy;

pub use aligned::AlignedBuf;
pub use direct::{DirectDisk, sync_directory_of};
pub use remedy::{hint, remedy};

use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Alignment in bytes of buffers, offsets and lengths of durable writes.
pub const ALIGNMENT: usize = 4096;

/// Device and inode: whether a descriptor and a path lead to the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileIdentity {
    /// Of the file system.
    pub device: u64,
    /// Of the file in it.
    pub inode: u64,
}

impl FileIdentity {
    /// Of an open file, or of what a path names.
    pub fn of(metadata: &std::fs::Metadata) -> FileIdentity {
        use std::os::unix::fs::MetadataExt;
        FileIdentity { device: metadata.dev(), inode: metadata.ino() }
    }
}

/// One preallocated file. Offsets and lengths are in bytes.
pub trait LogFile: Send + Sync {
    /// Writes whole blocks at `offset` and returns when they survive a power loss. `data` must be the content
    /// of an [`AlignedBuf`] from an aligned start; blocks are 512 or 4,096 bytes.
    fn write_durable(&self, data: &[u8], offset: u64) -> Result<()>;
    /// Writes without durability, for copies that are synced once at the end. What is large leaves for the disk at once.
    fn write(&self, data: &[u8], offset: u64) -> Result<()>;
    /// Makes everything written so far survive a power loss.
    fn sync(&self) -> Result<()>;
    /// Fills `out` from `offset`; an error when the file ends before.
    fn read_at(&self, out: &mut [u8], offset: u64) -> Result<()>;
    /// Size in bytes.
    fn len(&self) -> Result<u64>;
    /// Which file is open; `None` on a disk that knows no such thing.
    fn identity(&self) -> Result<Option<FileIdentity>> {
        Ok(None)
    }
    /// Whether the file has no bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// A directory tree. All paths are absolute or relative to the process, as given.
pub trait Disk: Send + Sync {
    /// Creates `path`, which must not exist, with `bytes` zero bytes that are really allocated, durably.
    fn create(&self, path: &Path, bytes: u64) -> Result<Arc<dyn LogFile>>;
    /// Creates `path`, which must not exist, for a copy of about `bytes` bytes that is written once from its
    /// start and synced at its end: nothing is allocated beforehand.
    fn create_copy(&self, path: &Path, bytes: u64) -> Result<Arc<dyn LogFile>> {
        self.create(path, bytes)
    }
    /// Opens an existing file for reading and writing.
    fn open(&self, path: &Path) -> Result<Arc<dyn LogFile>>;
    /// The whole content of a file.
    fn read(&self, path: &Path) -> Result<Vec<u8>>;
    /// Creates or replaces `path` with `bytes`, atomically and durably.
    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<()>;
    /// As [`Disk::replace`] where other users may write the directory, see [`outside`], with the permissions `mode`.
    fn replace_outside(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
        let _ = mode;
        self.replace(path, bytes)
    }
    /// Renames durably; `to` is replaced when it exists.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file; Ok when it does not exist.
    fn remove(&self, path: &Path) -> Result<()>;
    /// Names of the entries of `directory`, sorted.
    fn list(&self, directory: &Path) -> Result<Vec<PathBuf>>;
    /// Whether several files are to be written one after the other by the thread that wants it, not at once: a simulated
    /// disk repeats a history only then.
    fn in_turns(&self) -> bool {
        false
    }
    /// Which file `path` names, to be compared with [`LogFile::identity`]; `None` on a disk that knows no such thing.
    fn identity(&self, _path: &Path) -> Result<Option<FileIdentity>> {
        Ok(None)
    }
    /// Size in bytes, and time of the last write in nanoseconds since the Unix epoch, of the file at `path`: a file of
    /// which both are as before was not written to. `None` on a disk that knows no such thing.
    fn last_write(&self, _path: &Path) -> Result<Option<(u64, u64)>> {
        Ok(None)
    }
    /// Bytes that can still be allocated on the file system of `path`.
    fn free_bytes(&self, path: &Path) -> Result<u64>;
}
