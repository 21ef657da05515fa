//! A volume without room: a small file system in memory, mounted over a directory.

use crate::{During, Result};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Bytes of the volume: a directory fits, a log does not.
const OPTIONS: &[u8] = b"size=16k,mode=0700\0";

/// Taken away when it is dropped; what was there before is there again.
pub struct FullVolume(CString);

impl FullVolume {
    /// Whether this process may mount.
    pub fn is_possible() -> bool {
        // SAFETY: no memory is involved.
        unsafe { libc::geteuid() == 0 }
    }

    /// Over `directory`.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn over(directory: &Path) -> Result<FullVolume> {
        let during = || format!("mount a small volume over {}", directory.display());
        let target =
            CString::new(directory.as_os_str().as_bytes()).map_err(std::io::Error::from).during(during)?;
        let kind = c"tmpfs".as_ptr();
        // SAFETY: strings that end with zero and live during the call.
        let mounted = unsafe { libc::mount(kind, target.as_ptr(), kind, 0, OPTIONS.as_ptr().cast()) };
        match mounted {
            0 => Ok(FullVolume(target)),
            _ => Err(std::io::Error::last_os_error()).during(during),
        }
    }
}

impl Drop for FullVolume {
    fn drop(&mut self) {
        // Files that are still open there do not keep it from going.
        // SAFETY: a string that ends with zero and lives during the call.
        unsafe { libc::umount2(self.0.as_ptr(), libc::MNT_DETACH) };
    }
}
