//! Messages between the driver and the application processes: JSON lines over the pipes of the worker.
//!
//! The driver sends a [`WorkerConfig`]; the worker opens its databases and answers [`Report::Ready`]; the driver sends
//! [`Order::Warm`], [`Order::Measure`], [`Order::Stop`]; the worker answers [`Report::Stopped`] when its last
//! transaction has ended. When all workers have answered, the driver sends [`Order::Count`], and each worker answers
//! [`Report::Counted`] with all its connections still open, so that no count disturbs a transaction of another worker,
//! and no close disturbs a count. The driver sends [`Order::Close`] or closes the pipe, and the worker ends.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::statistics::LatencyCounts;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorkerConfig {
    /// The extension to load; `None` runs stock SQLite.
    pub extension: Option<PathBuf>,
    /// `PRAGMA synchronous`; None leaves the default (FULL).
    pub synchronous: Option<String>,
    /// Number of the first client; hist.conn holds client numbers.
    pub first_client: usize,
    /// The database of each client; one thread and connection per entry.
    pub databases: Vec<PathBuf>,
}

/// Order of the driver: one word on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Run transactions whose latencies are not counted.
    Warm,
    Measure,
    /// Finish the current transaction and stop.
    Stop,
    Count,
    Close,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Report {
    Ready,
    Stopped,
    Counted(Vec<ClientReport>),
    Failed(String),
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ClientReport {
    pub client: usize,
    /// Commits that returned between the orders Measure and Stop.
    pub commits: u64,
    /// Commits that returned at any time.
    pub commits_in_all: u64,
    /// Transactions that failed; each was rolled back or has an unknown outcome.
    pub errors: u64,
    pub first_error: Option<String>,
    /// Rows of this client in `hist` at the end.
    pub rows: u64,
    /// Latencies of transactions begun between Measure and Stop.
    pub latencies: LatencyCounts,
    /// `standfast_scn()` before the first and after the last transaction, in bytes of the redo stream.
    pub redo: Option<(u64, u64)>,
}

impl ClientReport {
    /// Sets the start of the redo positions to the one before the first transaction.
    pub(crate) fn with_redo_since(mut self, start: Option<u64>) -> ClientReport {
        self.redo = start.zip(self.redo.map(|(_, end)| end));
        self
    }
}
