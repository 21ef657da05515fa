//! The files of the shared memory: opened and created through the descriptor of their directory, never through a link,
//! and used only when they belong to the right user.

use crate::error::SegmentError;
use crate::layout::{Head, MAGIC, VERSION};
use std::ffi::{CString, c_int};
use std::fs::{File, Metadata, Permissions};
use std::io::{self, Error, ErrorKind};
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Write permissions of users other than the owner.
pub(crate) const WRITABLE_BY_OTHERS: u32 = 0o022;
const STICKY: u32 = 0o1000;
/// Follows no link, and does not wait for a FIFO.
const ALWAYS: c_int = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC;

/// The path of the published file; `segment` is the path that markers name, whose file sessions map writable.
pub fn published_path(segment: &Path) -> PathBuf {
    let mut path = segment.as_os_str().to_owned();
    path.push(".published");
    path.into()
}

/// Permissions of the published file, when the file that sessions write to has `mode`: those for reading.
pub fn published_mode(mode: u32) -> u32 {
    mode & 0o444 | 0o400
}

/// Opens a file of the shared memory as a session does.
pub(crate) fn open(path: &Path, writable: bool) -> io::Result<(File, Metadata)> {
    let file = File::options().read(true).write(writable).custom_flags(ALWAYS).open(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

/// Version of a segment of any release: all begin with magic number, version and the retired flag. `None`: it is no
/// segment.
pub(crate) fn version_of(file: &File) -> Option<u32> {
    let (mut magic, mut version) = ([0; 8], [0; 4]);
    file.read_exact_at(&mut magic, offset_of!(Head, magic) as u64).ok()?;
    file.read_exact_at(&mut version, offset_of!(Head, version) as u64).ok()?;
    (u64::from_ne_bytes(magic) == MAGIC).then_some(u32::from_ne_bytes(version))
}

/// Whether it is a file of the shared memory of `instance`, of this release.
pub(crate) fn is_of(file: &File, instance: [u8; 16]) -> bool {
    let mut found = [0; 16];
    version_of(file) == Some(VERSION)
        && file.read_exact_at(&mut found, offset_of!(Head, instance) as u64).is_ok()
        && found == instance
}

/// A name in a directory from which no other user can remove the file.
pub(crate) struct Place {
    path: PathBuf,
    directory: OwnedFd,
    name: CString,
}

impl Place {
    pub fn of(path: &Path) -> Result<Place, SegmentError> {
        let name = path.file_name().and_then(|name| CString::new(name.as_bytes()).ok());
        let (Some(parent), Some(name)) = (path.parent(), name) else {
            return Err(Error::from(ErrorKind::InvalidInput).into());
        };
        let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
        let directory = File::options()
            .read(true)
            .custom_flags(libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC)
            .open(parent)?;
        let metadata = directory.metadata()?;
        let is_shared = metadata.mode() & WRITABLE_BY_OTHERS != 0 && metadata.mode() & STICKY == 0;
        if is_shared || ![0, own_user()].contains(&metadata.uid()) {
            return Err(SegmentError::Directory { path: parent.to_owned() });
        }
        Ok(Place { path: path.to_owned(), directory: directory.into(), name })
    }

    fn open(&self, flags: c_int, mode: libc::mode_t) -> io::Result<File> {
        // SAFETY: an open directory and a C string; a result that is not negative is a new descriptor.
        unsafe {
            match libc::openat(self.directory.as_raw_fd(), self.name.as_ptr(), flags | ALWAYS, mode) {
                descriptor if descriptor >= 0 => Ok(File::from_raw_fd(descriptor)),
                _ => Err(Error::last_os_error()),
            }
        }
    }

    /// Opens the existing file for writing, if it is ours: a regular file of this user, with no second name, and with
    /// none of the permissions `never`.
    pub fn ours(&self, never: u32) -> io::Result<Option<File>> {
        let is_ours = |metadata: &Metadata| {
            metadata.is_file()
                && metadata.uid() == own_user()
                && metadata.nlink() == 1
                && metadata.mode() & never == 0
        };
        match self.open(libc::O_RDWR, 0) {
            Ok(file) => Ok(is_ours(&file.metadata()?).then_some(file)),
            // Not even its owner may write to it, so its permissions are widened while it is opened.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {
                let Ok(readable) = self.open(libc::O_RDONLY, 0) else { return Ok(None) };
                let metadata = readable.metadata()?;
                if !is_ours(&metadata) {
                    return Ok(None);
                }
                readable.set_permissions(Permissions::from_mode(0o600))?;
                let file = self.open(libc::O_RDWR, 0)?;
                readable.set_permissions(Permissions::from_mode(metadata.mode() & 0o777))?;
                let opened = file.metadata()?;
                let is_same = (opened.dev(), opened.ino()) == (metadata.dev(), metadata.ino());
                Ok(is_same.then_some(file))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            // A link, a directory, or a special file.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::ELOOP | libc::EISDIR | libc::ENXIO | libc::EPERM)
                ) =>
            {
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Opens the existing file, if the instance can continue with it.
    pub fn find(&self, instance: [u8; 16], bytes: usize, never: u32) -> io::Result<Option<File>> {
        let Some(file) = self.ours(never)? else { return Ok(None) };
        let is_whole = file.metadata()?.len() == bytes as u64;
        Ok((is_whole && is_of(&file, instance)).then_some(file))
    }

    /// Removes the existing file. Sessions that have it mapped are notified first, whatever its release.
    pub fn clear(&self) -> Result<(), SegmentError> {
        if let Some(file) = self.ours(0)?
            && version_of(&file).is_some()
        {
            // It is removed next: a process that finds it gone maps the new one, too.
            let _ = file.write_all_at(&1u32.to_ne_bytes(), offset_of!(Head, retired) as u64);
        }
        // SAFETY: an open directory and a C string.
        if unsafe { libc::unlinkat(self.directory.as_raw_fd(), self.name.as_ptr(), 0) } == 0 {
            return Ok(());
        }
        let error = Error::last_os_error();
        match error.kind() {
            ErrorKind::NotFound => Ok(()),
            _ => Err(SegmentError::InTheWay { path: self.path.clone(), source: error }),
        }
    }

    /// Creates a new file for its owner alone, with space for all of it: an access to a page without space would later
    /// end the process.
    pub fn make(&self, bytes: usize) -> Result<File, SegmentError> {
        let file = self.open(libc::O_RDWR | libc::O_CREAT | libc::O_EXCL, 0o600)?;
        if let Err(error) = allocate(&file, bytes) {
            let _ = self.clear();
            return Err(error.into());
        }
        Ok(file)
    }
}

/// Makes `file` at least `bytes` long, with space for all of them.
pub(crate) fn allocate(file: &File, bytes: usize) -> io::Result<()> {
    let length = libc::off_t::try_from(bytes).map_err(Error::other)?;
    // SAFETY: the descriptor is open; the call touches no memory.
    match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, length) } {
        0 => Ok(()),
        error => Err(Error::from_raw_os_error(error)),
    }
}

/// The effective user of this process.
pub fn own_user() -> u32 {
    // SAFETY: takes nothing and cannot fail.
    unsafe { libc::geteuid() }
}
