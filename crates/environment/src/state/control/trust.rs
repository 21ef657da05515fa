//! What an instance records about promotions: which instance began the newest incarnation, which incarnation has fenced
//! this instance, and which incarnations it no longer trusts.

use serde::{Deserialize, Serialize};
use standfast_transport as transport;
use standfast_types::IncarnationId;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trust {
    /// The record of the newest promotion known here, signed by the instance that became primary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promotion: Option<transport::Promotion>,
    /// While this instance is fenced: by which incarnation, and which peer reported it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fenced_by: Option<FencedBy>,
    /// Incarnations that an operator disowned when the fence was lifted: claims about them are ignored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disowned: Vec<IncarnationId>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FencedBy {
    pub peer: String,
    pub incarnation: transport::Incarnation,
}

impl Trust {
    /// Whether there is nothing to record.
    pub fn is_empty(&self) -> bool {
        *self == Trust::default()
    }

    /// Whether any of these incarnations is disowned.
    pub fn disowns(&self, incarnations: &[transport::Incarnation]) -> bool {
        incarnations.iter().any(|incarnation| self.disowned.contains(&incarnation.id))
    }

    /// Ignores all claims about `id` from now on.
    pub fn disown(&mut self, id: IncarnationId) {
        if !self.disowned.contains(&id) {
            self.disowned.push(id);
        }
        if self.promotion.as_ref().is_some_and(|promotion| promotion.incarnation.id == id) {
            self.promotion = None;
        }
    }
}
