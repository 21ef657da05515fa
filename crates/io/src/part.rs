//! Files of which only a part must survive a power loss; the rest is left to the system, or is never worth writing.

use std::fs::{File, OpenOptions};
use std::io::{Error, Result};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// A second descriptor of a file that others write.
#[derive(Debug)]
pub struct PartlySynced {
    file: File,
}

impl PartlySynced {
    /// Opens an existing file.
    ///
    /// # Errors
    /// The error of the system call.
    pub fn open(path: &Path) -> Result<PartlySynced> {
        // Open for writing in any case: Linux does not treat the mapping of a file that is open only for reading as
        // shared, and msync then does nothing.
        let flags = libc::O_DSYNC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).write(true).custom_flags(flags).open(path)?;
        // In the directory of an application another user may have put a second name of another file here.
        let metadata = file.metadata()?;
        if !metadata.is_file() || metadata.nlink() > 1 {
            let text = "it is not a regular file with one name";
            return Err(Error::new(std::io::ErrorKind::InvalidInput, text));
        }
        Ok(PartlySynced { file })
    }

    /// Writes all of `data` at `offset`; it survives a power loss once this returns.
    ///
    /// # Errors
    /// The error of the system call; then nothing may be assumed about what survives.
    pub fn write_durably(&self, data: &[u8], offset: u64) -> Result<()> {
        self.file.write_all_at(data, offset)
    }

    /// Writes the first `bytes` to the disk, `portion` bytes at a time, and passes to `after` how long each portion
    /// took. Makes nothing durable, but leaves little to the [sync](PartlySynced::sync_first) that follows.
    ///
    /// # Errors
    /// The error of the system call; then nothing may be assumed about what survives.
    pub fn write_first(&self, bytes: u64, portion: u64, mut after: impl FnMut(Duration)) -> Result<()> {
        const WRITTEN: libc::c_uint = libc::SYNC_FILE_RANGE_WAIT_BEFORE
            | libc::SYNC_FILE_RANGE_WRITE
            | libc::SYNC_FILE_RANGE_WAIT_AFTER;
        let mut offset = 0;
        while offset < bytes {
            let length = portion.min(bytes - offset);
            let begun = Instant::now();
            let (first, length) = (offset.cast_signed(), length.cast_signed());
            // SAFETY: an open descriptor and a byte range; no memory is involved.
            if unsafe { libc::sync_file_range(self.file.as_raw_fd(), first, length, WRITTEN) } != 0 {
                let error = Error::last_os_error();
                // On a system without this call the sync does all of the work.
                return if error.raw_os_error() == Some(libc::ENOSYS) { Ok(()) } else { Err(error) };
            }
            after(begun.elapsed());
            offset += portion;
        }
        Ok(())
    }

    /// Makes the first `bytes` survive a power loss, no matter which process wrote them. fdatasync has no range; msync
    /// has one, that of a mapping.
    ///
    /// # Errors
    /// The error of the system call; then nothing may be assumed about what survives.
    pub fn sync_first(&self, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let length = usize::try_from(bytes).map_err(Error::other)?;
        let (any, read, shared) = (std::ptr::null_mut(), libc::PROT_READ, libc::MAP_SHARED);
        // SAFETY: a new mapping, anywhere, of an open file; nothing in it is ever accessed, so what happens to the file
        // meanwhile does not matter.
        let mapping = unsafe { libc::mmap(any, length, read, shared, self.file.as_raw_fd(), 0) };
        if mapping == libc::MAP_FAILED {
            // Some file systems have no shared mappings.
            return self.file.sync_data();
        }
        // SAFETY: the range is all of the mapping that was just made, and that is unmapped right after.
        let synced = unsafe { libc::msync(mapping, length, libc::MS_SYNC) };
        let result = if synced == 0 { Ok(()) } else { Err(Error::last_os_error()) };
        // SAFETY: the mapping is the one made above; nothing else uses it.
        unsafe { libc::munmap(mapping, length) };
        result
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const PAGE: u64 = 4096;

    #[test]
    fn wal_with_a_second_link_is_not_opened() {
        let path = std::env::temp_dir().join(format!("standfast-names-{}", std::process::id()));
        let (second, link) = (path.with_extension("second"), path.with_extension("link"));
        for path in [&path, &second, &link] {
            let _ = std::fs::remove_file(path);
        }
        std::fs::write(&path, "log").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        PartlySynced::open(&path).unwrap();
        PartlySynced::open(&link).unwrap_err();
        std::fs::hard_link(&path, &second).unwrap();
        PartlySynced::open(&path).unwrap_err();
        for path in [&path, &second, &link] {
            std::fs::remove_file(path).unwrap();
        }
    }

    /// Dirty pages of this part of the file; `None` where Linux is too old to tell (before 6.5).
    fn dirty(file: &File, offset: u64, bytes: u64) -> Option<u64> {
        const CACHESTAT: libc::c_long = 451;
        let range = [offset, bytes];
        let mut counts = [0u64; 5];
        // SAFETY: an open descriptor, a range, and room for what is counted: cached, dirty, in write-back and two more.
        let code =
            unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), counts.as_mut_ptr(), 0) };
        (code == 0).then_some(counts[1] + counts[2])
    }

    #[test]
    fn only_the_first_part_is_synced() {
        // The cache may hold a few hundred pages as one unit, which is written as one.
        const HALF: u64 = 8 << 20;
        let path = std::env::temp_dir().join(format!("standfast-part-{}", std::process::id()));
        std::fs::write(&path, vec![1; 2 * HALF as usize]).unwrap();
        let file = File::open(&path).unwrap();
        let part = PartlySynced::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let Some(before) = dirty(&file, HALF, HALF) else { return };
        part.sync_first(10 * PAGE + 1).unwrap();
        assert_eq!(dirty(&file, 0, 11 * PAGE), Some(0));
        assert!(dirty(&file, HALF, HALF) >= Some(before / 2), "{before}");
        let mut portions = 0;
        part.write_first(HALF / 2 - 1, HALF / 8, |_| portions += 1).unwrap();
        assert_eq!(portions, 4);
        assert_eq!(dirty(&file, 0, HALF / 2), Some(0));
        assert!(dirty(&file, HALF, HALF) >= Some(before / 2), "{before}");
        part.write_durably(&[2; 32], 2 * HALF - PAGE).unwrap();
        assert_eq!(dirty(&file, 2 * HALF - PAGE, PAGE), Some(0));
        let mut found = [0; 33];
        file.read_exact_at(&mut found, 2 * HALF - PAGE).unwrap();
        assert_eq!(found[..], [[2].repeat(32), vec![1]].concat());
    }

    #[test]
    fn failed_open_or_write_is_reported() {
        assert!(PartlySynced::open(Path::new("/nonexistent/file")).is_err());
        assert!(PartlySynced::open(Path::new("/dev/full")).is_err(), "a device");
        let full = PartlySynced { file: File::options().write(true).open("/dev/full").unwrap() };
        full.write_durably(&[1], 0).unwrap_err();
    }
}
