//! What members ask the arbiter, and what it answers.

use crate::record::{Incarnation, Kept, Record, Version};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "ask")]
pub enum Ask {
    /// Asks for the record. `follows`: the incarnation whose redo the asking standby takes, and will take; `None` for any
    /// other member.
    Read {
        follows: Option<Incarnation>,
    },
    Replace(Replace),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replace {
    /// The version that is to be replaced; `None`: there must be none.
    pub expected: Option<Version>,
    pub record: Record,
    /// Members without which the primary acknowledges nothing now: only they can have been allowed to take over from it.
    /// Empty when a standby asks.
    pub required: Vec<String>,
    /// Those of them that it needs no longer once this is carried out. With none, the request is a report: it permits the
    /// primary nothing new.
    pub gives_up: Vec<String>,
    /// The primary asks for a confirmation of its place: it does not know whether another member was given it. Only an
    /// arbiter that cannot have forgotten that confirms it.
    #[serde(default)]
    pub confirms: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "answer")]
pub enum Answer {
    Replaced {
        version: Version,
    },
    /// To a read, and to a request that was not carried out: the record as it is.
    Is {
        kept: Option<Kept>,
        /// Whether this arbiter decides. An observer that has just started does not: see [`crate::register`].
        votes: bool,
    },
    /// The arbiter did not answer, or reported that it failed. Whether it has carried out the request is unknown, and it may
    /// still do so while the version is the expected one.
    Nothing,
}

/// A voice that keeps the record: an observer, or a store that compares and sets.
///
/// An implementation must be linearizable, and durable before it answers. It never carries out a request twice; if it
/// does not know whether it has, it answers [`Answer::Nothing`] or the record as it is.
pub trait Arbiter: Send {
    fn ask(&mut self, ask: &Ask) -> Answer;

    /// Why it did not answer the last time.
    fn error(&self) -> Option<&str>;
}
