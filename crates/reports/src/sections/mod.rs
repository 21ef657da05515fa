//! The sections of a report, from the figures of an interval. Pure.

mod load;
mod redo;
mod standbys;
mod waits;

pub use load::{changed, findings, identity, load_profile, statistics, time_model};
pub use redo::{commits, io, log_switches};
pub use standbys::replication;
pub use waits::{background, foreground, histograms};

use crate::section::{Section, Table};

const NO_COUNTS: &str = "Not known: the two snapshots are not of one run of the instance.";

fn with_notes(title: &str, notes: Vec<String>) -> Section {
    Section { title: title.to_owned(), notes, ..Section::default() }
}

fn with_table(title: &str, note: &str, table: Table) -> Section {
    let notes = if note.is_empty() { Vec::new() } else { vec![note.to_owned()] };
    Section { table: Some(table), ..with_notes(title, notes) }
}

fn unknown(title: &str) -> Section {
    with_notes(title, vec![NO_COUNTS.to_owned()])
}
