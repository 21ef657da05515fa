//! Progress and findings of a run, as JSON and for the alert log.

use serde::Serialize;
use standfast_transport::PageDifference;
use standfast_types::Scn;

/// A run, in progress or ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Progress {
    /// Run number: its start time, microseconds since the Unix epoch.
    pub run: u64,
    /// `reading`, `waiting` for standbys to apply, `repairing`, `done` or `failed`.
    pub state: &'static str,
    /// End time, microseconds since the Unix epoch; `None` while in progress.
    pub ended_us: Option<u64>,
    pub scheduled: bool,
    /// Whether pages that differ are sent.
    pub repair: bool,
    /// Pages of the databases of this run that are known so far.
    pub pages: u64,
    pub pages_read: u64,
    pub failure: Option<String>,
    /// Findings per database, in the order of the databases.
    pub databases: Vec<DatabaseResult>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DatabaseResult {
    pub name: String,
    /// Pages whose checksums are in the redo.
    pub pages: u64,
    /// End of the last of their records.
    pub scn: Option<Scn>,
    /// Why the database was not compared; `None` when it was.
    pub skipped: Option<String>,
    /// Pages whose images were sent to standbys.
    pub repaired: u64,
    /// Why pages that differ were not sent.
    pub not_repaired: Option<String>,
    pub destinations: Vec<DestinationResult>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DestinationResult {
    pub name: String,
    pub outcome: Outcome,
    /// Pages that the destination has compared.
    pub compared: u64,
    pub differing: u64,
    /// The first of the pages that differ.
    pub pages: Vec<PageDifference>,
    /// Why it did not compare; `None` when it did.
    pub why: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Equal,
    Differs,
    /// At least one page was not compared.
    NotCompared,
    /// The destination applies redo with a delay and compares then.
    Later,
}

/// Summary of a run for the alert log.
pub(super) fn summary(progress: &Progress) -> String {
    let pages: u64 = progress.databases.iter().map(|database| database.pages).sum();
    let repaired: u64 = progress.databases.iter().map(|database| database.repaired).sum();
    let of = |wanted: Outcome| {
        let destinations = progress.databases.iter().flat_map(|database| &database.destinations);
        destinations.filter(|found| found.outcome == wanted).count()
    };
    let skipped = progress.databases.iter().filter(|database| database.skipped.is_some()).count();
    let mut text =
        format!("verification: {} databases, {pages} pages compared", progress.databases.len() - skipped);
    let differing = of(Outcome::Differs);
    match differing {
        0 => text += ", no difference found",
        copies => text += &format!(", DIFFERENCES in {copies} copies"),
    }
    if repaired > 0 {
        text += &format!(", {repaired} pages sent again");
    }
    let missed = of(Outcome::NotCompared) + of(Outcome::Later) + skipped;
    if missed > 0 {
        text += &format!("; not compared: {missed}");
    }
    if differing + missed > 0 {
        text += " | hint: `standfast status` says what";
    }
    text
}
