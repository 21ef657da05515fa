//! `[[destination]]`: the attributes of one archive destination, their ranges, and which of them fit together.
//!
//! They are those of Oracle's `LOG_ARCHIVE_DEST_n` and mean the same; where a default differs, docs/decisions/0012
//! gives the reason. [`crate::config::attribute_text`] reads and writes them in Oracle's own notation.

use crate::config::address::{ADDRESS_RULE, NAME_RULE, is_address, is_name};
use serde::{Deserialize, Serialize};
use standfast_types::DESTINATIONS_MAX;
use std::collections::HashSet;
use std::path::PathBuf;

/// What a commit waits for at a destination: SYNC or ASYNC, AFFIRM or NOAFFIRM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransportMode {
    /// Until the standby has written the redo to its standby redo log (SYNC AFFIRM).
    SyncAffirm,
    /// Until the standby has received it in memory (SYNC NOAFFIRM).
    Fastsync,
    /// Commits do not wait for this destination (ASYNC).
    Async,
}

/// What happens when a synchronous destination does not acknowledge within `net_timeout_ms`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OnTimeout {
    /// Commits continue without it until it has caught up.
    Degrade,
    /// Commits wait until it is back.
    Stall,
}

/// Whether a destination is in use (LOG_ARCHIVE_DEST_STATE_n).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    #[default]
    Enable,
    /// Configured, but not in use until it is enabled.
    Defer,
    /// In use only when the destination fails that names this one as its alternate.
    Alternate,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    #[default]
    None,
    /// LZ4: little work, about half the bytes.
    Lz4,
    /// Zstandard: more work than LZ4, fewer bytes.
    Zstd,
}

/// Which logs a destination takes (VALID_FOR, first word).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValidLogs {
    /// Logs that this instance writes as a primary.
    OnlineLogfile,
    /// Logs that it receives as a standby.
    StandbyLogfile,
    #[default]
    AllLogfiles,
}

/// In which role of this instance a destination is in use (VALID_FOR, second word).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ValidRole {
    /// While this instance is a primary.
    PrimaryRole,
    /// While it is a standby: it forwards what it receives.
    StandbyRole,
    #[default]
    AllRoles,
}

/// VALID_FOR: which logs the destination takes, and in which role of this instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ValidFor(pub ValidLogs, pub ValidRole);

impl ValidFor {
    /// In use while this instance is a primary.
    pub const AS_PRIMARY: ValidFor = ValidFor(ValidLogs::AllLogfiles, ValidRole::PrimaryRole);

    /// Whether the destination takes the redo of a primary.
    pub fn of_a_primary(self) -> bool {
        self.0 != ValidLogs::StandbyLogfile && self.1 != ValidRole::StandbyRole
    }

    /// Whether the destination takes what a standby receives.
    pub fn of_a_standby(self) -> bool {
        self.0 != ValidLogs::OnlineLogfile && self.1 != ValidRole::PrimaryRole
    }

    fn is_default(&self) -> bool {
        *self == ValidFor::default()
    }
}

/// One `[[destination]]` of `standfast.toml`; `id` distinguishes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DestinationConfig {
    /// Number, 1 to 31: the n of LOG_ARCHIVE_DEST_n. If omitted, the lowest free number.
    #[serde(default, skip_serializing_if = "is_default")]
    pub id: u8,
    /// DB_UNIQUE_NAME: name of the standby instance there, which must answer by that name. For a local destination: any
    /// name.
    pub name: String,
    /// SERVICE: address of the standby, HOST:PORT.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// LOCATION: a directory on this machine that gets a copy of every archived log, instead of a standby.
    #[serde(default, skip_serializing_if = "is_default")]
    pub location: Option<PathBuf>,
    /// LOG_ARCHIVE_DEST_STATE: enable, defer or alternate.
    #[serde(default, skip_serializing_if = "is_default")]
    pub state: State,
    /// SYNC or ASYNC, AFFIRM or NOAFFIRM. If omitted, sync-affirm; async for the numbers 11 to 31.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mode: Option<TransportMode>,
    /// What a missing acknowledgement leads to. If omitted, what the protection mode says. Ignored with async, as is
    /// `net_timeout_ms` for commits.
    #[serde(default, skip_serializing_if = "is_default")]
    pub on_timeout: Option<OnTimeout>,
    /// NET_TIMEOUT, milliseconds: longest wait of a commit for this destination, and longest silence of a connection.
    #[serde(default = "default_net_timeout_ms")]
    pub net_timeout_ms: u64,
    /// REOPEN, milliseconds: longest pause between attempts to reach it.
    #[serde(default = "default_reopen_ms")]
    pub reopen_ms: u64,
    /// MAX_FAILURE: consecutive attempts that may fail before it is abandoned until it is enabled again; 0 = any
    /// number. If omitted in a group, 1.
    #[serde(default, skip_serializing_if = "is_default")]
    pub max_failure: Option<u32>,
    /// DELAY, minutes: how long after its commit the standby leaves a transaction unapplied.
    #[serde(default, skip_serializing_if = "is_default")]
    pub delay_min: u32,
    /// COMPRESSION in transit.
    #[serde(default, skip_serializing_if = "is_default")]
    pub compression: Compression,
    /// VALID_FOR: which logs, and in which role of this instance.
    #[serde(default, skip_serializing_if = "ValidFor::is_default")]
    pub valid_for: ValidFor,
    /// ALTERNATE: name of the local destination that takes over when this local one has failed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub alternate: Option<String>,
    /// GROUP, 1 to 8: one destination of a group is in use, the best reachable one. 0: in no group.
    #[serde(default, skip_serializing_if = "is_default")]
    pub group: u8,
    /// PRIORITY within its group, 1 (best) to 8. All of priority 8 are in use when no destination of a better priority
    /// can be reached.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub priority: u8,
    /// MANDATORY: no redo log is reused before this destination has its redo.
    #[serde(default, skip_serializing_if = "is_default")]
    pub mandatory: bool,
    /// MAX_CONNECTIONS, 1 to 20: connections that carry one archived log when the standby lacks it.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub max_connections: u8,
    /// SDU, bytes: largest payload of one frame; the smaller value of the two ends applies. 0: as large as the protocol
    /// allows.
    #[serde(default, skip_serializing_if = "is_default")]
    pub sdu_bytes: u32,
    /// SEND_BUF_SIZE, bytes: send buffer of the socket; 0: the system's own choice, which grows as needed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub send_buffer_bytes: u32,
    /// RECV_BUF_SIZE, bytes: receive buffer of the socket, at the standby too; 0: the system's own choice.
    #[serde(default, skip_serializing_if = "is_default")]
    pub receive_buffer_bytes: u32,
}

fn default_net_timeout_ms() -> u64 {
    30_000
}

fn default_reopen_ms() -> u64 {
    1_000
}

fn one() -> u8 {
    1
}

fn is_one(value: &u8) -> bool {
    *value == 1
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl DestinationConfig {
    /// Describes a standby at `address` with the default attributes.
    pub fn new(name: impl Into<String>, address: impl Into<String>) -> DestinationConfig {
        DestinationConfig {
            id: 0,
            name: name.into(),
            address: address.into(),
            location: None,
            state: State::Enable,
            mode: None,
            on_timeout: None,
            net_timeout_ms: default_net_timeout_ms(),
            reopen_ms: default_reopen_ms(),
            max_failure: None,
            delay_min: 0,
            compression: Compression::None,
            valid_for: ValidFor::default(),
            alternate: None,
            group: 0,
            priority: 1,
            mandatory: false,
            max_connections: 1,
            sdu_bytes: 0,
            send_buffer_bytes: 0,
            receive_buffer_bytes: 0,
        }
    }

    /// Whether it is a directory on this machine.
    pub fn is_local(&self) -> bool {
        self.location.is_some()
    }

    /// Returns the mode in force. A local destination gets whole logs: no commit waits for it.
    pub fn transport_mode(&self) -> TransportMode {
        let unset = if self.is_local() || self.id > FULL_ID_MAX {
            TransportMode::Async
        } else {
            TransportMode::SyncAffirm
        };
        self.mode.unwrap_or(unset)
    }

    /// Whether commits may have to wait for it.
    pub fn is_sync(&self) -> bool {
        self.transport_mode() != TransportMode::Async
    }

    /// Returns MAX_FAILURE in force; 0 is any number of failures.
    pub fn failures_allowed(&self) -> u32 {
        self.max_failure.unwrap_or(u32::from(self.group > 0))
    }
}

/// Destinations with greater numbers are neither synchronous nor mandatory nor local.
pub const FULL_ID_MAX: u8 = 10;

/// A rule that the destinations break.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("destination {name}: {attribute} = {value}: {rule}")]
pub struct BrokenRule {
    pub name: String,
    /// Name of the setting within `[[destination]]`.
    pub attribute: &'static str,
    pub value: String,
    pub rule: String,
}

/// Gives destinations without a number the lowest free ones, in their order.
pub fn number(destinations: &mut [DestinationConfig]) {
    let mut taken: HashSet<u8> = destinations.iter().map(|at| at.id).collect();
    for destination in destinations.iter_mut().filter(|at| at.id == 0) {
        let free = (1..=u8::MAX).find(|id| !taken.contains(id)).unwrap_or(u8::MAX);
        taken.insert(free);
        destination.id = free;
    }
}

/// Checks every destination by itself and all of them together.
///
/// # Errors
/// The first broken rule.
pub fn check_all(destinations: &[DestinationConfig]) -> Result<(), BrokenRule> {
    for (index, destination) in destinations.iter().enumerate() {
        check_one(destination)?;
        let before = &destinations[..index];
        let name = &destination.name;
        if before.iter().any(|other| other.name == *name) {
            return destination.breaks("name", name, "each destination has a name of its own");
        }
        if before.iter().any(|other| other.id == destination.id) {
            return destination.breaks("id", destination.id, "each destination has a number of its own");
        }
        check_alternate(destination, destinations)?;
    }
    Ok(())
}

fn check_one(at: &DestinationConfig) -> Result<(), BrokenRule> {
    if !is_name(&at.name) {
        return at.breaks("name", format!("\"{}\"", at.name), NAME_RULE);
    }
    if usize::from(at.id) > DESTINATIONS_MAX {
        return at.breaks("id", at.id, "1 to 31");
    }
    match &at.location {
        Some(location) => check_local(at, location)?,
        None => check_remote(at)?,
    }
    if !(100..=1_200_000).contains(&at.net_timeout_ms) {
        return at.breaks("net_timeout_ms", at.net_timeout_ms, "100 to 1200000");
    }
    if at.reopen_ms == 0 && at.failures_allowed() != 1 {
        let rule = "1 or more, unless max_failure = 1: attempts without a pause would only make work";
        return at.breaks("reopen_ms", at.reopen_ms, rule);
    }
    if at.id > FULL_ID_MAX && at.mandatory {
        return at.breaks("mandatory", true, "the destinations 11 to 31 are optional");
    }
    if at.group > 8 {
        return at.breaks("group", at.group, "1 to 8, or 0 for none");
    }
    if !(1..=8).contains(&at.priority) {
        return at.breaks("priority", at.priority, "1 (best) to 8");
    }
    if at.priority != 1 && at.group == 0 {
        return at.breaks("priority", at.priority, "priorities are within a group: set group as well");
    }
    if at.group > 0 && at.mandatory {
        return at.breaks(
            "mandatory",
            true,
            "a destination of a group may be out of use: it cannot be mandatory",
        );
    }
    if !(1..=20).contains(&at.max_connections) {
        return at.breaks("max_connections", at.max_connections, "1 to 20");
    }
    if at.sdu_bytes != 0 && !(512..=2_097_152).contains(&at.sdu_bytes) {
        return at.breaks(
            "sdu_bytes",
            at.sdu_bytes,
            "512 to 2097152, or 0 for as large as the protocol allows",
        );
    }
    for (attribute, value) in
        [("send_buffer_bytes", at.send_buffer_bytes), ("receive_buffer_bytes", at.receive_buffer_bytes)]
    {
        if value != 0 && !(4096..=1 << 30).contains(&value) {
            return at.breaks(attribute, value, "4096 to 1073741824, or 0 for the system's own choice");
        }
    }
    Ok(())
}

fn check_remote(at: &DestinationConfig) -> Result<(), BrokenRule> {
    if !is_address(&at.address) {
        return at.breaks("address", &at.address, ADDRESS_RULE);
    }
    if at.id > FULL_ID_MAX && at.is_sync() {
        return at.breaks("mode", "sync", "the destinations 11 to 31 are async");
    }
    if at.alternate.is_some() {
        let rule = "alternates are for local destinations; for standbys use group and priority";
        return at.breaks("alternate", at.alternate.as_deref().unwrap_or_default(), rule);
    }
    if at.state == State::Alternate {
        return at.breaks(
            "state",
            "alternate",
            "for local destinations; for standbys use group and priority",
        );
    }
    if at.delay_min > 0 && at.valid_for.1 == ValidRole::StandbyRole {
        return at.breaks("delay_min", at.delay_min, "not with valid_for = [\"...\", \"standby_role\"]");
    }
    if at.delay_min > 10_080 {
        return at.breaks("delay_min", at.delay_min, "0 to 10080 (a week)");
    }
    if at.valid_for.0 == ValidLogs::OnlineLogfile && at.valid_for.1 == ValidRole::StandbyRole {
        return at.breaks("valid_for", "online_logfile, standby_role", "a standby has no online redo log");
    }
    if at.valid_for.0 == ValidLogs::StandbyLogfile && at.valid_for.1 == ValidRole::PrimaryRole {
        return at.breaks("valid_for", "standby_logfile, primary_role", "a primary receives nothing");
    }
    Ok(())
}

fn check_local(at: &DestinationConfig, location: &std::path::Path) -> Result<(), BrokenRule> {
    let local = "a destination has an address (SERVICE) or a location (LOCATION)";
    if !at.address.is_empty() {
        return at.breaks("address", &at.address, local);
    }
    if location.as_os_str().is_empty() {
        return at.breaks("location", "\"\"", "a directory");
    }
    if at.id > FULL_ID_MAX {
        return at.breaks("id", at.id, "local destinations have the numbers 1 to 10");
    }
    if at.is_sync() {
        return at.breaks("mode", "sync", "commits do not wait for a local destination: it gets whole logs");
    }
    let not_local = [
        ("delay_min", at.delay_min > 0),
        ("group", at.group > 0),
        ("compression", at.compression != Compression::None),
        ("on_timeout", at.on_timeout.is_some()),
        ("max_connections", at.max_connections != 1),
        ("sdu_bytes", at.sdu_bytes != 0),
        ("send_buffer_bytes", at.send_buffer_bytes != 0),
        ("receive_buffer_bytes", at.receive_buffer_bytes != 0),
    ];
    match not_local.iter().find(|(_, reported)| *reported) {
        Some((attribute, _)) => at.breaks(attribute, "set", "not for a local destination (LOCATION)"),
        None => Ok(()),
    }
}

fn check_alternate(at: &DestinationConfig, all: &[DestinationConfig]) -> Result<(), BrokenRule> {
    let Some(name) = &at.alternate else { return Ok(()) };
    let found = all.iter().find(|other| other.name == *name && other.name != at.name);
    if !found.is_some_and(|other| other.is_local() && other.state == State::Alternate) {
        return at.breaks("alternate", name, "another local destination with state = \"alternate\"");
    }
    if at.failures_allowed() == 0 {
        return at.breaks("alternate", name, "needs max_failure = 1 or more: otherwise it is tried forever");
    }
    Ok(())
}

impl DestinationConfig {
    fn breaks(
        &self,
        attribute: &'static str,
        value: impl ToString,
        rule: impl Into<String>,
    ) -> Result<(), BrokenRule> {
        Err(BrokenRule { name: self.name.clone(), attribute, value: value.to_string(), rule: rule.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::settings::Config;
    use std::path::Path;

    fn parse(text: &str) -> Result<Vec<DestinationConfig>, String> {
        Config::parse(text, Path::new("standfast.toml"))
            .map(|config| config.destinations)
            .map_err(|error| error.to_string())
    }

    /// Returns the error of one destination with these attributes.
    fn broken(attributes: &str) -> String {
        let text = format!("[[destination]]\nname='b'\naddress='h:1'\n{attributes}");
        parse(&text).expect_err(attributes)
    }

    #[test]
    fn a_destination_has_the_documented_defaults() {
        let at = &parse("[[destination]]\nname='b'\naddress='h:1'").unwrap()[0];
        assert_eq!((at.id, at.transport_mode()), (1, TransportMode::SyncAffirm));
        assert_eq!((at.net_timeout_ms, at.reopen_ms, at.failures_allowed()), (30_000, 1_000, 0));
        assert_eq!((at.priority, at.max_connections, at.valid_for), (1, 1, ValidFor::default()));
        assert!(at.valid_for.of_a_primary() && at.valid_for.of_a_standby());
        let far = &parse("[[destination]]\nid=11\nname='b'\naddress='h:1'\ngroup=1").unwrap()[0];
        assert_eq!((far.transport_mode(), far.failures_allowed()), (TransportMode::Async, 1));
    }

    #[test]
    fn destination_attributes_survive_a_text_round_trip() {
        let config = "[[destination]]\nname='b'\naddress='h:1'\nid=4\nmode='async'\ngroup=2\npriority=8\n\
            compression='zstd'\nvalid_for=['standby_logfile','standby_role']\nmax_connections=5\nsdu_bytes=65535\n\
            [[destination]]\nname='copy'\nlocation='/x'\nmandatory=true\nmax_failure=3\nalternate='spare'\n\
            [[destination]]\nname='spare'\nlocation='/y'\nstate='alternate'";
        let config = Config::parse(config, Path::new("x")).unwrap();
        assert_eq!(config.destinations.iter().map(|at| at.id).collect::<Vec<_>>(), [4, 1, 2]);
        assert_eq!(Config::parse(&config.to_toml(), Path::new("x")).unwrap(), config);
    }

    #[test]
    fn out_of_range_value_is_refused_with_the_allowed_range() {
        let rules = [
            ("id = 32", "id = 32: 1 to 31"),
            ("net_timeout_ms = 99", "100 to 1200000"),
            ("net_timeout_ms = 1200001", "100 to 1200000"),
            ("group = 9", "group = 9: 1 to 8"),
            ("group = 1\npriority = 9", "1 (best) to 8"),
            ("group = 1\npriority = 0", "1 (best) to 8"),
            ("max_connections = 21", "1 to 20"),
            ("max_connections = 0", "1 to 20"),
            ("sdu_bytes = 100", "512 to 2097152"),
            ("sdu_bytes = 2097153", "512 to 2097152"),
            ("send_buffer_bytes = 1", "4096 to"),
            ("receive_buffer_bytes = 1", "4096 to"),
            ("delay_min = 20000", "0 to 10080"),
            ("reopen_ms = 0", "max_failure = 1"),
        ];
        for (attributes, rule) in rules {
            let text = broken(attributes);
            assert!(text.contains(rule) && text.contains("destination b"), "{attributes}: {text}");
        }
        let name = parse("[[destination]]\nname=''\naddress='h:1'").unwrap_err();
        assert!(name.contains("name = \"\""), "{name}");
    }

    #[test]
    fn conflicting_attributes_are_refused_with_the_rule() {
        let rules = [
            ("id = 11\nmode = 'sync-affirm'", "11 to 31 are async"),
            ("id = 12\nmandatory = true", "11 to 31 are optional"),
            ("priority = 2", "within a group"),
            ("group = 1\nmandatory = true", "cannot be mandatory"),
            ("alternate = 'b'", "use group and priority"),
            ("state = 'alternate'", "use group and priority"),
            ("delay_min = 5\nvalid_for = ['all_logfiles', 'standby_role']", "not with valid_for"),
            ("valid_for = ['online_logfile', 'standby_role']", "no online redo log"),
            ("valid_for = ['standby_logfile', 'primary_role']", "receives nothing"),
            ("location = '/x'", "address (SERVICE) or a location"),
        ];
        for (attributes, rule) in rules {
            let text = broken(attributes);
            assert!(text.contains(rule), "{attributes}: {text}");
        }
        let local = |attributes: &str| {
            parse(&format!("[[destination]]\nname='c'\nlocation='/x'\n{attributes}")).expect_err(attributes)
        };
        for attributes in ["delay_min = 1", "group = 1", "compression = 'lz4'", "max_connections = 2"] {
            assert!(local(attributes).contains("not for a local destination"), "{attributes}");
        }
        assert!(local("mode = 'fastsync'").contains("whole logs"));
        assert!(local("id = 11").contains("1 to 10"));
        assert!(local("alternate = 'other'\nmax_failure = 1").contains("state = \"alternate\""));
        let spare = "\n[[destination]]\nname='other'\nlocation='/y'\nstate='alternate'";
        assert!(local(&format!("alternate = 'other'{spare}")).contains("needs max_failure"));
        let twice = "[[destination]]\nname='b'\naddress='h:1'\n".repeat(2);
        assert!(parse(&twice).unwrap_err().contains("a name of its own"));
        let same_id =
            "[[destination]]\nid=1\nname='b'\naddress='h:1'\n[[destination]]\nid=1\nname='c'\naddress='h:1'";
        assert!(parse(same_id).unwrap_err().contains("a number of its own"));
        let many: String =
            (0..32).map(|n| format!("[[destination]]\nname='d{n}'\naddress='h:1'\nmode='async'\n")).collect();
        assert!(parse(&many).unwrap_err().contains("1 to 31"));
        assert!(
            parse("[[destination]]\nname='b'\naddress='garbage'").unwrap_err().contains("address = garbage")
        );
        assert!(parse("[[destination]]\nname='b'\naddress='10.0.0.2:1'").is_ok(), "over TLS");
    }
}
