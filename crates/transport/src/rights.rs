//! What a member of the family may do at another one.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// One thing that a member may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Become primary: what it, or who has heard of it, says of a newer incarnation fences the primary before.
    Candidate,
    /// Receive redo, and what a new standby without databases is told.
    Receive,
    /// Send redo.
    Send,
    /// Read copies of databases.
    Read,
    /// Read the state.
    Status,
}

impl Right {
    /// All of them.
    pub const ALL: [Right; 5] = [Right::Candidate, Right::Receive, Right::Send, Right::Read, Right::Status];

    /// In words, behind "may".
    pub fn words(self) -> &'static str {
        match self {
            Right::Candidate => "become primary",
            Right::Receive => "receive redo",
            Right::Send => "send redo",
            Right::Read => "read copies",
            Right::Status => "read the state",
        }
    }
}

/// What one member may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rights(BTreeSet<Right>);

impl Rights {
    /// Of a standby that may take over: everything.
    pub fn all() -> Rights {
        Right::ALL.into()
    }

    /// Of a standby that only ever receives.
    pub fn never_primary() -> Rights {
        [Right::Receive, Right::Read, Right::Status].into()
    }

    /// Of a far sync: it has no databases, and copies none.
    pub fn far_sync() -> Rights {
        [Right::Receive, Right::Send, Right::Status].into()
    }

    /// Of a host that watches.
    pub fn status_only() -> Rights {
        [Right::Status].into()
    }

    /// Whether `right` is among them.
    pub fn has(&self, right: Right) -> bool {
        self.0.contains(&right)
    }

    /// All but `right`.
    #[must_use]
    pub fn without(mut self, right: Right) -> Rights {
        self.0.remove(&right);
        self
    }
}

impl<const N: usize> From<[Right; N]> for Rights {
    fn from(rights: [Right; N]) -> Rights {
        Rights(rights.into())
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<&str> = self.0.iter().map(|right| right.words()).collect();
        f.write_str(if words.is_empty() { "nothing" } else { "" })?;
        f.write_str(&words.join(", "))
    }
}

/// A member and what it may do, as one instance tells it to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRights {
    /// Its `db_unique_name`.
    #[serde(deserialize_with = "crate::hello::foreign_name")]
    pub name: String,
    /// What it may do.
    pub rights: Rights,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_gives_the_least_that_it_needs() {
        let without =
            |rights: Rights| Right::ALL.into_iter().filter(|right| !rights.has(*right)).collect::<Vec<_>>();
        assert_eq!(without(Rights::all()), []);
        assert_eq!(without(Rights::never_primary()), [Right::Candidate, Right::Send]);
        assert_eq!(without(Rights::far_sync()), [Right::Candidate, Right::Read]);
        assert_eq!(without(Rights::status_only()), Right::ALL[..4]);
        assert_eq!(Rights::never_primary().to_string(), "receive redo, read copies, read the state");
        assert_eq!(Rights::default().to_string(), "nothing");
    }
}
