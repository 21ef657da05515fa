//! SQLite's own descriptor of a wal-index, and locks that this process takes through it.
//!
//! fcntl locks belong to a process and a file, so any descriptor can take them. But closing any one of them drops all
//! the locks: a descriptor of our own could not be closed as long as SQLite has locks there, and SQLite's stays open as
//! long as it has the wal-index.

use crate::beside::wal_index_path;
use std::ffi::c_int;
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Device and inode of a file, whatever its path.
pub(crate) type Identity = (u64, u64);

/// SQLite's own descriptor of a wal-index. Valid as long as a connection of this process has the wal-index mapped.
#[derive(Clone, Copy, Debug)]
pub struct IndexDescriptor {
    pub(crate) file: Identity,
    number: c_int,
}

impl IndexDescriptor {
    /// Finds the descriptor for `database`, whose wal-index SQLite has open in this process.
    ///
    /// # Errors
    /// `NotFound` when SQLite does not have it open, or when another file has been put in its place.
    pub fn of(database: &Path) -> Result<IndexDescriptor> {
        let metadata = std::fs::metadata(wal_index_path(database))?;
        let file = (metadata.dev(), metadata.ino());
        let number = descriptor_of(file)?.ok_or_else(|| {
            Error::new(ErrorKind::NotFound, "no descriptor of this process is that of the wal-index")
        })?;
        Ok(IndexDescriptor { file, number })
    }

    /// Whether it still belongs to the file: an application may have closed it behind SQLite's back.
    pub(crate) fn is_open(&self) -> bool {
        identity_of(self.number) == Some(self.file)
    }

    /// Takes, converts or releases (`kind`, as fcntl names it) the lock of the byte `at`. Does not wait.
    ///
    /// # Errors
    /// `EAGAIN` or `EACCES` when another process holds the lock, and the system's other errors.
    pub fn set_lock(&self, kind: c_int, at: i64) -> Result<()> {
        let lock = libc::flock {
            l_type: kind as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: at,
            l_len: 1,
            l_pid: 0,
        };
        loop {
            // SAFETY: a valid structure; the kernel checks the descriptor.
            if unsafe { libc::fcntl(self.number, libc::F_SETLK, &lock) } == 0 {
                return Ok(());
            }
            let error = Error::last_os_error();
            if error.kind() != ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

/// Finds a descriptor of this process that is open on `file` for writing.
fn descriptor_of(file: Identity) -> Result<Option<c_int>> {
    let mut found = None;
    for entry in std::fs::read_dir("/proc/self/fd")? {
        let Some(number) = entry?.file_name().to_str().and_then(|name| name.parse::<c_int>().ok()) else {
            continue;
        };
        // SAFETY: takes a number; the kernel checks it.
        let flags = || unsafe { libc::fcntl(number, libc::F_GETFL) };
        if identity_of(number) == Some(file) && flags() & libc::O_ACCMODE == libc::O_RDWR {
            found = Some(number);
        }
    }
    Ok(found)
}

/// The file that a descriptor is open on; `None` when it is not open.
pub(crate) fn identity_of(descriptor: c_int) -> Option<Identity> {
    let mut status = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for the answer; the kernel checks the descriptor.
    if unsafe { libc::fstat(descriptor, status.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: fstat has filled it in.
    let status = unsafe { status.assume_init() };
    Some((status.st_dev, status.st_ino))
}
