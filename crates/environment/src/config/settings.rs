//! The configuration file `standfast.toml`: every setting with its default and meaning in one place.
//!
//! `standfast config` prints the settings in force; `standfast config --defaults` prints this page as TOML. `check` has the
//! rules for their values.

mod check;

use crate::config::alert_config::AlertConfig;
use crate::config::arbiter_config::ArbiterConfig;
use crate::config::destination_config::{self, BrokenRule};
use crate::config::role_change_config::RoleChangeConfig;
use serde::{Deserialize, Serialize};
use standfast_io::Disk;
use standfast_types::Hint;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use crate::config::destination_config::{Compression, DestinationConfig, OnTimeout, TransportMode};

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    /// The text is not valid TOML, or has an unknown or mistyped setting.
    #[error("{path}: {message}")]
    Parse {
        path: PathBuf,
        /// The parser's message, with line and column.
        message: String,
    },
    /// A value is out of range.
    #[error("{path}: {setting} = {value}: {rule}")]
    Range {
        path: PathBuf,
        /// Section and setting, such as `redo.groups`.
        setting: &'static str,
        value: String,
        rule: &'static str,
    },
    /// The attributes of a destination are wrong, or contradict each other.
    #[error("{path}: {rule}")]
    Destination {
        path: PathBuf,
        /// Which attribute, and what is allowed.
        rule: BrokenRule,
    },
}

impl Hint for ConfigError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            ConfigError::Read { .. } => {
                "make the directory with `standfast init -D DIR`, or name another with -D".into()
            }
            ConfigError::Parse { .. } => {
                "`standfast config --defaults` prints every setting with its default".into()
            }
            _ => return None,
        })
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    pub instance: InstanceConfig,
    pub redo: RedoConfig,
    pub commit: CommitConfig,
    pub checkpoint: CheckpointConfig,
    /// What happens when standbys keep commits waiting.
    pub protection: ProtectionConfig,
    pub standby: StandbyConfig,
    pub security: SecurityConfig,
    pub snapshot: SnapshotConfig,
    /// Comparisons of standbys with this instance.
    pub verify: VerifyConfig,
    /// What holds for changes of role.
    pub role_change: RoleChangeConfig,
    /// How this instance asks a store that arbitrates fast-start failover.
    pub arbiter: ArbiterConfig,
    /// What is kept of a database when other content replaces it.
    pub kept: KeptConfig,
    pub http: HttpConfig,
    /// What is reported to operators, and how.
    pub alert: AlertConfig,
    #[serde(rename = "destination", skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<DestinationConfig>,
}

/// `[instance]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InstanceConfig {
    /// Name in messages and at peers (DB_UNIQUE_NAME).
    pub name: String,
    /// Address on which redo and requests are received; empty: none. Connections are encrypted, also on loopback,
    /// unless `insecure` is set.
    pub listen: String,
    /// Plain TCP: connections are opened and accepted without TLS, whatever the address. Must be set at both ends.
    /// Anyone who reaches the port, including every user of this machine, can then read and write redo and databases.
    pub insecure: bool,
    /// Permissions of the shared memory and the control socket, octal: which users may use protected databases and look
    /// at the instance. Only root and the instance's user administer it, whatever this setting says.
    pub mode: String,
    /// A group, by name or number, that may use protected databases and look at the instance: it may read and write the
    /// shared memory and the control socket. Empty: if `mode` gives the group no permission, the group of the files of
    /// all databases, provided that they all have the same group and it may write all of them. "none": no group but
    /// that of the process, as `mode` says.
    pub group: String,
    /// Directory of the shared memory and of sockets, relative to the instance directory: a directory of this instance
    /// alone, on a tmpfs such as `/run`, that can be mounted into containers. It is created if its parent exists.
    /// Empty: the runtime directory of the systemd unit whose state directory the instance directory is; without such a
    /// unit the shared memory is in `/dev/shm` and the sockets are in the instance directory.
    pub runtime_directory: PathBuf,
    /// Processes that write to a protected database without the extension: "count": their commits are captured and
    /// counted, but wait for no standby; "refuse": they get `database is locked`, as on a standby, while the instance
    /// runs.
    pub foreign_writers: ForeignWriters,
    /// A primary that another one has replaced becomes its standby by itself, as with `standfast reinstate`: commits that
    /// only this instance has are discarded in the databases, and stay in archived logs. The new primary must be one of its
    /// destinations.
    pub auto_reinstate: bool,
    /// Overrides `foreign_writers` for single databases, by name: `"orders.db" = "refuse"`.
    pub foreign_writers_of: BTreeMap<String, ForeignWriters>,
}

/// How processes that write to a protected database without the VFS are treated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForeignWriters {
    /// Their commits are captured and counted; they wait for no standby.
    #[default]
    Count,
    /// Their writes fail with `database is locked`.
    Refuse,
}

impl InstanceConfig {
    /// Returns the setting for the database called `name`.
    pub fn foreign_writers(&self, name: &str) -> ForeignWriters {
        self.foreign_writers_of.get(name).copied().unwrap_or(self.foreign_writers)
    }
}

impl InstanceConfig {
    /// `mode` as a number; `None` when it is not octal permissions.
    pub fn mode_bits(&self) -> Option<u32> {
        u32::from_str_radix(&self.mode, 8).ok().filter(|mode| *mode <= 0o777)
    }
}

impl Default for InstanceConfig {
    fn default() -> Self {
        InstanceConfig {
            name: "standfast".into(),
            listen: String::new(),
            insecure: false,
            mode: "0600".into(),
            group: String::new(),
            runtime_directory: PathBuf::new(),
            foreign_writers: ForeignWriters::Count,
            auto_reinstate: false,
            foreign_writers_of: BTreeMap::new(),
        }
    }
}

/// `[security]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SecurityConfig {
    /// Directory of certificates and keys, relative to the instance directory.
    pub directory: PathBuf,
    /// Seconds for which certificates issued by this instance are valid, 10 s to ten years. Each is renewed
    /// automatically once two thirds of that have passed.
    pub certificate_valid_s: u64,
    // A setting of releases in which loopback was an exception. It has no effect, but must not contradict
    // `instance.insecure`; it is read and never written.
    #[serde(skip_serializing)]
    tls: Option<TlsSetting>,
}

impl Default for SecurityConfig {
    fn default() -> Self {
        SecurityConfig { directory: "tls".into(), certificate_valid_s: 365 * 86_400, tls: None }
    }
}

/// `[http]`
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpConfig {
    /// HOST:PORT address on which the dashboard, metrics and documents are served, read only; empty: none. Not
    /// encrypted.
    pub listen: String,
    /// File with a token of 16 or more letters, digits, - _ . ~, relative to the instance directory: a client that has
    /// the token may read. Empty: `http.token`, which the instance creates for its own user.
    pub token_file: PathBuf,
    /// `/primary`, `/standby`, `/livez` and `/readyz` need no token: anyone who reaches the port learns the role.
    pub open_probes: bool,
    /// No token is required: anyone who reaches the port may read, including every user of this machine. On loopback
    /// only.
    pub anonymous: bool,
}

/// Where connections had to be encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum TlsSetting {
    /// For connections that leave the loopback interface.
    Auto,
    Required,
}

/// `[redo]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedoConfig {
    /// Log groups, 2 to 64, at `init`. This and the next three settings are the initial layout of the log; later,
    /// `standfast log group` and `standfast log member` change groups and members.
    pub groups: usize,
    /// Bytes of each log file, 8 MiB or more.
    pub group_bytes: u64,
    /// Block size in bytes: 512 or 4096, the logical block size of the device or a multiple of it.
    pub block_bytes: usize,
    /// Directories of the members, relative to the instance directory; a group has one file in each.
    pub members: Vec<PathBuf>,
    /// Directory of the archived logs.
    pub archive: PathBuf,
    /// Bytes of archived logs that are kept; older logs are removed. Logs are kept beyond that if they are needed by a
    /// destination that commits wait for, a copy in progress, a standby that was copied in the last ten minutes and has
    /// not connected yet, or an offline database. A destination that commits do not wait for (asynchronous or degraded)
    /// and that needs a removed log must be created again: the alert log says LEFT BEHIND.
    pub archive_bytes_max: u64,
    /// Seconds after which redo is archived even if it does not fill its log (ARCHIVE_LAG_TARGET): the log is then
    /// switched. 0: only full logs are archived; otherwise 60 to 7200.
    pub archive_lag_target_s: u64,
    /// LOG_ARCHIVE_MIN_SUCCEED_DEST, 1 to 10: how many of the instance's own archive and destinations 1 to 10 must have
    /// a log's redo before its group is reused. Mandatory destinations must have it in any case.
    pub archive_min_succeed: usize,
    /// Bytes of redo kept in memory for destinations that are slightly behind.
    pub buffer_bytes: usize,
    /// Archivers that send archived logs to destinations that lack whole logs, for all destinations together: 1 to 30
    /// (LOG_ARCHIVE_MAX_PROCESSES). With 1, a destination that is behind is fed over its stream alone. Each archiver
    /// has its own connection; max_connections of the destination says how many work on one log.
    pub archive_processes: u32,
    /// Bytes of an archived log that are requested and awaited at a time, 65536 to 1073741824, a multiple of 4096.
    pub archive_unit_bytes: u64,
}

impl Default for RedoConfig {
    fn default() -> Self {
        RedoConfig {
            groups: 3,
            group_bytes: 64 << 20,
            block_bytes: 4096,
            members: vec!["redo".into()],
            archive: "archive".into(),
            archive_bytes_max: 1 << 30,
            archive_min_succeed: 1,
            archive_lag_target_s: 0,
            buffer_bytes: 64 << 20,
            archive_processes: 4,
            archive_unit_bytes: 10 << 20,
        }
    }
}

/// `[commit]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CommitConfig {
    /// Default of `PRAGMA standfast_commit_write`: wait or nowait, immediate or batch.
    pub write: String,
    /// Default of `PRAGMA standfast_visibility`: early or durable.
    pub visibility: String,
    /// How long a writer waits for an instance that does not run before the write fails, milliseconds.
    pub write_wait_ms: u32,
    /// How long a commit waits for an instance that has ended before it reports "outcome unknown", milliseconds.
    pub outcome_wait_ms: u32,
    /// Batch delay: how long the log writer gathers when only BATCH commits came, microseconds.
    pub batch_us: u64,
}

impl Default for CommitConfig {
    fn default() -> Self {
        CommitConfig {
            write: "wait,immediate".into(),
            visibility: "early".into(),
            write_wait_ms: 5_000,
            outcome_wait_ms: 30_000,
            batch_us: 10_000,
        }
    }
}

/// `[checkpoint]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CheckpointConfig {
    /// Frames of a WAL after which a passive checkpoint backfills its prefix, at most; fewer for a small database.
    pub passive_frames: u32,
    /// Frames of a WAL after its backfilled prefix at which it is rewritten, or reset, behind the checkpoint gate. If
    /// more than four databases have WALs of 1,000 frames or more, they share what four may have of this and of
    /// `passive_frames`, down to 1,000 each. On a machine with more than 12 GB of memory they share what more of them
    /// may have: one for each 3 GB, up to 16.
    pub reset_frames: u32,
    /// Longest time the checkpoint gate keeps new transactions waiting, milliseconds.
    pub gate_ms: u64,
    /// Most of a WAL stays unsynced until the WAL is rewritten with the newest version of each page, which is less to
    /// write. Off: every frame is synced before its page is backfilled, and a long WAL is reset, never rewritten. For the
    /// databases of this instance, as primary and as standby. A WAL that an instance was rewriting when it was killed is
    /// repaired in either case.
    pub rewrite_wals: bool,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        CheckpointConfig { passive_frames: 8_000, reset_frames: 24_000, gate_ms: 40, rewrite_wals: true }
    }
}

/// `[protection]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ProtectionConfig {
    /// In maximum protection: how long commits stall after the last synchronised standby is lost before the instance
    /// stops, seconds; 0: they stall for as long as it takes.
    pub stop_after_s: u64,
    /// DATA_GUARD_SYNC_LATENCY: how long commits wait for the other synchronous standbys once one has acknowledged,
    /// seconds; 0: up to their net timeouts. At most 1200.
    pub sync_latency_s: u64,
}

impl Default for ProtectionConfig {
    fn default() -> Self {
        ProtectionConfig { stop_after_s: 30, sync_latency_s: 0 }
    }
}

/// `[standby]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StandbyConfig {
    /// Directory of the standby's databases, relative to the instance directory.
    pub directory: PathBuf,
    /// Apply threads; 0: one thread applies to all databases.
    pub apply_workers: usize,
    /// Apply redo when the instance opens; `standfast apply start` and `stop` change that until the next start.
    pub apply: bool,
    /// SDU: largest payload of a frame that a primary may send, bytes; the smaller value of the two ends applies. 0: as
    /// large as the protocol allows.
    pub sdu_bytes: u32,
    /// DELAY: apply a transaction this many seconds after its commit, at most 604800 (a week); 0: immediately. A delay
    /// that the primary sets for this destination applies instead. A failover does not wait.
    pub apply_delay_s: u64,
}

impl Default for StandbyConfig {
    fn default() -> Self {
        let directory = "db".into();
        StandbyConfig { directory, apply_workers: 0, apply: true, sdu_bytes: 0, apply_delay_s: 0 }
    }
}

/// `[verify]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct VerifyConfig {
    /// Hours between two comparisons of all databases with those of the standbys, at most 8760 (a year); 0: only those
    /// of `standfast verify`.
    pub every_hours: u64,
    /// Bytes of databases read per second for a comparison, 65536 or more; each standby reads as much.
    pub bytes_per_s: u64,
}

impl Default for VerifyConfig {
    fn default() -> Self {
        VerifyConfig { every_hours: 168, bytes_per_s: 8 << 20 }
    }
}

/// `[kept]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct KeptConfig {
    /// How many files are kept (`NAME.before-SCN`) of all databases together; beyond that the oldest are removed, but
    /// never the newest file of a database. `standfast database kept` lists and removes them.
    pub files_max: usize,
    /// Bytes of all kept files together; beyond that the oldest are removed, but never the newest file of a database.
    pub bytes_max: u64,
    /// Days for which each file is kept, 1 to 3650.
    pub days: u64,
    /// Bytes that stay free on the volume of a standby's databases. If keeping a file would leave less, the full resync
    /// image that would replace it is not applied, and is tried again; nothing is removed to make room.
    pub free_bytes_min: u64,
}

impl Default for KeptConfig {
    fn default() -> Self {
        KeptConfig { files_max: 16, bytes_max: 64 << 30, days: 30, free_bytes_min: 256 << 20 }
    }
}

/// `[snapshot]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SnapshotConfig {
    /// Seconds between two snapshots of the instance's counts, 10 to 86400; 0: only those of `standfast snapshot`.
    pub interval_s: u64,
    /// Days for which snapshots are kept, 1 to 3650.
    pub retention_days: u64,
}

impl Default for SnapshotConfig {
    fn default() -> Self {
        SnapshotConfig { interval_s: 600, retention_days: 8 }
    }
}

impl SnapshotConfig {
    /// Time between two snapshots; zero: none are taken.
    pub fn interval(&self) -> Duration {
        Duration::from_secs(self.interval_s)
    }

    /// How long snapshots are kept, microseconds.
    pub fn retention_us(&self) -> u64 {
        self.retention_days * 86_400_000_000
    }
}

/// File name of the configuration within the instance directory.
pub const CONFIG_FILE: &str = "standfast.toml";

impl ConfigError {
    /// Whether this user may not read the file.
    pub fn is_denied(&self) -> bool {
        let denied = std::io::ErrorKind::PermissionDenied;
        matches!(self, ConfigError::Read { source, .. } if source.kind() == denied)
    }
}

impl Config {
    /// Reads and checks the configuration of the instance in `directory`.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn load(directory: &Path) -> Result<Config, ConfigError> {
        let path = directory.join(CONFIG_FILE);
        let text = std::fs::read_to_string(&path)
            .map_err(|source| ConfigError::Read { path: path.clone(), source })?;
        Config::parse(&text, &path)
    }

    /// Decodes and checks configuration text; `path` is for messages.
    ///
    /// # Errors
    /// See [`ConfigError`].
    pub fn parse(text: &str, path: &Path) -> Result<Config, ConfigError> {
        let mut config: Config = toml::from_str(text)
            .map_err(|error| ConfigError::Parse { path: path.to_owned(), message: error.to_string() })?;
        destination_config::number(&mut config.destinations);
        config.check(path)?;
        Ok(config)
    }

    /// `commit.write` as session bits; `None` when it is not valid.
    pub fn commit_mode_bits(&self) -> Option<u32> {
        let mut mode = standfast_session::CommitMode { nowait: false, batch: false };
        for word in self.commit.write.split(',') {
            match word.trim() {
                "wait" => mode.nowait = false,
                "nowait" => mode.nowait = true,
                "immediate" => mode.batch = false,
                "batch" => mode.batch = true,
                _ => return None,
            }
        }
        Some(mode.bits())
    }

    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).unwrap_or_default()
    }

    /// Replaces the configuration file of the instance in `directory`.
    ///
    /// # Errors
    /// When it cannot be written; the old content stays.
    pub fn store(&self, disk: &dyn Disk, directory: &Path) -> std::io::Result<()> {
        disk.replace(&directory.join(CONFIG_FILE), self.to_toml().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_config_is_valid_and_survives_a_text_round_trip() {
        let config = Config::default();
        assert_eq!(Config::parse(&config.to_toml(), Path::new("x")).unwrap(), config);
        assert_eq!(Config::parse("", Path::new("x")).unwrap(), config);
    }

    #[test]
    fn obsolete_tls_setting_is_read_but_not_written() {
        for old in ["auto", "required"] {
            let read = Config::parse(&format!("[security]\ntls = \"{old}\""), Path::new("x")).unwrap();
            assert!(!read.instance.insecure && !read.to_toml().contains("tls ="), "{}", read.to_toml());
        }
        let both = "[instance]\ninsecure = true\n[security]\ntls = \"required\"";
        let error = Config::parse(both, Path::new("x")).unwrap_err().for_terminal();
        assert!(error.contains("instance.insecure = true: false, or no [security] tls"), "{error}");
    }

    #[test]
    fn wals_are_rewritten_unless_that_is_switched_off() {
        let rewrites = |text| Config::parse(text, Path::new("x")).unwrap().checkpoint.rewrite_wals;
        assert!(rewrites("") && rewrites("[checkpoint]\ngate_ms = 20"));
        assert!(!rewrites("[checkpoint]\nrewrite_wals = false"));
    }

    #[test]
    fn errors_for_invalid_settings_name_the_setting() {
        let error = |text: &str| Config::parse(text, Path::new("standfast.toml")).unwrap_err().for_terminal();
        assert!(error("[redo]\ngroups = 1").contains("redo.groups = 1: 2 to 64"));
        assert!(
            error("[redo]\nmembers = ['a', '/b/', './a/']").contains("redo.members = ./a/: each member has")
        );
        assert!(error("[redo]\nmembers = ['']").contains("redo.members"));
        for wrong in [1, 59, 7201] {
            let text = format!("[redo]\narchive_lag_target_s = {wrong}");
            assert!(error(&text).contains("redo.archive_lag_target_s"), "{wrong}");
        }
        assert!(error("[standby]\napply_delay_s = 604801").contains("0 to 604800"));
        assert!(error("[redo]\narchive_processes = 31").contains("1 to 30"));
        assert!(error("[redo]\narchive_unit_bytes = 100000").contains("a multiple of 4096"));
        assert!(error("[snapshot]\ninterval_s = 9").contains("snapshot.interval_s = 9: 0 for none"));
        assert!(error("[verify]\nbytes_per_s = 0").contains("verify.bytes_per_s = 0: 65536 or more"));
        assert!(error("[verify]\nevery_hours = 8761").contains("1 to 8760 hours"));
        assert!(error("[snapshot]\nretention_days = 0").contains("1 to 3650 days"));
        assert!(error("[kept]\ndays = 0").contains("kept.days = 0: 1 to 3650 days"));
        assert!(error("[redo]\ngruops = 3").contains("gruops"));
        assert!(error("[commit]\nwrite = \"later\"").contains("commit.write = later"));
    }
}
