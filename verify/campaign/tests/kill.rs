//! A short kill campaign, and a control that shows that it finds a loss. `make figures GROUP=kill` runs a long one.

// Helpers of tests are tests: a panic is how they fail.
#![allow(clippy::unwrap_used)]

use standfast_campaign::kill::{KillConfig, KillReport, run};
use standfast_campaign::programs::Programs;
use standfast_campaign::scene::ScenePlan;
use standfast_campaign::site::Site;
use std::path::Path;

fn campaign(name: &str, cycles: u64, failover_every: u64, unprotected: bool) -> KillReport {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
    let programs = Programs::find(None).unwrap_or_else(|error| panic!("{error}"));
    run(&KillConfig {
        site: Site::new(programs, directory, true).unwrap(),
        cycles,
        seed: 20,
        plan: ScenePlan {
            processes: 2,
            threads: 3,
            late: false,
            fastsync: false,
            unprotected,
            refuse: false,
        },
        check_every: 5,
        failover_every,
    })
}

#[test]
fn no_acknowledged_commit_is_lost_whichever_process_is_killed() {
    let report = campaign("kill", 12, 10, false);
    assert!(report.passed(), "{report}");
    assert_eq!((report.cycles, report.failovers, report.checks), (12, 1, 2));
    assert!(report.acknowledged > 500, "{report}");
}

#[test]
fn campaign_without_synchronous_transport_finds_losses() {
    let report = campaign("kill-control", 5, 1, true);
    assert!(report.ending.error.is_none(), "{report}");
    assert!(report.findings.lost > 0, "{report}");
    std::fs::remove_dir_all(report.ending.kept.unwrap()).unwrap();
}
