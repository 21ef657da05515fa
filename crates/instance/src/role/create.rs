//! Creates an instance directory: a first primary, or a standby as a copy of a running primary.

use standfast_documents::Status;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::Config;
use standfast_environment::context::environment::{keeper_of, security_of};
use standfast_environment::creation::{Joined, fill_directory, join, make_directory, refuse_taken};
use standfast_environment::state::control::{
    Control, DatabaseRecord, FileStamp, Incarnation, RestingFile, Role,
};
use standfast_environment::state::file_system;
use standfast_environment::state::lock::lock_directory;
use standfast_environment::state::modes;
use standfast_environment::state::now::now_us;
use standfast_environment::state::paths::Paths;
use standfast_environment::state::unfinished::{Unfinished, is_plain};
use standfast_format::{LogKind, StreamCrc};
use standfast_io::{DirectDisk, Disk, outside};
use standfast_log::{LogConfig, LogIdentity, LogSwitch, RedoLog};
use standfast_tls::Token;
use standfast_transport as transport;
use standfast_transport::{
    COPY_SILENCE, DatabaseInfo, LogGeometry, Manifest, RefuseCode, Security, SnapshotInfo, SnapshotSink,
    SnapshotStart, StageError, TransportError, fetch_snapshot, fetch_status,
};
use standfast_types::{DatabaseId, IncarnationId, InstanceId, PageNo, Scn};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn log_config(config: &Config, paths: &Paths, kind: LogKind) -> LogConfig {
    LogConfig {
        kind,
        member_directories: paths.members.clone(),
        groups: config.redo.groups + usize::from(kind == LogKind::Standby),
        group_bytes: config.redo.group_bytes,
        block_bytes: config.redo.block_bytes,
        archive_directory: paths.archive.clone(),
        distrusted: Vec::new(),
        unnamed_groups: usize::from(kind == LogKind::Standby),
        layout: None,
        family: None,
    }
}

/// A directory in which an instance is being created.
struct Site {
    paths: Paths,
    unfinished: Unfinished,
    /// Keeps other processes from creating or starting an instance here meanwhile.
    _lock: File,
}

/// Creates the directory and its folders and removes what an interrupted creation has left; refuses a directory that
/// already holds an instance.
fn prepare(directory: &Path, config: &Config) -> Result<Site, InstanceError> {
    make_directory(directory, modes::DIRECTORY)?;
    let paths =
        Paths::new(directory, config).map_err(InstanceError::io("find the instance directory", directory))?;
    let lock = lock_directory(&paths);
    refuse_taken(&paths)?;
    let lock = lock?;
    let unfinished = Unfinished::begin(&paths)?;
    let folders =
        paths.members.iter().chain([&paths.archive]).map(|folder| (folder, modes::PRIVATE_DIRECTORY));
    for (folder, mode) in folders.chain([(&paths.databases, modes::DATABASES)]) {
        make_directory(folder, mode)?;
        file_system::check(folder, "an instance, its redo and its databases")?;
    }
    check_members(&paths)?;
    config
        .store(&DirectDisk, directory)
        .map_err(InstanceError::io("write the configuration in", directory))?;
    Ok(Site { paths, unfinished, _lock: lock })
}

/// Refuses two members in one directory, which would be one file written twice, and logs of another instance, which
/// would become invalid.
fn check_members(paths: &Paths) -> Result<(), InstanceError> {
    let mut seen: Vec<PathBuf> = Vec::new();
    for member in &paths.members {
        let real = member.canonicalize().map_err(InstanceError::io("find the member directory", member))?;
        if seen.contains(&real) {
            return Err(InstanceError::refused(
                format!("{} is the directory of another member, too", member.display()),
                "name a directory for each member, on different devices",
            ));
        }
        let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
        let found = DirectDisk
            .list(&real)
            .map_err(InstanceError::io("list the member directory", member))?
            .into_iter()
            .find(is_log);
        // Logs that an interrupted creation has left in this instance's own directory are used.
        if let Some(found) = found.filter(|_| !real.starts_with(&paths.directory)) {
            return Err(InstanceError::refused(
                format!("{} is there already, perhaps of another instance", found.display()),
                "name an empty directory for the member, or remove the file if no instance uses it",
            ));
        }
        seen.push(real);
    }
    Ok(())
}

/// Creates a new primary without databases in `directory`.
///
/// # Errors
/// When the directory already holds an instance, or a file cannot be created.
pub fn init(directory: &Path, config: &Config) -> Result<InstanceId, InstanceError> {
    let Site { paths, unfinished, _lock } = prepare(directory, config)?;
    let random = InstanceError::io("read random numbers from", "/dev/urandom");
    let instance = InstanceId::random().map_err(random)?;
    let id =
        IncarnationId::random().map_err(InstanceError::io("read random numbers from", "/dev/urandom"))?;
    let incarnation = Incarnation { number: 1, id, branch: Scn::START, time_us: now_us() };
    let online = log_config(config, &paths, LogKind::Online);
    RedoLog::create_files(&DirectDisk, &online)?;
    let identity = LogIdentity { instance, incarnation: 1, incarnation_id: id };
    let start = LogSwitch { sequence: 1, first_scn: Scn::START, time_us: now_us(), first_record: 0 };
    RedoLog::start(Arc::new(DirectDisk), online, identity, start, StreamCrc::default())?;
    // The control file comes last (below), because it makes the directory an instance.
    keeper_of(config, &paths).found_family(&instance.to_string())?;
    let control = Control::new(instance, instance, Role::Primary, vec![incarnation], Scn::START);
    control.store(&DirectDisk, &paths.control)?;
    unfinished.finish()?;
    Ok(instance)
}

struct Copy<'a> {
    role: Role,
    paths: &'a Paths,
    unfinished: &'a mut Unfinished,
    /// A file that is in the way and was not left by an interrupted creation of this instance.
    conflict: Option<InstanceError>,
    manifest: Option<Manifest>,
    file: Option<BufWriter<File>>,
    databases: Vec<DatabaseRecord>,
    current: Option<DatabaseInfo>,
    progress: &'a mut dyn FnMut(&str, u64),
    bytes: u64,
}

impl SnapshotSink for Copy<'_> {
    fn wants_databases(&self) -> bool {
        self.role == Role::Standby
    }

    fn manifest(&mut self, manifest: &Manifest) -> Result<(), StageError> {
        self.manifest = Some(manifest.clone());
        Ok(())
    }

    fn begin(&mut self, database: &DatabaseInfo) -> Result<(), StageError> {
        if !is_plain(&database.name) {
            return Err(format!(
                "the primary names a database `{}`, which is not a file name",
                database.name
            )
            .into());
        }
        let path = self.paths.databases.join(&database.name);
        if path.exists() {
            let what = format!("{} exists, and no interrupted creation has left it", path.display());
            self.conflict =
                Some(InstanceError::refused(&what, "move it away, or name another directory with -D"));
            return Err(what.into());
        }
        self.unfinished.note(&database.name)?;
        let file = outside::create_new(&path, modes::FILE)?;
        self.file = Some(BufWriter::with_capacity(1 << 20, file));
        self.current = Some(database.clone());
        Ok(())
    }

    fn pages(&mut self, _: DatabaseId, _: PageNo, bytes: &[u8]) -> Result<(), StageError> {
        if let Some(file) = &mut self.file {
            file.write_all(bytes)?;
        }
        self.bytes += bytes.len() as u64;
        if let Some(database) = &self.current {
            (self.progress)(&database.name, self.bytes);
        }
        Ok(())
    }

    fn end(&mut self, info: &SnapshotInfo) -> Result<(), StageError> {
        if let Some(file) = self.file.take() {
            let file = file.into_inner().map_err(|error| error.into_error())?;
            file.sync_all()?;
        }
        if let Some(database) = self.current.take() {
            self.databases.push(DatabaseRecord {
                id: database.id,
                path: self.paths.databases.join(&database.name),
                name: database.name,
                page_size: database.page_size,
                start_scn: info.scn,
                redo_from: info.scn,
                begun_empty: false,
            });
        }
        Ok(())
    }
}

/// Creates a standby in `directory` as a copy of the primary at `from`, which keeps running, or, when `role` says so, a
/// far sync without databases. With `token` this host gets its certificate, if it has none. `progress` gets the
/// database and the bytes copied so far.
///
/// # Errors
/// When the primary cannot be reached or refuses, or a file cannot be created. The directory is then removed if this
/// call created it, unless a certificate was issued for it. The next call removes what an interruption leaves.
pub fn create_standby(
    directory: &Path,
    config: &mut Config,
    from: &str,
    role: Role,
    token: Option<&Token>,
    progress: &mut dyn FnMut(&str, u64),
) -> Result<Joined, InstanceError> {
    fill_directory(directory, modes::DIRECTORY, config, |config| {
        create_in(directory, config, from, role, token, progress)
    })
}

fn create_in(
    directory: &Path,
    config: &mut Config,
    from: &str,
    role: Role,
    token: Option<&Token>,
    progress: &mut dyn FnMut(&str, u64),
) -> Result<Joined, InstanceError> {
    let paths =
        Paths::new(directory, config).map_err(InstanceError::io("find the instance directory", directory))?;
    let keeper = keeper_of(config, &paths);
    let joined = join(&keeper, config, from, token, || {
        format!(
            "at the primary `standfast standby token --name {} > token`, then this again with `--token-file token`; or, where \
             everybody who reaches the ports is trusted, plain TCP: `--insecure` here, and `insecure = true` in [instance] there",
            config.instance.name
        )
    })?;
    // The copy is the new standby's whole content: it is taken only from a member that may be the primary, and from no
    // other member that answers at the address.
    let own = &config.instance.name;
    let candidates = keeper.members()?.candidates().into_iter().filter(|name| name != own);
    let security = security_of(config, &keeper).only(candidates);
    let tls = keeper.directory().display().to_string();
    let failed = |error: TransportError| {
        let is_another =
            matches!(&error, TransportError::Refused(refusal) if refusal.code == RefuseCode::WrongPeer);
        let hint = if is_another {
            format!(
                "look which instance has this address; if that is the primary, and this host has not heard of it, remove {tls} and \
                 join again with a token of it"
            )
        } else {
            "check that the primary runs, that its [instance] listen names this address, and try again"
                .to_owned()
        };
        InstanceError::refused(format!("cannot copy from {from}: {error}"), hint)
    };
    let observation = fetch_status(from, &security, false, COPY_SILENCE).map_err(failed)?;
    adopt_geometry(config, &observation).ok_or_else(|| {
        InstanceError::refused(
            format!("cannot copy from {from}: it does not say which redo logs it has"),
            "`standfast status` there says why: it has to be a primary that is open",
        )
    })?;
    copy_into(directory, config, &security, from, role, progress, &failed)?;
    Ok(joined)
}

/// Makes the standby redo logs follow the rule: as large as the primary's online logs and one group more, with the same
/// block size. The status of a primary lists its online logs; `None` when it does not.
fn adopt_geometry(config: &mut Config, observation: &str) -> Option<()> {
    let logs = online_logs(observation)?;
    config.redo.group_bytes = config.redo.group_bytes.max(logs.group_bytes);
    // A standby adds one more group, see `log_config`.
    config.redo.groups = config.redo.groups.max(logs.groups);
    config.redo.block_bytes = logs.block_bytes;
    Some(())
}

/// Returns the online logs that an observation of a primary lists.
pub(crate) fn online_logs(observation: &str) -> Option<LogGeometry> {
    let log = Status::in_observation(observation).ok()?.log?;
    let (group_bytes, block_bytes) = (log.group_bytes?, log.block_bytes? as usize);
    Some(LogGeometry { groups: log.groups?.len(), group_bytes, block_bytes })
}

/// Begins the standby log of a copy that is at `start` in the history of its primary.
///
/// # Errors
/// When the history is empty, or a file cannot be written.
pub(crate) fn begin_standby_log(
    disk: Arc<dyn Disk>,
    config: LogConfig,
    family: InstanceId,
    history: &[transport::Incarnation],
    start: &SnapshotStart,
) -> Result<Arc<RedoLog>, InstanceError> {
    let entered = transport::incarnation_of(history, &start.log)
        .ok_or_else(|| InstanceError::Failed("the primary names no incarnation".into()))?;
    let identity = LogIdentity { instance: family, incarnation: entered.number, incarnation_id: entered.id };
    let switch = LogSwitch {
        sequence: start.log.sequence,
        first_scn: start.start,
        time_us: start.log.time_us,
        first_record: 0,
    };
    let (log, _writer) = RedoLog::start(disk, config, identity, switch, StreamCrc(start.crc))?;
    Ok(log)
}

fn copy_into(
    directory: &Path,
    config: &Config,
    security: &Security,
    from: &str,
    role: Role,
    progress: &mut dyn FnMut(&str, u64),
    failed: &dyn Fn(TransportError) -> InstanceError,
) -> Result<(), InstanceError> {
    let Site { paths, mut unfinished, _lock } = prepare(directory, config)?;
    let online = log_config(config, &paths, LogKind::Online);
    let standby = log_config(config, &paths, LogKind::Standby);
    // Files first: creating them takes a while, and the primary keeps the redo for a new standby only so long.
    RedoLog::create_files(&DirectDisk, &standby)?;
    if role == Role::Standby {
        RedoLog::create_files(&DirectDisk, &online)?;
    }
    let mut copy = Copy {
        role,
        paths: &paths,
        unfinished: &mut unfinished,
        conflict: None,
        manifest: None,
        file: None,
        databases: Vec::new(),
        current: None,
        progress,
        bytes: 0,
    };
    let fetched = fetch_snapshot(from, security, &config.instance.name, &mut copy);
    let start = fetched.map_err(|error| copy.conflict.take().unwrap_or_else(|| failed(error)))?;
    let Copy { manifest, databases, .. } = copy;
    let manifest = manifest.ok_or_else(|| InstanceError::Failed("the copy had no manifest".into()))?;
    let incarnations = manifest.source.incarnations.iter().map(Incarnation::from).collect();
    // Not the primary's own id: a primary that has taken over continues the logs of the family that it belongs to.
    let family = manifest.source.family.unwrap_or(manifest.source.instance);
    begin_standby_log(Arc::new(DirectDisk), standby, family, &manifest.source.incarnations, &start)?;
    let next_database = databases.iter().map(|database| database.id.0 + 1).max().unwrap_or(1);
    // A difference at the first start means that another process wrote to the file.
    let resting = |record: &DatabaseRecord| {
        let stamp = FileStamp::of(&DirectDisk, &record.path)?;
        Some(RestingFile { database: record.id, stamp, wal: None })
    };
    let resting_files = databases.iter().filter_map(resting).collect();
    let instance =
        InstanceId::random().map_err(InstanceError::io("read random numbers from", "/dev/urandom"))?;
    let control = Control {
        databases,
        next_database,
        copied: true,
        resting_files,
        ..Control::new(instance, family, role, incarnations, start.start)
    };
    control.store(&DirectDisk, &paths.control)?;
    unfinished.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standby_adopts_block_size_and_larger_logs_of_its_primary() {
        let mut config = Config::default();
        let reported =
            r#"{"status":{"log":{"group_bytes":134217728,"block_bytes":512,"groups":[{},{},{},{},{}]}}}"#;
        adopt_geometry(&mut config, reported).unwrap();
        let adopted =
            |config: &Config| (config.redo.group_bytes, config.redo.groups, config.redo.block_bytes);
        assert_eq!(adopted(&config), (134217728, 5, 512));
        let smaller = r#"{"status":{"log":{"group_bytes":8388608,"block_bytes":4096,"groups":[{},{},{}]}}}"#;
        adopt_geometry(&mut config, smaller).unwrap();
        assert_eq!(adopted(&config), (134217728, 5, 4096));
        assert!(adopt_geometry(&mut config, r#"{"status":{"state":"changing role"}}"#).is_none());
    }
}
