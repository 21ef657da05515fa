//! Runs the same seed twice and compares the bytes. Runs alone in its process, because all connections of a process
//! share SQLite's generator.

mod common;

use common::{Rows, Setup, check, run_history};
use standfast_testkit::{CrashPlace, Loss, Rng, SimMachine, SqliteSeed};

fn fingerprints(seed: u64) -> Vec<u64> {
    let _sqlite = SqliteSeed::hold(seed as u32);
    let machine = SimMachine::new(seed);
    let mut rng = Rng::new(seed);
    let setup = Setup { journal: "WAL", synchronous: "FULL" };
    let mut rows = Rows::new();
    let mut fingerprints = Vec::new();
    for _ in 0..3 {
        machine.crash_at(rng.between(10, 60), CrashPlace::During);
        let known = run_history(&machine, setup, rng.next_u64(), 25, rows);
        fingerprints.push(machine.fingerprint());
        machine.power_loss(Loss::Random, &mut rng);
        fingerprints.push(machine.fingerprint());
        rows = check(&machine, &known).expect("nothing lost");
        fingerprints.push(machine.fingerprint());
    }
    fingerprints
}

#[test]
fn the_same_seed_leaves_the_same_bytes_and_another_seed_others() {
    for seed in 1..20 {
        assert_eq!(fingerprints(seed), fingerprints(seed), "seed {seed}");
    }
    assert_ne!(fingerprints(2), fingerprints(3));
}
