//! What the arbiter keeps.

use serde::{Deserialize, Serialize};
use standfast_documents::observer::ObserverRecord;
use standfast_types::{IncarnationId, IncarnationNo, Scn};

/// An incarnation of the redo; the identity tells apart two with the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incarnation {
    pub number: IncarnationNo,
    pub id: IncarnationId,
}

/// Which members may acknowledge commits or take over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "standing")]
pub enum Standing {
    /// The primary acknowledges without a target; no member may take over.
    Unsynchronized,
    /// The primary acknowledges only what the target has. The target may take over.
    Synchronized { target: String },
    /// The primary may not continue alone any more. `by` takes over, or has. `has_all`: it was the target, so it has all that
    /// was acknowledged; else an operator has ordered it.
    FailedOver { by: String, has_all: bool },
}

impl Standing {
    /// The member without which the primary acknowledges nothing.
    pub fn target(&self) -> Option<&str> {
        match self {
            Standing::Synchronized { target } => Some(target),
            _ => None,
        }
    }

    /// Whether the primary's place has been given away.
    pub fn is_given(&self) -> bool {
        matches!(self, Standing::FailedOver { .. })
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// One more than in the record that it replaced: no two records of one arbiter have the same content, even where a
    /// version is a sum of the content.
    pub serial: u64,
    /// Name of the primary, and the incarnation that it writes.
    pub primary: String,
    pub incarnation: Incarnation,
    #[serde(flatten)]
    pub standing: Standing,
    /// Members that may become primary, by the primary's list of peers.
    pub candidates: Vec<String>,
    /// All redo before it was acknowledged when the primary wrote this record. A target that holds less has lost some.
    pub acknowledged: Scn,
}

impl Record {
    /// The record, for people.
    pub fn document(&self) -> ObserverRecord {
        let (standing, by, has_all) = match &self.standing {
            Standing::Unsynchronized => ("unsynchronized", None, None),
            Standing::Synchronized { .. } => ("synchronized", None, None),
            Standing::FailedOver { by, has_all } => ("failed_over", Some(by.clone()), Some(*has_all)),
        };
        ObserverRecord {
            primary: Some(self.primary.clone()),
            incarnation: Some(self.incarnation.number.into()),
            standing: Some(standing.into()),
            acknowledged_scn: Some(self.acknowledged.0),
            target: self.standing.target().map(Into::into),
            by,
            has_all,
        }
    }

    /// The member that is primary, or takes over.
    pub fn successor(&self) -> &str {
        match &self.standing {
            Standing::FailedOver { by, .. } => by,
            _ => &self.primary,
        }
    }
}

/// What an arbiter calls one state of its record. Versions are only compared for equality, and none comes back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub String);

/// A record and the version under which the arbiter keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    pub version: Version,
    pub record: Record,
}
