//! A full volume: a small file system in memory, mounted over a directory. The files of the directory stay readable,
//! because a full volume loses no data.

use crate::{During, Result};
use std::ffi::{CStr, CString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// Size of the volume: a directory fits, a log does not.
const OPTIONS: &CStr = c"size=16k,mode=0700";

/// Unmounted on drop; the directory is then as before.
pub struct FullVolume {
    /// Mount points, the last one on top.
    mounted: Vec<CString>,
    /// Bind mount of the covered directory.
    beneath: PathBuf,
}

impl FullVolume {
    pub fn is_possible() -> bool {
        // SAFETY: no memory is involved.
        unsafe { libc::geteuid() == 0 }
    }

    /// Mounts the volume over `directory`.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn over(directory: &Path) -> Result<FullVolume> {
        let during = || format!("mount a small volume over {}", directory.display());
        let mut volume = FullVolume { mounted: Vec::new(), beneath: directory.with_extension("beneath") };
        volume.cover(directory).during(during)?;
        Ok(volume)
    }

    fn cover(&mut self, directory: &Path) -> std::io::Result<()> {
        std::fs::create_dir(&self.beneath)?;
        let (covered, beneath) = (c_path(directory)?, c_path(&self.beneath)?);
        mount(&covered, &beneath, None, libc::MS_BIND, c"")?;
        self.mounted.push(beneath.clone());
        // Otherwise the volume mounted over the directory would propagate to the bind mount.
        mount(c"none", &beneath, None, libc::MS_PRIVATE, c"")?;
        mount(c"tmpfs", &covered, Some(c"tmpfs"), 0, OPTIONS)?;
        self.mounted.push(covered);
        let beside = Path::new("..").join(self.beneath.file_name().unwrap_or_default());
        for file in std::fs::read_dir(&self.beneath)? {
            let file = file?.file_name();
            std::os::unix::fs::symlink(beside.join(&file), directory.join(&file))?;
        }
        Ok(())
    }
}

fn mount(
    source: &CStr,
    target: &CStr,
    kind: Option<&CStr>,
    flags: libc::c_ulong,
    options: &CStr,
) -> std::io::Result<()> {
    let kind = kind.map_or(std::ptr::null(), CStr::as_ptr);
    // SAFETY: the strings are null-terminated and live during the call; only a new file system has a kind.
    match unsafe { libc::mount(source.as_ptr(), target.as_ptr(), kind, flags, options.as_ptr().cast()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

fn c_path(path: &Path) -> std::io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(std::io::Error::from)
}

impl Drop for FullVolume {
    fn drop(&mut self) {
        for target in self.mounted.iter().rev() {
            // Files that are still open there do not prevent a lazy unmount.
            //
            // SAFETY: the string is null-terminated and lives during the call.
            unsafe { libc::umount2(target.as_ptr(), libc::MNT_DETACH) };
        }
        // Not recursively: if the bind mount were still there, that would remove the logs themselves.
        let _ = std::fs::remove_dir(&self.beneath);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_volume_refuses_writes_and_keeps_existing_files() {
        if !FullVolume::is_possible() {
            return;
        }
        let directory = std::env::temp_dir().join(format!("standfast-full-volume-{}", std::process::id()));
        let archive = directory.join("archive");
        std::fs::create_dir_all(&archive).unwrap();
        std::fs::write(archive.join("old"), "redo").unwrap();
        let volume = FullVolume::over(&archive).unwrap();
        assert_eq!(std::fs::read(archive.join("old")).unwrap(), b"redo");
        assert!(std::fs::write(archive.join("new"), vec![1; 64 << 10]).is_err());
        drop(volume);
        assert_eq!(std::fs::read_dir(&archive).unwrap().count(), 1);
        assert_eq!(std::fs::read(archive.join("old")).unwrap(), b"redo");
        assert!(!directory.join("archive.beneath").exists());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
