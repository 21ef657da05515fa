//! Who may use the databases of an instance beyond its own user: `mode` and `group` in `[instance]`, for the shared memory
//! and the control socket.

use crate::config::InstanceConfig;
use crate::error::InstanceError;
use standfast_session::{Segment, SegmentError, published_mode, published_path};
use std::ffi::CString;
use std::fs::OpenOptions;
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, fchown, lchown};
use std::path::Path;

/// What a group may do with what is given to it.
const READ_AND_WRITE: u32 = 0o060;
/// All that a group may do.
const GROUP: u32 = 0o070;

/// Group and permissions of the shared memory and the control socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The group; `None`: that of the process.
    group: Option<u32>,
    /// The permissions.
    pub mode: u32,
}

impl Access {
    /// As configured.
    ///
    /// # Errors
    /// `Refused` when there is no such group.
    pub fn of(config: &InstanceConfig) -> Result<Access, InstanceError> {
        let mode = config.mode_bits().unwrap_or(0o600);
        if config.group.is_empty() {
            return Ok(Access { group: None, mode });
        }
        let Some(group) = number_of(&config.group) else {
            return Err(InstanceError::refused(
                format!("there is no group `{}`, which `group` in [instance] names", config.group),
                format!("make it (`groupadd {}`), or name another one or its number", config.group),
            ));
        };
        Ok(Access { group: Some(group), mode: mode | READ_AND_WRITE })
    }

    /// The shared memory at `path`, see [`Segment::create`]; at no moment it is open to another group.
    ///
    /// # Errors
    /// When it cannot be made or given to the group.
    pub fn segment(&self, path: &Path, instance: [u8; 16]) -> Result<(Segment, bool), InstanceError> {
        let Some(group) = self.group else { return Ok(Segment::create(path, instance, self.mode)?) };
        let has_group = [path, &published_path(path)]
            .iter()
            .all(|path| path.symlink_metadata().is_ok_and(|found| found.gid() == group));
        if has_group {
            return Ok(Segment::create(path, instance, self.mode)?);
        }
        let made = Segment::create(path, instance, self.mode & !GROUP)?;
        self.give_file(path, group, self.mode)?;
        self.give_file(&published_path(path), group, published_mode(self.mode))?;
        Ok(made)
    }

    /// Gives a file of the shared memory to `group`.
    fn give_file(&self, path: &Path, group: u32, mode: u32) -> Result<(), InstanceError> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(SegmentError::Io)?;
        fchown(&file, None, Some(group)).map_err(self.cannot_give(path))?;
        standfast_io::outside::set_mode(&file, mode).map_err(SegmentError::Io)?;
        Ok(())
    }

    /// Gives the control socket, which is in the instance's own directory, to the group.
    ///
    /// # Errors
    /// When that is not allowed.
    pub fn give_socket(&self, path: &Path) -> Result<(), InstanceError> {
        self.group.map_or(Ok(()), |group| lchown(path, None, Some(group)).map_err(self.cannot_give(path)))
    }

    fn cannot_give(&self, path: &Path) -> impl FnOnce(std::io::Error) -> InstanceError {
        let what = format!("{} cannot be given to group {}", path.display(), self.group.unwrap_or_default());
        move |error| {
            let hint = "run the instance as a member of the group that [instance] names, or as root";
            InstanceError::refused(format!("{what}: {error}"), hint)
        }
    }
}

/// The number of a group by its name, or by its number.
fn number_of(name: &str) -> Option<u32> {
    const BYTES: usize = 1 << 20;
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let name = CString::new(name).ok()?;
    let mut group = MaybeUninit::<libc::group>::uninit();
    let mut text = vec![0; BYTES];
    let mut found = std::ptr::null_mut();
    // SAFETY: a text that ends with NUL, and room of the sizes given for the results.
    let rc = unsafe {
        libc::getgrnam_r(name.as_ptr(), group.as_mut_ptr(), text.as_mut_ptr(), text.len(), &raw mut found)
    };
    // SAFETY: the call succeeded, and `found` points to the structure that it filled.
    (rc == 0 && !found.is_null()).then(|| unsafe { (*found).gr_gid })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(group: &str) -> InstanceConfig {
        InstanceConfig { group: group.into(), ..InstanceConfig::default() }
    }

    #[test]
    fn a_group_may_use_what_is_given_to_it() {
        assert_eq!(Access::of(&config("")).unwrap(), Access { group: None, mode: 0o600 });
        assert_eq!(Access::of(&config("60005")).unwrap(), Access { group: Some(60_005), mode: 0o660 });
        assert_eq!(Access::of(&config("root")).unwrap(), Access { group: Some(0), mode: 0o660 });
        let said = Access::of(&config("no-such-group")).unwrap_err().to_string();
        assert!(said.contains("groupadd no-such-group"), "{said}");
    }

    #[test]
    fn shared_memory_gets_the_group_and_keeps_it() {
        let path = std::env::temp_dir().join(format!("standfast-group-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let access = Access { group: Some(60_005), mode: 0o660 };
        match access.segment(&path, [1; 16]) {
            Err(error) => assert!(error.to_string().contains("member of the group"), "not root: {error}"),
            Ok(_) => {
                for _ in 0..2 {
                    let found = path.metadata().unwrap();
                    assert_eq!((found.gid(), found.mode() & 0o777), (60_005, 0o660));
                    assert!(!access.segment(&path, [1; 16]).unwrap().1, "the same one");
                }
            }
        }
        std::fs::remove_file(path).unwrap();
    }
}
