//! The entry points to the disk. Every stage writes through [`Disk`] and [`LogFile`], so that the same code runs on a
//! real file system and on the simulated disk that loses power (`standfast-testkit`).
//!
//! Contract, for the real and the simulated disk:
//! - When [`LogFile::write_durable`] returns Ok, the bytes survive a power loss. When it fails, any part of them may or
//!   may not survive, and the file must not be written again (the caller poisons its log).
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
pub mod resolve;

pub use aligned::AlignedBuf;
pub use direct::{DirectDisk, sync_directory_of};
pub use remedy::remedy;

use std::io::Result;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Alignment in bytes of buffers, offsets and lengths of durable writes.
pub const ALIGNMENT: usize = 4096;

/// Device and inode; equal for a descriptor and a path that lead to the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileIdentity {
    pub device: u64,
    pub inode: u64,
}

impl FileIdentity {
    /// Identity of an open file, or of what a path names.
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
    /// Writes without durability, for copies that are synced once at the end. Starts writeback of large writes
    /// immediately.
    fn write(&self, data: &[u8], offset: u64) -> Result<()>;
    /// Makes everything written so far survive a power loss.
    fn sync(&self) -> Result<()>;
    /// Fills `out` from `offset`; an error when the file ends before.
    fn read_at(&self, out: &mut [u8], offset: u64) -> Result<()>;
    fn len(&self) -> Result<u64>;
    /// Identity of the open file; `None` on a disk that does not know identities.
    fn identity(&self) -> Result<Option<FileIdentity>> {
        Ok(None)
    }
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
    fn read(&self, path: &Path) -> Result<Vec<u8>>;
    /// Creates or replaces `path` with `bytes`, atomically and durably.
    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<()>;
    /// Replaces like [`Disk::replace`], with the permissions `mode`, in a directory that other users may write, see
    /// [`outside`].
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
    /// Returns whether the calling thread must write several files one after the other, not in parallel: only then does
    /// a simulated disk repeat a history.
    fn in_turns(&self) -> bool {
        false
    }
    /// Identity of the file that `path` names, to be compared with [`LogFile::identity`]; `None` on a disk that does
    /// not know identities.
    fn identity(&self, _path: &Path) -> Result<Option<FileIdentity>> {
        Ok(None)
    }
    /// Size in bytes of the file at `path`, and time of its last write in nanoseconds since the Unix epoch. If both are
    /// unchanged, the file was not written. `None` on a disk that does not know them.
    fn last_write(&self, _path: &Path) -> Result<Option<(u64, u64)>> {
        Ok(None)
    }
    /// Bytes that can still be allocated on the file system of `path`.
    fn free_bytes(&self, path: &Path) -> Result<u64>;
}
