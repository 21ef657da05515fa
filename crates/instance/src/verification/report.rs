//! How far a run is and what it has found, as JSON and for the alert log.

use serde::Serialize;
use standfast_transport::PageDifference;
use standfast_types::Scn;

/// A run, under way or ended.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Progress {
    /// Its number: when it began, microseconds since the Unix epoch.
    pub run: u64,
    /// `reading`, `waiting` for standbys to apply, `repairing`, `done` or `failed`.
    pub state: &'static str,
    /// When it ended.
    pub ended_us: Option<u64>,
    /// Whether it is one of the schedule.
    pub scheduled: bool,
    /// Whether pages that differ are sent.
    pub repair: bool,
    /// Pages to read.
    pub pages: u64,
    /// Pages read.
    pub pages_read: u64,
    /// Why it has failed.
    pub failure: Option<String>,
    /// What was found, in the order of the databases.
    pub databases: Vec<DatabaseResult>,
}

/// What was found of one database.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DatabaseResult {
    /// Its name.
    pub name: String,
    /// Pages whose checksums are in the redo.
    pub pages: u64,
    /// The position as of which the last of them are.
    pub scn: Option<Scn>,
    /// Why it was not compared.
    pub skipped: Option<String>,
    /// Pages that were sent to standbys.
    pub repaired: u64,
    /// Why pages that differ were not sent.
    pub not_repaired: Option<String>,
    /// By destination.
    pub destinations: Vec<DestinationResult>,
}

/// What a destination has found.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DestinationResult {
    /// Its name.
    pub name: String,
    /// See [`Outcome`].
    pub outcome: Outcome,
    /// Pages compared there.
    pub compared: u64,
    /// Pages that differ.
    pub differing: u64,
    /// The first of them.
    pub pages: Vec<PageDifference>,
    /// What kept it from comparing.
    pub why: Option<String>,
}

/// How a comparison ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// All pages are equal.
    Equal,
    /// Some differ.
    Differs,
    /// It has not compared them all.
    NotCompared,
    /// It applies redo with a delay, and will compare then.
    Later,
}

/// How a run ended, for the alert log.
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
