//! The WALs of a standby, with the setting `checkpoint.rewrite_wals` on and off, on a simulated machine.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use standfast_apply::Limits;
use standfast_primary::commit::primary::NoShipping;
use standfast_simulation::databases::open_plain;
use standfast_simulation::rig::{next_redo, small_primary};
use standfast_simulation::site::{SegmentFile, paths};
use standfast_simulation::standby::create;
use standfast_standby::applier::Applier;
use standfast_standby::received_log::ReceivedLog;
use standfast_testkit::{Loss, Rng, SimMachine};
use standfast_transport::{RedoSource, StandbyLog};
use standfast_types::WalSalts;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

const CHANGES: u32 = 400;

/// Salts of the WAL file of the standby database.
fn salts(machine: &SimMachine) -> WalSalts {
    let wal = machine.contents(format!("{}-wal", paths().databases.join("d1.db").display())).unwrap();
    let word = |at: usize| u32::from_be_bytes(wal[at..at + 4].try_into().unwrap());
    if wal.is_empty() { WalSalts(0, 0) } else { WalSalts(word(16), word(20)) }
}

/// Applies many changes of one page; returns how many WALs were rewritten, and how many were not.
fn wals(rewrite_wals: bool) -> (usize, usize) {
    let (primary_machine, geometry, _segment, mut primary) = small_primary();
    primary.shared.ship_through(Arc::new(NoShipping));
    let (machine, segment) = (SimMachine::new(2), SegmentFile::unique());
    create(&machine, &geometry, &primary, 2).unwrap();
    let application = open_plain(&primary_machine, Path::new("/app/d1.db")).unwrap();
    application.execute_batch("INSERT INTO data VALUES(1, 0, zeroblob(100))").unwrap();

    let mut environment = geometry.environment(&machine, &segment).unwrap();
    Arc::get_mut(&mut environment).unwrap().config.checkpoint.rewrite_wals = rewrite_wals;
    let mut received = ReceivedLog::open(&environment).unwrap();
    let shared = received.shared().clone();
    let limits = Limits { checkpoint_frames: 40, reset_frames: 120, ..Limits::default() };
    let mut applier = Applier::open(&environment, &shared, limits).unwrap();
    applier.recover().unwrap();
    let mut found = BTreeMap::new();
    for _ in 0..CHANGES {
        application.execute_batch("UPDATE data SET tag = tag + 1 WHERE id = 1").unwrap();
        primary.drain().unwrap();
        let end = primary.source.durable();
        while received.received_end() < end {
            let redo = next_redo(&primary.source, received.received_end(), end, 1 << 20).unwrap();
            received.append(&[&redo], end).unwrap();
        }
        received.confirm(end).unwrap();
        while applier.step().unwrap() {}
        let salts = salts(&machine);
        found.insert((salts.0, salts.1), salts.is_of_rewritten_log());
    }
    applier.sync().unwrap();
    drop((applier, received));
    machine.power_loss(Loss::DropUnsynced, &mut Rng::new(1));
    segment.lose();
    let environment = geometry.environment(&machine, &segment).unwrap();
    let mut received = ReceivedLog::open(&environment).unwrap();
    let mut applier = Applier::open(&environment, &received.shared().clone(), limits).unwrap();
    applier.recover().unwrap();
    let end = received.received_end();
    received.confirm(end).unwrap();
    while applier.step().unwrap() {}
    drop(applier);
    let copy = open_plain(&machine, &paths().databases.join("d1.db")).unwrap();
    let changes: u32 = copy.query_row("SELECT tag FROM data", [], |row| row.get(0)).unwrap();
    assert_eq!(changes, CHANGES);
    let rewritten = found.values().filter(|rewritten| **rewritten).count();
    (rewritten, found.len() - rewritten)
}

#[test]
fn wal_is_reset_and_never_rewritten_with_the_setting_off() {
    let (rewritten, _) = wals(true);
    assert!(rewritten > 0);
    let (rewritten, others) = wals(false);
    assert!(rewritten == 0 && others > 1, "{rewritten}, {others}");
}
