//! The runtime directory: shared memory, sockets and a lock, in a directory that can be mounted into containers.
//!
//! It is configured as `runtime_directory` in `[instance]`, or made by systemd for the unit whose state directory is
//! the instance directory. Without one the shared memory is in `/dev/shm`. The sockets are always in the instance
//! directory too: commands and sessions in this machine's own namespace find them there.

use crate::config::error::InstanceError;
use crate::state::lock;
use crate::state::modes;
use crate::state::paths::{Paths, segment_path};
use standfast_io::outside;
use standfast_session::{Segment, own_user, published_path};
use standfast_types::InstanceId;
use std::ffi::OsString;
use std::fs::{DirBuilder, File, Permissions};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// File in the instance directory that names the path of the shared memory.
const NOTE: &str = "runtime";
/// Write permission for group and others.
const WRITE_OF_OTHERS: u32 = 0o022;

/// Lock and liveness socket of an instance in its runtime directory, held while it runs.
pub struct Runtime {
    _lock: File,
    _alive: OwnedFd,
}

/// Runtime directory of an instance that is about to run: the configured one, or its unit's.
pub fn place(paths: &Paths) -> Option<PathBuf> {
    let of_unit = || of_unit(&paths.directory, |name| std::env::var_os(name));
    paths.runtime.clone().or_else(of_unit)
}

/// The directory that systemd made for the unit, if `directory` is the state directory of that unit. The check is
/// necessary because every process that a unit starts inherits the variables.
fn of_unit(directory: &Path, variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let state = variable("STATE_DIRECTORY")?;
    let is_own = |path: PathBuf| path.canonicalize().is_ok_and(|path| path == directory);
    if !std::env::split_paths(&state).any(is_own) {
        return None;
    }
    std::env::split_paths(&variable("RUNTIME_DIRECTORY")?).next().filter(|path| path.is_absolute())
}

/// Returns a name in `/dev/shm` for the shared memory of an instance without a runtime directory, when another user has
/// taken the usual name: a user who has once seen the usual name can create a file with it while the instance is not
/// running. `None`: use the usual name. An instance run by root removes such files instead.
///
/// # Errors
/// When the system returns no random number.
pub fn other_name(paths: &Paths, instance: InstanceId) -> std::io::Result<Option<PathBuf>> {
    let usual = segment_path(instance);
    if paths.runtime.is_some() || own_user() == 0 {
        return Ok(None);
    }
    let noted = noted(paths).filter(|path| path != &usual && path.parent() == usual.parent());
    if let Some(path) = noted.filter(|path| matches!(owner(path), Some(user) if user == own_user())) {
        return Ok(Some(path));
    }
    let is_taken = [usual.clone(), published_path(&usual)]
        .iter()
        .any(|path| owner(path).is_some_and(|user| user != own_user()));
    if !is_taken {
        return Ok(None);
    }
    let mut name = usual.into_os_string();
    name.push(format!("-{}", InstanceId::random()?));
    Ok(Some(name.into()))
}

/// Owner of the file; `None` if there is no such file.
fn owner(path: &Path) -> Option<u32> {
    path.symlink_metadata().ok().map(|found| found.uid())
}

/// Path of the shared memory when the instance last ran; `None`: the usual name.
fn noted(paths: &Paths) -> Option<PathBuf> {
    std::fs::read(paths.directory.join(NOTE)).ok().map(|path| PathBuf::from(OsString::from_vec(path)))
}

/// Takes the runtime directory, if there is one, for the instance whose directory is locked. Notifies sessions that
/// have shared memory at another path mapped.
///
/// # Errors
/// `Refused` when others may write there, or another instance runs in it.
pub fn open(paths: &Paths, instance: InstanceId) -> Result<Option<Runtime>, InstanceError> {
    let runtime = match &paths.runtime {
        None => None,
        Some(directory) => {
            prepare(directory)?;
            let _lock = lock::lock_runtime(directory)?;
            Some(Runtime { _lock, _alive: lock::show_alive(directory)? })
        }
    };
    remember(paths, instance)?;
    Ok(runtime)
}

/// Records the path of the shared memory and retires shared memory at a previous path, whose sessions would not notice
/// the change of path.
fn remember(paths: &Paths, instance: InstanceId) -> Result<(), InstanceError> {
    let (note, now) = (paths.directory.join(NOTE), paths.segment(instance));
    let before = noted(paths).unwrap_or_else(|| segment_path(instance));
    if before == now {
        return Ok(());
    }
    match Segment::retire(&before) {
        // Its directory was removed, as systemd does for services that have ended.
        Err(standfast_session::SegmentError::Io(error)) if error.kind() == ErrorKind::NotFound => {}
        retired => retired?,
    }
    outside::replace(&note, now.as_os_str().as_bytes(), modes::FILE)
        .map_err(InstanceError::io("write", &note))
}

fn prepare(directory: &Path) -> Result<(), InstanceError> {
    let failed = || InstanceError::io("make the runtime directory", directory);
    match DirBuilder::new().mode(modes::DIRECTORY).create(directory) {
        // The umask may have removed bits.
        Ok(()) => {
            std::fs::set_permissions(directory, Permissions::from_mode(modes::DIRECTORY)).map_err(failed())?
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) => return Err(failed()(error)),
    }
    let found = directory.symlink_metadata().map_err(failed())?;
    if found.is_dir() && [0, own_user()].contains(&found.uid()) && found.mode() & WRITE_OF_OTHERS == 0 {
        return Ok(());
    }
    let (shown, user) = (directory.display(), own_user());
    Err(InstanceError::refused(
        format!(
            "{shown} is no runtime directory: others could put files of theirs in the place of those of the instance"
        ),
        format!(
            "`chown {user} {shown} && chmod 711 {shown}`, or name a directory of its own in `runtime_directory`"
        ),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::Config;
    use standfast_session::liveness;
    use standfast_types::Hint;

    fn paths(name: &str) -> Paths {
        let directory = std::env::temp_dir().join(format!("standfast-runtime-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        let mut config = Config::default();
        config.instance.runtime_directory = "run".into();
        Paths::new(&directory, &config).unwrap()
    }

    const INSTANCE: InstanceId = InstanceId([0x5e; 16]);

    #[test]
    fn a_runtime_directory_serves_one_instance_at_a_time() {
        let paths = paths("one");
        let directory = paths.runtime.clone().unwrap();
        let runtime = open(&paths, INSTANCE).unwrap();
        assert_eq!(directory.metadata().unwrap().mode() & 0o777, 0o711);
        assert_eq!(liveness::probe(&directory), Some(true));
        let reported = open(&paths, INSTANCE).err().unwrap().for_terminal();
        assert!(reported.contains("runtime_directory"), "{reported}");
        drop(runtime);
        assert_eq!(liveness::probe(&directory), Some(false));
        open(&paths, INSTANCE).unwrap();
        std::fs::remove_dir_all(&paths.directory).unwrap();
    }

    #[test]
    fn runtime_directory_writable_by_others_is_refused() {
        let paths = paths("wide");
        let directory = paths.runtime.clone().unwrap();
        std::fs::create_dir(&directory).unwrap();
        for mode in [0o777, 0o1777, 0o770] {
            std::fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
            assert!(open(&paths, INSTANCE).is_err(), "{mode:o}");
        }
        std::fs::remove_dir(&directory).unwrap();
        std::os::unix::fs::symlink(&paths.directory, &directory).unwrap();
        assert!(open(&paths, INSTANCE).is_err(), "a link");
        std::fs::remove_dir_all(&paths.directory).unwrap();
    }

    #[test]
    fn shared_memory_is_retired_when_its_directory_changes() {
        let mut paths = paths("moved");
        let _runtime = open(&paths, INSTANCE).unwrap();
        let here = paths.segment(INSTANCE);
        let (segment, _) = Segment::create(&here, INSTANCE.0, 0o600).unwrap();
        remember(&paths, INSTANCE).unwrap();
        assert!(!segment.retired() && here.exists());
        paths.runtime = Some(paths.directory.clone());
        remember(&paths, INSTANCE).unwrap();
        assert!(segment.retired() && !here.exists());
        std::fs::remove_dir_all(&paths.directory).unwrap();
    }

    #[test]
    fn systemd_runtime_directory_applies_only_to_its_own_instance() {
        let directory = std::env::temp_dir().canonicalize().unwrap();
        let of = |state: &str, runtime: Option<&str>| {
            of_unit(&directory, |name| match name {
                "STATE_DIRECTORY" => Some(state.into()),
                _ => runtime.map(Into::into),
            })
        };
        let own = directory.to_str().unwrap();
        assert_eq!(of(own, Some("/run/standfast/a:/run/b")), Some("/run/standfast/a".into()));
        assert_eq!(of(own, None), None);
        assert_eq!(of("/var/lib/another", Some("/run/another")), None);
    }
}
