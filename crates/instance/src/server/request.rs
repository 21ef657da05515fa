//! Requests over the control socket, and the right that each needs.

use crate::role::log_changes::LogChange;
use crate::role::resolve::Keep;
use serde::{Deserialize, Serialize};
use standfast_environment::config::destination_config::State;
use standfast_environment::config::settings::DestinationConfig;
use standfast_transport::Rights;
use standfast_transport::protection::ProtectionMode;
use std::path::PathBuf;

/// A request to a running instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Request {
    Status,
    /// What applications can do here: the role, or why nothing.
    Serving {
        /// Wait, for at most ten seconds, until it is something else than this.
        #[serde(default)]
        unless: Option<String>,
    },
    /// Everything observable, optionally including the standbys, as JSON.
    Observe {
        #[serde(default)]
        history: bool,
        /// Include the answers of the standbys.
        #[serde(default)]
        standbys: bool,
    },
    /// The rows of a V$ view; they follow the answer, see [`crate::observe::view_request`].
    View {
        name: String,
    },
    Snapshot,
    Stop,
    /// Protect a database or a directory of them.
    Protect {
        /// Absolute path of a file or a directory.
        path: PathBuf,
        name: Option<String>,
    },
    Unprotect {
        /// Name of the database, or its absolute path.
        name: String,
    },
    /// Show what the file of an offline database and its redo would each lose, and decide for one of them.
    Resolve {
        /// Name of the database, or its absolute path.
        name: String,
        /// Which of the two is kept; `None` only shows them.
        keep: Option<Keep>,
    },
    /// The files that were set aside.
    Kept,
    /// Remove a file that was set aside.
    RemoveKept {
        file: String,
    },
    SwitchLogfile,
    /// Change groups or members of the redo log.
    ChangeLog {
        change: LogChange,
    },
    /// Register an archived log that was copied to this standby by hand.
    RegisterLogfile {
        /// Absolute path of the archived log.
        path: PathBuf,
    },
    Checkpoint,
    /// Begin a verification against the standbys.
    Verify {
        /// Database by name or absolute path; `None`: all.
        database: Option<String>,
        /// Send the standbys the pages that differ.
        repair: bool,
        /// Bytes read per second; `None`: as configured.
        bytes_per_s: Option<u64>,
    },
    /// Progress and findings of the newest verification.
    Verification,
    Failover {
        /// How long to wait for redo that its source still has, seconds.
        #[serde(default)]
        wait_s: Option<u64>,
        /// Even if databases have to be excluded.
        #[serde(default)]
        immediate: bool,
        /// Even if the primary is alive.
        #[serde(default)]
        force: bool,
    },
    /// Hand the role of primary to a standby.
    Switchover {
        /// Name of the destination.
        to: String,
        /// How long running write transactions may take to end, seconds; `None`: the default.
        #[serde(default)]
        drain_s: Option<u64>,
    },
    Apply {
        on: bool,
        /// Apply immediately, without the configured apply delay.
        no_delay: bool,
    },
    /// Make this standby a snapshot standby, or a physical standby again.
    Convert {
        snapshot: bool,
    },
    SetDestination {
        destination: Box<DestinationConfig>,
        /// Connect to it first, and change nothing when that fails.
        #[serde(default)]
        connect: bool,
    },
    /// Remove the destination with this number, if there is one.
    ClearDestination {
        id: u8,
    },
    SetDestinationState {
        name: String,
        state: State,
    },
    ListDestinations,
    /// The configuration that all instances share, as this one has it.
    Configuration,
    /// Set a property of that configuration.
    SetProperty {
        /// Whose; `None`: one of the configuration itself.
        #[serde(default)]
        member: Option<String>,
        property: String,
        /// `None`: its default.
        #[serde(default)]
        value: Option<String>,
    },
    /// Enable or disable fast-start failover.
    FastStart {
        enable: bool,
        /// Disable it even if the observer does not confirm that no member may take over.
        #[serde(default)]
        force: bool,
    },
    /// The state of the observer, as it reports it.
    Observer,
    /// Ask a standby whether it can take over in a switchover.
    ReadyToTakeOver {
        name: String,
    },
    /// Show or change the protection mode.
    ProtectionMode {
        /// New mode; `None`: only show it.
        mode: Option<ProtectionMode>,
    },
    /// Make a token with which a host may join.
    IssueToken {
        /// Name under which the host joins.
        name: String,
        rights: Rights,
        /// How long the token is valid, seconds.
        ttl_s: u64,
    },
    /// Renew the certificate now, over an open stream to the issuer if there is one.
    RenewCertificate,
    /// Put a host on the allow-list by hand.
    AllowMember {
        name: String,
        rights: Rights,
    },
    /// Remove all rights of a host.
    RemoveMember {
        name: String,
    },
    RemoveDestination {
        name: String,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ControlRight {
    /// The request shows what the instance does, and changes nothing.
    Look,
    /// The request changes something, or returns a secret that grants access.
    Administer,
}

impl Request {
    /// The right that the request needs. The match is exhaustive: a new request must be added here.
    pub fn needs(&self) -> ControlRight {
        match self {
            Request::Status
            | Request::Serving { .. }
            | Request::Observe { .. }
            | Request::View { .. }
            | Request::Kept
            | Request::Verification
            | Request::ListDestinations
            | Request::Configuration
            | Request::ProtectionMode { mode: None } => ControlRight::Look,
            Request::Snapshot
            | Request::Stop
            | Request::Protect { .. }
            | Request::Unprotect { .. }
            | Request::Resolve { .. }
            | Request::RemoveKept { .. }
            | Request::SwitchLogfile
            | Request::ChangeLog { .. }
            | Request::RegisterLogfile { .. }
            | Request::Checkpoint
            | Request::Verify { .. }
            | Request::Failover { .. }
            | Request::Switchover { .. }
            | Request::Apply { .. }
            | Request::Convert { .. }
            | Request::SetProperty { .. }
            | Request::FastStart { .. }
            | Request::Observer
            | Request::ReadyToTakeOver { .. }
            | Request::SetDestination { .. }
            | Request::ClearDestination { .. }
            | Request::SetDestinationState { .. }
            | Request::ProtectionMode { mode: Some(_) }
            | Request::IssueToken { .. }
            | Request::RenewCertificate
            | Request::AllowMember { .. }
            | Request::RemoveMember { .. }
            | Request::RemoveDestination { .. } => ControlRight::Administer,
        }
    }

    /// Name on the wire, for messages.
    pub fn name(&self) -> String {
        let value = serde_json::to_value(self).unwrap_or_default();
        value.get("op").and_then(|op| op.as_str()).unwrap_or("request").to_owned()
    }
}
