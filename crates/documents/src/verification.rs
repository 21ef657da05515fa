//! A comparison of a primary's databases with those of its standbys.

use serde::{Deserialize, Serialize};
use standfast_types::Scn;

document! {
    /// A page that differed from the primary's when last compared.
    DifferingPage {
        /// Its database, where the document does not name it already.
        database: String,
        page: u64,
        /// The SCN as of which it was compared.
        scn: u64,
        /// Checksum at the primary.
        expected: u64,
        /// Checksum at the standby; `None` also when the page could not be read or does not exist.
        found: u64,
    }
}

/// A run, in progress or ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct VerificationRun {
    /// Run number: its start time, microseconds since the Unix epoch.
    pub run: u64,
    pub state: RunState,
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

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
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

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DestinationResult {
    pub name: String,
    pub outcome: Outcome,
    /// Pages that the destination has compared.
    pub compared: u64,
    pub differing: u64,
    /// The first of the pages that differ.
    pub pages: Vec<DifferingPage>,
    /// Why it did not compare; `None` when it did.
    pub why: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    Equal,
    Differs,
    /// At least one page was not compared.
    NotCompared,
    /// The destination applies redo with a delay and compares then.
    Later,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunState {
    Reading,
    /// It waits for standbys to apply the checksums.
    Waiting,
    Repairing,
    Done,
    Failed,
}

impl RunState {
    /// As in the document.
    pub fn name(self) -> &'static str {
        match self {
            RunState::Reading => "reading",
            RunState::Waiting => "waiting",
            RunState::Repairing => "repairing",
            RunState::Done => "done",
            RunState::Failed => "failed",
        }
    }
}

impl VerificationRun {
    /// Whether every page of every database was found equal at every standby.
    pub fn is_equal(&self) -> bool {
        self.databases.iter().all(|database| {
            database.skipped.is_none()
                && !database.destinations.is_empty()
                && database.destinations.iter().all(|found| found.outcome == Outcome::Equal)
        })
    }
}
