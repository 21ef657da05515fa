//! Where databases and redo may be stored. Shared memory and locks of SQLite's WAL mode need a local file system, and
//! durability needs a disk.

use crate::config::error::InstanceError;
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

const LOST: &str = "which is lost when the machine stops";
const SHARED: &str = "whose locks, shared memory and syncs cannot be relied on";

/// File systems by the number that the kernel gives them (statfs, linux/magic.h).
const REFUSED: [(i64, &str, &str); 13] = [
    (0x0102_1994, "tmpfs", LOST),
    (0x8584_58F6, "ramfs", LOST),
    (0x6969, "NFS", SHARED),
    (0xFF53_4D42, "CIFS", SHARED),
    (0xFE53_4D42, "SMB", SHARED),
    (0x517B, "SMB", SHARED),
    (0x0102_1997, "9P", SHARED),
    (0x6573_5546, "FUSE", SHARED),
    (0x00C3_6400, "Ceph", SHARED),
    (0x0BD0_0BD0, "Lustre", SHARED),
    (0x0116_1970, "GFS2", SHARED),
    (0x7461_636F, "OCFS2", SHARED),
    (0x5346_414F, "AFS", SHARED),
];

/// Refuses a location for `what` that is not on a local disk.
///
/// # Errors
/// `Refused` with the file system's name; when the kernel does not report the file system of the path.
pub fn check(path: &Path, what: &str) -> Result<(), InstanceError> {
    match refused(kind_of(path)?) {
        None => Ok(()),
        Some((name, why)) => Err(InstanceError::refused(
            format!("{} is on {name}, {why}", path.display()),
            format!("put {what} on a local disk file system such as ext4 or XFS"),
        )),
    }
}

fn refused(kind: i64) -> Option<(&'static str, &'static str)> {
    REFUSED.iter().find(|(number, ..)| *number == kind).map(|(_, name, why)| (*name, *why))
}

fn kind_of(path: &Path) -> Result<i64, InstanceError> {
    let text = CString::new(path.as_os_str().as_bytes())
        .map_err(|error| InstanceError::Failed(error.to_string()))?;
    let mut info = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: a NUL-terminated path and room for the result.
    if unsafe { libc::statfs(text.as_ptr(), info.as_mut_ptr()) } != 0 {
        return Err(InstanceError::io("find the file system of", path)(std::io::Error::last_os_error()));
    }
    // SAFETY: statfs succeeded and filled it in.
    Ok(unsafe { info.assume_init() }.f_type)
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_types::Hint;

    #[test]
    fn memory_and_network_file_systems_are_refused() {
        for (number, name) in
            [(0x0102_1994, "tmpfs"), (0x6969, "NFS"), (0x6573_5546, "FUSE"), (0x00C3_6400, "Ceph")]
        {
            assert_eq!(refused(number).map(|(name, _)| name), Some(name));
        }
        // ext4, XFS, btrfs, overlayfs, ZFS.
        for local in [0xEF53, 0x5846_5342, 0x9123_683E, 0x794C_7630, 0x2FC1_2FC1] {
            assert_eq!(refused(local), None);
        }
        let error = check(Path::new("/dev/shm"), "the redo log").unwrap_err().for_terminal();
        assert!(error.contains("/dev/shm is on tmpfs") && error.contains("put the redo log on"), "{error}");
    }
}
