//! The link between two simulated machines: the machines of sender and receiver over a pipe in memory.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use standfast_simulation::link::Link;
use standfast_simulation::rig::{commit, small_primary};
use standfast_simulation::site::SegmentFile;
use standfast_simulation::standby::{StandbyHost, create};
use standfast_testkit::{Rng, SimMachine, SqliteSeed};
use standfast_transport::StandbyLog;
use std::sync::{Arc, Mutex};

/// Commits while the network fails twice; returns the state after each step.
fn history(seed: u64) -> Vec<String> {
    let _sqlite = SqliteSeed::hold(9);
    let (machine, geometry, _segment, mut host) = small_primary();
    host.drain().unwrap();
    let there = SimMachine::new(seed);
    create(&there, &geometry, &host, 2).unwrap();
    let segment = SegmentFile::unique();
    let standby = Arc::new(Mutex::new(Some(StandbyHost::open(&there, &geometry, &segment).unwrap())));
    let link = Link::new(&host.source, &host.shared, &standby, true, Rng::new(seed));
    host.shared.ship_through(link.clone());
    link.connect();
    let received = || standby.lock().unwrap().as_ref().unwrap().log().received_end();
    let (id, before) = (host.shared.all_databases()[0].id(), host.shared.released());
    let mut states = Vec::new();
    for step in 0..30 {
        match step {
            10 | 20 => link.disconnect(),
            13 | 25 => link.connect(),
            _ => {}
        }
        commit(&machine, &host, id);
        host.drain().unwrap();
        link.deliver().unwrap();
        assert!(link.acknowledged() <= received(), "acknowledged redo is held");
        let released = host.shared.released();
        assert!(released <= before.max(link.acknowledged()), "commits wait: {before} {released} {states:?}");
        states.push(format!("{released} {} {}", link.acknowledged(), received()));
    }
    while link.deliver().unwrap() {}
    assert_eq!((received(), host.shared.released()), (host.shared.buffer.captured(), received()));
    assert!(link.is_required());
    host.leave();
    states
}

#[test]
fn one_seed_gives_the_same_run_and_every_run_ends_with_equal_logs() {
    let mut different = Vec::new();
    for seed in 0..12 {
        let states = history(seed);
        assert_eq!(states, history(seed), "seed {seed}");
        different.push(states);
    }
    different.dedup();
    assert!(different.len() > 6, "seeds that do the same");
}
