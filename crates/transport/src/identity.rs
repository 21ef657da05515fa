//! Who is at the other end, and on which branch of the redo stream.

use crate::source::LogSwitch;
use serde::{Deserialize, Serialize};
use standfast_types::{IncarnationId, IncarnationNo, InstanceId, Scn};

/// One incarnation of the stream: the redo between two openings of a standby as primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incarnation {
    /// 1 at `init`, one more at each opening of a standby as primary.
    pub number: IncarnationNo,
    /// Random, so that two branches with the same number are told apart.
    pub id: IncarnationId,
    /// Where it left the incarnation before it: its own redo starts here.
    pub branch: Scn,
}

/// What an instance is at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// It generates redo.
    Primary,
    /// It receives redo.
    Standby,
    /// It receives redo and forwards it, and has no databases.
    FarSync,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Role::Primary => "primary",
            Role::Standby => "standby",
            Role::FarSync => "far sync",
        })
    }
}

/// How an instance introduces itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerIdentity {
    /// The instance.
    pub instance: InstanceId,
    /// Its `db_unique_name`.
    pub name: String,
    /// What it is at the moment.
    pub role: Role,
    /// All incarnations it knows of, oldest first, never empty. The first one names the family of instances:
    /// all copies of one primary share it.
    pub incarnations: Vec<Incarnation>,
}

impl PeerIdentity {
    /// The newest incarnation known; `None` in a malformed message.
    pub fn current(&self) -> Option<&Incarnation> {
        self.incarnations.last()
    }

    /// Whether both descend from the same `init`.
    pub fn is_family_of(&self, other: &PeerIdentity) -> bool {
        match (self.incarnations.first(), other.incarnations.first()) {
            (Some(mine), Some(theirs)) => mine.id == theirs.id,
            _ => false,
        }
    }
}

/// The incarnations that a stream which ends at `end` has entered.
pub fn history_at(incarnations: &[Incarnation], end: Scn) -> &[Incarnation] {
    let entered = incarnations.iter().skip(1).take_while(|incarnation| incarnation.branch <= end).count();
    &incarnations[..incarnations.len().min(1 + entered)]
}

/// The incarnation that a log belongs to. At a branch exactly one log begins: the new incarnation's first.
pub fn incarnation_of<'a>(incarnations: &'a [Incarnation], log: &LogSwitch) -> Option<&'a Incarnation> {
    let began = |incarnation: &&Incarnation| {
        incarnation.branch < log.first_scn || incarnation.branch == log.first_scn && log.sequence == 1
    };
    incarnations.iter().rev().find(began).or(incarnations.first())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history() -> Vec<Incarnation> {
        let at = |number, branch| Incarnation {
            number,
            id: IncarnationId([number as u8; 8]),
            branch: Scn(branch),
        };
        vec![at(1, 4096), at(2, 5000), at(3, 9000)]
    }

    #[test]
    fn a_stream_has_entered_what_branched_at_or_before_its_end() {
        let numbers = |end| history_at(&history(), Scn(end)).last().map(|incarnation| incarnation.number);
        assert_eq!([0, 4096, 4999, 5000, 8999, 9000].map(numbers), [1, 1, 1, 2, 2, 3].map(Some));
        assert!(history_at(&[], Scn(1)).is_empty());
    }

    #[test]
    fn the_first_log_of_an_incarnation_begins_at_its_branch() {
        let number = |sequence, first_scn| {
            let log = LogSwitch { sequence, first_scn: Scn(first_scn), time_us: 0, first_record: 0 };
            incarnation_of(&history(), &log).map(|incarnation| incarnation.number)
        };
        assert_eq!(number(1, 4096), Some(1));
        assert_eq!(number(7, 4999), Some(1));
        assert_eq!(number(1, 5000), Some(2));
        assert_eq!(number(8, 9000), Some(2));
        assert_eq!(number(2, 9001), Some(3));
    }
}
