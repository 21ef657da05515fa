//! A report as sections of tables: text and HTML show the same sections, and JSON has the figures behind them. Pure.

use crate::interval::{Interval, Period};
use crate::rules::{Finding, diagnose};
use crate::{plots, sections};
use serde::Serialize;
use serde_json::{Value, json};
use standfast_page::plot::Plot;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    pub name: &'static str,
    pub numeric: bool,
}

pub fn left(name: &'static str) -> Column {
    Column { name, numeric: false }
}

pub fn right(name: &'static str) -> Column {
    Column { name, numeric: true }
}

/// A table; the first column names the row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    pub columns: Vec<Column>,
    /// Each row has one cell per column.
    pub rows: Vec<Vec<String>>,
}

#[derive(Clone, Debug, Default)]
pub struct Section {
    pub title: String,
    pub notes: Vec<String>,
    pub findings: Vec<Finding>,
    pub facts: Vec<(&'static str, String)>,
    pub table: Option<Table>,
    /// Not shown in text.
    pub plots: Vec<Plot>,
}

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
