//! SQLite itself as the subject: its guarantees must hold on the simulated machine, and what it does not guarantee must
//! break there, or the simulator proves nothing.

mod common;

use common::{Known, Rows, Setup, check, recover, run_history};
use standfast_testkit::{CrashPlace, Loss, Rng, SimMachine, SimOptions, crash_replay_line, seeds};
use std::sync::Arc;

const FULL: Setup = Setup { journal: "WAL", synchronous: "FULL" };
const OFF: Setup = Setup { journal: "WAL", synchronous: "OFF" };
/// In DELETE mode only EXTRA syncs the directory after the deletion of the journal, which is the commit.
const ROLLBACK: Setup = Setup { journal: "DELETE", synchronous: "EXTRA" };

fn try_every_boundary(setup: Setup, seed: u64, transactions: u32) {
    let rehearsal = SimMachine::new(seed);
    let known = run_history(&rehearsal, setup, seed, transactions, Rows::new());
    assert!(known.attempted.is_none() && known.acknowledged.len() > 3);
    assert_eq!(recover(&rehearsal).as_ref(), Ok(&known.acknowledged));
    let boundaries = rehearsal.boundaries();
    assert!(boundaries > 20, "only {boundaries} boundaries");

    for boundary in 1..=boundaries {
        for place in CrashPlace::ALL {
            let machine = SimMachine::new(seed);
            machine.crash_at(boundary, place);
            let known = run_history(&machine, setup, seed, transactions, Rows::new());
            for loss in [Loss::DropUnsynced, Loss::KeepUnsynced, Loss::Random, Loss::Random] {
                let copy = machine.copy(boundary);
                copy.power_loss(loss, &mut Rng::new(seed ^ boundary << 8 ^ place as u64));
                if let Err(what) = check(&copy, &known) {
                    panic!("seed {seed}, boundary {boundary} {place:?}, {loss:?}: {what}");
                }
            }
        }
    }
}

#[test]
fn full_commits_survive_a_crash_at_every_boundary() {
    (0..3).for_each(|seed| try_every_boundary(FULL, seed, 12));
}

#[test]
fn rollback_journal_commits_survive_a_crash_at_every_boundary() {
    (0..2).for_each(|seed| try_every_boundary(ROLLBACK, seed, 8));
}

#[test]
fn full_commits_survive_every_prefix_of_unsynced_changes() {
    let seed = 5;
    for boundary in (1..40).step_by(3) {
        let machine = SimMachine::new(seed);
        machine.crash_at(boundary, CrashPlace::Before);
        let known = run_history(&machine, FULL, seed, 12, Rows::new());
        for prefix in 0..=machine.unsynced_changes() {
            let copy = machine.copy(0);
            copy.power_loss(Loss::Prefix(prefix), &mut Rng::new(0));
            if let Err(what) = check(&copy, &known) {
                panic!("boundary {boundary}, prefix {prefix}: {what}");
            }
        }
    }
}

/// Crashes several times at random places; each history continues from the recovered state.
fn crash_repeatedly(machine: &Arc<SimMachine>, setup: Setup, seed: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let mut rows = Rows::new();
    for _ in 0..3 {
        let place = CrashPlace::ALL[rng.below(3) as usize];
        machine.crash_at(rng.between(1, 60), place);
        let known: Known = run_history(machine, setup, rng.next_u64(), 25, rows);
        machine.power_loss(Loss::Random, &mut rng);
        // Sometimes the power fails again during recovery.
        if rng.chance(30) {
            machine.crash_at(rng.between(1, 4), place);
            let _ = recover(machine);
            machine.power_loss(Loss::Random, &mut rng);
        }
        rows = check(machine, &known)?;
    }
    Ok(())
}

#[test]
fn full_commits_survive_random_crashes() {
    for seed in seeds(150) {
        let powersafe_overwrite = seed % 4 != 0;
        let sector_size = if seed % 3 == 0 { 512 } else { 4096 };
        let options = SimOptions { powersafe_overwrite, sector_size, ..SimOptions::default() };
        let machine = SimMachine::with_options(seed, options);
        if let Err(what) = crash_repeatedly(&machine, FULL, seed) {
            panic!("seed {seed}: {what}; {}", crash_replay_line(seed));
        }
        assert_eq!(machine.open_files(), 0, "seed {seed}: every file was closed");
    }
}

#[test]
fn rollback_journal_commits_survive_random_crashes() {
    for seed in seeds(60) {
        if let Err(what) = crash_repeatedly(&SimMachine::new(seed), ROLLBACK, seed) {
            panic!("seed {seed}: {what}; {}", crash_replay_line(seed));
        }
    }
}

#[test]
fn without_syncs_a_crash_loses_acknowledged_commits() {
    let lost = (0..20).filter(|seed| crash_repeatedly(&SimMachine::new(*seed), OFF, *seed).is_err()).count();
    assert!(lost > 0, "a simulator that loses nothing proves nothing");
}

#[test]
fn a_disk_that_lies_about_syncs_loses_acknowledged_commits() {
    let lost = (0..20).filter(|seed| {
        let machine = SimMachine::new(*seed);
        machine.set_lying(true);
        crash_repeatedly(&machine, FULL, *seed).is_err()
    });
    assert!(lost.count() > 0, "a simulator that trusts lies proves nothing");
}
