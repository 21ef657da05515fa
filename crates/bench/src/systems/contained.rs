//! Applications as in containers: a user and namespaces of their own, and of this machine's files what docs/containers.md says is to be
//! mounted.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::driver::WorkerCommand;
use crate::error::During;
use crate::process::run;
use crate::{BenchError, Result};

/// A user and a group that no account has.
const NUMBER: u32 = 60_001;
/// Mounts the runtime directory `$1` at `$2` and hides what a container does not see: all shared memory, and the instance directory
/// `$3`. Then it runs the rest as another user.
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

/// The runtime directory of an instance and where its applications see it; both are removed at the end.
pub(super) struct Mounts {
    runtime: PathBuf,
    seen: PathBuf,
}

impl Mounts {
    /// For an instance of databases that lie in `scratch`.
    pub fn new(scratch: &Path) -> Result<Mounts> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        // Shared memory of instances is on a tmpfs wherever it is.
        let runtime = PathBuf::from(format!("/dev/shm/standfast-bench-{}-{number}", std::process::id()));
        let seen = scratch.join("seen");
        std::fs::create_dir(&seen).during(|| format!("create {}", seen.display()))?;
        Ok(Mounts { runtime, seen })
    }

    /// What systemd does for the unit of an instance in `directory`.
    pub fn environment(&self, directory: &Path) -> [(&'static str, PathBuf); 2] {
        [("STATE_DIRECTORY", directory.to_owned()), ("RUNTIME_DIRECTORY", self.runtime.clone())]
    }

    /// Starts application processes of an instance in `directory`.
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

/// Whether this machine can do it.
pub(super) fn possible() -> Result<()> {
    let mut tried = Command::new("unshare");
    tried.args(UNSHARE).args(["setpriv", "--reuid", "60001", "--regid", "60001", "--clear-groups", "true"]);
    run(&mut tried).map(|_| ()).map_err(|error| {
        BenchError::Unavailable(format!("namespaces and other users take root and util-linux: {error}"))
    })
}

/// Gives `databases` and the directory that they lie in to the group of the applications.
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
