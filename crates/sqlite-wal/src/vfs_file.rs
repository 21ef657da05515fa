//! Reads, writes and syncs the files of a live database through the VFS that SQLite itself uses.
//!
//! POSIX drops all locks that a process holds on a file when the process closes any descriptor of the file. So a
//! process that has the database open must never open its file behind SQLite's back; the VFS knows how to close it
//! safely.

use crate::pace::Pace;
use crate::sqlite_code;
use crate::wal_index::WalIndexHeader;
use rusqlite::ffi;
use standfast_io::fault::{self, Fault};
use standfast_io::part::PartlySynced;
use std::ffi::{CString, OsStr, c_char, c_int};
use std::io::{Error, Result};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VfsFileKind {
    Database,
    Wal,
}

/// One open file, used by one thread at a time.
pub struct VfsFile {
    /// szOsFile bytes, aligned as malloc does: the VFS's file structure.
    memory: Box<[u128]>,
    /// From sqlite3_create_filename; must outlive the file.
    name: *const c_char,
    kind: VfsFileKind,
    /// For a WAL of SQLite's default VFS: syncs a part of it. Closing it drops no lock: the locks are on the database
    /// file and the wal-index.
    plain: Option<PartlySynced>,
}

// SAFETY: the file is owned by this value alone and its methods may be called from any one thread at a time.
unsafe impl Send for VfsFile {}

impl VfsFile {
    /// Opens a file of the database at `path` through the VFS `vfs` (`None`: the default one).
    ///
    /// # Errors
    /// When the VFS or the file cannot be opened.
    pub fn open(vfs: Option<&str>, path: &Path, kind: VfsFileKind) -> Result<VfsFile> {
        let is_default = vfs.is_none();
        let vfs = vfs.map(CString::new).transpose()?;
        // SAFETY: the name is null or NUL-terminated; a registered VFS is never freed.
        let vfs =
            unsafe { ffi::sqlite3_vfs_find(vfs.as_ref().map_or(std::ptr::null(), |name| name.as_ptr())) };
        if vfs.is_null() {
            return Err(Error::other("no such VFS"));
        }
        let with_suffix =
            |suffix: &str| CString::new([path.as_os_str().as_bytes(), suffix.as_bytes()].concat());
        let (database, journal, wal) = (with_suffix("")?, with_suffix("-journal")?, with_suffix("-wal")?);
        // SAFETY: three NUL-terminated names and no parameters; the result is freed in drop.
        let name = unsafe {
            ffi::sqlite3_create_filename(
                database.as_ptr(),
                journal.as_ptr(),
                wal.as_ptr(),
                0,
                std::ptr::null_mut(),
            )
        };
        if name.is_null() {
            return Err(Error::from(std::io::ErrorKind::OutOfMemory));
        }
        // SAFETY: vfs is registered, see above.
        let bytes = unsafe { (*vfs).szOsFile }.max(8) as usize;
        let memory = vec![0u128; bytes.div_ceil(16)].into_boxed_slice();
        let mut file = VfsFile { memory, name, kind, plain: None };
        let flags = match kind {
            VfsFileKind::Database => ffi::SQLITE_OPEN_MAIN_DB,
            VfsFileKind::Wal => ffi::SQLITE_OPEN_WAL,
        } | ffi::SQLITE_OPEN_READWRITE;
        // SAFETY: name comes from sqlite3_create_filename, the memory is zeroed and as large as the VFS asks.
        let code = unsafe {
            let opened_name = match kind {
                VfsFileKind::Database => name,
                VfsFileKind::Wal => ffi::sqlite3_filename_wal(name),
            };
            let mut out_flags = 0;
            match (*vfs).xOpen {
                Some(open) => open(vfs, opened_name, file.pointer(), flags, &mut out_flags),
                None => ffi::SQLITE_CANTOPEN,
            }
        };
        check(code, "open", path)?;
        if is_default && kind == VfsFileKind::Wal {
            let path = OsStr::from_bytes(wal.as_bytes());
            file.plain = Some(PartlySynced::open(Path::new(path))?);
        }
        Ok(file)
    }

    fn pointer(&mut self) -> *mut ffi::sqlite3_file {
        self.memory.as_mut_ptr().cast()
    }

    fn methods(&mut self) -> Option<&'static ffi::sqlite3_io_methods> {
        // SAFETY: the memory holds a file structure, zeroed or filled by xOpen; methods are static tables.
        unsafe { (*self.pointer()).pMethods.as_ref() }
    }

    /// Fills `out` from `offset`; bytes behind the end of the file read as zeros. Returns whether all of them were
    /// there.
    ///
    /// # Errors
    /// When the file system fails.
    pub fn read_at(&mut self, out: &mut [u8], offset: u64) -> Result<bool> {
        let file = self.pointer();
        let code = match self.methods().and_then(|methods| methods.xRead) {
            // SAFETY: the file is open and out has the given length.
            Some(read) => unsafe { read(file, out.as_mut_ptr().cast(), out.len() as c_int, offset as i64) },
            None => ffi::SQLITE_IOERR,
        };
        match code {
            ffi::SQLITE_OK => Ok(true),
            ffi::SQLITE_IOERR_SHORT_READ => Ok(false),
            code => Err(Error::other(format!("reading at {offset}: {}", sqlite_code(code)))),
        }
    }

    /// Writes all of `data` at `offset`; it survives a power loss after [`VfsFile::sync`].
    ///
    /// # Errors
    /// When the file system fails.
    pub fn write_at(&mut self, data: &[u8], offset: u64) -> Result<()> {
        let file = self.pointer();
        let code = match self.methods().and_then(|methods| methods.xWrite) {
            // SAFETY: the file is open and data has the given length.
            Some(write) => unsafe { write(file, data.as_ptr().cast(), data.len() as c_int, offset as i64) },
            None => ffi::SQLITE_IOERR,
        };
        if code == ffi::SQLITE_OK {
            Ok(())
        } else {
            Err(Error::other(format!("writing at {offset}: {}", sqlite_code(code))))
        }
    }

    /// Size in bytes.
    ///
    /// # Errors
    /// When the file system fails.
    pub fn bytes(&mut self) -> Result<u64> {
        let file = self.pointer();
        let mut size = 0;
        let code = match self.methods().and_then(|methods| methods.xFileSize) {
            // SAFETY: the file is open; the size is written to a live integer.
            Some(file_size) => unsafe { file_size(file, &mut size) },
            None => ffi::SQLITE_IOERR,
        };
        if code == ffi::SQLITE_OK {
            Ok(size as u64)
        } else {
            Err(Error::other(format!("finding the size: {}", sqlite_code(code))))
        }
    }

    /// Truncates the file to `bytes`; that survives a power loss after [`VfsFile::sync`].
    ///
    /// # Errors
    /// When the file system fails.
    pub fn truncate(&mut self, bytes: u64) -> Result<()> {
        let file = self.pointer();
        let code = match self.methods().and_then(|methods| methods.xTruncate) {
            // SAFETY: the file is open.
            Some(truncate) => unsafe { truncate(file, bytes as i64) },
            None => ffi::SQLITE_IOERR,
        };
        if code == ffi::SQLITE_OK {
            Ok(())
        } else {
            Err(Error::other(format!("cutting to {bytes} bytes: {}", sqlite_code(code))))
        }
    }

    /// Makes everything written to the file survive a power loss.
    ///
    /// # Errors
    /// When the file system fails; nothing may then be assumed about what survives.
    pub fn sync(&mut self) -> Result<()> {
        if self.kind == VfsFileKind::Wal {
            fault::check(Fault::WalSync)?;
        }
        let file = self.pointer();
        let code = match self.methods().and_then(|methods| methods.xSync) {
            // SAFETY: the file is open.
            Some(sync) => unsafe { sync(file, ffi::SQLITE_SYNC_NORMAL | ffi::SQLITE_SYNC_DATAONLY) },
            None => ffi::SQLITE_IOERR,
        };
        if code == ffi::SQLITE_OK {
            Ok(())
        } else {
            Err(Error::other(format!("syncing: {}", sqlite_code(code))))
        }
    }

    /// Makes the part of a WAL that is in use, as its index says, survive a power loss, not what a longer WAL left
    /// behind it. Syncs all of the file where that is not known.
    ///
    /// # Errors
    /// As [`VfsFile::sync`].
    pub fn sync_used(&mut self, header: Option<WalIndexHeader>, pace: &Pace) -> Result<()> {
        match header.and_then(|header| header.log_bytes()) {
            Some(bytes) => self.sync_first_at(bytes, pace),
            None => self.sync(),
        }
    }

    /// Makes the first `bytes` of the file survive a power loss, and perhaps more.
    ///
    /// # Errors
    /// As [`VfsFile::sync`].
    pub fn sync_first(&mut self, bytes: u64) -> Result<()> {
        self.sync_first_at(bytes, &Pace::AtOnce)
    }

    fn sync_first_at(&mut self, bytes: u64, pace: &Pace) -> Result<()> {
        let Some(file) = &self.plain else { return self.sync() };
        fault::check(Fault::WalSync)?;
        pace.sync_log(file, bytes)
    }

    /// Writes like [`VfsFile::write_at`]; what is written survives a power loss on return.
    ///
    /// # Errors
    /// As [`VfsFile::write_at`] and [`VfsFile::sync`].
    pub fn write_durably(&mut self, data: &[u8], offset: u64) -> Result<()> {
        let Some(file) = &self.plain else {
            self.write_at(data, offset)?;
            return self.sync();
        };
        fault::check(Fault::WalSync)?;
        file.write_durably(data, offset)
    }
}

impl Drop for VfsFile {
    fn drop(&mut self) {
        let file = self.pointer();
        if let Some(close) = self.methods().and_then(|methods| methods.xClose) {
            // SAFETY: the file is open and not used after.
            unsafe { close(file) };
        }
        // SAFETY: name comes from sqlite3_create_filename and the file that used it is closed.
        unsafe { ffi::sqlite3_free_filename(self.name) };
    }
}

fn check(code: c_int, doing: &str, path: &Path) -> Result<()> {
    if code == ffi::SQLITE_OK {
        return Ok(());
    }
    Err(Error::other(format!("cannot {doing} {}: {}", path.display(), sqlite_code(code))))
}
