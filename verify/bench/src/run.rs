//! Result of one run of the workload.

use serde::{Deserialize, Serialize};

use crate::processes::GroupUsage;
use crate::statistics::{Latencies, LatencySummary};
use crate::workload::Layout;

/// One run: a system, a number of clients, a layout, a duration.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunResult {
    pub system: String,
    pub clients: usize,
    pub layout: Layout,
    pub seconds: f64,
    /// Commits that returned within the measured time.
    pub commits: u64,
    /// Commits that returned at any time, including the warm-up.
    pub commits_in_all: u64,
    pub commits_per_second: f64,
    /// From BEGIN to the return of COMMIT.
    pub latency: LatencySummary,
    #[serde(skip)]
    pub latencies: Latencies,
    /// Commits of each client; shows which client falls behind.
    pub commits_of_clients: Vec<u64>,
    pub errors: u64,
    pub first_error: Option<String>,
    /// Bytes of redo (or WAL, or LTX file) that one commit made.
    pub redo_bytes_per_commit: Option<f64>,
    pub usage: Vec<GroupUsage>,
}

impl RunResult {
    /// Commits of the slowest client over those of the fastest one; 1 is fair, 0 is starvation.
    pub fn fairness(&self) -> f64 {
        let fewest = self.commits_of_clients.iter().min();
        match self.commits_of_clients.iter().max() {
            Some(most) if *most > 0 => fewest.map_or(0.0, |fewest| *fewest as f64 / *most as f64),
            _ => 0.0,
        }
    }

    /// Processor time per commit of all groups together, in microseconds.
    pub fn cpu_us_per_commit(&self) -> f64 {
        self.usage.iter().map(|group| group.cpu_us_per_commit).sum()
    }

    /// Context switches per commit of all groups together.
    pub fn switches_per_commit(&self) -> f64 {
        self.usage.iter().map(|group| group.switches_per_commit).sum()
    }
}
