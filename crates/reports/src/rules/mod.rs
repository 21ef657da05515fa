//! Diagnosis: the decision rules R1 to R24, R30 to R33, as functions of the figures of an interval. Pure.
//!
//! A rule reports its evidence, a remedy, and what would refute it, or stays silent. A rule that lacks a figure stays
//! silent: a missing figure proves nothing. Thresholds are constants beside their rules, with the source. Findings are
//! ordered by the share of the time of commits that they explain ([`Finding::weight`]), so the first is the cause; a
//! finding that another one explains is dropped.

mod case;
mod commit;
mod compared;
mod databases;
mod finding;
mod logs;
mod network;
mod standbys;
#[cfg(test)]
mod tests;

pub use compared::compared;
pub use finding::{Evidence, Finding, Severity, Unit};

use crate::interval::Interval;
use case::Case;
use standfast_instruments::Observation;

/// Returns what is wrong, the cause first; empty when nothing is. `newest` is the present state, which may be later
/// than the interval.
pub fn diagnose(interval: &Interval, newest: &Observation) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(logs::stands_still(interval, newest));
    found.extend(standbys::all(interval));
    found.extend(databases::all(newest));
    if let Some(counters) = &interval.counters {
        let case = Case { interval, counters };
        found.extend(commit::all(&case));
        found.extend(network::all(&case));
        found.extend(logs::all(&case));
    }
    ordered(found)
}

/// Pairs of rules: the first explains the second.
const EXPLAINS: [(&str, &str); 23] = [
    ("R4", "R2"),
    ("R4", "R8"),
    ("R4", "R21"),
    ("R7", "R11"),
    ("R7", "R13"),
    ("R7", "R18"),
    ("R7", "R21"),
    ("R1", "R13"),
    ("R18", "R11"),
    ("R18", "R13"),
    ("R11", "R13"),
    ("R8", "R21"),
    ("R12", "R21"),
    ("R14", "R15"),
    ("R14", "R22 transport"),
    ("R15", "R22 transport"),
    ("R19", "R22 transport"),
    ("R20", "R23"),
    ("R20", "R8"),
    ("R23", "R8"),
    ("R22 lost", "R23"),
    ("R22 lost", "R8"),
    ("R2", "R21"),
];

fn ordered(mut found: Vec<Finding>) -> Vec<Finding> {
    // A suffix tells the findings of one rule apart; only the rule is shown.
    let there: Vec<&str> = found.iter().map(|finding| finding.rule).collect();
    found.retain(|finding| {
        !EXPLAINS.iter().any(|(cause, effect)| finding.rule == *effect && there.contains(cause))
    });
    found.sort_by(|a, b| b.weight.total_cmp(&a.weight).then(b.severity.cmp(&a.severity)));
    for finding in &mut found {
        finding.rule = finding.rule.split(' ').next().unwrap_or(finding.rule);
    }
    found
}
