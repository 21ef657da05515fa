//! The isolation campaign, `standfast-campaign isolation`: what a fault in one database costs the others.

use std::ffi::OsStr;

use serde::{Deserialize, Serialize};

use super::campaign::last_line;
use crate::process::make_on_disk;
use crate::suite::Missing;
use crate::{Context, Result};

/// Times that each fault strikes unless COUNT says otherwise.
pub(super) const ROUNDS: u64 = 3;

/// The last line of the campaign's output, as far as figures need it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IsolationReport {
    /// Fault by fault.
    pub faults: Vec<FaultReport>,
    /// Acknowledged commits that were not found afterwards.
    pub lost: u64,
    /// Databases that failed integrity_check.
    pub integrity_failures: u64,
    /// Pages that differed between primary and standby.
    pub page_differences: u64,
    /// Why the campaign ended early.
    #[serde(default)]
    pub error: Option<String>,
}

/// One fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultReport {
    /// Its name.
    pub fault: String,
    /// Commits per second of the other databases during it by those before it; none when this machine cannot do it.
    pub ratio: Option<f64>,
    /// Commits of the others that failed.
    pub refused: u64,
    /// What became of the instance or another database.
    pub changed: Vec<String>,
    /// Why it was not done.
    #[serde(default)]
    pub skipped: Option<String>,
}

impl IsolationReport {
    /// The lowest ratio of all faults.
    pub fn worst_ratio(&self) -> std::result::Result<f64, Missing> {
        self.complete()?;
        let ratios = self.faults.iter().filter_map(|fault| fault.ratio);
        ratios.reduce(f64::min).ok_or_else(|| Missing::Skipped("no fault could be brought about".into()))
    }

    /// Restarts, changes of state, failed commits and differences, together.
    pub fn spread(&self) -> std::result::Result<f64, Missing> {
        self.complete()?;
        let of_faults: u64 = self.faults.iter().map(|fault| fault.changed.len() as u64 + fault.refused).sum();
        Ok((of_faults + self.lost + self.integrity_failures + self.page_differences) as f64)
    }

    fn complete(&self) -> std::result::Result<(), Missing> {
        self.error.as_ref().map_or(Ok(()), |error| Err(Missing::Failed(error.clone())))
    }
}

/// Runs the campaign on the disk that is measured.
pub(super) fn isolation(context: &Context, rounds: u64) -> Result<IsolationReport> {
    make_on_disk(&context.base)?;
    let more = [OsStr::new("--directory"), context.base.as_os_str()];
    last_line(context, "isolation", "--rounds", rounds, &more)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worst_ratio_and_everything_that_spread_are_taken_from_the_report() {
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
