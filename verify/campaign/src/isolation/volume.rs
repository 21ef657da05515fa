//! A small volume: a file with an ext4 file system, mounted over a directory.

use crate::process::run;
use crate::{During, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

const BYTES: u64 = 64 << 20;

pub struct Volume {
    directory: PathBuf,
    image: PathBuf,
}

impl Volume {
    /// Creates a volume and mounts it at `directory`.
    ///
    /// # Errors
    /// When this process may not mount, or mkfs.ext4 is not installed.
    pub fn at(directory: &Path) -> Result<Volume> {
        let image = directory.with_extension("image");
        let during = || format!("make a volume at {}", directory.display());
        std::fs::create_dir_all(directory).during(during)?;
        let file = std::fs::File::create(&image).during(during)?;
        file.set_len(BYTES).during(during)?;
        let mut format = Command::new("mkfs.ext4");
        // No reserve for root, which runs the programs of a campaign.
        format.args(["-q", "-F", "-m", "0"]).arg(&image);
        run(format)?.ok()?;
        let mut mount = Command::new("mount");
        mount.args(["-o", "loop"]).arg(&image).arg(directory);
        run(mount)?.ok()?;
        Ok(Volume { directory: directory.into(), image })
    }

    /// Takes all free space of the volume but `left` bytes.
    ///
    /// # Errors
    /// When the file that takes it cannot be created.
    pub fn fill(&self, left: u64) -> Result<()> {
        use std::os::fd::AsRawFd;
        let path = self.ballast();
        let during = || format!("fill {}", path.display());
        let file = std::fs::File::create(&path).during(during)?;
        let mut info = std::mem::MaybeUninit::<libc::statvfs>::uninit();
        // SAFETY: the descriptor is open, and there is room for the answer.
        if unsafe { libc::fstatvfs(file.as_raw_fd(), info.as_mut_ptr()) } != 0 {
            return Err(std::io::Error::last_os_error()).during(during);
        }
        // SAFETY: fstatvfs has filled it in.
        let info = unsafe { info.assume_init() };
        let free = info.f_bavail * info.f_frsize;
        let taken = free.saturating_sub(left) as libc::off_t;
        // SAFETY: the descriptor is open.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, taken) } {
            0 => Ok(()),
            code => Err(std::io::Error::from_raw_os_error(code)).during(during),
        }
    }

    /// Frees the space that [`Volume::fill`] took.
    pub fn empty(&self) {
        let _ = std::fs::remove_file(self.ballast());
    }

    fn ballast(&self) -> PathBuf {
        self.directory.join("ballast")
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        let mut umount = Command::new("umount");
        umount.arg("-l").arg(&self.directory);
        // A mount that is still busy now goes with the loop device.
        let _ = run(umount);
        let _ = std::fs::remove_file(&self.image);
    }
}
