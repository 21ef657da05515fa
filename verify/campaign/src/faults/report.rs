//! Findings of the fault campaign: a line for every arrangement and fault.

use super::plan::Fault;
use crate::ending::Ending;
use serde::Serialize;
use std::time::Duration;

/// Results of one fault in one arrangement, over all its runs.
#[derive(Clone, Debug, Serialize)]
pub struct Cell {
    pub arrangement: &'static str,
    pub fault: Fault,
    pub runs: u64,
    /// How often the primary was lost during the fault and a standby took over.
    pub failovers: u64,
    /// How often commits had degraded, continuing without a standby.
    pub degraded: u64,
    /// Acknowledged rows that are missing although they are promised.
    pub lost: u64,
    /// Acknowledged rows that are missing and not promised: those of `async` and of a degraded destination.
    pub unprotected: u64,
    pub longest_ms: u64,
    /// Runs in which a commit took longer than allowed.
    pub too_long: u64,
}

impl Cell {
    pub fn new(arrangement: &'static str, fault: Fault) -> Cell {
        Cell {
            arrangement,
            fault,
            runs: 0,
            failovers: 0,
            degraded: 0,
            lost: 0,
            unprotected: 0,
            longest_ms: 0,
            too_long: 0,
        }
    }

    /// Adds the longest COMMIT of a run.
    pub fn waited(&mut self, longest: Duration, allowed: Duration) {
        self.longest_ms = self.longest_ms.max(longest.as_millis() as u64);
        self.too_long += u64::from(longest > allowed);
    }
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct FaultsReport {
    /// How often each fault was to strike in each arrangement.
    pub count: u64,
    pub seed: u64,
    pub cells: Vec<Cell>,
    pub acknowledged: u64,
    /// Broken promises as text, with the command that repeats them.
    pub violations: Vec<String>,
    /// What this machine could not run.
    pub skipped: Vec<String>,
    #[serde(flatten)]
    pub ending: Ending,
}

impl FaultsReport {
    /// Whether every promise was kept and every run was made.
    pub fn passed(&self) -> bool {
        self.ending.error.is_none() && self.violations.is_empty()
    }

    /// Returns the line of a fault in an arrangement, and adds it if it is missing.
    pub fn cell(&mut self, arrangement: &'static str, fault: Fault) -> &mut Cell {
        let known = self.cells.iter().position(|cell| (cell.arrangement, cell.fault) == (arrangement, fault));
        let at = known.unwrap_or_else(|| {
            self.cells.push(Cell::new(arrangement, fault));
            self.cells.len() - 1
        });
        &mut self.cells[at]
    }
}

impl std::fmt::Display for FaultsReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(
            f,
            "{:<20} {:<10} {:>5} {:>10} {:>9} {:>5} {:>12} {:>11}",
            "arrangement", "fault", "runs", "failovers", "degraded", "lost", "unprotected", "longest ms"
        )?;
        for cell in &self.cells {
            writeln!(
                f,
                "{:<20} {:<10} {:>5} {:>10} {:>9} {:>5} {:>12} {:>11}",
                cell.arrangement,
                format!("{:?}", cell.fault),
                cell.runs,
                cell.failovers,
                cell.degraded,
                cell.lost,
                cell.unprotected,
                cell.longest_ms
            )?;
        }
        self.skipped.iter().try_for_each(|what| writeln!(f, "SKIPPED {what}"))?;
        self.violations.iter().try_for_each(|violation| writeln!(f, "VIOLATION {violation}"))?;
        self.ending.write_error(f)?;
        let runs: u64 = self.cells.iter().map(|cell| cell.runs).sum();
        let lost: u64 = self.cells.iter().map(|cell| cell.lost).sum();
        let too_long: u64 = self.cells.iter().map(|cell| cell.too_long).sum();
        write!(
            f,
            "{runs} runs, acknowledged {}, lost {lost}, waited too long {too_long}",
            self.acknowledged
        )?;
        self.ending.write_kept(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_with_a_violation_fails_and_shows_every_cell() {
        let mut report = FaultsReport { count: 1, ..FaultsReport::default() };
        report.cell("async", Fault::Cut).runs += 1;
        report.cell("async", Fault::Cut).waited(Duration::from_millis(7), Duration::from_millis(7));
        assert!(report.passed());
        report.cell("async", Fault::Frozen).waited(Duration::from_millis(8), Duration::from_millis(7));
        report.violations.push("waited".into());
        assert!(!report.passed());
        let text = report.to_string();
        assert!(text.contains("Cut") && text.contains("Frozen") && text.contains("too long 1"), "{text}");
        assert_eq!(report.cells.len(), 2);
    }
}
