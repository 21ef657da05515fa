//! Diagnosis: the decision rules R1 to R24, R30 to R33, as functions of the figures of an interval. Pure.
//!
//! A rule reports its evidence, a remedy, and what would refute it, or stays silent. A rule that lacks a figure stays
//! silent: a missing figure proves nothing. Thresholds are constants beside their rules, with the source. Findings are
//! ordered by the share of the time of commits that they explain ([`Finding::weight`]), so the first is the cause; a
//! finding that another one explains is dropped.

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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Good to know when two intervals are compared; nothing is wrong.
    Remark,
    Notice,
    /// Costs commits time, or costs data when something else happens.
    Warning,
    /// Commits stand still, or are not protected as configured.
    Critical,
}

impl Severity {
    pub fn word(self) -> &'static str {
        match self {
            Severity::Remark => "REMARK",
            Severity::Notice => "NOTICE",
            Severity::Warning => "WARNING",
            Severity::Critical => "CRITICAL",
        }
    }
}

/// Unit of the value of an evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Unit {
    /// Microseconds; shown as milliseconds.
    #[serde(rename = "us")]
    Micros,
    #[serde(rename = "s")]
    Seconds,
    #[serde(rename = "bytes")]
    Bytes,
    #[serde(rename = "bytes/s")]
    BytesPerSecond,
    /// A part of a whole, from 0 to 1; shown in percent.
    #[serde(rename = "ratio")]
    Share,
    /// A ratio of two values.
    #[serde(rename = "times")]
    Times,
    #[serde(rename = "1/s")]
    PerSecond,
    #[serde(rename = "count")]
    Count,
    /// No value: the evidence is in words.
    #[serde(rename = "")]
    Words,
}

/// A fact that a finding rests on.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evidence {
    /// Name of the value, or the whole evidence in words.
    pub what: String,
    /// `None` for words.
    pub value: Option<f64>,
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

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    pub rule: &'static str,
    /// What is wrong, in a sentence.
    pub title: String,
    pub severity: Severity,
    pub evidence: Vec<Evidence>,
    pub remedy: String,
    pub refuted_by: String,
    /// Share of the time of commits that it explains, 0 to 1; higher when commits stand still.
    pub weight: f64,
}

impl Finding {
    fn new(rule: &'static str, severity: Severity, weight: f64, title: impl Into<String>) -> Finding {
        let (remedy, refuted_by) = (String::new(), String::new());
        Finding { rule, title: title.into(), severity, evidence: Vec::new(), remedy, refuted_by, weight }
    }

    /// Adds a value as evidence; an unknown one is omitted.
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

const STANDS_STILL: f64 = 2.0;
/// Weight when commits lack the configured protection.
const UNPROTECTED: f64 = 1.5;
/// Weight of what costs data or time only when something else happens.
const ASIDE: f64 = 0.1;

/// The input of rules that need counts.
struct Case<'c> {
    interval: &'c Interval,
    counters: &'c Counters,
}

impl Case<'_> {
    /// Standbys that commits are meant to wait for.
    fn sync_standbys(&self) -> impl Iterator<Item = &StandbyFigures> {
        self.interval.standbys.iter().filter(|standby| standby.is_sync())
    }
}

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
