//! Which users besides the instance's own may use its databases: `mode` and `group` in `[instance]`, for the shared
//! memory and the control sockets.
//!
//! Without `group`, access goes to the group that may write the files of all databases: it could already write to each
//! of them. If the files differ, no group gets access: all databases share one shared memory, whose users can disturb
//! each other.

use crate::config::error::InstanceError;
use crate::config::settings::InstanceConfig;
use standfast_session::{Segment, SegmentError, published_mode, published_path};
use standfast_types::hint;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs::{Metadata, OpenOptions, Permissions};
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown, lchown};
use std::path::{Path, PathBuf};

const READ_AND_WRITE: u32 = 0o060;
/// All permissions that a group can have.
const GROUP: u32 = 0o070;
/// Value of `group` that names no group.
const NO_GROUP: &str = "none";

/// Group and permissions of the shared memory and the control socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The group; `None`: that of the process.
    group: Option<u32>,
    pub mode: u32,
    given: Given,
}

/// How it was determined which group uses the databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Given {
    /// The configuration names the group, or says that there is none.
    Configured,
    /// By the files of the databases; there is no group where no group may write any of them.
    ByDatabases,
    /// The groups of the files differ, or only some of the files may be written by their group.
    Differing,
}

impl Access {
    /// Determines the access as configured, or by the files at `databases`.
    ///
    /// # Errors
    /// `Refused` when there is no such group.
    pub fn of(config: &InstanceConfig, databases: &[PathBuf]) -> Result<Access, InstanceError> {
        let mode = config.mode_bits().unwrap_or(0o600);
        let of_process = |given| Access { group: None, mode, given };
        match config.group.as_str() {
            "" if mode & GROUP == 0 => {
                let found = databases.iter().filter_map(|path| Some(writers(&path.symlink_metadata().ok()?)));
                let found: BTreeSet<Option<u32>> = found.collect();
                return Ok(match (found.len(), found.first().copied().flatten()) {
                    (1, Some(group)) if may_give(group) => {
                        Access { group: Some(group), mode: mode | READ_AND_WRITE, given: Given::ByDatabases }
                    }
                    (0 | 1, _) => of_process(Given::ByDatabases),
                    _ => of_process(Given::Differing),
                });
            }
            "" | NO_GROUP => return Ok(of_process(Given::Configured)),
            _ => {}
        }
        let Some(group) = number_of(&config.group) else {
            return Err(InstanceError::refused(
                format!("there is no group `{}`, which `group` in [instance] names", config.group),
                format!("make it (`groupadd {}`), or name another one or its number", config.group),
            ));
        };
        Ok(Access { group: Some(group), mode: mode | READ_AND_WRITE, given: Given::Configured })
    }

    /// Returns what an operator should know of it.
    pub fn differing(&self) -> Option<String> {
        let remedy =
            "`group` in [instance] says it for all of them; \"none\": only root and the user of the instance";
        match (self.given, self.group) {
            (Given::ByDatabases, Some(group)) => Some(format!(
                "group {group}, which may write the files of all databases, uses them and looks at the instance"
            )),
            (Given::Differing, _) => Some(hint::in_one_line(
                "the files of the databases have different groups, or only some may be written by theirs: no group uses them",
                Some(remedy),
            )),
            _ => None,
        }
    }

    /// Creates the shared memory at `path`, see [`Segment::create`]; it is never open to another group.
    ///
    /// # Errors
    /// When it cannot be created or given to the group.
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

    /// Gives access to what a running instance has already created, after a database was added or removed. A group that
    /// has access by the databases keeps it until the next start, whatever comes: the users of the first databases
    /// continue.
    ///
    /// # Errors
    /// When it cannot be given.
    pub fn give_again(
        &self,
        segment: &Path,
        sockets: impl Iterator<Item = PathBuf>,
    ) -> Result<(), InstanceError> {
        let (Given::ByDatabases, Some(group)) = (self.given, self.group) else { return Ok(()) };
        self.give_file(segment, group, self.mode)?;
        self.give_file(&published_path(segment), group, published_mode(self.mode))?;
        for socket in sockets {
            self.give_socket(&socket)?;
        }
        Ok(())
    }

    /// Whether the shared memory at `segment` is for a group that this access does not include: the group of databases
    /// that were there at the start.
    pub fn is_narrower(&self, segment: &Path) -> bool {
        let is_given = |found: Metadata| found.mode() & GROUP != 0 && Some(found.gid()) != self.group;
        self.given != Given::Configured && segment.symlink_metadata().is_ok_and(is_given)
    }

    /// Gives a file of the shared memory to `group`.
    fn give_file(&self, path: &Path, group: u32, mode: u32) -> Result<(), InstanceError> {
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(SegmentError::Io)?;
        fchown(&file, None, Some(group)).map_err(self.cannot_give(path))?;
        standfast_io::outside::set_mode(&file, mode).map_err(SegmentError::Io)?;
        Ok(())
    }

    /// Returns the permissions of a control socket before it is given to the group.
    pub fn mode_before(&self) -> u32 {
        self.group.map_or(self.mode, |_| self.mode & !GROUP)
    }

    /// Gives a control socket, which is in a directory where only the instance makes files, to the group.
    ///
    /// # Errors
    /// When that is not allowed.
    pub fn give_socket(&self, path: &Path) -> Result<(), InstanceError> {
        let Some(group) = self.group else { return Ok(()) };
        lchown(path, None, Some(group)).map_err(self.cannot_give(path))?;
        std::fs::set_permissions(path, Permissions::from_mode(self.mode))
            .map_err(InstanceError::io("set the permissions of", path))
    }

    fn cannot_give(&self, path: &Path) -> impl FnOnce(std::io::Error) -> InstanceError {
        let what = format!("{} cannot be given to group {}", path.display(), self.group.unwrap_or_default());
        move |error| {
            let hint = "run the instance as a member of the group that [instance] names, or as root";
            InstanceError::refused(format!("{what}: {error}"), hint)
        }
    }
}

/// Returns the group that may write a database file, if there is one.
fn writers(file: &Metadata) -> Option<u32> {
    (file.is_file() && file.mode() & READ_AND_WRITE == READ_AND_WRITE).then_some(file.gid())
}

/// Whether this process may give files to `group`.
fn may_give(group: u32) -> bool {
    const GROUPS_MAX: usize = 65_536;
    let mut groups = vec![0; GROUPS_MAX];
    // SAFETY: room for the number of groups given; the other calls have no preconditions.
    let (user, own, found) = unsafe {
        (libc::geteuid(), libc::getegid(), libc::getgroups(GROUPS_MAX as libc::c_int, groups.as_mut_ptr()))
    };
    user == 0 || own == group || groups[..usize::try_from(found).unwrap_or(0)].contains(&group)
}

/// Returns the number of a group, given its name or its number.
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
    use standfast_types::Hint;

    fn config(group: &str) -> InstanceConfig {
        InstanceConfig { group: group.into(), ..InstanceConfig::default() }
    }

    #[test]
    fn configured_group_gets_read_and_write_access() {
        let of = |group: &str| Access::of(&config(group), &[]).map(|access| (access.group, access.mode));
        assert_eq!(of("").unwrap(), (None, 0o600));
        assert_eq!(of("60005").unwrap(), (Some(60_005), 0o660));
        assert_eq!(of("root").unwrap(), (Some(0), 0o660));
        let reported = of("no-such-group").unwrap_err().for_terminal();
        assert!(reported.contains("groupadd no-such-group"), "{reported}");
    }

    #[test]
    fn group_with_write_access_to_every_database_is_chosen() {
        let directory = std::env::temp_dir().join(format!("standfast-groups-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let database = |name: &str, group: u32, mode: u32| {
            let path = directory.join(name);
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            std::os::unix::fs::chown(&path, None, Some(group)).map(|()| path)
        };
        let Ok(first) = database("first", 60_005, 0o660) else {
            eprintln!("skipped: files of other groups take root");
            return;
        };
        let second = database("second", 60_005, 0o664).unwrap();
        let readable = database("readable", 60_005, 0o640).unwrap();
        let other = database("other", 60_006, 0o660).unwrap();
        let gone = directory.join("gone");
        let access = |config: &InstanceConfig, paths: &[&PathBuf]| {
            let paths: Vec<PathBuf> = paths.iter().map(|path| (*path).clone()).collect();
            let access = Access::of(config, &paths).unwrap();
            (access.group, access.mode, access.differing().is_some())
        };
        let auto = config("");
        assert_eq!(access(&auto, &[&first, &second, &gone]), (Some(60_005), 0o660, true));
        assert_eq!(access(&auto, &[&readable]), (None, 0o600, false), "it may not write");
        for differing in [&other, &readable] {
            assert_eq!(access(&auto, &[&first, differing]), (None, 0o600, true));
        }
        assert_eq!(access(&config("none"), &[&first]), (None, 0o600, false));
        let of_process = InstanceConfig { mode: "0660".into(), ..auto };
        assert_eq!(access(&of_process, &[&first]), (None, 0o660, false), "as configured");
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn shared_memory_gets_and_keeps_the_configured_group() {
        let path = std::env::temp_dir().join(format!("standfast-group-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let access = Access { group: Some(60_005), mode: 0o660, given: Given::Configured };
        match access.segment(&path, [1; 16]) {
            Err(error) => assert!(error.for_terminal().contains("member of the group"), "not root: {error}"),
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
