//! A short power campaign, and controls that show that it finds a loss. `make campaign-power` runs a long one.

use standfast_campaign::power::{PowerReport, Sabotage, run_seed};

fn campaign(seeds: std::ops::Range<u64>, sabotage: Sabotage) -> PowerReport {
    let mut sum = PowerReport::default();
    seeds.for_each(|seed| sum.add(run_seed(seed, sabotage)));
    sum
}

#[test]
fn no_acknowledged_commit_is_lost_wherever_the_power_fails() {
    let report = campaign(1..13, Sabotage::Nothing);
    assert!(report.passed(), "{report}");
    assert!(report.crashes > 30 && report.acknowledged > 300, "{report}");
    assert!(
        report.lost_members > 1
            && report.damaged_members > 1
            && report.failed_members > 1
            && report.log_changes > 5,
        "{report}"
    );
}

#[test]
fn seed_gives_the_same_history_again() {
    for seed in [3, 10, 21] {
        assert_eq!(run_seed(seed, Sabotage::Nothing), run_seed(seed, Sabotage::Nothing), "seed {seed}");
    }
}

/// Histories that once found a defect.
#[test]
fn histories_that_once_failed_now_pass() {
    // What FASTSYNC had only in memory, a gap given up at the last moment, a log whose successor was gone, a confirmed
    // position whose group was filled again, a log whose beginning was replaced, an empty log before a gap.
    for seed in [261, 1000163, 1000761, 1001246, 1001401, 1001657, 1002334, 1003808, 1011201, 1012171] {
        let report = campaign(seed..seed + 1, Sabotage::Nothing);
        assert!(report.passed(), "{report}");
    }
    // A rewritten WAL that capture had not entered was taken for one that SQLite had reset.
    let report = campaign(5024..5025, Sabotage::Nothing);
    assert!(report.passed(), "{report}");
    // A database whose file held everything stayed excluded after a start without it: recovery began after its last
    // change.
    let report = campaign(20832..20833, Sabotage::Nothing);
    assert!(report.passed(), "{report}");
    // A standby that gave up a gap beyond which another incarnation began archived an empty log in place of a fetched one.
    let report = campaign(261..262, Sabotage::Nothing);
    assert!(report.passed(), "{report}");
}

#[test]
fn primary_disk_that_ignores_syncs_is_detected() {
    let report = campaign(1..33, Sabotage::PrimaryLies);
    assert!(report.lost > 0, "{report}");
}

#[test]
fn standby_disk_that_ignores_syncs_is_detected() {
    let report = campaign(1..13, Sabotage::StandbyLies);
    assert!(report.lost > 0, "{report}");
}
