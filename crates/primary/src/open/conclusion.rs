//! What follows from the pages of files that stand at no position that the redo knows, and what a start does then.
//!
//! Pure: [`conclude`] says what the evidence of a range of redo proves, [`Standing::action`] what a start does about
//! it. `reconcile` searches, `recovery` acts.

use crate::open::evidence::Evidence;
use standfast_types::{PageNo, Scn};

/// What is known of files that stand at no position that the redo knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// The files hold the newest state.
    Newest {
        /// The redo has an image of every page, so no foreign page is among them.
        whole: bool,
    },
    /// The files hold an earlier state.
    Behind {
        /// The files lack the redo from here on, or part of it.
        from: Scn,
        /// The redo has an image of every page.
        whole: bool,
        /// Every page is an image that the redo knows; otherwise some are overwritten and might be newer than all redo.
        certain: bool,
    },
    /// The files hold the newest state and, on top of it, what another process has written.
    ForeignOnNewest,
    /// The redo at hand has no commit of the database, so nothing can be compared.
    NothingToCompare,
    /// Nothing is proven. The page is one that neither the redo nor any state of it explains, if there is such a page.
    Unproven(Option<PageNo>),
}

impl std::fmt::Display for Conclusion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Conclusion::Newest { .. } => write!(f, "its files hold the newest state"),
            Conclusion::Behind { from, .. } => write!(f, "its files lack redo from SCN {from} on"),
            Conclusion::ForeignOnNewest => {
                write!(f, "its files hold the newest state and what another process has written")
            }
            Conclusion::NothingToCompare => write!(f, "nothing is known of it: there is no commit of it"),
            Conclusion::Unproven(_) => write!(f, "nothing is proven"),
        }
    }
}

/// Whether another process may have written the pages that no redo explains; if not, they are damaged, or older than
/// the redo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Foreign {
    /// No: the redo knows all frames, or the power failed while a checkpoint may have been in progress, which leaves
    /// half-written pages.
    Excluded,
    InFile,
    /// Yes: the redo does not know the WAL. It may be an old WAL whose pages older redo explains.
    InWal,
}

/// Returns what follows from the evidence of a range. The caller tries one range after another, each longer than the
/// one before; `None`: a longer range may say more. `silent`: no range has had a commit of the database.
pub fn conclude(evidence: &Evidence, is_longest: bool, silent: bool, foreign: Foreign) -> Option<Conclusion> {
    let whole = evidence.covers_all;
    let is_last = is_longest || evidence.from_birth;
    if evidence.is_newest() {
        return Some(Conclusion::Newest { whole });
    }
    if evidence.is_state_of_stretch() {
        return Some(Conclusion::Behind { from: evidence.from, whole, certain: true });
    }
    let may_be_foreign = foreign == Foreign::InFile || foreign == Foreign::InWal && is_last;
    if may_be_foreign && evidence.is_foreign_on_newest() {
        return Some(Conclusion::ForeignOnNewest);
    }
    if !is_last {
        return None;
    }
    if evidence.is_state_since_birth() {
        return Some(Conclusion::Behind { from: evidence.from, whole: false, certain: false });
    }
    Some(match (silent, evidence.from_birth) {
        // Nothing was acknowledged since its protection began.
        (true, true) => Conclusion::ForeignOnNewest,
        (true, false) => Conclusion::NothingToCompare,
        (false, _) => Conclusion::Unproven(evidence.example),
    })
}

/// Whether the power may have failed while a checkpoint backfilled pages of commits up to `last_commit`, which leaves
/// half-written pages. `power_kept`: the shared memory of the last run is there. `whole_at`: the file alone held
/// everything up to there, so that nothing before it was left to backfill.
pub fn may_be_half_written(power_kept: bool, whole_at: Option<Scn>, last_commit: Scn) -> bool {
    !power_kept && whole_at.is_none_or(|whole_at| whole_at < last_commit)
}

/// What else is known of the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Standing {
    /// The WAL has frames, and the redo since the checkpoint does not name it.
    pub has_unknown_wal: bool,
    /// The file is as it was recorded when it alone held everything, and the redo has no commit since.
    pub is_as_noted: bool,
    /// An earlier start left it offline: redo that others no longer need is applied to it.
    pub offline: bool,
    /// Its protection began in the redo since the checkpoint, and that redo does not say where the database stands.
    pub is_new: bool,
    /// The standbys wait for a full resync image of it.
    pub owes_image: bool,
    /// Another process may have written pages that no redo touches.
    pub may_be_foreign: bool,
    /// SQLite may have made the WAL by resetting the WAL that the redo names last.
    pub follows: bool,
}

/// What a start does with the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Serve {
        /// A full resync image goes into the redo.
        image: bool,
    },
    RollForward {
        /// Where the redo to apply begins.
        from: Scn,
        /// A full resync image goes into the redo.
        image: bool,
    },
    /// Leaves the database offline. Nothing is proven of this page.
    StayOffline(Option<PageNo>),
}

impl Standing {
    /// Decides what to do. `is_generation_named`: whether any redo at hand names the generation of the WAL.
    /// `is_newest_beneath`: whether the file alone holds the newest state. Each is called only where it matters.
    ///
    /// A WAL that no redo names was begun after the last redo, and its content comes on top of the file. Redo must not
    /// be applied over it, even if all its pages happen to equal pages of earlier commits. A WAL that some redo names
    /// is an old one, put beside the file.
    ///
    /// # Errors
    /// Those of the two closures.
    pub fn action<E>(
        self,
        conclusion: Conclusion,
        is_generation_named: impl FnOnce() -> Result<bool, E>,
        is_newest_beneath: impl FnOnce() -> Result<bool, E>,
    ) -> Result<Action, E> {
        let serve = |image| Ok(Action::Serve { image });
        match conclusion {
            // Writes of another process to pages that no redo touches cannot be ruled out; but if none can have written, a page
            // that differs is damaged, and the standbys have it undamaged.
            Conclusion::Newest { whole } => {
                let is_all_known = whole || self.is_as_noted && !self.has_unknown_wal;
                return serve(self.owes_image || self.may_be_foreign && !is_all_known);
            }
            Conclusion::Behind { from, whole, certain }
                if !self.has_unknown_wal || certain && is_generation_named()? =>
            {
                let image = self.owes_image || self.may_be_foreign && !whole;
                return Ok(Action::RollForward { from, image });
            }
            Conclusion::ForeignOnNewest if !self.offline => return serve(true),
            // Its image is not complete: nothing was acknowledged.
            Conclusion::NothingToCompare if self.is_new => return serve(true),
            _ => {}
        }
        if self.has_unknown_wal && (self.is_as_noted || !self.offline && is_newest_beneath()?) {
            return serve(true);
        }
        match conclusion {
            // The redo at hand has no commit, so the earlier state is in the file.
            Conclusion::NothingToCompare if self.has_unknown_wal && !self.offline && self.follows => {
                serve(true)
            }
            Conclusion::Unproven(page) => Ok(Action::StayOffline(page)),
            _ => Ok(Action::StayOffline(None)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    #[test]
    fn wal_pages_are_foreign_only_if_no_older_redo_explains_them() {
        let evidence = Evidence {
            commits: 3,
            newest: 2,
            foreign: 1,
            has_whole_file: true,
            last_commit_is_there: true,
            ..Evidence::default()
        };
        let foreign = Some(Conclusion::ForeignOnNewest);
        assert_eq!(conclude(&evidence, false, false, Foreign::InFile), foreign);
        assert_eq!(
            conclude(&evidence, false, false, Foreign::InWal),
            None,
            "a longer stretch may explain them"
        );
        assert_eq!(conclude(&evidence, true, false, Foreign::InWal), foreign);
        let since_birth = Evidence { from_birth: true, ..evidence };
        assert_eq!(conclude(&since_birth, false, false, Foreign::InWal), foreign, "there is no older redo");
        let excluded = conclude(&evidence, true, false, Foreign::Excluded);
        assert_eq!(excluded, Some(Conclusion::Unproven(None)), "damage is no foreign commit");
        let never_whole = Evidence { has_whole_file: false, ..evidence };
        assert_eq!(conclude(&never_whole, true, false, Foreign::InFile), Some(Conclusion::Unproven(None)));
    }

    #[test]
    fn commits_of_a_shorter_range_count_if_the_longest_has_none() {
        let silent = Evidence { is_silent: true, ..Evidence::default() };
        assert_eq!(conclude(&silent, true, true, Foreign::InFile), Some(Conclusion::NothingToCompare));
        assert_eq!(conclude(&silent, true, false, Foreign::InFile), Some(Conclusion::Unproven(None)));
        assert_eq!(conclude(&silent, false, true, Foreign::InFile), None);
    }

    /// Returns the action where the two questions have these answers.
    fn action(standing: Standing, conclusion: Conclusion, named: bool, newest_beneath: bool) -> Action {
        let Ok(action) = standing.action::<Infallible>(conclusion, || Ok(named), || Ok(newest_beneath));
        action
    }

    const BEHIND: Conclusion = Conclusion::Behind { from: Scn(7), whole: false, certain: true };

    #[test]
    fn redo_is_not_applied_over_a_wal_unknown_to_the_redo() {
        let noted = Standing { has_unknown_wal: true, is_as_noted: true, ..Standing::default() };
        assert_eq!(action(noted, BEHIND, false, false), Action::Serve { image: true });
        let written = Standing { is_as_noted: false, ..noted };
        assert_eq!(action(written, BEHIND, false, true), Action::Serve { image: true });
        assert_eq!(action(written, BEHIND, false, false), Action::StayOffline(None));
        let offline = Standing { offline: true, ..written };
        assert_eq!(action(offline, BEHIND, false, true), Action::StayOffline(None));
    }

    #[test]
    fn an_old_wal_beside_a_newer_file_is_rolled_forward() {
        let noted = Standing { has_unknown_wal: true, is_as_noted: true, ..Standing::default() };
        assert_eq!(action(noted, BEHIND, true, false), Action::RollForward { from: Scn(7), image: false });
        let foreign = Standing { may_be_foreign: true, ..noted };
        assert_eq!(action(foreign, BEHIND, true, false), Action::RollForward { from: Scn(7), image: true });
        let uncertain = Conclusion::Behind { from: Scn(7), whole: false, certain: false };
        assert_eq!(action(noted, uncertain, true, false), Action::Serve { image: true });
        let none = Standing::default();
        assert_eq!(action(none, uncertain, false, false), Action::RollForward { from: Scn(7), image: false });
    }

    #[test]
    fn newest_state_needs_no_image_if_foreign_pages_are_impossible() {
        let foreign = Standing { may_be_foreign: true, ..Standing::default() };
        let noted = Standing { is_as_noted: true, ..foreign };
        let newest = |whole| Conclusion::Newest { whole };
        assert_eq!(action(noted, newest(false), false, false), Action::Serve { image: false });
        assert_eq!(action(foreign, newest(false), false, false), Action::Serve { image: true });
        assert_eq!(action(foreign, newest(true), false, false), Action::Serve { image: false });
        let excluded = Standing { may_be_foreign: false, ..foreign };
        assert_eq!(action(excluded, newest(false), false, false), Action::Serve { image: false });
        let with_wal = Standing { has_unknown_wal: true, ..noted };
        assert_eq!(
            action(with_wal, newest(false), false, false),
            Action::Serve { image: true },
            "it may have pages that no redo touches"
        );
        let owing = Standing { owes_image: true, ..noted };
        assert_eq!(action(owing, newest(true), false, false), Action::Serve { image: true });
    }

    #[test]
    fn unproven_database_state_takes_the_database_offline() {
        let none = Standing::default();
        assert_eq!(action(none, Conclusion::Unproven(Some(3)), false, true), Action::StayOffline(Some(3)));
        assert_eq!(action(none, Conclusion::NothingToCompare, false, true), Action::StayOffline(None));
        let offline = Standing { offline: true, ..none };
        assert_eq!(action(offline, Conclusion::ForeignOnNewest, false, true), Action::StayOffline(None));
        let new = Standing { is_new: true, ..none };
        assert_eq!(action(new, Conclusion::NothingToCompare, false, false), Action::Serve { image: true });
        let follows = Standing { has_unknown_wal: true, follows: true, ..none };
        assert_eq!(
            action(follows, Conclusion::NothingToCompare, false, false),
            Action::Serve { image: true }
        );
    }

    #[test]
    fn half_written_pages_imply_an_unfinished_backfill() {
        assert!(may_be_half_written(false, None, Scn(9)));
        assert!(may_be_half_written(false, Some(Scn(8)), Scn(9)));
        assert!(!may_be_half_written(false, Some(Scn(9)), Scn(9)), "all was in the file, synced");
        assert!(!may_be_half_written(true, None, Scn(9)), "the power has not failed");
    }
}
