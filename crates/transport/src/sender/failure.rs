//! Why there is no stream, or none any more.

use crate::error::{Refusal, RefuseCode, SourceError, TransportError};
use crate::identity::Incarnation;

/// Why a stream has ended.
#[derive(Debug)]
pub enum Ended {
    Lost(String),
    /// Nothing failed, but another stream is needed.
    Restart(String),
    Refused(Refusal),
}

/// Why no stream has begun.
#[derive(Debug)]
pub enum Failure {
    Lost(String),
    /// A failure of this instance, not of the destination.
    Own(String),
    Refused(Refusal),
    Fenced {
        incarnation: Incarnation,
        peer: String,
    },
}

impl Failure {
    /// The refusal to send to the other end, if any.
    pub fn refusal(&self) -> Option<Refusal> {
        match self {
            Failure::Refused(refusal) => Some(refusal.clone()),
            Failure::Fenced { incarnation, .. } => {
                let text =
                    format!("replaced by incarnation {}: it accepts no more commits", incarnation.number);
                Some(Refusal::new(RefuseCode::Fenced, text))
            }
            Failure::Lost(_) | Failure::Own(_) => None,
        }
    }
}

impl From<TransportError> for Failure {
    fn from(error: TransportError) -> Failure {
        match error {
            TransportError::Refused(refusal) => Failure::Refused(refusal),
            other => Failure::Lost(other.to_string()),
        }
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Failure {
        Failure::Own(format!("reading own redo failed: {error}"))
    }
}
