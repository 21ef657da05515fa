//! Applications as in containers: a separate user, separate namespaces, and only the mounts that docs/containers.md
//! asks for.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::driver::WorkerCommand;
use crate::error::During;
use crate::process::run;
use crate::{BenchError, Result};

/// Number of a user and a group that no account has.
const NUMBER: u32 = 60_001;
/// Mounts the runtime directory `$1` at `$2`, hides all shared memory and the instance directory `$3`, which a
/// container does not see, and then runs the remaining arguments as another user.
const SCRIPT: &str = r#"
set -e
mount --bind "$1" "$2"
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs "$3"
export STANDFAST_RUNTIME_DIRECTORY="$2"
shift 3
exec setpriv --reuid 60001 --regid 60001 --clear-groups --no-new-privs "$@"
"#;
const UNSHARE: [&str; 7] = ["--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child"];

/// The runtime directory of an instance, and the mount point where its applications see it; both are removed at the
/// end.
pub(super) struct Mounts {
    runtime: PathBuf,
    seen: PathBuf,
}

impl Mounts {
    /// For an instance whose databases are in `scratch`.
    pub fn new(scratch: &Path) -> Result<Mounts> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Shared memory of instances is always on a tmpfs.
        let runtime = PathBuf::from(format!("/dev/shm/standfast-bench-{}-{number}", std::process::id()));
        let seen = scratch.join("seen");
        std::fs::create_dir(&seen).during(|| format!("create {}", seen.display()))?;
        Ok(Mounts { runtime, seen })
    }

    /// Variables that systemd sets for the unit of an instance in `directory`.
    pub fn environment(&self, directory: &Path) -> [(&'static str, PathBuf); 2] {
        [("STATE_DIRECTORY", directory.to_owned()), ("RUNTIME_DIRECTORY", self.runtime.clone())]
    }

    /// Wraps `command` so that it starts application processes of an instance in `directory`.
    pub fn worker(&self, command: &WorkerCommand, directory: &Path) -> WorkerCommand {
        let paths = [&self.runtime, &self.seen, &directory.to_owned(), &command.program];
        let mut arguments: Vec<String> = UNSHARE.map(str::to_owned).into();
        arguments.extend(["sh", "-c", SCRIPT, "sh"].map(str::to_owned));
        arguments.extend(paths.map(|path| path.display().to_string()));
        arguments.extend(command.arguments.iter().cloned());
        WorkerCommand { program: "unshare".into(), arguments, wrapped: true }
    }
}

impl Drop for Mounts {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.runtime);
    }
}

/// Fails when this machine cannot run applications in namespaces and as other users.
pub(super) fn possible() -> Result<()> {
    let mut tried = Command::new("unshare");
    tried.args(UNSHARE).args(["setpriv", "--reuid", "60001", "--regid", "60001", "--clear-groups", "true"]);
    run(&mut tried).map(|_| ()).map_err(|error| {
        BenchError::Unavailable(format!("namespaces and other users take root and util-linux: {error}"))
    })
}

/// Gives `databases` and their directory to the group of the applications.
pub(super) fn share(databases: &[PathBuf]) -> Result<()> {
    for path in databases.iter().map(PathBuf::as_path).chain(databases[0].parent()) {
        let give = || {
            chown(path, None, Some(NUMBER))?;
            let mode = path.metadata()?.mode();
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode | 0o070))
        };
        give().during(|| format!("give {} to a group", path.display()))?;
    }
    Ok(())
}
