//! Identity of a peer, and its branch of the redo stream.

use crate::redo::LogSwitch;
use serde::{Deserialize, Serialize};
use standfast_types::{IncarnationId, IncarnationNo, InstanceId, Scn};

/// One incarnation of the stream: the redo between two openings of a standby as primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Incarnation {
    /// 1 at `init`, one more at each opening of a standby as primary.
    pub number: IncarnationNo,
    /// Random, to tell apart two branches with the same number.
    pub id: IncarnationId,
    /// Where it left the incarnation before it; its own redo starts here.
    pub branch: Scn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Primary,
    Standby,
    /// Receives redo and forwards it; has no databases.
    FarSync,
    /// Has no redo: the third voice of fast-start failover.
    Observer,
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Role::Primary => "primary",
            Role::Standby => "standby",
            Role::FarSync => "far sync",
            Role::Observer => "observer",
        })
    }
}

/// The record of a promotion: which instance began an incarnation, signed with that instance's key. A member that
/// forwards the record need not be trusted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Promotion {
    /// The first incarnation of the family.
    pub family: IncarnationId,
    pub incarnation: Incarnation,
    /// Microseconds since the Unix epoch, on the clock of the promoted instance's host.
    pub time_us: u64,
    /// `db_unique_name` of the instance that became primary.
    pub name: String,
    /// Certificate of that instance at that time, DER in hexadecimal.
    pub certificate: String,
    /// Signature of that instance over [`Promotion::text`], in hexadecimal.
    pub signature: String,
}

impl Promotion {
    /// Purpose of the signature; a signature for another purpose is not valid for a promotion.
    pub const PURPOSE: &str = "standfast promotion 1";

    /// Returns the signed bytes: everything but certificate and signature. The name comes last, so that two records
    /// never give the same bytes.
    pub fn text(&self) -> Vec<u8> {
        let Incarnation { number, id, branch } = self.incarnation;
        let mut text = self.family.0.to_vec();
        text.extend_from_slice(&number.to_le_bytes());
        text.extend_from_slice(&id.0);
        text.extend_from_slice(&branch.0.to_le_bytes());
        text.extend_from_slice(&self.time_us.to_le_bytes());
        text.extend_from_slice(self.name.as_bytes());
        text
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerIdentity {
    pub instance: InstanceId,
    #[serde(deserialize_with = "crate::foreign::foreign_name")]
    pub name: String,
    /// The instance whose redo its logs name: the one made with `init`, whichever is the primary now. `None`: a release
    /// that does not send it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub family: Option<InstanceId>,
    pub role: Role,
    /// All incarnations it knows, oldest first, never empty. The first one identifies the family: all copies of one
    /// primary share it.
    pub incarnations: Vec<Incarnation>,
    /// The record of the newest of them, if its begin was signed and the record is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub promotion: Option<Promotion>,
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

    /// Whether archived logs of `other` are valid archived logs here: their headers name the same instance. Unknown
    /// counts as yes.
    pub fn shares_logs_with(&self, other: &PeerIdentity) -> bool {
        self.family.zip(other.family).is_none_or(|(mine, theirs)| mine == theirs)
    }
}

/// Relation of another instance to this one, by the incarnations that both know. Both ends of a connection determine it
/// before anything else: an instance that has been replaced must learn it whichever end connects, and whatever else is
/// wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// Another family, or a message without incarnations.
    Unrelated,
    /// Both know the same newest incarnation.
    Same,
    /// The peer's newest incarnation is older than ours: if it is a primary, it has been replaced.
    Older,
    /// The peer knows this incarnation, which is newer than ours: nothing of an older one counts from now on.
    Newer(Incarnation),
    /// Both know different incarnations with the same number.
    Rivals,
}

/// Returns the relation of `theirs` to `mine`.
pub fn meet(mine: &PeerIdentity, theirs: &PeerIdentity) -> Meeting {
    let (Some(ours), Some(other)) = (mine.current(), theirs.current()) else { return Meeting::Unrelated };
    if !mine.is_family_of(theirs) {
        return Meeting::Unrelated;
    }
    match other.number.cmp(&ours.number) {
        std::cmp::Ordering::Greater => Meeting::Newer(*other),
        std::cmp::Ordering::Less => Meeting::Older,
        std::cmp::Ordering::Equal if other.id == ours.id => Meeting::Same,
        std::cmp::Ordering::Equal => Meeting::Rivals,
    }
}

/// Returns the incarnations that a stream that ends at `end` has entered.
pub fn history_at(incarnations: &[Incarnation], end: Scn) -> &[Incarnation] {
    let entered = incarnations.iter().skip(1).take_while(|incarnation| incarnation.branch <= end).count();
    &incarnations[..incarnations.len().min(1 + entered)]
}

/// Returns the incarnation of a log. Exactly one log begins at a branch: the first of the new incarnation.
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

    fn peer(of: &[Incarnation]) -> PeerIdentity {
        PeerIdentity {
            instance: InstanceId([1; 16]),
            name: "oslo".into(),
            family: None,
            role: Role::Standby,
            incarnations: of.to_vec(),
            promotion: None,
        }
    }

    #[test]
    fn both_ends_agree_which_incarnation_is_newer() {
        let all = history();
        let (second, third) = (peer(&all[..2]), peer(&all));
        assert_eq!(meet(&second, &third), Meeting::Newer(all[2]));
        assert_eq!(meet(&third, &second), Meeting::Older);
        assert_eq!(meet(&third, &third), Meeting::Same);
    }

    #[test]
    fn newer_incarnation_of_another_branch_also_counts() {
        let all = history();
        let other = Incarnation { number: 4, id: IncarnationId([9; 8]), branch: Scn(4500) };
        assert_eq!(meet(&peer(&all), &peer(&[all[0], other])), Meeting::Newer(other));
    }

    #[test]
    fn equal_numbers_are_rivals_and_other_families_are_unrelated() {
        let all = history();
        let rival = Incarnation { id: IncarnationId([9; 8]), ..all[2] };
        assert_eq!(meet(&peer(&all), &peer(&[all[0], all[1], rival])), Meeting::Rivals);
        assert_eq!(meet(&peer(&all), &peer(&[rival])), Meeting::Unrelated);
        assert_eq!(meet(&peer(&all), &peer(&[])), Meeting::Unrelated);
    }

    #[test]
    fn logs_are_not_shared_with_another_family() {
        let of = |family: Option<u8>| PeerIdentity {
            family: family.map(|byte| InstanceId([byte; 16])),
            ..peer(&history())
        };
        assert!(of(Some(1)).shares_logs_with(&of(Some(1))) && of(Some(1)).shares_logs_with(&of(None)));
        assert!(!of(Some(1)).shares_logs_with(&of(Some(2))));
    }

    #[test]
    fn stream_end_at_a_branch_belongs_to_the_new_incarnation() {
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
