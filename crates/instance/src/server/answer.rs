//! Answers to requests, as JSON between the instance and the command line. The answers that a module of its own makes
//! are defined there: `Status`, `Observation`, `VerificationRun`, `Resolution`, `LogChanged`.

use crate::role::failover::OfflineDatabase;
use crate::role::running::role_change::TakenOver;
use crate::role::snapshot_standby::Converted;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use standfast_environment::config::settings::DestinationConfig;
use standfast_environment::state::control::KeptFile;
use standfast_types::Scn;
use std::path::PathBuf;

/// A line from the instance.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Answer {
    Ok {
        ok: Value,
    },
    Error {
        error: String,
        hint: Option<String>,
        /// Exit code of the command.
        code: u8,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SnapshotTaken {
    /// Number of the snapshot.
    pub snapshot: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Served {
    /// `primary`, `standby`, `far sync`, or why nothing is served.
    pub serving: String,
    /// The role is being changed, or the instance starts or stops.
    pub changing: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Protected {
    /// Names of the databases.
    pub protected: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Unprotected {
    /// Name of the database.
    pub unprotected: String,
}

/// The files that were kept when other content replaced a database.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeptFiles {
    pub kept: Vec<KeptFile>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct KeptRemoved {
    pub removed: PathBuf,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogSwitched {
    /// Sequence of the log that is current now.
    pub sequence: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogRegistered {
    pub sequence: u64,
    /// End of the redo that is here now.
    pub end: Scn,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Checkpointed {
    /// What could not be backfilled, and why.
    pub remaining: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct VerificationBegun {
    /// Number of the run.
    pub run: u64,
}

/// A failover that was carried out.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FailedOver {
    /// SCN at which the new incarnation begins.
    pub branch: Scn,
    /// Whether all redo arrived that the source still had; `None` if its source was a primary.
    pub drained: Option<Completeness>,
    /// Whether everything that the primary acknowledged is here; `None` when that is certain.
    pub known: Option<Completeness>,
    /// Databases that stay offline because they lack redo.
    #[serde(rename = "left_out")]
    pub offline: Vec<ExcludedDatabase>,
    /// Databases, as text, whose pages differed from the primary's at the last comparison; they are served.
    pub differing: Vec<String>,
}

/// A switchover that was carried out: this instance is a standby now.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SwitchedOver {
    /// Name of the instance that is the primary now.
    pub primary: String,
    /// SCN at which the new incarnation begins.
    pub branch: Scn,
    /// From when writers waited here until the new primary was open, milliseconds.
    pub unavailable_ms: u64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Completeness {
    pub complete: bool,
    pub text: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExcludedDatabase {
    pub database: String,
    /// Last commit that is in it, when known.
    pub applied: Option<Scn>,
    pub reason: String,
    /// From here on the redo that it lacks is kept for a later start; `None`: that redo is not all here.
    pub redo_from: Option<Scn>,
    pub text: String,
    pub remedy: String,
}

impl From<TakenOver> for FailedOver {
    fn from(of: TakenOver) -> FailedOver {
        let completeness = |(complete, text)| Completeness { complete, text };
        FailedOver {
            branch: of.branch,
            drained: of.drained.map(completeness),
            known: of.known.map(completeness),
            offline: of.offline.iter().map(ExcludedDatabase::from).collect(),
            differing: of.differing,
        }
    }
}

impl From<&OfflineDatabase> for ExcludedDatabase {
    fn from(of: &OfflineDatabase) -> ExcludedDatabase {
        ExcludedDatabase {
            database: of.database.clone(),
            applied: of.applied,
            reason: of.reason.clone(),
            redo_from: of.redo_from,
            text: of.text(),
            remedy: of.remedy(),
        }
    }
}

/// A standby that was converted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConvertedStandby {
    /// Number of its databases.
    pub databases: usize,
    /// Of the copies that applications write to from now on; 0 for a physical standby.
    pub copied_bytes: u64,
    /// Redo that is applied from now on, bytes; 0 for a snapshot standby.
    pub to_apply: u64,
}

impl From<Converted> for ConvertedStandby {
    fn from(done: Converted) -> ConvertedStandby {
        let Converted { databases, copied_bytes, to_apply } = done;
        ConvertedStandby { databases, copied_bytes, to_apply }
    }
}

/// A destination that was set, enabled or deferred.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DestinationSet {
    pub destination: String,
    /// Whether the instance there answered, as text; `None` when it was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DestinationCleared {
    /// Its number.
    pub cleared: u8,
}

/// A destination that was removed, or a member of the family whose rights were.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Removed {
    pub removed: String,
}

/// A configured destination.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DestinationListed {
    pub id: u8,
    pub name: String,
    /// `enable`, `defer` or `alternate`.
    pub state: String,
    /// All attributes as text, as LOG_ARCHIVE_DEST_n has them.
    pub attributes: String,
    pub config: DestinationConfig,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TokenIssued {
    pub token: String,
}

/// A certificate that was renewed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CertificateRenewed {
    /// What the operator should know of it.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MemberListed {
    pub listed: String,
}
