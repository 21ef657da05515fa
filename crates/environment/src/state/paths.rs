//! Paths of the files in an instance directory.

use crate::config::settings::Config;
use std::path::{Path, PathBuf};

/// Files and directories of one instance.
#[derive(Clone, Debug)]
pub struct Paths {
    /// Absolute path of the instance directory.
    pub directory: PathBuf,
    /// Control file: identity, role and databases.
    pub control: PathBuf,
    /// The record of an observer. A directory that has it is an observer's.
    pub observer: PathBuf,
    pub lock: PathBuf,
    pub socket: PathBuf,
    pub ready: PathBuf,
    pub alert: PathBuf,
    /// The configuration that all instances share.
    pub shared_configuration: PathBuf,
    pub apply_journal: PathBuf,
    /// Member directories of the redo log.
    pub members: Vec<PathBuf>,
    pub archive: PathBuf,
    pub databases: PathBuf,
    /// Directory of the shared memory and the sockets, usable from containers; `None`: the shared memory is in
    /// `/dev/shm`.
    pub runtime: Option<PathBuf>,
    /// Shared memory in `/dev/shm` under a name other than the usual one, see [`crate::state::runtime::other_name`].
    pub shared_memory: Option<PathBuf>,
}

impl Paths {
    /// Database in which the snapshots for reports are kept.
    pub fn repository(&self) -> PathBuf {
        self.directory.join("repository.db")
    }

    /// Path of the shared memory of sessions.
    pub fn segment(&self, instance: standfast_types::InstanceId) -> PathBuf {
        let place = segment_path(instance);
        match (&self.runtime, place.file_name()) {
            (Some(runtime), Some(name)) => runtime.join(name),
            _ => self.shared_memory.clone().unwrap_or(place),
        }
    }

    pub fn sockets(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let of_runtime = self.runtime.iter().map(|runtime| runtime.join("control.sock"));
        std::iter::once(self.socket.clone()).chain(of_runtime)
    }

    /// Paths of the instance in `directory`.
    ///
    /// # Errors
    /// When `directory` does not exist.
    pub fn new(directory: &Path, config: &Config) -> std::io::Result<Paths> {
        let directory = directory.canonicalize()?;
        Ok(Paths {
            control: directory.join("control"),
            observer: directory.join("observer"),
            lock: directory.join("lock"),
            socket: directory.join("control.sock"),
            ready: directory.join("ready"),
            alert: directory.join("alert.log"),
            shared_configuration: directory.join("configuration"),
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
