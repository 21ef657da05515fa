//! A finding with its evidence, and the weights that findings of several rules share.

use crate::units::{bytes, millis, number, share};
use serde::Serialize;
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
    /// Microseconds, which are shown as milliseconds.
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
    /// `None` when the evidence is in words.
    pub value: Option<f64>,
    pub unit: Unit,
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.value;
        let reported = match self.unit {
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
        write!(f, "{}: {reported}", self.what)
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
    pub(super) fn new(
        rule: &'static str,
        severity: Severity,
        weight: f64,
        title: impl Into<String>,
    ) -> Finding {
        let (remedy, refuted_by) = (String::new(), String::new());
        Finding { rule, title: title.into(), severity, evidence: Vec::new(), remedy, refuted_by, weight }
    }

    /// Adds a value as evidence; an unknown one is omitted.
    pub(super) fn with(mut self, what: impl Into<String>, value: Option<f64>, unit: Unit) -> Finding {
        if value.is_some() {
            self.evidence.push(Evidence { what: what.into(), value, unit });
        }
        self
    }

    pub(super) fn saying(mut self, what: impl Into<String>) -> Finding {
        self.evidence.push(Evidence { what: what.into(), value: None, unit: Unit::Words });
        self
    }

    pub(super) fn remedy(mut self, remedy: impl Into<String>) -> Finding {
        self.remedy = remedy.into();
        self
    }

    pub(super) fn unless(mut self, refuted_by: impl Into<String>) -> Finding {
        self.refuted_by = refuted_by.into();
        self
    }
}

pub(super) const STANDS_STILL: f64 = 2.0;
/// Weight when commits lack the configured protection.
pub(super) const UNPROTECTED: f64 = 1.5;
/// Smallest share of the time of commits at which a part is reported. Our own choice.
pub(super) const PART_MIN: f64 = 0.2;
/// Weight of what costs data or time only when something else happens.
pub(super) const ASIDE: f64 = 0.1;
