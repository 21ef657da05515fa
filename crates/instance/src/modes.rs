//! The permissions of what an instance has in its directory; docs/security.md has the table for people.
//!
//! What an earlier release made wider is narrowed at the start, by descriptor, and the alert log says so. Only what belongs
//! to this user is changed, and nothing through a link.

use crate::config::{CONFIG_FILE, Config};
use crate::error::InstanceError;
use crate::paths::Paths;
use standfast_io::outside;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Of the instance directory: other users reach what they know the name of, the control socket and `alive`.
pub const DIRECTORY: u32 = 0o711;
/// Of the directories of redo, archived logs and certificates.
pub const PRIVATE_DIRECTORY: u32 = 0o700;
/// Of the directory of a standby's databases: who else may read them is for the operator to say.
pub const DATABASES: u32 = 0o750;
/// Of all files but the next.
pub const FILE: u32 = 0o600;
/// Of the alert log.
pub const ALERT: u32 = 0o640;

/// Bits that let the group or everybody write.
const WRITE_OF_OTHERS: u32 = 0o022;

/// What may have been made wider by an earlier release, or by hand, and the widest permissions that it is to have.
fn places(paths: &Paths, config: &Config) -> Vec<(PathBuf, u32)> {
    let certificates = paths.directory.join(&config.security.directory);
    let within = |path: &PathBuf| path.starts_with(&paths.directory) && *path != paths.directory;
    let folders = paths.members.iter().chain([&paths.archive, &certificates]);
    let mut places = vec![(paths.directory.clone(), DIRECTORY), (paths.databases.clone(), DATABASES)];
    places.extend(folders.map(|folder| (folder.clone(), PRIVATE_DIRECTORY)));
    // Where other things may be, too, only the files are the instance's.
    places.retain(|(path, _)| *path == paths.directory || within(path));
    let files = ["control", CONFIG_FILE, "ready", "apply.journal", "creating", "lock"];
    places.extend(files.map(|name| (paths.directory.join(name), FILE)));
    let repository = paths.repository();
    for suffix in ["", "-wal", "-shm"] {
        places.push((format!("{}{suffix}", repository.display()).into(), FILE));
    }
    places.push((paths.alert.clone(), ALERT));
    let secrets = ["ca.key", "ca.crt", "identity.pem", "members.json"];
    places.extend(secrets.map(|name| (certificates.join(name), FILE)));
    places
}

/// Narrows what is wider than it should be. Returns what was done, for the alert log.
///
/// # Errors
/// `Refused` when the directory belongs to another user than the one who runs the instance as root.
pub fn tighten(paths: &Paths, config: &Config) -> Result<Vec<String>, InstanceError> {
    refuse_directory_of_another(&paths.directory)?;
    let said = places(paths, config).into_iter().filter_map(|(path, widest)| {
        // Not there, or a link that the owner of the directory has made.
        let file = open(&path)?;
        let mode = file.metadata().ok()?.mode() & 0o7777;
        let narrow = mode & (widest | 0o7000);
        if mode == narrow {
            return None;
        }
        let text = format!("{} had the permissions {mode:04o}", path.display());
        let warn = if mode & WRITE_OF_OTHERS != 0 { "; other users could write there until now" } else { "" };
        Some(match outside::set_mode(&file, narrow) {
            Ok(()) => format!("{text}, and has {narrow:04o} now{warn}"),
            Err(error) => format!("{text}, which is wider than {narrow:04o}, and stays so: {error}"),
        })
    });
    Ok(said.collect())
}

/// The owner of the directory can replace every file in it: an instance of root would write wherever that owner chooses.
fn refuse_directory_of_another(directory: &Path) -> Result<(), InstanceError> {
    let owner = directory.metadata().map_err(InstanceError::io("look at", directory))?.uid();
    // SAFETY: has no preconditions.
    if owner == 0 || unsafe { libc::geteuid() } != 0 {
        return Ok(());
    }
    let shown = directory.display();
    Err(InstanceError::refused(
        format!("{shown} belongs to uid {owner}, who could make an instance of root write wherever he likes"),
        format!(
            "run it as that user (`sudo -u '#{owner}' standfast start -D {shown}`), or make it root's (`chown -R 0:0 {shown}`)"
        ),
    ))
}

/// A file or directory that belongs to this user; never waits.
fn open(path: &Path) -> Option<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    // SAFETY: has no preconditions.
    (file.metadata().ok()?.uid() == unsafe { libc::geteuid() }).then_some(file)
}

/// Checks that a file with a secret that somebody else has made is not open to everybody, and is not written by others.
///
/// # Errors
/// `Refused` when it is.
pub fn check_secret(path: &Path) -> Result<(), InstanceError> {
    const TOO_WIDE: u32 = 0o027;
    let mode = path.metadata().map_err(InstanceError::io("look at", path))?.mode() & 0o777;
    if mode & TOO_WIDE == 0 {
        return Ok(());
    }
    let shown = path.display();
    Err(InstanceError::refused(
        format!("{shown} holds a secret and has the permissions {mode:04o}: others may read it or write it"),
        format!("make another secret if they may have read it, and run `chmod 600 {shown}`"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().mode() & 0o777
    }

    fn place(name: &str) -> (PathBuf, Paths, Config) {
        let directory = std::env::temp_dir().join(format!("standfast-modes-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let config = Config::default();
        let paths = Paths::new(&directory, &config).unwrap();
        (directory, paths, config)
    }

    #[test]
    fn what_an_earlier_release_made_wider_is_narrowed_and_said() {
        let (directory, paths, config) = place("wide");
        std::fs::create_dir(&paths.members[0]).unwrap();
        std::fs::write(&paths.alert, "").unwrap();
        std::fs::write(&paths.ready, "").unwrap();
        let elsewhere = directory.join("elsewhere");
        std::fs::write(&elsewhere, "").unwrap();
        symlink(&elsewhere, &paths.control).unwrap();
        for (path, mode) in [(&directory, 0o777), (&paths.members[0], 0o755), (&paths.alert, 0o644)] {
            set_mode(path, mode);
        }
        set_mode(&paths.ready, 0o644);
        set_mode(&elsewhere, 0o666);
        let said = tighten(&paths, &config).unwrap();
        assert_eq!(said.len(), 4, "{said:?}");
        assert!(said.iter().any(|line| line.contains("0777") && line.contains("could write")), "{said:?}");
        assert_eq!((mode(&directory), mode(&paths.members[0])), (DIRECTORY, PRIVATE_DIRECTORY));
        assert_eq!((mode(&paths.alert), mode(&paths.ready)), (ALERT, FILE));
        assert_eq!(mode(&elsewhere), 0o666, "nothing through a link");
        assert_eq!(tighten(&paths, &config).unwrap(), Vec::<String>::new(), "once");
        // What the operator has narrowed further stays.
        set_mode(&directory, 0o700);
        assert_eq!(tighten(&paths, &config).unwrap(), Vec::<String>::new());
        assert_eq!(mode(&directory), 0o700);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn root_does_not_run_an_instance_in_the_directory_of_a_user() {
        let (directory, paths, config) = place("owner");
        if std::os::unix::fs::chown(&directory, Some(60_001), None).is_err() {
            eprintln!("skipped: directories of other users take root");
        } else {
            let said = tighten(&paths, &config).unwrap_err().to_string();
            assert!(said.contains("uid 60001") && said.contains("chown -R 0:0"), "{said}");
        }
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_secret_that_others_may_read_is_refused() {
        let (directory, _, _) = place("secret");
        let path = directory.join("token");
        std::fs::write(&path, "secret").unwrap();
        for (mode, good) in [(0o600, true), (0o640, true), (0o400, true), (0o644, false), (0o660, false)] {
            set_mode(&path, mode);
            assert_eq!(check_secret(&path).is_ok(), good, "{mode:o}");
        }
        assert!(check_secret(&path).unwrap_err().to_string().contains("chmod 600"));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
