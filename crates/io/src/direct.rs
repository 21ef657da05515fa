//! The real disk: O_DIRECT with O_DSYNC into preallocated, zeroed files.

use crate::behind::start_writing;
use crate::fault::{self, Fault};
use crate::{ALIGNMENT, AlignedBuf, Disk, FileIdentity, LogFile, outside};
use std::fs::{File, OpenOptions};
use std::io::{Error, ErrorKind, Result, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Smaller writes are not worth a system call.
const EARLY_BYTES: usize = 128 * 1024;

/// Files of the operating system, through direct I/O.
#[derive(Clone, Copy, Debug, Default)]
pub struct DirectDisk;

struct DirectFile {
    /// Opened with O_DIRECT | O_DSYNC, for the log writer; with O_DSYNC alone on a file system without direct I/O.
    durable: File,
    /// Uses the page cache, for reading and copying. The kernel keeps both coherent: a direct write invalidates the
    /// cached pages that it covers.
    cached: File,
    path: PathBuf,
}

impl DirectFile {
    fn open(path: &Path) -> Result<DirectFile> {
        let cached = OpenOptions::new().read(true).write(true).open(path)?;
        let with_flags = |flags| OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
        let durable = match with_flags(libc::O_DIRECT | libc::O_DSYNC) {
            Err(error) if error.kind() == ErrorKind::InvalidInput => with_flags(libc::O_DSYNC)?,
            other => other?,
        };
        Ok(DirectFile { durable, cached, path: path.to_owned() })
    }
}

impl LogFile for DirectFile {
    fn write_durable(&self, data: &[u8], offset: u64) -> Result<()> {
        fault::check_file(Fault::LogWrite, &self.path)?;
        self.durable.write_all_at(data, offset)?;
        fault::check_file(Fault::LogWritten, &self.path)
    }
    fn write(&self, data: &[u8], offset: u64) -> Result<()> {
        fault::check_file(Fault::Copy, &self.path)?;
        self.cached.write_all_at(data, offset)?;
        if data.len() >= EARLY_BYTES {
            start_writing(&self.cached, offset, data.len() as u64);
        }
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        fault::check_file(Fault::Sync, &self.path)?;
        self.cached.sync_data()
    }
    fn read_at(&self, out: &mut [u8], offset: u64) -> Result<()> {
        self.cached.read_exact_at(out, offset)
    }
    fn len(&self) -> Result<u64> {
        Ok(self.cached.metadata()?.len())
    }
    fn identity(&self) -> Result<Option<FileIdentity>> {
        Ok(Some(FileIdentity::of(&self.durable.metadata()?)))
    }
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Makes durable which file, if any, has the name `path`.
///
/// # Errors
/// When the directory cannot be synced.
pub fn sync_directory_of(path: &Path) -> Result<()> {
    File::open(directory_of(path))?.sync_all()
}

impl Disk for DirectDisk {
    fn create(&self, path: &Path, bytes: u64) -> Result<Arc<dyn LogFile>> {
        fault::check_file(Fault::Create, path)?;
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        let filled = fill_with_zeros(&mut file, bytes)
            .and_then(|()| file.sync_all())
            .and_then(|()| sync_directory_of(path));
        if let Err(error) = filled {
            let _ = std::fs::remove_file(path);
            return Err(error);
        }
        self.open(path)
    }

    fn create_copy(&self, path: &Path, _: u64) -> Result<Arc<dyn LogFile>> {
        fault::check_file(Fault::Create, path)?;
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        self.open(path)
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn LogFile>> {
        Ok(Arc::new(DirectFile::open(path)?))
    }

    fn read(&self, path: &Path) -> Result<Vec<u8>> {
        std::fs::read(path)
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<()> {
        fault::check(Fault::Replace)?;
        let mut name = path.file_name().ok_or_else(|| Error::from(ErrorKind::InvalidInput))?.to_owned();
        name.push(".new");
        let fresh = path.with_file_name(name);
        // A file that a crash left, or that another user put there, is not written to.
        let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh);
        let mut file = match create() {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                std::fs::remove_file(&fresh)?;
                create()?
            }
            made => made?,
        };
        file.write_all(bytes)?;
        file.sync_all()?;
        self.rename(&fresh, path)
    }

    fn replace_outside(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<()> {
        fault::check(Fault::Replace)?;
        outside::replace(path, bytes, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        std::fs::rename(from, to)?;
        sync_directory_of(to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => sync_directory_of(path),
        }
    }

    fn list(&self, directory: &Path) -> Result<Vec<PathBuf>> {
        let mut names =
            std::fs::read_dir(directory)?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    fn identity(&self, path: &Path) -> Result<Option<FileIdentity>> {
        Ok(Some(FileIdentity::of(&std::fs::metadata(path)?)))
    }

    fn last_write(&self, path: &Path) -> Result<Option<(u64, u64)>> {
        let metadata = std::fs::metadata(path)?;
        let since = metadata.modified()?.duration_since(std::time::UNIX_EPOCH).ok();
        let nanoseconds = since.and_then(|since| u64::try_from(since.as_nanos()).ok());
        Ok(nanoseconds.map(|modified| (metadata.len(), modified)))
    }

    fn free_bytes(&self, path: &Path) -> Result<u64> {
        use std::os::unix::ffi::OsStrExt;
        let text = std::ffi::CString::new(path.as_os_str().as_bytes())?;
        let mut info = std::mem::MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: text is a NUL-terminated path and info has room for the result.
        if unsafe { libc::statvfs(text.as_ptr(), info.as_mut_ptr()) } != 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: statvfs succeeded and filled info.
        let info = unsafe { info.assume_init() };
        Ok(info.f_bavail * info.f_frsize)
    }
}

/// Writes real zeros: with unwritten extents, the first durable write of each block would be a metadata transaction of
/// the file system.
fn fill_with_zeros(file: &mut File, bytes: u64) -> Result<()> {
    let zeros = AlignedBuf::new(1 << 20);
    let mut left = bytes;
    while left > 0 {
        let count = left.min(zeros.len() as u64) as usize;
        file.write_all(&zeros[..count])?;
        left -= count as u64;
    }
    debug_assert_eq!(bytes % ALIGNMENT as u64, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_created_written_durably_and_replaced() {
        let directory = std::env::temp_dir().join(format!("standfast-io-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("log");
        let file = DirectDisk.create(&path, 64 << 10).unwrap();
        let mut block = AlignedBuf::new(4096);
        block[..5].copy_from_slice(b"redo!");
        file.write_durable(&block, 8192).unwrap();
        let mut read = [0; 5];
        file.read_at(&mut read, 8192).unwrap();
        assert_eq!(&read, b"redo!");
        assert_eq!(file.len().unwrap(), 64 << 10);
        assert!(DirectDisk.create(&path, 4096).is_err(), "an existing file is never overwritten");

        let control = directory.join("control");
        DirectDisk.replace(&control, b"one").unwrap();
        DirectDisk.replace(&control, b"two").unwrap();
        assert_eq!(DirectDisk.read(&control).unwrap(), b"two");
        assert_eq!(DirectDisk.list(&directory).unwrap(), [control.clone(), path]);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
