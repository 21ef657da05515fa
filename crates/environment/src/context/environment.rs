//! What all parts of an instance share: its location, its configuration and its identity.

use crate::config::error::InstanceError;
use crate::config::settings::Config;
use crate::context::commit_hold::CommitHold;
use crate::context::kept_configuration::KeptConfiguration;
use crate::context::places::Places;
use crate::context::session_counts::CountedSessions;
use crate::context::shared_memory::{self, MemoryReported};
use crate::security::Keeper;
use crate::state::alert::AlertLog;
use crate::state::control::{Control, DatabaseRecord, Upstream};
use crate::state::group::Access;
use crate::state::paths::Paths;
use standfast_format::LogKind;
use standfast_instruments::{Event, Instruments, Sample, waiting};
use standfast_io::{Disk, outside};
use standfast_log::LogConfig;
use standfast_session::{DatabaseState, FileId, Marker, Segment, SegmentConfig, marker_path};
use standfast_types::{DatabaseId, Hint, Scn};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

const _: () = assert!(standfast_session::DATABASES == standfast_types::DATABASES_MAX);

/// Returns the certificates of the instance that `config` and `paths` belong to.
pub fn keeper_of(config: &Config, paths: &Paths) -> Arc<Keeper> {
    let keeper = Keeper::new(paths.directory.join(&config.security.directory), &config.instance.name);
    Arc::new(keeper.valid_for(config.security.certificate_valid_s))
}

/// Returns how connections are protected by these settings.
pub fn security_of(config: &Config, keeper: &Arc<Keeper>) -> standfast_transport::Security {
    keeper.security(config.instance.insecure)
}

/// Shared by all threads of an instance.
pub struct Environment {
    pub config: Config,
    pub paths: Paths,
    /// Reads and writes everything but the databases.
    pub disk: Arc<dyn Disk>,
    pub alert: AlertLog,
    /// VFS below the guard; `None`: SQLite's default.
    pub vfs_base: Option<String>,
    /// Path of the shared memory of sessions.
    pub segment_path: PathBuf,
    /// Certificates, and the rights of members.
    pub keeper: Arc<Keeper>,
    /// The configuration that all instances share.
    pub shared_configuration: KeptConfiguration,
    /// Opens a primary whose redo log is damaged, with the redo before this position. It must be the position that the
    /// refusal to open names.
    pub until_scn: Option<Scn>,
    /// Open files, and whether their paths still name them.
    pub places: Arc<Places>,
    pub instruments: Arc<Instruments>,
    /// Why databases have been offline since the start, in the words of the alert log.
    offline: Mutex<BTreeMap<DatabaseId, String>>,
    control: Mutex<Control>,
    /// Set once this has been a primary.
    sessions: Mutex<Option<CountedSessions>>,
    /// On a standby: the segment that shows sessions the state of a database.
    standby_segment: Mutex<Option<Segment>>,
    pub commit_hold: CommitHold,
    memory_reported: MemoryReported,
}

impl Environment {
    /// Creates the environment of the instance whose control file holds `control`.
    pub fn new(
        config: Config,
        paths: Paths,
        disk: Arc<dyn Disk>,
        alert: AlertLog,
        control: Control,
    ) -> Environment {
        let segment_path = paths.segment(control.instance);
        let keeper = keeper_of(&config, &paths);
        let shared_configuration =
            KeptConfiguration::load(disk.clone(), paths.shared_configuration.clone(), &alert);
        let control = Mutex::new(control);
        let instruments = Arc::default();
        let sessions = Mutex::default();
        Environment {
            config,
            paths,
            disk,
            alert,
            vfs_base: None,
            until_scn: None,
            segment_path,
            keeper,
            shared_configuration,
            places: Arc::default(),
            instruments,
            offline: Mutex::default(),
            control,
            sessions,
            standby_segment: Mutex::default(),
            commit_hold: CommitHold::default(),
            memory_reported: MemoryReported::default(),
        }
    }

    /// Records why a database is offline; `None`: it no longer is.
    pub fn note_offline(&self, database: DatabaseId, why: Option<String>) {
        let mut offline = self.offline.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match why {
            Some(why) => offline.insert(database, why),
            None => offline.remove(&database),
        };
    }

    /// Returns why a database is offline; `None` when it is not.
    pub fn why_offline(&self, database: DatabaseId) -> Option<String> {
        self.offline.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get(&database).cloned()
    }

    fn sessions(&self) -> MutexGuard<'_, Option<CountedSessions>> {
        self.sessions.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Uses this segment for sessions from now on. Their counts are taken relative to the first call.
    pub fn count_sessions(&self, segment: Segment) {
        let mut sessions = self.sessions();
        match sessions.as_mut() {
            Some(counted) => counted.mapped_again(segment),
            None => *sessions = Some(CountedSessions::since_now(segment)),
        }
    }

    /// Sets the segment for the sessions of a standby; `None`: this is no longer a standby.
    pub fn tell_standby_sessions(&self, segment: Option<Segment>) {
        *self.standby_segment.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = segment;
    }

    /// Shows sessions the state of a standby's database. To be called before its marker is written, which leads them
    /// here.
    pub fn tell_standby_state(&self, database: DatabaseId, state: DatabaseState) {
        let segment = self.standby_segment.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(segment) = &*segment {
            segment.set_state(database.0, state);
        }
    }

    /// The segment for the sessions of a standby.
    pub fn standby_segment(&self) -> Option<Segment> {
        *self.standby_segment.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Shows sessions that the databases of a standby for which `is_current` returns true hold all that the primary had
    /// acknowledged at `as_of_ns`, by [`standfast_session::boot_ns`].
    pub fn tell_standby_current(&self, as_of_ns: u64, is_current: impl Fn(&DatabaseRecord) -> bool) {
        let Some(segment) = self.standby_segment() else { return };
        let control = self.lock();
        let databases = control.databases.iter().filter(|record| is_current(record));
        segment.set_current(databases.map(|record| record.id.0), as_of_ns);
    }

    /// Shows sessions the name of the primary that a standby follows.
    pub fn tell_standby_primary(&self, upstream: Option<&Upstream>) {
        if let Some(segment) = self.standby_segment() {
            segment.set_primary(upstream.map(Upstream::primary));
        }
    }

    /// Puts the sessions' counts into `sample`.
    pub fn put_sessions_into(&self, sample: &mut Sample) {
        if let Some(sessions) = self.sessions().as_ref() {
            sessions.put_into(sample);
        }
    }

    /// Returns how connections of this instance are protected.
    pub fn security(&self) -> standfast_transport::Security {
        security_of(&self.config, &self.keeper)
    }

    fn lock(&self) -> MutexGuard<'_, Control> {
        self.control.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Returns a copy of the control file's content.
    pub fn control(&self) -> Control {
        self.lock().clone()
    }

    /// Reads from the control file's content without copying all of it.
    pub fn of_control<T>(&self, read: impl FnOnce(&Control) -> T) -> T {
        read(&self.lock())
    }

    pub fn database_name(&self, id: standfast_types::DatabaseId) -> Option<String> {
        let control = self.lock();
        control.databases.iter().find(|record| record.id == id).map(|record| record.name.clone())
    }

    /// Changes the control file; nothing changes when it cannot be written.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn update_control(&self, change: impl FnOnce(&mut Control)) -> Result<(), InstanceError> {
        let mut control = self.lock();
        let mut changed = control.clone();
        change(&mut changed);
        if changed != *control {
            let wait = waiting(Event::ControlFileWrite);
            changed.store(self.disk.as_ref(), &self.paths.control)?;
            drop(wait);
            *control = changed;
        }
        Ok(())
    }

    /// Returns the geometry of the online or standby redo log.
    pub fn log_config(&self, kind: LogKind) -> LogConfig {
        crate::state::log_layout::log_config(&self.config, &self.paths, &self.lock(), kind)
    }

    /// Returns the settings that sessions get.
    pub fn segment_config(&self) -> SegmentConfig {
        let commit = &self.config.commit;
        SegmentConfig {
            commit_mode: self.config.commit_mode_bits().unwrap_or(0),
            durable_visibility: commit.visibility == "durable",
            write_wait_ms: commit.write_wait_ms,
            commit_wait_ms: commit.outcome_wait_ms,
        }
    }

    /// Returns the marker that belongs beside a database, of which this instance has `file` open.
    pub fn marker(&self, record: &DatabaseRecord, file: Option<FileId>) -> Marker {
        Marker {
            instance: self.lock().instance.0,
            name: self.config.instance.name.clone(),
            directory: self.paths.directory.clone(),
            segment: self.segment_path.clone(),
            runtime: self.paths.runtime.clone(),
            owner: Some(standfast_session::own_user()),
            database: record.id.0,
            path: record.path.clone(),
            file,
        }
    }

    /// Returns who may use the databases and look at the instance.
    ///
    /// # Errors
    /// `Refused` when there is no such group.
    pub fn access(&self) -> Result<Access, InstanceError> {
        let databases: Vec<PathBuf> =
            self.lock().databases.iter().map(|record| record.path.clone()).collect();
        Access::of(&self.config.instance, &databases)
    }

    /// Gives access again after a database was added or removed while the instance runs: the group of the files may
    /// have changed.
    pub fn give_access_again(&self) {
        let given = self.access().and_then(|access| {
            if access.is_narrower(&self.segment_path)
                && let Some(differing) = access.differing()
            {
                self.alert.say(format!("from the next start on: {differing}"));
            }
            access.give_again(&self.segment_path, self.paths.sockets())
        });
        if let Err(error) = given {
            self.alert.say(format!("the group of the databases: {}", error.in_one_line()));
        }
    }

    /// Writes the marker beside a database, by which sessions find this instance, unless it is there: writing takes
    /// space on a volume that may have none.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_marker(&self, record: &DatabaseRecord, file: Option<FileId>) -> Result<(), InstanceError> {
        let marker = self.marker(record, file);
        let path = marker_path(&record.path);
        if matches!(Marker::read(&record.path), Ok(Some(found)) if found == marker) {
            return Ok(());
        }
        // Applications of other users read it; it holds no secret.
        self.disk
            .replace_outside(&path, marker.to_string().as_bytes(), 0o644)
            .map_err(InstanceError::io("write the marker", &path))
    }

    /// Removes the marker beside a database.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn remove_marker(&self, record: &DatabaseRecord) -> Result<(), InstanceError> {
        let path = marker_path(&record.path);
        outside::remove(&path).map_err(InstanceError::io("remove the marker", &path))
    }

    /// Repairs the shared memory where it is not what this instance has written, and reports it.
    pub fn repair_memory(&self, segment: Segment) {
        let found = segment.repair();
        if let Some(finding) = shared_memory::finding(&found, &self.segment_path.display().to_string())
            && self.memory_reported.is_due()
        {
            self.alert.say(finding);
        }
    }
}
