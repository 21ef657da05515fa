//! A report as sections of tables: text and HTML show the same sections, and JSON has the figures behind them. Pure.

use crate::interval::Interval;
use crate::period::Period;
use crate::rules::{Finding, diagnose};
use crate::section::Section;
use crate::{plots, sections};
use serde::Serialize;
use serde_json::{Value, json};

/// Returns all sections of the report of a period, in reading order.
pub fn report(period: &Period) -> Vec<Section> {
    let interval = Interval::of(period);
    let findings = diagnose(&interval, &period.to.observation);
    let mut all = vec![sections::identity(&interval), sections::findings(&interval, findings)];
    all.push(sections::load_profile(&interval));
    all.push(sections::time_model(&interval));
    all.push(sections::foreground(&interval));
    all.push(sections::background(&interval));
    all.push(sections::histograms(&interval));
    all.push(sections::commits(&interval));
    all.extend(sections::replication(&interval));
    all.push(sections::io(&interval));
    all.push(sections::log_switches(&interval));
    all.push(sections::statistics(&interval));
    all.push(sections::changed(&interval));
    plots::add(&mut all, period, &interval);
    all
}

/// The report as one document, with figures in base units and null for unknown ones.
#[derive(Debug, Serialize)]
pub struct Document {
    #[serde(flatten)]
    pub interval: Interval,
    pub findings: Vec<Finding>,
    pub metrics: Value,
}

/// Returns the report of a period for JSON.
pub fn document(period: &Period) -> Document {
    let interval = Interval::of(period);
    let findings = diagnose(&interval, &period.to.observation);
    Document { findings, metrics: json!(period.metrics), interval }
}
