//! The configuration file `standfast.toml`: every setting with its default and meaning in one place.
//!
//! `standfast config` prints the settings in force; `standfast config --defaults` prints this page as TOML.

use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

/// Why a configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error(
        "cannot read {path}: {source}\nhint: make the directory with `standfast init -D DIR`, or name another with -D"
    )]
    Read {
        /// File.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// It is not valid TOML, or has an unknown or mistyped setting.
    #[error("{path}: {message}\nhint: `standfast config --defaults` prints every setting with its default")]
    Parse {
        /// File.
        path: PathBuf,
        /// The parser's words, with line and column.
        message: String,
    },
    /// A value is out of range.
    #[error("{path}: {setting} = {value}: {rule}")]
    Range {
        /// File.
        path: PathBuf,
        /// The setting's full name.
        setting: &'static str,
        /// Its value.
        value: String,
        /// What is allowed.
        rule: &'static str,
    },
}

/// All settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// This instance.
    pub instance: InstanceConfig,
    /// The redo log.
    pub redo: RedoConfig,
    /// Commits.
    pub commit: CommitConfig,
    /// Checkpoints.
    pub checkpoint: CheckpointConfig,
    /// Receiving and applying.
    pub standby: StandbyConfig,
    /// Where redo is shipped.
    #[serde(rename = "destination", skip_serializing_if = "Vec::is_empty")]
    pub destinations: Vec<DestinationConfig>,
}

/// `[instance]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct InstanceConfig {
    /// Name in messages and at peers (DB_UNIQUE_NAME).
    pub name: String,
    /// Address on which redo and requests are received; empty: none. Plain TCP: loopback only, unless
    /// `insecure` is set.
    pub listen: String,
    /// Allow plain TCP beyond loopback. Everybody who reaches the port can then read and write redo.
    pub insecure: bool,
    /// Permissions of the shared memory and the control socket, octal: who may write protected databases.
    pub mode: String,
}

impl Default for InstanceConfig {
    fn default() -> Self {
        InstanceConfig {
            name: "standfast".into(),
            listen: String::new(),
            insecure: false,
            mode: "0600".into(),
        }
    }
}

/// `[redo]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RedoConfig {
    /// Log groups, 2 to 64.
    pub groups: usize,
    /// Bytes of each log file, 8 MiB or more.
    pub group_bytes: u64,
    /// Block size in bytes: 512 or 4096, the logical block size of the device or a multiple of it.
    pub block_bytes: usize,
    /// Directories of the members, relative to the instance directory; a group has one file in each.
    pub members: Vec<PathBuf>,
    /// Directory of the archived logs.
    pub archive: PathBuf,
    /// Bytes of archived logs that are kept. Older ones are removed once every destination has them or the
    /// volume of archives is exceeded; a standby that needs a removed log must be created anew.
    pub archive_bytes_max: u64,
    /// Bytes of redo kept in memory for destinations that are a little behind.
    pub buffer_bytes: usize,
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
            buffer_bytes: 64 << 20,
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
    /// How long a writer waits for an instance that does not run before it fails, milliseconds.
    pub write_wait_ms: u32,
    /// How long a commit waits for an instance that has gone before it reports "outcome unknown", milliseconds.
    pub outcome_wait_ms: u32,
    /// How long the log writer gathers when only BATCH commits came, microseconds.
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
    /// Frames of a WAL between two passive checkpoints.
    pub passive_frames: u32,
    /// Frames of a WAL at which it is reset behind the gate.
    pub reset_frames: u32,
    /// Longest time the gate keeps new transactions waiting, milliseconds.
    pub gate_ms: u64,
}

impl Default for CheckpointConfig {
    fn default() -> Self {
        CheckpointConfig { passive_frames: 4_000, reset_frames: 24_000, gate_ms: 40 }
    }
}

/// `[standby]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StandbyConfig {
    /// Directory of the standby's databases, relative to the instance directory.
    pub directory: PathBuf,
    /// Apply threads; 0: databases are applied by one thread.
    pub apply_workers: usize,
    /// Apply redo as it arrives.
    pub apply: bool,
}

impl Default for StandbyConfig {
    fn default() -> Self {
        StandbyConfig { directory: "db".into(), apply_workers: 0, apply: true }
    }
}

/// What a commit waits for at a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransportMode {
    /// Until the standby has written the redo to its standby redo log (SYNC AFFIRM).
    SyncAffirm,
    /// Until the standby has received it in memory (SYNC NOAFFIRM).
    Fastsync,
    /// For nothing (ASYNC).
    Async,
}

/// What happens when a synchronous destination does not acknowledge within `net_timeout_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnTimeout {
    /// Commits go on without it until it has caught up (maximum availability).
    Degrade,
    /// Commits wait until it is back (maximum protection).
    Stall,
}

/// `[[destination]]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestinationConfig {
    /// Name of the standby instance there.
    pub name: String,
    /// Its address, HOST:PORT.
    pub address: String,
    /// Transport mode.
    #[serde(default = "default_mode")]
    pub mode: TransportMode,
    /// What a missing acknowledgement leads to.
    #[serde(default = "default_on_timeout")]
    pub on_timeout: OnTimeout,
    /// NET_TIMEOUT, milliseconds.
    #[serde(default = "default_net_timeout_ms")]
    pub net_timeout_ms: u64,
    /// REOPEN: pause before a failed destination is tried again, milliseconds.
    #[serde(default = "default_reopen_ms")]
    pub reopen_ms: u64,
}

fn default_mode() -> TransportMode {
    TransportMode::SyncAffirm
}
fn default_on_timeout() -> OnTimeout {
    OnTimeout::Degrade
}
fn default_net_timeout_ms() -> u64 {
    30_000
}
fn default_reopen_ms() -> u64 {
    1_000
}

/// File name of the configuration within the instance directory.
pub const CONFIG_FILE: &str = "standfast.toml";

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
        let config: Config = toml::from_str(text)
            .map_err(|error| ConfigError::Parse { path: path.to_owned(), message: error.to_string() })?;
        config.check(path)?;
        Ok(config)
    }

    fn check(&self, path: &Path) -> Result<(), ConfigError> {
        let fail = |setting, value: String, rule| {
            Err(ConfigError::Range { path: path.to_owned(), setting, value, rule })
        };
        let redo = &self.redo;
        if !(2..=64).contains(&redo.groups) {
            return fail("redo.groups", redo.groups.to_string(), "2 to 64 groups");
        }
        if redo.group_bytes < 8 << 20 || !redo.group_bytes.is_multiple_of(4096) {
            return fail(
                "redo.group_bytes",
                redo.group_bytes.to_string(),
                "at least 8 MiB (8388608), a multiple of 4096",
            );
        }
        if redo.block_bytes != 512 && redo.block_bytes != 4096 {
            return fail("redo.block_bytes", redo.block_bytes.to_string(), "512 or 4096");
        }
        if redo.members.is_empty() || redo.members.len() > 5 {
            return fail("redo.members", redo.members.len().to_string(), "1 to 5 directories");
        }
        if redo.buffer_bytes < 8 << 20 {
            return fail("redo.buffer_bytes", redo.buffer_bytes.to_string(), "at least 8 MiB (8388608)");
        }
        if self.commit_mode_bits().is_none() {
            return fail(
                "commit.write",
                self.commit.write.clone(),
                "wait or nowait, immediate or batch, separated by a comma",
            );
        }
        if !["early", "durable"].contains(&self.commit.visibility.as_str()) {
            return fail("commit.visibility", self.commit.visibility.clone(), "early or durable");
        }
        if self.mode_bits().is_none() {
            return fail(
                "instance.mode",
                self.instance.mode.clone(),
                "octal permissions such as 0600 or 0660",
            );
        }
        if self.destinations.len() > standfast_types::DESTINATIONS_MAX {
            return fail("destination", self.destinations.len().to_string(), "at most 31 destinations");
        }
        if self.checkpoint.passive_frames == 0
            || self.checkpoint.reset_frames <= self.checkpoint.passive_frames
        {
            return fail(
                "checkpoint.reset_frames",
                self.checkpoint.reset_frames.to_string(),
                "more than checkpoint.passive_frames, which is at least 1",
            );
        }
        let instance = &self.instance;
        if !is_name(&instance.name) {
            return fail("instance.name", format!("\"{}\"", instance.name), NAME_RULE);
        }
        if !instance.listen.is_empty() && !is_address(&instance.listen) {
            return fail("instance.listen", instance.listen.clone(), ADDRESS_RULE);
        }
        for destination in &self.destinations {
            if !is_name(&destination.name) {
                return fail("destination.name", format!("\"{}\"", destination.name), NAME_RULE);
            }
            if !is_address(&destination.address) {
                return fail("destination.address", destination.address.clone(), ADDRESS_RULE);
            }
            if !instance.insecure && is_beyond_loopback(&destination.address) {
                return fail(
                    "destination.address",
                    destination.address.clone(),
                    "a loopback address, or insecure = true in [instance]: redo would cross the network unencrypted",
                );
            }
            if destination.net_timeout_ms < 100 || destination.net_timeout_ms > 1_200_000 {
                return fail(
                    "destination.net_timeout_ms",
                    destination.net_timeout_ms.to_string(),
                    "100 to 1200000",
                );
            }
            let same_name = self.destinations.iter().filter(|other| other.name == destination.name).count();
            if same_name > 1 {
                return fail(
                    "destination.name",
                    destination.name.clone(),
                    "each destination has a name of its own",
                );
            }
        }
        Ok(())
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

    /// `instance.mode` as a number.
    pub fn mode_bits(&self) -> Option<u32> {
        u32::from_str_radix(&self.instance.mode, 8).ok().filter(|mode| *mode <= 0o777)
    }

    /// The configuration as TOML text.
    pub fn to_toml(&self) -> String {
        toml::to_string_pretty(self).unwrap_or_default()
    }
}

const NAME_RULE: &str = "1 to 64 letters, digits, dots, underscores or hyphens";
const ADDRESS_RULE: &str = "HOST:PORT, as in 10.0.0.2:7411 or [::1]:7411";

fn is_name(text: &str) -> bool {
    let allowed = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    (1..=64).contains(&text.len()) && text.chars().all(allowed)
}

/// Host and port; whether the host exists is found out when it is needed.
fn split_address(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    // Colons of an address of version 6 are in brackets.
    let host = bare.or_else(|| (!host.contains(':')).then_some(host))?;
    let port = port.parse().ok()?;
    (!host.is_empty() && !host.contains(char::is_whitespace)).then_some((host, port))
}

fn is_address(text: &str) -> bool {
    split_address(text).is_some()
}

/// Whether the address is a number, and not of this host.
fn is_beyond_loopback(text: &str) -> bool {
    let host = split_address(text).and_then(|(host, _)| host.parse::<std::net::IpAddr>().ok());
    host.is_some_and(|address| !address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_names_are_looked_at_before_they_are_used() {
        for good in ["h:1", "10.0.0.2:7411", "[::1]:7411", "far.example:65535"] {
            assert!(is_address(good), "{good}");
        }
        for bad in ["nonsense", "h:", ":1", "h:70000", "::1:7411", "a b:1", ""] {
            assert!(!is_address(bad), "{bad}");
        }
        assert!(is_beyond_loopback("10.0.0.2:1") && !is_beyond_loopback("127.0.0.1:1"));
        assert!(!is_beyond_loopback("far.example:1"), "known only when it is resolved");
        let error = |text: &str| Config::parse(text, Path::new("standfast.toml")).unwrap_err().to_string();
        assert!(error("[instance]\nname = ''").contains("instance.name = \"\""));
        assert!(error("[instance]\nlisten = 'nonsense'").contains("HOST:PORT"));
        assert!(
            error("[[destination]]\nname='b'\naddress='garbage'").contains("destination.address = garbage")
        );
        assert!(error("[[destination]]\nname='b'\naddress='10.0.0.2:1'").contains("insecure"));
    }

    #[test]
    fn defaults_survive_text_and_pass_their_own_checks() {
        let config = Config::default();
        assert_eq!(Config::parse(&config.to_toml(), Path::new("x")).unwrap(), config);
        assert_eq!(Config::parse("", Path::new("x")).unwrap(), config);
    }

    #[test]
    fn wrong_values_are_named() {
        let error = |text: &str| Config::parse(text, Path::new("standfast.toml")).unwrap_err().to_string();
        assert!(error("[redo]\ngroups = 1").contains("redo.groups = 1: 2 to 64"));
        assert!(error("[redo]\ngruops = 3").contains("gruops"));
        assert!(error("[commit]\nwrite = \"later\"").contains("commit.write = later"));
        assert!(
            error("[[destination]]\nname='b'\naddress='h:1'\nnet_timeout_ms=5")
                .contains("net_timeout_ms = 5")
        );
    }

    #[test]
    fn a_destination_has_the_documented_defaults() {
        let config = Config::parse("[[destination]]\nname='b'\naddress='h:1'", Path::new("x")).unwrap();
        let destination = &config.destinations[0];
        assert_eq!(destination.mode, TransportMode::SyncAffirm);
        assert_eq!((destination.net_timeout_ms, destination.on_timeout), (30_000, OnTimeout::Degrade));
    }
}
