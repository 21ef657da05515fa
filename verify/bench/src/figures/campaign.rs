//! Runs campaigns, which are separate programs, `standfast-campaign kill|power|differential`: they run for long, and
//! what they do to processes must not affect the harness.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Read;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::context::need;
use crate::error::During;
use crate::process::Process;
use crate::suite::Missing;
use crate::{BenchError, Context, Result, interrupt};

/// The last line of output of a campaign.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CampaignReport {
    /// Cycles (kill), seeds (power) or programs (differential) that completed.
    #[serde(alias = "cycles", alias = "seeds", alias = "programs")]
    pub runs: u64,
    /// Acknowledged commits that were missing afterwards; for differential, databases whose content differs from that
    /// on stock SQLite.
    pub lost: u64,
    pub integrity_failures: u64,
    /// Pages that differed between primary and standby after catching up.
    pub page_differences: u64,
    /// Programs with a statement whose outcome differs from that on stock SQLite (differential).
    #[serde(default)]
    pub differing: u64,
    /// All other fields of the report.
    #[serde(flatten)]
    pub details: BTreeMap<String, Value>,
}

impl CampaignReport {
    /// Number of findings other than lost commits.
    pub fn damaged(&self) -> u64 {
        self.integrity_failures + self.page_differences
    }

    /// Returns the number of runs. Skips the figure when there are fewer than `least` and none of them found anything.
    pub fn enough(&self, least: u64) -> std::result::Result<f64, Missing> {
        if self.runs < least && self.lost == 0 && self.damaged() == 0 && self.differing == 0 {
            return Err(Missing::Skipped(format!(
                "COUNT={} is below the {least} that the bar asks for",
                self.runs
            )));
        }
        Ok(self.runs as f64)
    }
}

/// Runs a campaign; its progress goes to standard error of this process. `more` completes the command line.
pub(super) fn campaign(
    context: &Context,
    name: &str,
    option: &str,
    count: u64,
    more: &[&OsStr],
) -> Result<CampaignReport> {
    last_line(context, name, option, count, more)
}

/// Runs a campaign and parses its last line as a `T`.
pub(super) fn last_line<T: DeserializeOwned>(
    context: &Context,
    name: &str,
    option: &str,
    count: u64,
    more: &[&OsStr],
) -> Result<T> {
    let remedy =
        "standfast-campaign is not built beside this program: run `cargo build --release --workspace`";
    let mut command = Command::new(need(&context.programs.campaign, remedy)?);
    command.args([name, option, &count.to_string(), "--json"]).args(more);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut process = Process::start(command, None, libc::SIGTERM)?;
    let mut text = String::new();
    if let Some(mut output) = process.child().stdout.take() {
        output.read_to_string(&mut text).during(|| format!("read the output of campaign {name}"))?;
    }
    interrupt::check()?;
    process.wait(Duration::from_secs(10));
    // A campaign with findings exits with a failure code and still writes a report.
    report(&text).ok_or_else(|| BenchError::Unreadable {
        what: format!("the last line of `standfast-campaign {name} --json`"),
        detail: text.lines().last().unwrap_or("it wrote nothing").to_owned(),
    })
}

fn report<T: DeserializeOwned>(output: &str) -> Option<T> {
    let line = output.lines().rev().find(|line| !line.trim().is_empty())?;
    serde_json::from_str(line).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_line_of_campaign_output_is_its_report_with_details() {
        let kill: CampaignReport =
            report("starting\n{\"cycles\": 200, \"lost\": 0, \"integrity_failures\": 0, \"page_differences\": 0, \"seed\": 613}\n\n").unwrap();
        assert_eq!((kill.runs, kill.lost, kill.damaged()), (200, 0, 0));
        assert_eq!(kill.details["seed"], 613);
        assert_eq!(
            report::<CampaignReport>(
                "{\"seeds\":5,\"lost\":1,\"integrity_failures\":2,\"page_differences\":1}"
            )
            .unwrap()
            .damaged(),
            3
        );
        assert_eq!(report::<CampaignReport>("killed\n"), None);
        assert_eq!(
            report::<CampaignReport>("{\"cycles\": 5, \"lost\": 0}"),
            None,
            "a report that checked less is no report"
        );
    }

    #[test]
    fn too_few_cycles_are_skipped_unless_they_found_a_loss() {
        let of = |runs, lost| CampaignReport {
            runs,
            lost,
            integrity_failures: 0,
            page_differences: 0,
            differing: 0,
            details: BTreeMap::new(),
        };
        assert!(matches!(of(10, 0).enough(200), Err(Missing::Skipped(_))));
        assert_eq!(of(200, 0).enough(200), Ok(200.0));
        assert_eq!(of(10, 1).enough(200), Ok(10.0));
    }
}
