//! What the control file records about the redo stream: its incarnations, where it comes from, and redo that is
//! missing.

use crate::config::error::InstanceError;
use serde::{Deserialize, Serialize};
use standfast_transport as transport;
use standfast_types::{DatabaseId, IncarnationId, IncarnationNo, InstanceId, Scn};
use std::path::{Path, PathBuf};

/// One opening of a standby as primary, or the very first opening.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incarnation {
    /// 1 at `init`, one more at each failover.
    pub number: IncarnationNo,
    /// Distinguishes branches with the same number.
    pub id: IncarnationId,
    /// Where it left the previous incarnation.
    pub branch: Scn,
    /// When it began, microseconds since the Unix epoch.
    pub time_us: u64,
}

impl From<&transport::Incarnation> for Incarnation {
    /// A peer does not say when it began.
    fn from(known: &transport::Incarnation) -> Incarnation {
        Incarnation { number: known.number, id: known.id, branch: known.branch, time_us: 0 }
    }
}

/// Where the redo of a standby comes from, as reported on the newest stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upstream {
    /// The instance that sends the redo.
    pub instance: InstanceId,
    pub name: String,
    pub role: transport::Role,
    /// Instances through which the redo reaches the sender, the primary first.
    #[serde(default)]
    pub via: Vec<transport::Hop>,
    /// How long the sender wants redo to be held back before it is applied, milliseconds.
    #[serde(default)]
    pub delay_ms: Option<u64>,
    #[serde(default)]
    pub logs: Option<transport::LogGeometry>,
}

/// A standby of whose databases applications write copies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotStandby {
    /// When it became that, microseconds since the Unix epoch.
    pub since_us: u64,
    /// Up to where its own files, which are set aside, hold the redo.
    pub applied: Scn,
    /// False while the files are being set aside or brought back: a start brings them back.
    pub is_open: bool,
    /// Redo that apply took in a second before, bytes; `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_bytes_per_s: Option<u64>,
}

impl Upstream {
    /// Name of the primary, from which the redo comes in the end.
    pub fn primary(&self) -> &str {
        self.via.first().map_or(&self.name, |primary| &primary.name)
    }
}

/// An incarnation newer than that of the followed stream, as reported by a peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Superseding {
    /// All incarnations that the peer knows, oldest first.
    pub incarnations: Vec<Incarnation>,
    pub peer: String,
}

impl Superseding {
    /// Returns the number of its newest incarnation; 0 without one.
    pub fn number(&self) -> IncarnationNo {
        self.incarnations.last().map_or(0, |incarnation| incarnation.number)
    }
}

/// The databases are being made those of another primary, and count for nothing until that is done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reinstating {
    /// Name of that primary.
    pub primary: String,
    /// Databases that were protected here after the histories parted: the primary's of the same number are others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub protected_since: Vec<DatabaseId>,
    /// Databases of the primary whose files were created in the directory of the databases, by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub created: Vec<String>,
}

impl Reinstating {
    /// Returns the error of a command that needs the databases.
    pub fn unfinished(&self, directory: &Path) -> InstanceError {
        let primary = &self.primary;
        InstanceError::refused(
            format!(
                "the databases are on the way to be those of `{primary}`: the reinstatement has not come to its end"
            ),
            format!("run it again: standfast reinstate -D {} --yes", directory.display()),
        )
    }
}

/// Redo that a standby lacks, between redo that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapRecord {
    /// End of the redo without a gap when this gap was found.
    pub from: Scn,
    pub to: Scn,
    /// Sequence of the first missing log.
    pub low_sequence: u64,
    /// Sequence of the last missing log.
    pub high_sequence: u64,
}

impl GapRecord {
    /// Converts the record to the log's type.
    pub fn hole(&self) -> standfast_log::Hole {
        standfast_log::Hole { from: self.from, to: self.to }
    }
}

/// Redo that this standby had hardened and can no longer read, see [`standfast_standby::lost_redo`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRecord {
    pub path: PathBuf,
    pub from: Scn,
    /// SCN that the redo had reached.
    pub to: Scn,
}
