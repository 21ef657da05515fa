//! What an instance remembers of promotions: who began the newest incarnation, who has fenced it, and which incarnations it
//! does not believe in any more.

use serde::{Deserialize, Serialize};
use standfast_transport as transport;
use standfast_types::IncarnationId;

/// Of the control file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trust {
    /// The record of the newest promotion that is known here, signed by who became primary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub promotion: Option<transport::Promotion>,
    /// While this instance is fenced: by which incarnation, and who said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fenced_by: Option<FencedBy>,
    /// Incarnations that an operator has disowned, when the fence was lifted: what is said of them counts for nothing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub disowned: Vec<IncarnationId>,
}

/// Why a primary is fenced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FencedBy {
    /// Who said so.
    pub peer: String,
    /// The incarnation that has begun.
    pub incarnation: transport::Incarnation,
}

impl Trust {
    /// Whether there is nothing to remember.
    pub fn is_empty(&self) -> bool {
        *self == Trust::default()
    }

    /// Whether one of these was disowned.
    pub fn disowns(&self, incarnations: &[transport::Incarnation]) -> bool {
        incarnations.iter().any(|incarnation| self.disowned.contains(&incarnation.id))
    }

    /// Nothing that is said of `id` counts from now on.
    pub fn disown(&mut self, id: IncarnationId) {
        if !self.disowned.contains(&id) {
            self.disowned.push(id);
        }
        if self.promotion.as_ref().is_some_and(|promotion| promotion.incarnation.id == id) {
            self.promotion = None;
        }
    }
}
