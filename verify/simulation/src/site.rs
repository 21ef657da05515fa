//! An instance directory on a simulated machine.

use crate::Outcome;
use standfast_environment::config::settings::Config;
use standfast_environment::context::environment::Environment;
use standfast_environment::state::alert::AlertLog;
use standfast_environment::state::control::{
    Control, DatabaseRecord, Incarnation, RedoLayout, RedoLayouts, Role,
};
use standfast_environment::state::log_layout::configured;
use standfast_environment::state::paths::Paths;
use standfast_format::{LogKind, StreamCrc};
use standfast_io::Disk;
use standfast_log::{LogConfig, LogIdentity, LogSwitch, RedoLog};
use standfast_testkit::{Rng, SimMachine};
use standfast_types::{IncarnationId, InstanceId, Scn};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Minimum size of a log group: the largest batch of redo (see [`BATCH_BYTES`]), with one record beyond the limit,
/// fits.
const GROUP_BYTES_MIN: u64 = 384 << 10;
/// Directories of the members; an instance has the first one or both.
pub const MEMBER_NAMES: [&str; 2] = ["redo", "redo2"];
/// Maximum redo that the primary captures in one batch.
pub const BATCH_BYTES: usize = 48 << 10;

/// How much larger the groups of a primary may become: its standbys can take such logs from the start.
pub const GROWTH_BYTES: u64 = 3 << 16;

/// Configuration of both instances of a history: small, so that rare events are frequent.
#[derive(Clone, Debug)]
pub struct Geometry {
    config: Config,
}

impl Geometry {
    pub fn draw(rng: &mut Rng) -> Geometry {
        let mut config = Config::default();
        config.redo.groups = rng.between(2, 4) as usize;
        config.redo.group_bytes = GROUP_BYTES_MIN + (rng.below(4) << 16);
        config.redo.block_bytes = if rng.chance(50) { 512 } else { 4096 };
        let members = if rng.chance(50) { 1 } else { MEMBER_NAMES.len() };
        config.redo.members = MEMBER_NAMES[..members].iter().map(PathBuf::from).collect();
        config.redo.archive_bytes_max = 256 << 10;
        config.checkpoint.passive_frames = rng.between(10, 40) as u32;
        config.checkpoint.reset_frames = config.checkpoint.passive_frames + rng.between(10, 80) as u32;
        config.checkpoint.rewrite_wals = rng.chance(75);
        Geometry { config }
    }

    /// The fewest and smallest groups.
    pub fn smallest() -> Geometry {
        let mut config = Config::default();
        config.redo.groups = 2;
        config.redo.group_bytes = GROUP_BYTES_MIN;
        config.redo.block_bytes = 512;
        config.redo.archive_bytes_max = 0;
        Geometry { config }
    }

    /// The same for the instance `name`.
    pub fn named(&self, name: &str) -> Geometry {
        let mut geometry = self.clone();
        geometry.config.instance.name = name.to_owned();
        geometry
    }

    /// Number of members of each log group.
    pub fn members(&self) -> usize {
        self.config.redo.members.len()
    }

    fn paths(&self) -> Paths {
        let paths = paths();
        let members = self.config.redo.members.iter().map(|name| paths.directory.join(name)).collect();
        Paths { members, ..paths }
    }

    fn log_config(&self, kind: LogKind) -> LogConfig {
        let (redo, paths) = (&self.config.redo, self.paths());
        LogConfig {
            kind,
            member_directories: paths.members,
            groups: redo.groups + usize::from(kind == LogKind::Standby),
            group_bytes: redo.group_bytes + if kind == LogKind::Standby { GROWTH_BYTES } else { 0 },
            block_bytes: redo.block_bytes,
            archive_directory: paths.archive,
            distrusted: Vec::new(),
            unnamed_groups: usize::from(kind == LogKind::Standby),
            layout: None,
            family: None,
        }
    }

    /// Returns the environment of an instance on `machine` in its present boot.
    pub fn environment(&self, machine: &Arc<SimMachine>, segment: &SegmentFile) -> Outcome<Arc<Environment>> {
        let disk = Arc::new(machine.disk());
        let control = Control::load(disk.as_ref(), &paths().control).map_err(|error| error.to_string())?;
        let mut environment =
            Environment::new(self.config.clone(), self.paths(), disk, AlertLog::silent(), control);
        environment.vfs_base = Some(machine.vfs_name().to_owned());
        environment.segment_path = segment.path.clone();
        Ok(Arc::new(environment))
    }

    /// Creates a primary without databases, as `standfast init` does.
    pub fn init(&self, machine: &Arc<SimMachine>) -> Outcome<()> {
        let disk = Arc::new(machine.disk());
        let (instance, id) = (InstanceId([7; 16]), IncarnationId([1; 8]));
        let identity = LogIdentity { instance, incarnation: 1, incarnation_id: id };
        self.start_log(&disk, LogKind::Online, identity, first_log(Scn::START), StreamCrc::default())?;
        let incarnations = vec![Incarnation { number: 1, id, branch: Scn::START, time_us: 0 }];
        let control = Control::new(instance, instance, Role::Primary, incarnations, Scn::START);
        control.store(disk.as_ref(), &paths().control).map_err(|error| error.to_string())
    }

    /// Creates a standby with the given databases, whose redo begins with `start`, as `standfast standby create` does.
    pub fn init_standby(&self, machine: &Arc<SimMachine>, start: &StandbyStart) -> Outcome<()> {
        let disk = Arc::new(machine.disk());
        self.start_log(&disk, LogKind::Standby, start.identity, start.log, start.crc)?;
        let (instance, family) = (InstanceId([start.instance; 16]), start.identity.instance);
        let incarnations = start.incarnations.clone();
        let layout = self.log_config(LogKind::Standby).layout();
        let grown = RedoLayout {
            groups: layout.groups,
            members: layout.members,
            configured: configured(&self.config),
        };
        let control = Control {
            databases: start.databases.clone(),
            next_database: start.databases.iter().map(|database| database.id.0 + 1).max().unwrap_or(1),
            copied: true,
            redo_layouts: RedoLayouts { standby: Some(grown), ..RedoLayouts::default() },
            ..Control::new(instance, family, Role::Standby, incarnations, start.log.first_scn)
        };
        control.store(disk.as_ref(), &paths().control).map_err(|error| error.to_string())
    }

    fn start_log(
        &self,
        disk: &Arc<impl Disk + 'static>,
        kind: LogKind,
        identity: LogIdentity,
        log: LogSwitch,
        crc: StreamCrc,
    ) -> Outcome<()> {
        let config = self.log_config(kind);
        RedoLog::create_files(disk.as_ref(), &config).map_err(|error| error.to_string())?;
        RedoLog::start(disk.clone(), config, identity, log, crc).map_err(|error| error.to_string())?;
        Ok(())
    }
}

pub struct StandbyStart {
    /// Byte that is repeated to make the identity of the instance.
    pub instance: u8,
    /// Identity of the redo that it takes.
    pub identity: LogIdentity,
    pub log: LogSwitch,
    /// Checksum of the stream before that log.
    pub crc: StreamCrc,
    pub incarnations: Vec<Incarnation>,
    pub databases: Vec<DatabaseRecord>,
}

fn first_log(first_scn: Scn) -> LogSwitch {
    LogSwitch { sequence: 1, first_scn, time_us: 0, first_record: 0 }
}

/// Paths of an instance, with the first member directory only; a machine holds one instance.
pub fn paths() -> Paths {
    let directory = Path::new("/standfast-power");
    Paths {
        shared_memory: None,
        control: directory.join("control"),
        observer: directory.join("observer"),
        lock: directory.join("lock"),
        socket: directory.join("control.sock"),
        ready: directory.join("ready"),
        alert: directory.join("alert.log"),
        shared_configuration: directory.join("configuration"),
        apply_journal: directory.join("apply.journal"),
        members: vec![directory.join(MEMBER_NAMES[0])],
        archive: directory.join("archive"),
        databases: directory.join("db"),
        runtime: None,
        directory: directory.to_owned(),
    }
}

/// The shared memory of an instance: a real file, because sessions map it, that is lost with the power.
#[derive(Debug)]
pub struct SegmentFile {
    path: PathBuf,
}

impl SegmentFile {
    /// Returns a new unique name; creates no file.
    pub fn unique() -> SegmentFile {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        SegmentFile {
            path: PathBuf::from(format!("/dev/shm/standfast-power-{}-{number}", std::process::id())),
        }
    }

    /// Removes the file, as a power loss does.
    pub fn lose(&self) {
        standfast_session::Segment::remove(&self.path);
    }
}

impl Drop for SegmentFile {
    fn drop(&mut self) {
        self.lose();
    }
}
