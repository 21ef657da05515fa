//! What the control file remembers of the redo stream: its incarnations, where it comes from, and redo that is missing.

use serde::{Deserialize, Serialize};
use standfast_transport as transport;
use standfast_types::{IncarnationId, IncarnationNo, InstanceId, Scn};

/// One opening of a standby as primary, or the first one of all.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incarnation {
    /// From 1.
    pub number: IncarnationNo,
    /// Tells branches with the same number apart.
    pub id: IncarnationId,
    /// Where it left the one before.
    pub branch: Scn,
    /// When, microseconds since the Unix epoch.
    pub time_us: u64,
}

/// Where the redo of a standby comes from, as the newest stream has said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Upstream {
    /// The instance that sends it.
    pub instance: InstanceId,
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: transport::Role,
    /// Instances through which the redo comes to it, the primary first.
    #[serde(default)]
    pub via: Vec<transport::Hop>,
    /// How long it wants redo to be held back before it is applied, in milliseconds.
    #[serde(default)]
    pub delay_ms: Option<u64>,
    /// The primary's online logs.
    #[serde(default)]
    pub logs: Option<transport::LogGeometry>,
}

/// A newer incarnation than that of the stream which is followed, as a peer has said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Superseding {
    /// All incarnations that the peer knows, oldest first.
    pub incarnations: Vec<Incarnation>,
    /// Its name.
    pub peer: String,
}

impl Superseding {
    /// Number of the newest one.
    pub fn number(&self) -> IncarnationNo {
        self.incarnations.last().map_or(0, |incarnation| incarnation.number)
    }
}

/// Redo that is missing on a standby, between redo that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GapRecord {
    /// End of the redo without a hole when it was found.
    pub from: Scn,
    /// Where the redo goes on.
    pub to: Scn,
    /// Sequence of the first log that was missing.
    pub low_sequence: u64,
    /// Sequence of the last one.
    pub high_sequence: u64,
}
