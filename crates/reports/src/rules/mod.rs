//! Diagnosis: the decision rules R1 to R24, R30 to R33, as functions of the figures of an interval. Pure.
//!
//! A rule speaks with its evidence, what to do, and what would refute it, or is silent. What a rule needs and is not
//! known keeps it silent: nothing is concluded from a lack. Thresholds are constants beside their rules, with the
//! source. Of several findings the first is the cause: they are ordered by how much of the time of commits they explain
//! ([`Finding::weight`]), and those that another one explains are left out.

mod commit;
mod compared;
mod databases;
mod logs;
mod network;
mod standbys;
#[cfg(test)]
mod tests;

pub use compared::compared;

use crate::counters::Counters;
use crate::interval::Interval;
use crate::replication::StandbyFigures;
use crate::units::{bytes, millis, number, share};
use serde::Serialize;
use standfast_instruments::Observation;
use std::fmt;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know when two intervals are compared; nothing is wrong.
    Remark,
    /// Could be better.
    Notice,
    /// Costs commits time, or costs data when something else happens.
    Warning,
    /// Commits stand still, or are not protected as configured.
    Critical,
}

impl Severity {
    /// As shown.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Remark => "REMARK",
            Severity::Notice => "NOTICE",
            Severity::Warning => "WARNING",
            Severity::Critical => "CRITICAL",
        }
    }
}

/// What a number of an evidence is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Microseconds; shown as milliseconds.
    #[serde(rename = "us")]
    Micros,
    /// Seconds.
    #[serde(rename = "s")]
    Seconds,
    /// Bytes.
    #[serde(rename = "bytes")]
    Bytes,
    /// Bytes for each second.
    #[serde(rename = "bytes/s")]
    BytesPerSecond,
    /// A part of a whole, from 0 to 1; shown in percent.
    #[serde(rename = "ratio")]
    Share,
    /// So many times.
    #[serde(rename = "times")]
    Times,
    /// For each second.
    #[serde(rename = "1/s")]
    PerSecond,
    /// A count.
    #[serde(rename = "count")]
    Count,
    /// None: it is in words.
    #[serde(rename = "")]
    Words,
}

/// What a finding rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// What it is, or all of it in words.
    pub what: String,
    /// How much; null for words.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: Unit,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value;
        let said = match self.unit {
            Unit::Micros => format!("{} ms", millis(value)),
            Unit::Seconds => format!("{} s", number(value, 1)),
            Unit::Bytes => bytes(value),
            Unit::BytesPerSecond => format!("{}/s", bytes(value)),
            Unit::Share => format!("{} %", share(value)),
            Unit::Times => format!("{} times", number(value, 1)),
            Unit::PerSecond => format!("{}/s", number(value, 1)),
            Unit::Count => number(value, 0),
            Unit::Words => return write!(f, "{}", self.what),
        };
        write!(f, "{}: {said}", self.what)
    }
}

/// What a rule says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// Which rule, as `R7`.
    pub rule: &'static str,
    /// What is wrong, in a sentence.
    pub title: String,
    /// How bad it is.
    pub severity: Severity,
    /// The numbers.
    pub evidence: Vec<Evidence>,
    /// What to do.
    pub remedy: String,
    /// What would show that it is not so.
    pub refuted_by: String,
    /// How much of the time of commits it explains, 0 to 1; more when commits stand still.
    pub weight: f64,
}

impl Finding {
    fn new(rule: &'static str, severity: Severity, weight: f64, title: impl Into<String>) -> Finding {
        let (remedy, refuted_by) = (String::new(), String::new());
        Finding { rule, title: title.into(), severity, evidence: Vec::new(), remedy, refuted_by, weight }
    }

    /// Adds a number; one that is not known is not mentioned.
    fn with(mut self, what: impl Into<String>, value: Option<f64>, unit: Unit) -> Finding {
        if value.is_some() {
            self.evidence.push(Evidence { what: what.into(), value, unit });
        }
        self
    }

    fn saying(mut self, what: impl Into<String>) -> Finding {
        self.evidence.push(Evidence { what: what.into(), value: None, unit: Unit::Words });
        self
    }

    fn remedy(mut self, remedy: impl Into<String>) -> Finding {
        self.remedy = remedy.into();
        self
    }

    fn unless(mut self, refuted_by: impl Into<String>) -> Finding {
        self.refuted_by = refuted_by.into();
        self
    }
}

/// Weight of what stops commits altogether.
const STANDS_STILL: f64 = 2.0;
/// Weight of what leaves commits without the protection that is configured.
const UNPROTECTED: f64 = 1.5;
/// Weight of what costs data or time only when something else happens.
const ASIDE: f64 = 0.1;

/// What the rules judge.
struct Case<'c> {
    interval: &'c Interval,
    /// Counts of the interval.
    counters: &'c Counters,
}

impl Case<'_> {
    /// Standbys that commits are to wait for.
    fn sync_standbys(&self) -> impl Iterator<Item = &StandbyFigures> {
        self.interval.standbys.iter().filter(|standby| standby.is_sync())
    }
}

/// What is wrong, the cause first; nothing when nothing is. `newest`: what is known of the moment, which may be later
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

/// The left one explains the right one.
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
    // Rules with several sayings are told apart by a word behind; what is shown is the rule.
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
