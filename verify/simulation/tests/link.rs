//! The link between two simulated machines: the machines of sender and receiver over a pipe in memory.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use standfast_environment::config::settings::{DestinationConfig, OnTimeout};
use standfast_simulation::link::{Destination, Link, Skew};
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
    let config = DestinationConfig {
        on_timeout: Some(OnTimeout::Stall),
        net_timeout_ms: 1000,
        ..DestinationConfig::new("standfast", "simulated:1")
    };
    let destination = Destination { config, standby: standby.clone(), skew: Skew::NONE, rng: Rng::new(seed) };
    let link = Link::new(&host.source, &host.shared, vec![destination], None);
    host.shared.ship_through(link.clone());
    link.connect(0);
    let received = || standby.lock().unwrap().as_ref().unwrap().log().received_end();
    let (id, before) = (host.shared.all_databases()[0].id(), host.shared.released());
    let mut states = Vec::new();
    for step in 0..30 {
        match step {
            10 | 20 => link.disconnect(0),
            13 | 25 => link.connect(0),
            _ => {}
        }
        commit(&machine, &host, id);
        host.drain().unwrap();
        link.deliver(0).unwrap();
        assert!(link.acknowledged(0) <= received(), "acknowledged redo is held");
        let released = host.shared.released();
        assert!(released <= before.max(link.acknowledged(0)), "commits wait: {before} {released} {states:?}");
        states.push(format!("{released} {} {}", link.acknowledged(0), received()));
    }
    while link.deliver(0).unwrap() {}
    assert_eq!((received(), host.shared.released()), (host.shared.buffer.captured(), received()));
    assert!(link.was_required(0));
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
