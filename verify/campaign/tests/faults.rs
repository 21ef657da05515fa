//! A few faults in some modes, and a control that shows that the campaign finds a loss. `make campaign-faults` runs all
//! of them.

// Helpers of tests are tests: a panic is how they fail.
#![allow(clippy::unwrap_used)]

use standfast_campaign::faults::{FaultsConfig, FaultsReport, run};
use standfast_campaign::programs::Programs;
use standfast_campaign::site::Site;
use std::path::Path;

fn campaign(name: &str, only: &str, scene: u64, demand_all: bool) -> FaultsReport {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let programs = Programs::find(None).unwrap_or_else(|error| panic!("{error}"));
    run(&FaultsConfig {
        site: Site::new(programs, directory, true).unwrap(),
        count: 4,
        seed: 11,
        only: Some(only.into()),
        scene: Some(scene),
        demand_all,
    })
}

#[test]
fn killed_frozen_and_disconnected_standby_takes_over_losslessly() {
    let report = campaign("faults", "fastsync-stall", 0, false);
    assert!(report.passed(), "{report}");
    assert_eq!(report.cells.iter().map(|cell| cell.runs).sum::<u64>(), 3, "{report}");
    assert_eq!(report.cells.iter().map(|cell| cell.failovers).sum::<u64>(), 1, "{report}");
    assert!(report.acknowledged > 0);
}

#[test]
fn sync_standby_takes_over_when_frames_to_the_other_are_damaged() {
    let report = campaign("faults-two", "two-sync", 1, false);
    assert!(report.passed(), "{report}");
}

#[test]
fn campaign_that_expects_no_loss_of_async_finds_losses() {
    // The last fault of this scene is the held link (`Fault::Cut`).
    let report = campaign("faults-control", "async", 0, true);
    assert!(report.ending.error.is_none(), "{report}");
    assert!(report.cells.iter().any(|cell| cell.lost > 0) && !report.passed(), "{report}");
    std::fs::remove_dir_all(report.ending.kept.unwrap()).unwrap();
}
