//! A section of a report: notes, findings, facts, a table and plots. Pure.

use crate::rules::Finding;
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
    /// Shown in HTML, not in text.
    pub plots: Vec<Plot>,
}
