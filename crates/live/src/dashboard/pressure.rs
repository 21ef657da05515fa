//! What holds up commits, and what may run out.

use crate::dashboard::Machine;
use crate::figure::Figure;
use crate::look::Looks;
use serde::{Deserialize, Serialize};
use standfast_documents::Status;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Pressure {
    /// What holds up commits beyond the ordinary; `None`: nothing.
    pub blocked_by: Option<String>,
    pub waiting_commits: Figure,
    /// Bytes of redo generated per second.
    pub redo_rate: Figure,
    /// Time between two log switches at the current rate.
    pub switch_interval: Figure,
    pub sequence: Figure,
    /// Filled share of the current log.
    pub log_filled: Figure,
    /// Number of full logs that are not archived.
    pub unarchived: Figure,
    /// Free bytes where the redo is.
    pub disk_free: Figure,
}

impl Pressure {
    /// Computes the figures of the window.
    pub fn of(status: &Status, looks: &Looks, machine: &Machine) -> Pressure {
        let redo_rate = looks.rate(Status::redo_end);
        let current = status.groups().iter().find(|group| group.state.as_deref() == Some("current"));
        let bytes = current.and_then(|group| group.bytes).map(|bytes| bytes as f64);
        let used = current.and_then(|group| status.redo_end()?.checked_sub(group.first_scn?));
        // Padding fills a log as well, so the rate of log blocks counts.
        let log_rate = looks.log_rate().filter(|_| status.is_primary()).or(redo_rate);
        let interval = bytes.zip(log_rate).filter(|(_, rate)| *rate > 0.0).map(|(bytes, rate)| bytes / rate);
        let full = |state: Option<&str>| matches!(state, Some("active" | "inactive"));
        let waiting = status.groups().iter().filter(|group| full(group.state.as_deref()));
        let unarchived = waiting.filter(|group| group.archived == Some(false)).count() as u64;
        let idle = Figure { value: None, text: "no redo is made".into() };
        Pressure {
            blocked_by: status.blocked_by().map(str::to_owned),
            waiting_commits: Figure::count(status.waiting_commits),
            redo_rate: Figure::byte_rate(redo_rate),
            switch_interval: if redo_rate == Some(0.0) { idle } else { Figure::seconds(interval) },
            sequence: Figure::count(current.and_then(|group| group.sequence)),
            log_filled: Figure::share(used.zip(bytes).map(|(used, bytes)| used as f64 / bytes)),
            unarchived: Figure::count(Some(unarchived).filter(|_| !status.groups().is_empty())),
            disk_free: Figure::bytes(machine.disk_free_bytes),
        }
    }
}
