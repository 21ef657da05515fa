//! What stands where in an instance directory.

use crate::config::Config;
use std::path::{Path, PathBuf};

/// Files and folders of one instance.
#[derive(Clone, Debug)]
pub struct Paths {
    /// The instance directory, absolute.
    pub directory: PathBuf,
    /// Identity, role and databases.
    pub control: PathBuf,
    /// Locked while the instance runs.
    pub lock: PathBuf,
    /// Control socket.
    pub socket: PathBuf,
    /// Exists while the instance serves.
    pub ready: PathBuf,
    /// Alert log.
    pub alert: PathBuf,
    /// Apply journal of a standby.
    pub apply_journal: PathBuf,
    /// Member directories of the redo log.
    pub members: Vec<PathBuf>,
    /// Archived logs.
    pub archive: PathBuf,
    /// Databases of a standby.
    pub databases: PathBuf,
    /// Shared memory and sockets, for containers too; `None`: the former in `/dev/shm`.
    pub runtime: Option<PathBuf>,
    /// In `/dev/shm`, under another name than usual, see [`crate::runtime::other_name`].
    pub shared_memory: Option<PathBuf>,
}

impl Paths {
    /// Snapshots for reports.
    pub fn repository(&self) -> PathBuf {
        self.directory.join(standfast_reports::FILE)
    }

    /// Where the shared memory of sessions is.
    pub fn segment(&self, instance: standfast_types::InstanceId) -> PathBuf {
        let place = segment_path(instance);
        match (&self.runtime, place.file_name()) {
            (Some(runtime), Some(name)) => runtime.join(name),
            _ => self.shared_memory.clone().unwrap_or(place),
        }
    }

    /// The control sockets.
    pub fn sockets(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let of_runtime = self.runtime.iter().map(|runtime| runtime.join("control.sock"));
        std::iter::once(self.socket.clone()).chain(of_runtime)
    }

    /// Of the instance in `directory`, which must exist.
    ///
    /// # Errors
    /// When `directory` does not exist.
    pub fn new(directory: &Path, config: &Config) -> std::io::Result<Paths> {
        let directory = directory.canonicalize()?;
        Ok(Paths {
            control: directory.join("control"),
            lock: directory.join("lock"),
            socket: directory.join("control.sock"),
            ready: directory.join("ready"),
            alert: directory.join("alert.log"),
            apply_journal: directory.join("apply.journal"),
            members: config.redo.members.iter().map(|member| directory.join(member)).collect(),
            archive: directory.join(&config.redo.archive),
            databases: directory.join(&config.standby.directory),
            runtime: Some(&config.instance.runtime_directory)
                .filter(|path| !path.as_os_str().is_empty())
                .map(|path| directory.join(path)),
            shared_memory: None,
            directory,
        })
    }
}

/// Shared memory of an instance without a runtime directory.
pub fn segment_path(instance: standfast_types::InstanceId) -> PathBuf {
    PathBuf::from(format!("/dev/shm/standfast-{instance}"))
}
