//! What an instance has and how it is configured: log files, archived logs, destinations, settings. It is long and
//! changes rarely.

use crate::group::Group;
use serde_json::Value;

document! {
    /// Everything of an instance that changes rarely.
    Catalog {
        /// Identity of the family, hexadecimal.
        family: String,
        role: String,
        incarnation: u64,
        incarnation_id: String,
        /// SCN at which the incarnation begins.
        branch: u64,
        /// When it began, microseconds since the Unix epoch.
        incarnation_time_us: u64,
        /// The log that it writes in its role.
        logs: Logs,
        /// The newest archived logs, oldest first.
        archived: Vec<ArchivedLog>,
        destinations: Vec<ConfiguredDestination>,
        parameters: Vec<Parameter>,
    }
}

document! {
    /// A redo log with its groups.
    Logs {
        /// `online` or `standby`.
        kind: String,
        block_bytes: u64,
        groups: Vec<Group>,
    }
}

document! {
    /// An archived log.
    ArchivedLog {
        path: String,
        sequence: u64,
        incarnation: u64,
        incarnation_id: String,
        /// SCN at which its incarnation begins.
        branch: u64,
        incarnation_time_us: u64,
        first_scn: u64,
        first_time_us: u64,
        next_scn: u64,
        bytes: u64,
        block_bytes: u64,
        /// When its file was completed, microseconds since the Unix epoch.
        completed_us: u64,
    }
}

document! {
    /// A destination as configured.
    ConfiguredDestination {
        id: u64,
        name: String,
        /// HOST:PORT; empty for a local one.
        address: String,
        /// The directory of a local destination.
        location: String,
        /// `enable`, `defer` or `alternate`.
        state: String,
        mode: String,
        net_timeout_ms: u64,
        reopen_ms: u64,
        /// 0: no limit.
        max_failure: u64,
        delay_min: u64,
        compression: String,
        /// Kind of log, then role.
        valid_for: Vec<String>,
        valid_for_primary: bool,
        valid_for_standby: bool,
        alternate: String,
        mandatory: bool,
        max_connections: u64,
        insecure: bool,
        /// All attributes as text, as LOG_ARCHIVE_DEST_n has them.
        attributes: String,
    }
}

document! {
    /// A setting.
    Parameter {
        /// `section.setting`.
        name: String,
        value: Value,
        default: Value,
    }
}
