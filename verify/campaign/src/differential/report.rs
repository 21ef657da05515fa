//! Findings of a differential campaign.

use crate::ending::Ending;
use serde::Serialize;
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, Serialize)]
pub struct DifferentialReport {
    /// Programs that ran to completion, over all versions.
    pub programs: u64,
    pub steps: u64,
    /// Compared steps that failed with stock SQLite.
    pub errors: u64,
    /// Documented differences, with their counts by name.
    pub documented: BTreeMap<String, u64>,
    /// Programs with a step whose outcome differed from stock SQLite.
    pub differing: u64,
    /// Databases whose content at the primary differed from that with stock SQLite.
    pub lost: u64,
    pub integrity_failures: u64,
    /// Pages that differ between primary and standby.
    pub page_differences: u64,
    pub seed: u64,
    /// Versions of SQLite, with the number of programs that ran with each.
    pub versions: BTreeMap<String, u64>,
    /// The first finding without its random parts: tells whether a smaller program fails in the same way.
    #[serde(skip)]
    pub kind: String,
    #[serde(skip)]
    pub notes: Vec<String>,
    #[serde(flatten)]
    pub ending: Ending,
}

impl DifferentialReport {
    /// Whether everything that must be equal was, and every program ran.
    pub fn passed(&self) -> bool {
        self.ending.error.is_none() && self.none_found()
    }

    /// Whether there are no findings so far.
    pub fn none_found(&self) -> bool {
        self.differing + self.lost + self.integrity_failures + self.page_differences == 0
    }

    /// Adds the findings of another part of the campaign.
    pub fn add(&mut self, other: DifferentialReport) {
        self.programs += other.programs;
        self.steps += other.steps;
        self.errors += other.errors;
        self.differing += other.differing;
        self.lost += other.lost;
        self.integrity_failures += other.integrity_failures;
        self.page_differences += other.page_differences;
        for (name, count) in other.documented {
            *self.documented.entry(name).or_default() += count;
        }
        for (name, count) in other.versions {
            *self.versions.entry(name).or_default() += count;
        }
        self.notes.extend(other.notes);
        if self.kind.is_empty() {
            self.kind = other.kind;
        }
        self.ending.error = self.ending.error.take().or(other.ending.error);
    }
}

impl std::fmt::Display for DifferentialReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.notes.iter().try_for_each(|note| writeln!(f, "FOUND {note}"))?;
        self.ending.write_error(f)?;
        let versions: Vec<String> =
            self.versions.iter().map(|(name, count)| format!("{name}: {count}")).collect();
        writeln!(
            f,
            "{} programs ({}), {} steps, {} of them errors",
            self.programs,
            versions.join(", "),
            self.steps,
            self.errors
        )?;
        let documented: Vec<String> =
            self.documented.iter().map(|(name, count)| format!("{name} {count}")).collect();
        writeln!(f, "documented differences: {}", documented.join(", "))?;
        write!(
            f,
            "differing {}, other contents {}, integrity failures {}, differing pages {}",
            self.differing, self.lost, self.integrity_failures, self.page_differences
        )?;
        self.ending.write_kept(f)
    }
}
