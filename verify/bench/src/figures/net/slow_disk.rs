//! A disk that completes few writes per second for one process: the kernel throttles its control group.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::{BenchError, Result};

/// Mount point of the block controller of version 1; that of version 2 is [`UNIFIED`] itself.
const BLOCK: &str = "/sys/fs/cgroup/blkio";
const UNIFIED: &str = "/sys/fs/cgroup";
/// Writes per second: each takes 20 ms.
const WRITES: u32 = 50;

/// The control group. Removed when dropped, which must happen after its process has ended.
pub(super) struct SlowDisk(PathBuf);

impl SlowDisk {
    /// Throttles the disk of `path`. Where this machine does not allow that, the error is a reason to skip.
    pub(super) fn of(path: &Path) -> Result<SlowDisk> {
        let refused = |error: std::io::Error| {
            BenchError::Unavailable(format!("writes cannot be throttled by a control group: {error}"))
        };
        let device = whole_disk(std::fs::metadata(path).map_err(refused)?.dev());
        let name = format!("standfast-bench-{}", std::process::id());
        let (group, file, limit) = match Path::new(BLOCK).is_dir() {
            true => (
                Path::new(BLOCK).join(name),
                "blkio.throttle.write_iops_device",
                format!("{device} {WRITES}"),
            ),
            false => {
                std::fs::write(Path::new(UNIFIED).join("cgroup.subtree_control"), "+io").map_err(refused)?;
                (Path::new(UNIFIED).join(name), "io.max", format!("{device} wiops={WRITES}"))
            }
        };
        std::fs::create_dir(&group).map_err(refused)?;
        let slow = SlowDisk(group);
        std::fs::write(slow.0.join(file), limit).map_err(refused)?;
        Ok(slow)
    }

    /// Moves a process into the group.
    pub(super) fn take(&self, pid: u32) -> Result<()> {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string())
            .map_err(|error| BenchError::Unavailable(format!("a control group takes no process: {error}")))
    }
}

impl Drop for SlowDisk {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir(&self.0) {
            eprintln!("note: cannot remove {}: {error}", self.0.display());
        }
    }
}

/// Numbers of the disk in the kernel's notation; a partition is throttled with its disk.
fn whole_disk(device: u64) -> String {
    let numbers = format!("{}:{}", libc::major(device), libc::minor(device));
    let entry = PathBuf::from(format!("/sys/dev/block/{numbers}"));
    let of_disk = || std::fs::read_to_string(entry.canonicalize().ok()?.parent()?.join("dev")).ok();
    match entry.join("partition").exists() {
        true => of_disk().map_or(numbers, |disk| disk.trim().to_owned()),
        false => numbers,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_no_partition_is_its_own_disk() {
        assert_eq!(whole_disk(libc::makedev(254, 0)), "254:0");
        assert_eq!(whole_disk(libc::makedev(0, 25)), "0:25");
    }
}
