//! A short isolation campaign, and a control that shows that it finds an effect. `make figures GROUP=promise` runs a
//! long one.

// Helpers of tests are tests: a panic is how they fail.
#![allow(clippy::unwrap_used)]

use standfast_campaign::isolation::{Fault, IsolationConfig, IsolationReport, run};
use standfast_campaign::programs::Programs;
use standfast_campaign::site::Site;
use std::path::Path;
use std::time::Duration;

fn campaign(name: &str, faults: &[Fault], states_only: bool) -> IsolationReport {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let programs = Programs::find(None).unwrap_or_else(|error| panic!("{error}"));
    run(&IsolationConfig {
        site: Site::new(programs, directory, true).unwrap(),
        databases: 4,
        faults: faults.to_vec(),
        phase: Duration::from_millis(500),
        rounds: 1,
        states_only,
    })
}

/// Commits per second are only judged on a machine without other work; states and contents always.
#[test]
fn fault_in_one_database_leaves_the_others_open_and_intact() {
    let faults =
        [Fault::TruncatedIndex, Fault::SpillError, Fault::StuckApplication, Fault::ProtectBackfilled];
    let report = campaign("isolation", &faults, true);
    assert!(report.passed(), "{report}");
    assert!(report.faults.iter().all(|fault| fault.acts > 0), "{report}");
}

#[test]
fn a_fault_that_stops_the_others_fails_the_campaign() {
    let report = campaign("isolation-control", &[Fault::FrozenPrimary], false);
    assert!(report.ending.error.is_none(), "{report}");
    assert!(!report.passed() && report.worst_ratio().unwrap() < 0.5, "{report}");
    std::fs::remove_dir_all(report.ending.kept.unwrap()).unwrap();
}
