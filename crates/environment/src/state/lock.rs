//! Locks an instance directory for one process, and lets other processes check whether an instance is running.
//!
//! There are two files, because a user who may open a file may also lock it:
//! - `lock`, accessible to the instance's user only: its first byte is write-locked while the process lives.
//! - `alive`, a socket that accepts no connections and that every user may probe, see [`standfast_session::liveness`].
//!   Its binding ends with the process, and another process needs write access to the directory to bind there.

use crate::config::error::InstanceError;
use crate::state::control_socket;
use crate::state::paths::Paths;
use standfast_session::liveness::{self, ALIVE};
use std::fs::{File, OpenOptions};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

const LOCK: u32 = 0o600;
const LOCK_MAX: u32 = 0o777;
/// Connecting requires write permission; the instance never reads what is written.
const EVERYBODY: u32 = 0o666;

/// Locks the instance directory. The lock lasts as long as the file is open; the kernel releases it when the process
/// dies.
pub fn lock_directory(paths: &Paths) -> Result<File, InstanceError> {
    let running = || InstanceError::AlreadyRunning { directory: paths.directory.clone() };
    take(&paths.lock, &paths.directory, running)
}

/// Locks the directory of an instance for a command that works on one that is stopped.
///
/// # Errors
/// `Refused` when it runs.
pub fn lock_stopped(paths: &Paths) -> Result<File, InstanceError> {
    lock_directory(paths).map_err(|error| match error {
        InstanceError::AlreadyRunning { directory } => InstanceError::refused(
            "the instance runs",
            format!("stop it first: standfast stop -D {}", directory.display()),
        ),
        error => error,
    })
}

/// Locks a runtime directory, which several instances may share by mistake.
pub(crate) fn lock_runtime(directory: &Path) -> Result<File, InstanceError> {
    let running = || {
        let shown = directory.display();
        InstanceError::refused(
            format!("{shown} is the runtime directory of another instance, which runs"),
            "name another one in `runtime_directory` in [instance]",
        )
    };
    take(&directory.join("lock"), directory, running)
}

fn take(
    path: &Path,
    directory: &Path,
    running: impl FnOnce() -> InstanceError,
) -> Result<File, InstanceError> {
    let mut options = OpenOptions::new();
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    options.read(true).write(true).create(true).truncate(false).mode(LOCK).custom_flags(flags);
    let failed = || InstanceError::io("open the lock file", path);
    let file = options.open(path).map_err(failed())?;
    let metadata = file.metadata().map_err(failed())?;
    let shown = path.display();
    let remove = format!("if no instance runs there, remove it (`rm {shown}`) and start again");
    // SAFETY: has no preconditions.
    let user = unsafe { libc::geteuid() };
    let of_directory = directory.metadata().map_err(failed())?.uid();
    if !metadata.is_file() || ![user, of_directory].contains(&metadata.uid()) {
        let what =
            format!("{shown} is not a lock file of this instance: it belongs to uid {}", metadata.uid());
        return Err(InstanceError::refused(what, remove));
    }
    // Files of an earlier release may be wider, and a user who may open the file may lock it.
    if metadata.mode() & LOCK_MAX != LOCK {
        file.set_permissions(PermissionsExt::from_mode(LOCK)).map_err(failed())?;
    }
    // SAFETY: an open descriptor and a valid lock structure.
    if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &whole_lock()) } == 0 {
        return Ok(file);
    }
    match holder(&file) {
        Some(libc::F_RDLCK) => {
            let what = format!("{shown} is locked for reading by a process that is no instance");
            Err(InstanceError::refused(what, remove))
        }
        _ => Err(running()),
    }
}

/// Marks the directory as served by this process, which holds its lock, for as long as the descriptor is open.
pub fn show_alive(directory: &Path) -> Result<OwnedFd, InstanceError> {
    let path = directory.join(ALIVE);
    let fresh = directory.join(format!("{ALIVE}.new"));
    let show = || {
        let _ = std::fs::remove_file(&fresh);
        let socket = control_socket::bind(&fresh, libc::SOCK_SEQPACKET)?;
        std::fs::set_permissions(&fresh, PermissionsExt::from_mode(EVERYBODY))?;
        // Renaming replaces the old socket atomically: the path always exists.
        std::fs::rename(&fresh, &path)?;
        Ok(socket)
    };
    show().map_err(InstanceError::io("make the socket", &path))
}

/// Whether an instance process serves the directory. Queries the lock without taking it; taking it would keep an
/// instance from starting.
pub fn is_locked(paths: &Paths) -> bool {
    match File::open(&paths.lock) {
        Ok(file) => holder(&file).is_some(),
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            liveness::probe(&paths.directory) == Some(true)
        }
        Err(_) => false,
    }
}

/// Returns the type of the lock that another process holds.
fn holder(file: &File) -> Option<libc::c_int> {
    let mut lock = whole_lock();
    // SAFETY: an open descriptor and a valid lock structure, which the kernel fills.
    let asked = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &mut lock) };
    let kind = libc::c_int::from(lock.l_type);
    (asked == 0 && kind != libc::F_UNLCK).then_some(kind)
}

fn whole_lock() -> libc::flock {
    libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: libc::SEEK_SET as i16,
        l_start: 0,
        l_len: 1,
        l_pid: 0,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::config::settings::Config;
    use standfast_types::Hint;
    use std::sync::Mutex;

    /// Held by a test while it starts a process, because a child has all descriptors of its parent open until it calls
    /// exec; and by tests of what closing a file releases.
    pub(crate) static STARTS: Mutex<()> = Mutex::new(());

    fn paths(name: &str) -> Paths {
        let directory = std::env::temp_dir().join(format!("standfast-lock-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        Paths::new(&directory, &Config::default()).unwrap()
    }

    #[test]
    fn lock_file_mode_is_0600_even_if_an_older_release_made_it() {
        let paths = paths("mode");
        std::fs::write(&paths.lock, "").unwrap();
        std::fs::set_permissions(&paths.lock, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(!is_locked(&paths));
        let lock = lock_directory(&paths).unwrap();
        assert_eq!(paths.lock.metadata().unwrap().mode() & 0o777, 0o600);
        assert!(is_locked(&paths));
        assert!(matches!(lock_directory(&paths), Err(InstanceError::AlreadyRunning { .. })));
        {
            let _no_start = STARTS.lock().unwrap();
            drop(lock);
            assert!(!is_locked(&paths));
        }
        std::fs::remove_dir_all(&paths.directory).unwrap();
    }

    #[test]
    fn read_lock_from_before_the_upgrade_is_reported_with_a_remedy() {
        let paths = paths("reader");
        std::fs::write(&paths.lock, "").unwrap();
        let other = File::open(&paths.lock).unwrap();
        let read_lock = libc::flock { l_type: libc::F_RDLCK as i16, ..whole_lock() };
        // SAFETY: an open descriptor and a valid lock structure.
        assert_eq!(unsafe { libc::fcntl(other.as_raw_fd(), libc::F_OFD_SETLK, &read_lock) }, 0);
        let reported = lock_directory(&paths).unwrap_err().for_terminal();
        assert!(reported.contains("no instance") && reported.contains("rm "), "{reported}");
        std::fs::remove_file(&paths.lock).unwrap();
        lock_directory(&paths).unwrap();
        std::fs::remove_dir_all(&paths.directory).unwrap();
    }

    #[test]
    fn lock_file_that_is_a_link_or_of_another_user_is_refused() {
        let paths = paths("link");
        std::os::unix::fs::symlink(paths.directory.join("elsewhere"), &paths.lock).unwrap();
        lock_directory(&paths).unwrap_err();
        assert!(!paths.directory.join("elsewhere").exists());
        std::fs::remove_file(&paths.lock).unwrap();
        std::fs::write(&paths.lock, "").unwrap();
        if std::os::unix::fs::chown(&paths.lock, Some(60_001), None).is_ok() {
            let reported = lock_directory(&paths).unwrap_err().for_terminal();
            assert!(reported.contains("uid 60001"), "{reported}");
        }
        std::fs::remove_dir_all(&paths.directory).unwrap();
    }

    #[test]
    fn instance_is_reported_alive_until_its_socket_closes() {
        let paths = paths("alive");
        assert_eq!(liveness::probe(&paths.directory), None, "nothing tells");
        let socket = show_alive(&paths.directory).unwrap();
        assert_eq!(liveness::probe(&paths.directory), Some(true));
        assert_eq!(paths.directory.join(ALIVE).metadata().unwrap().mode() & 0o777, EVERYBODY);
        {
            let _no_start = STARTS.lock().unwrap();
            drop(socket);
            assert_eq!(liveness::probe(&paths.directory), Some(false));
        }
        let _again = show_alive(&paths.directory).unwrap();
        assert_eq!(liveness::probe(&paths.directory), Some(true));
        std::fs::remove_dir_all(&paths.directory).unwrap();
    }
}
