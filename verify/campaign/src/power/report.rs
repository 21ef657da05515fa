//! Findings of a power campaign.

use serde::{Deserialize, Serialize};
use standfast_simulation::trace;

/// Maximum number of notes; the first ones are the most useful.
const NOTES_MAX: usize = 100;

/// Counts of one history, or of many.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerReport {
    pub seeds: u64,
    /// Sync boundaries of the fixed histories at which the power was cut, each in several ways.
    pub boundaries: u64,
    pub crashes: u64,
    pub failovers: u64,
    /// Redo log members that were lost while the other member was present.
    #[serde(default)]
    pub lost_members: u64,
    /// Redo log members whose device failed while the instance ran.
    #[serde(default)]
    pub failed_members: u64,
    #[serde(default)]
    pub log_changes: u64,
    /// How often blocks of redo log members were damaged, each block in one of two members.
    #[serde(default)]
    pub damaged_members: u64,
    /// Gaps that archived logs have filled over connections of their own.
    #[serde(default)]
    pub gaps: u64,
    /// Standbys that could not follow another one that was opened as primary, because their redo did not fit its own.
    #[serde(default)]
    pub cannot_follow: u64,
    pub acknowledged: u64,
    /// Acknowledged commits that were missing afterwards.
    pub lost: u64,
    pub integrity_failures: u64,
    /// Pages that differ between primary and standby.
    pub page_differences: u64,
    /// Databases that needed a full resync.
    pub resynchronisations: u64,
    /// Databases that a plain process read, or whose WAL was removed, between a power loss and the start.
    #[serde(default)]
    pub changed_files: u64,
    /// Databases that went offline at a start, or would have, because the redo at hand did not prove the content of
    /// their files.
    #[serde(default)]
    pub offline: u64,
    /// Histories that could not continue although the machines had power.
    pub errors: u64,
    pub seed: u64,
    #[serde(default)]
    pub failed_seeds: Vec<u64>,
    #[serde(default)]
    pub notes: Vec<String>,
}

impl PowerReport {
    pub fn lose(&mut self, commits: u64, note: String) {
        self.lost += commits;
        self.note(note);
    }

    pub fn damage(&mut self, note: String) {
        self.integrity_failures += 1;
        self.note(note);
    }

    /// Records pages that differ between primary and standby.
    pub fn differ(&mut self, pages: u64, note: String) {
        self.page_differences += pages.max(1);
        self.note(note);
    }

    pub fn fail(&mut self, note: String) {
        self.errors += 1;
        self.note(note);
    }

    fn note(&mut self, note: String) {
        trace::say(|| format!("found: {note}"));
        self.keep(note);
    }

    fn keep(&mut self, note: String) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(note);
        }
    }

    pub fn passed(&self) -> bool {
        self.lost + self.integrity_failures + self.page_differences + self.errors == 0
    }

    pub fn add(&mut self, other: PowerReport) {
        self.seeds += other.seeds;
        self.boundaries += other.boundaries;
        self.crashes += other.crashes;
        self.failovers += other.failovers;
        self.lost_members += other.lost_members;
        self.failed_members += other.failed_members;
        self.log_changes += other.log_changes;
        self.damaged_members += other.damaged_members;
        self.gaps += other.gaps;
        self.cannot_follow += other.cannot_follow;
        self.acknowledged += other.acknowledged;
        self.lost += other.lost;
        self.integrity_failures += other.integrity_failures;
        self.page_differences += other.page_differences;
        self.resynchronisations += other.resynchronisations;
        self.changed_files += other.changed_files;
        self.offline += other.offline;
        self.errors += other.errors;
        self.failed_seeds.extend(other.failed_seeds);
        other.notes.into_iter().for_each(|note| self.keep(note));
    }
}

impl std::fmt::Display for PowerReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.notes.iter().try_for_each(|note| writeln!(f, "FOUND {note}"))?;
        writeln!(
            f,
            "{} seeds, {} boundaries, {} power losses, {} failovers ({} standbys cannot follow), {} gaps, {} full images",
            self.seeds,
            self.boundaries,
            self.crashes,
            self.failovers,
            self.cannot_follow,
            self.gaps,
            self.resynchronisations
        )?;
        writeln!(
            f,
            "files changed before a start: {}; databases offline: {}",
            self.changed_files, self.offline
        )?;
        writeln!(
            f,
            "members of the redo log: {} lost, {} failed, {} damaged; {} changes of groups and members",
            self.lost_members, self.failed_members, self.damaged_members, self.log_changes
        )?;
        write!(
            f,
            "acknowledged {}, lost {}, integrity failures {}, differing pages {}, other failures {}",
            self.acknowledged, self.lost, self.integrity_failures, self.page_differences, self.errors
        )?;
        for seed in self.failed_seeds.iter().take(5) {
            write!(f, "\nreplay: standfast-campaign power --seeds 1 --seed {seed}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_with_a_finding_fails_and_shows_replay_options() {
        let mut sum = PowerReport { seed: 5, ..PowerReport::default() };
        assert!(sum.passed());
        let mut found = PowerReport { seeds: 1, failed_seeds: vec![7], ..PowerReport::default() };
        found.lose(2, "db1".into());
        sum.add(found);
        assert!(!sum.passed() && sum.lost == 2);
        let text = sum.to_string();
        assert!(text.contains("FOUND db1") && text.contains("--seeds 1 --seed 7"), "{text}");
        let json = serde_json::to_value(&sum).unwrap();
        for key in ["seeds", "boundaries", "crashes", "acknowledged", "lost", "integrity_failures"] {
            assert!(json.get(key).is_some(), "{key} in {json}");
        }
    }
}
