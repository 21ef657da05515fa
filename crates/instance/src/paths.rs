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
}

impl Paths {
    /// Snapshots for reports.
    pub fn repository(&self) -> PathBuf {
        self.directory.join(standfast_reports::FILE)
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
            directory,
        })
    }
}

/// Shared memory of an instance.
pub fn segment_path(instance: standfast_types::InstanceId) -> PathBuf {
    PathBuf::from(format!("/dev/shm/standfast-{instance}"))
}
