//! A report as sections of tables: text and HTML show the same ones, and JSON has the figures behind. Pure.

use crate::interval::{Interval, Period};
use crate::rules::{Finding, diagnose};
use crate::{plots, sections};
use serde::Serialize;
use serde_json::{Value, json};
use standfast_net::html::plot::Plot;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Its head.
    pub name: &'static str,
    /// Numbers stand to the right.
    pub numeric: bool,
}

/// A column of words.
pub fn left(name: &'static str) -> Column {
    Column { name, numeric: false }
}

/// A column of numbers.
pub fn right(name: &'static str) -> Column {
    Column { name, numeric: true }
}

/// A table; the first column names the row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows, as long as the columns are many.
    pub rows: Vec<Vec<String>>,
}

/// A part of a report.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// Its heading.
    pub title: String,
    /// Sentences above everything else.
    pub notes: Vec<String>,
    /// What was found; shown as boxes.
    pub findings: Vec<Finding>,
    /// Names and what they are.
    pub facts: Vec<(&'static str, String)>,
    /// Numbers.
    pub table: Option<Table>,
    /// Drawings; text has none.
    pub plots: Vec<Plot>,
}

/// All sections of the report of a period, in the order in which they are read.
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

/// The report as one document, with figures in base units and null for what is not known.
#[derive(Debug, Serialize)]
pub struct Document {
    /// The figures.
    #[serde(flatten)]
    pub interval: Interval,
    /// What was found, the cause first.
    pub findings: Vec<Finding>,
    /// Metrics of the interval.
    pub metrics: Value,
}

/// The report of a period as JSON.
pub fn document(period: &Period) -> Document {
    let interval = Interval::of(period);
    let findings = diagnose(&interval, &period.to.observation);
    Document { findings, metrics: json!(period.metrics), interval }
}
