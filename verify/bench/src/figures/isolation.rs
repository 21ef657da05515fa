//! The isolation campaign, `standfast-campaign isolation`: the effect of a fault in one database on the others.

use std::ffi::OsStr;

use serde::{Deserialize, Serialize};

use super::campaign::last_line;
use crate::process::make_on_disk;
use crate::suite::Missing;
use crate::{Context, Result};

/// Times that each fault is injected unless COUNT says otherwise.
pub(super) const ROUNDS: u64 = 3;

/// The fields of the campaign's last line of output that figures need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IsolationReport {
    pub faults: Vec<FaultReport>,
    /// Acknowledged commits that were missing afterwards.
    pub lost: u64,
    pub integrity_failures: u64,
    /// Pages that differ between primary and standby.
    pub page_differences: u64,
    #[serde(default)]
    pub error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultReport {
    pub fault: String,
    /// Commits per second of the other databases during the fault, divided by the rate before; None when this machine
    /// cannot inject it.
    pub ratio: Option<f64>,
    /// Failed commits of the other databases.
    pub refused: u64,
    /// Changes of state of the instance or of another database.
    pub changed: Vec<String>,
    /// Why the fault was not injected.
    #[serde(default)]
    pub skipped: Option<String>,
}

impl IsolationReport {
    /// Returns the lowest ratio of all faults that were brought about.
    pub fn worst_ratio(&self) -> std::result::Result<f64, Missing> {
        self.complete()?;
        let ratios = self.faults.iter().filter_map(|fault| fault.ratio);
        ratios.reduce(f64::min).ok_or_else(|| Missing::Skipped("no fault could be brought about".into()))
    }

    /// Total of restarts, changes of state, failed commits and differences.
    pub fn spread(&self) -> std::result::Result<f64, Missing> {
        self.complete()?;
        let of_faults: u64 = self.faults.iter().map(|fault| fault.changed.len() as u64 + fault.refused).sum();
        Ok((of_faults + self.lost + self.integrity_failures + self.page_differences) as f64)
    }

    fn complete(&self) -> std::result::Result<(), Missing> {
        self.error.as_ref().map_or(Ok(()), |error| Err(Missing::Failed(error.clone())))
    }
}

/// Runs the campaign on the disk under test.
pub(super) fn isolation(context: &Context, rounds: u64) -> Result<IsolationReport> {
    make_on_disk(&context.base)?;
    let more = [OsStr::new("--directory"), context.base.as_os_str()];
    last_line(context, "isolation", "--rounds", rounds, &more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_ratio_and_spread_are_taken_from_the_report() {
        let text = r#"{"databases":40,"faults":[
            {"fault":"bad-size","ratio":0.97,"refused":1,"changed":["db07.db is failed"],"acts":3},
            {"fault":"full-volume","ratio":null,"refused":0,"changed":[],"skipped":"no loop devices"}],
            "lost":0,"integrity_failures":0,"page_differences":2,"surplus":0}"#;
        let mut report: IsolationReport = serde_json::from_str(text).unwrap();
        assert_eq!((report.worst_ratio().unwrap(), report.spread().unwrap()), (0.97, 4.0));
        report.error = Some("the primary does not start".into());
        assert!(matches!(report.worst_ratio(), Err(Missing::Failed(_))));
    }
}
