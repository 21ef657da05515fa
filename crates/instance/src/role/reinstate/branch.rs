//! Where the histories of two instances part, and which archived logs belong to the lost branch. Pure.

use standfast_transport::Incarnation;
use standfast_types::{IncarnationId, Scn};

/// How the history here relates to that of the primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// The histories have no incarnation in common.
    Unrelated,
    /// This one has an incarnation that the primary does not know, and that is as new as the newest there.
    Newer,
    /// The redo here follows the primary's up to the end.
    Same,
    /// Redo here from this position on is not the primary's.
    Parted(Scn),
}

/// Compares the incarnations here with those of a primary, each oldest first.
pub fn relation(here: &[Incarnation], there: &[Incarnation]) -> Relation {
    let common = here.iter().zip(there).take_while(|(here, there)| here.id == there.id).count();
    let newest = |all: &[Incarnation]| all.last().map_or(0, |incarnation| incarnation.number);
    if common == 0 {
        return Relation::Unrelated;
    }
    if here.len() > common && newest(here) >= newest(there) {
        return Relation::Newer;
    }
    let branches = [here.get(common), there.get(common)].into_iter().flatten();
    branches.map(|next| next.branch).min().map_or(Relation::Same, Relation::Parted)
}

/// Whether redo of incarnation `id` up to `end`, or to an unknown end, is not all in the history of the primary.
pub fn is_lost(id: IncarnationId, end: Option<Scn>, there: &[Incarnation]) -> bool {
    upper_limit(id, there).is_none_or(|limit| end.is_none_or(|end| end > limit))
}

/// Where redo of an incarnation ends in this history; `None`: it is not part of it.
fn upper_limit(id: IncarnationId, history: &[Incarnation]) -> Option<Scn> {
    let at = history.iter().position(|incarnation| incarnation.id == id)?;
    Some(history.get(at + 1).map_or(Scn(u64::MAX), |next| next.branch))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(all: &[(u8, u64, u64)]) -> Vec<Incarnation> {
        let incarnation = |(id, number, branch): &(u8, u64, u64)| Incarnation {
            number: *number as u32,
            id: IncarnationId([*id; 8]),
            branch: Scn(*branch),
        };
        all.iter().map(incarnation).collect()
    }

    #[test]
    fn histories_part_at_the_first_branch_that_only_one_has() {
        let old = history(&[(1, 1, 0), (2, 2, 500)]);
        assert_eq!(relation(&old, &old), Relation::Same);
        let after_failover = history(&[(1, 1, 0), (2, 2, 500), (3, 3, 900)]);
        assert_eq!(relation(&old, &after_failover), Relation::Parted(Scn(900)));
        assert_eq!(relation(&after_failover, &old), Relation::Newer);
        // Both have failed over since, each at its own position.
        let (early, late) =
            (history(&[(1, 1, 0), (4, 2, 700)]), history(&[(1, 1, 0), (5, 3, 300), (6, 4, 800)]));
        assert_eq!(relation(&early, &late), Relation::Parted(Scn(300)));
        assert_eq!(relation(&late, &early), Relation::Newer);
        let rival = history(&[(1, 1, 0), (7, 2, 600)]);
        assert_eq!(relation(&early, &rival), Relation::Newer, "neither is older: an operator decides");
        assert_eq!(relation(&old, &history(&[(9, 9, 0)])), Relation::Unrelated);
        assert_eq!(relation(&[], &old), Relation::Unrelated);
    }

    #[test]
    fn only_logs_with_redo_beyond_the_branch_are_lost() {
        let there = history(&[(1, 1, 0), (2, 2, 500), (3, 3, 900)]);
        let lost = |id: u8, end: Option<u64>| is_lost(IncarnationId([id; 8]), end.map(Scn), &there);
        assert!(!lost(1, Some(500)));
        assert!(lost(1, Some(501)), "it crosses the branch");
        assert!(!lost(3, Some(5000)), "the newest incarnation has no end");
        assert!(lost(4, Some(200)), "an incarnation that the primary does not know");
        assert!(lost(2, None), "where it ends is not known");
    }
}
