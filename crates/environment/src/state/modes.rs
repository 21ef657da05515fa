//! Permissions of the files in an instance directory; docs/security.md has the table.
//!
//! At the start, permissions that an earlier release left wider are narrowed, by descriptor, and the alert log says so.
//! Only files of this user are changed, and nothing through a symbolic link.

use crate::config::error::InstanceError;
use crate::config::settings::{CONFIG_FILE, Config};
use crate::state::paths::Paths;
use standfast_io::outside;
use std::fs::{File, Metadata, OpenOptions};
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Instance directory: other users reach only files whose names they know, the control socket and `alive`.
pub const DIRECTORY: u32 = 0o711;
/// Directories of redo, archived logs and certificates.
pub const PRIVATE_DIRECTORY: u32 = 0o700;
/// Directory of a standby's databases: the operator decides which other users may read them.
pub const DATABASES: u32 = 0o750;
/// All files except the alert log.
pub const FILE: u32 = 0o600;
pub const ALERT: u32 = 0o640;

const SECRETS: [&str; 5] = ["ca.key", "ca.crt", "identity.pem", "members.json", "authorities.json"];

/// Bits that let the group or all users write.
const WRITE_OF_OTHERS: u32 = 0o022;

/// Paths whose permissions an earlier release, or an operator, may have made wider, with the widest allowed
/// permissions.
fn places(paths: &Paths, config: &Config) -> Vec<(PathBuf, u32)> {
    let certificates = paths.directory.join(&config.security.directory);
    let within = |path: &PathBuf| path.starts_with(&paths.directory) && *path != paths.directory;
    let folders = paths.members.iter().chain([&paths.archive, &certificates]);
    let mut places = vec![(paths.directory.clone(), DIRECTORY), (paths.databases.clone(), DATABASES)];
    places.extend(folders.map(|folder| (folder.clone(), PRIVATE_DIRECTORY)));
    // A directory outside the instance directory may contain other things; there only the files are the instance's.
    places.retain(|(path, _)| *path == paths.directory || within(path));
    let files = ["control", CONFIG_FILE, "ready", "apply.journal", "creating", "lock"];
    places.extend(files.map(|name| (paths.directory.join(name), FILE)));
    let repository = paths.repository();
    for suffix in ["", "-wal", "-shm"] {
        places.push((format!("{}{suffix}", repository.display()).into(), FILE));
    }
    places.push((paths.alert.clone(), ALERT));
    places.extend(SECRETS.map(|name| (certificates.join(name), FILE)));
    places
}

/// Narrows permissions that are too wide. Returns what was done, as lines for the alert log.
///
/// # Errors
/// `Refused` when another user owns a file on which the instance relies.
pub fn tighten(paths: &Paths, config: &Config) -> Result<Vec<String>, InstanceError> {
    refuse_files_of_others(paths, config)?;
    let reported = places(paths, config).into_iter().filter_map(|(path, widest)| {
        // `None`: the path does not exist, or is a symbolic link.
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
    Ok(reported.collect())
}

/// Refuses settings, keys and roots of trust that belong to a user other than root, the owner of the directory and this
/// user: users who could write in a directory that was too wide may have placed them there.
fn refuse_files_of_others(paths: &Paths, config: &Config) -> Result<(), InstanceError> {
    let certificates = paths.directory.join(&config.security.directory);
    let mut all = vec![paths.directory.join(CONFIG_FILE), paths.control.clone(), certificates.clone()];
    all.extend(SECRETS.map(|name| certificates.join(name)));
    let owner_of = |path: &Path| path.symlink_metadata().ok().map(|found| found.uid());
    let trusted = [Some(0), Some(user()), owner_of(&paths.directory)];
    for path in all {
        let Some(owner) = owner_of(&path) else { continue };
        if !trusted.contains(&Some(owner)) {
            let shown = path.display();
            return Err(InstanceError::refused(
                format!("{shown} belongs to uid {owner}, who could make this instance do what he likes"),
                format!(
                    "find out how it came there; if it is what it should be, take it over (`chown -h {} {shown}`)",
                    user()
                ),
            ));
        }
    }
    Ok(())
}

/// Refuses to run as root in the instance directory of another user, usually a service user. That user can replace
/// every file in it, so root would write wherever the user chooses, and leave files that the user cannot read. `typed`
/// is the command line after `standfast`; `is_start`: the command accepts `--allow-root`. A directory that belongs to
/// root, or does not exist, is allowed.
///
/// # Errors
/// `Refused`, with the command that runs as that user.
pub fn refuse_root(directory: &Path, typed: &str, is_start: bool) -> Result<(), InstanceError> {
    let Some((owner, group)) = service_user(directory)? else { return Ok(()) };
    let shown = directory.display();
    let (who, run) = match name_of(owner) {
        Some(name) => (format!("user {name} (uid {owner})"), format!("runuser -u {name} --")),
        None => {
            let run = format!("setpriv --reuid={owner} --regid={group} --clear-groups");
            (format!("uid {owner}"), run)
        }
    };
    let command = format!("standfast {typed}");
    let or = match is_start {
        true => format!(", or, if you trust that user with root: `{command} --allow-root`"),
        false => String::new(),
    };
    Err(InstanceError::refused(
        format!("{shown} belongs to {who}, who could make root write wherever he likes"),
        format!("run it as that user: `{run} {command}`{or}"),
    ))
}

/// Returns owner and group of the directory if this process runs as root and another user owns it.
///
/// # Errors
/// The system's, except that a directory may be missing.
pub fn service_user(directory: &Path) -> Result<Option<(u32, u32)>, InstanceError> {
    match directory.metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(InstanceError::io("look at", directory)(error)),
        Ok(found) => Ok((user() == 0 && found.uid() != 0).then(|| (found.uid(), found.gid()))),
    }
}

fn user() -> u32 {
    // SAFETY: has no preconditions.
    unsafe { libc::geteuid() }
}

/// Login name of a user, if there is one and it is safe to put into a command.
fn name_of(uid: u32) -> Option<String> {
    let mut entry = std::mem::MaybeUninit::<libc::passwd>::uninit();
    let mut text = [0 as libc::c_char; 4096];
    let mut found: *mut libc::passwd = std::ptr::null_mut();
    // SAFETY: all three point to memory of the stated sizes, which lives until the end of this function.
    let rc =
        unsafe { libc::getpwuid_r(uid, entry.as_mut_ptr(), text.as_mut_ptr(), text.len(), &raw mut found) };
    if rc != 0 || found.is_null() {
        return None;
    }
    // SAFETY: the entry was found, so `found` points to `entry`, and the name to a C string in `text`.
    let name = unsafe { std::ffi::CStr::from_ptr((*found).pw_name) }.to_str().ok()?;
    let is_plain = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
    is_plain.then(|| name.to_owned())
}

/// Opens a file or directory that belongs to this user; never blocks.
fn open(path: &Path) -> Option<File> {
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).ok()?;
    (file.metadata().ok()?.uid() == user()).then_some(file)
}

/// The users who may read a file with a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readers {
    /// The owner only: a join token. Its group too, if root made the file for a process that does not run as root.
    Owner,
    /// The owner and its group: the HTTP token, which monitoring uses as well.
    Group,
}

/// Reads a short secret from the file that holds it.
///
/// # Errors
/// `Refused` when the path is not a regular file, the file is too long, or users outside `readers` may read or write
/// it.
pub fn read_secret(path: &Path, readers: Readers) -> Result<String, InstanceError> {
    const BYTES_MAX: u64 = 64 * 1024;
    let shown = path.display();
    let file = outside::open(path).map_err(|error| match error.raw_os_error() {
        // Detected by `outside`, not by the system.
        None => InstanceError::refused(
            format!("{shown} is not read as a secret: {error}"),
            "name the regular file itself, not a link, a pipe or a device; a join token may also come on standard input \
             (`--token-file -`)",
        ),
        Some(_) => InstanceError::io("read the secret in", path)(error),
    })?;
    let metadata = file.metadata().map_err(InstanceError::io("look at", path))?;
    check_secret(path, &metadata, readers)?;
    let mut text = String::new();
    file.take(BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(InstanceError::io("read the secret in", path))?;
    if text.len() as u64 > BYTES_MAX {
        return Err(InstanceError::refused(
            format!("{shown} is too long for a secret: more than {BYTES_MAX} bytes"),
            "name the file that holds the secret and nothing else",
        ));
    }
    Ok(text)
}

/// Checks that the file, already open, is not accessible to other users.
fn check_secret(path: &Path, found: &Metadata, readers: Readers) -> Result<(), InstanceError> {
    let (mode, owner, me) = (found.mode() & 0o777, found.uid(), user());
    let shown = path.display();
    if owner != 0 && owner != me {
        return Err(InstanceError::refused(
            format!("{shown} holds a secret and belongs to uid {owner}, who may read it and write it"),
            format!(
                "make another secret if that user is not to have it, and run `chown {me} {shown}; chmod 600 {shown}`"
            ),
        ));
    }
    let for_group = readers == Readers::Group || (owner == 0 && me != 0);
    let too_wide = if for_group { 0o027 } else { 0o077 };
    if mode & too_wide == 0 {
        return Ok(());
    }
    Err(InstanceError::refused(
        format!("{shown} holds a secret and has the permissions {mode:04o}: others may read it or write it"),
        format!("make another secret if they may have read it, and run `chmod 600 {shown}`"),
    ))
}

/// Makes standard output unreadable for other users if it is a file of this user. Call it before a secret is written
/// there.
pub fn narrow_output() {
    // Works on a duplicate of the descriptor; does nothing when that cannot be made.
    let Ok(output) = std::io::stdout().as_fd().try_clone_to_owned() else { return };
    let output = File::from(output);
    let Ok(found) = output.metadata() else { return };
    if found.is_file() && found.uid() == user() && found.mode() & 0o077 != 0 {
        // If this fails, the reader of the file refuses it.
        let _ = outside::set_mode(&output, FILE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_types::Hint;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn set_mode(path: &Path, mode: u32) {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn read(path: &Path) -> Result<String, InstanceError> {
        read_secret(path, Readers::Owner)
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
    fn wide_permissions_of_older_files_are_tightened_and_reported() {
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
        let reported = tighten(&paths, &config).unwrap();
        assert_eq!(reported.len(), 4, "{reported:?}");
        assert!(
            reported.iter().any(|line| line.contains("0777") && line.contains("could write")),
            "{reported:?}"
        );
        assert_eq!((mode(&directory), mode(&paths.members[0])), (DIRECTORY, PRIVATE_DIRECTORY));
        assert_eq!((mode(&paths.alert), mode(&paths.ready)), (ALERT, FILE));
        assert_eq!(mode(&elsewhere), 0o666, "nothing through a link");
        assert_eq!(tighten(&paths, &config).unwrap(), Vec::<String>::new(), "once");
        // Permissions that the operator narrowed further stay.
        set_mode(&directory, 0o700);
        assert_eq!(tighten(&paths, &config).unwrap(), Vec::<String>::new());
        assert_eq!(mode(&directory), 0o700);
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn root_cannot_run_an_instance_in_the_directory_of_a_user() {
        let (directory, paths, config) = place("owner");
        assert!(refuse_root(&directory, "start", true).is_ok(), "one's own");
        assert!(refuse_root(&directory.join("none"), "init", false).is_ok());
        if std::os::unix::fs::chown(&directory, Some(60_001), Some(60_002)).is_err() {
            eprintln!("skipped: directories of other users take root");
        } else {
            let refused =
                |is_start| refuse_root(&directory, "-D x start", is_start).unwrap_err().for_terminal();
            let run = "`setpriv --reuid=60001 --regid=60002 --clear-groups standfast -D x start`";
            assert!(refused(true).contains(run), "{}", refused(true));
            assert!(refused(true).contains("`standfast -D x start --allow-root`"), "{}", refused(true));
            assert!(!refused(false).contains("--allow-root"));
            // Files of the directory's owner are accepted.
            std::os::unix::fs::chown(&directory, Some(60_001), None).unwrap();
            std::fs::write(paths.directory.join(CONFIG_FILE), "").unwrap();
            assert!(tighten(&paths, &config).is_ok());
            std::os::unix::fs::chown(paths.directory.join(CONFIG_FILE), Some(60_002), None).unwrap();
            let reported = tighten(&paths, &config).unwrap_err().for_terminal();
            assert!(
                reported.contains("standfast.toml belongs to uid 60002") && reported.contains("chown -h"),
                "{reported}"
            );
        }
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn user_name_is_resolved_for_the_remedy_if_it_exists() {
        assert_eq!(name_of(0).as_deref(), Some("root"));
        assert_eq!(name_of(60_001), None);
    }

    #[test]
    fn secret_readable_by_other_users_is_refused() {
        let (directory, _, _) = place("secret");
        let path = directory.join("token");
        std::fs::write(&path, "secret").unwrap();
        for (mode, good) in [(0o600, true), (0o400, true), (0o640, false), (0o644, false), (0o660, false)] {
            set_mode(&path, mode);
            assert_eq!(read(&path).is_ok(), good, "{mode:o}");
            let for_group = read_secret(&path, Readers::Group).is_ok();
            assert_eq!(for_group, good || mode == 0o640, "{mode:o}");
        }
        assert!(read(&path).unwrap_err().for_terminal().contains("chmod 600"));
        set_mode(&path, 0o600);
        if std::os::unix::fs::chown(&path, Some(60_001), None).is_ok() {
            assert!(read(&path).unwrap_err().for_terminal().contains("uid 60001"));
        }
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn secret_that_is_no_regular_file_is_refused_without_blocking() {
        let (directory, _, _) = place("special");
        let (path, fifo, link) = (directory.join("token"), directory.join("fifo"), directory.join("link"));
        std::fs::write(&path, "secret").unwrap();
        set_mode(&path, 0o600);
        symlink(&path, &link).unwrap();
        let name = std::ffi::CString::new(fifo.to_str().unwrap()).unwrap();
        // SAFETY: a C string.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        for path in [fifo.as_path(), &link, &directory, Path::new("/dev/zero")] {
            let reported = read(path).unwrap_err().for_terminal();
            assert!(reported.contains("regular file"), "{}: {reported}", path.display());
        }
        std::fs::write(&path, "x".repeat(70_000)).unwrap();
        assert!(read(&path).unwrap_err().for_terminal().contains("too long"));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
