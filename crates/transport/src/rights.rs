//! Rights of a member of the family at another instance.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Right {
    /// Become primary: a newer incarnation that it has begun fences the primary before, whether it or another member
    /// reports that incarnation.
    Candidate,
    /// Receive redo, and the start position for a new standby without databases.
    Receive,
    Send,
    Read,
    Status,
}

impl Right {
    pub const ALL: [Right; 5] = [Right::Candidate, Right::Receive, Right::Send, Right::Read, Right::Status];

    /// Returns the words that follow "may" in messages.
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

/// The set of rights of one member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Rights(BTreeSet<Right>);

impl Rights {
    /// Rights of a standby that may take over: all.
    pub fn all() -> Rights {
        Right::ALL.into()
    }

    /// Rights of a standby that only ever receives.
    pub fn never_primary() -> Rights {
        [Right::Receive, Right::Read, Right::Status].into()
    }

    /// Rights of a far sync, which has no databases and copies none.
    pub fn far_sync() -> Rights {
        [Right::Receive, Right::Send, Right::Status].into()
    }

    pub fn status_only() -> Rights {
        [Right::Status].into()
    }

    pub fn has(&self, right: Right) -> bool {
        self.0.contains(&right)
    }

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

/// A member and its rights, as one instance reports them to another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRights {
    #[serde(deserialize_with = "crate::foreign::foreign_name")]
    pub name: String,
    pub rights: Rights,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_gets_the_least_rights_it_needs() {
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
