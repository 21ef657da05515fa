//! A throttled checkpoint runs at full speed when its instance stops, so that a stop or a failover does not wait
//! for it, and early writeback of new WAL frames continues meanwhile.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use standfast_apply::Limits;
use standfast_environment::config::settings::CheckpointConfig;
use standfast_primary::commit::primary::NoShipping;
use standfast_primary::open::primary_threads::{PrimaryThreads, Wiring};
use standfast_session::DatabaseState;
use standfast_simulation::databases::open_plain;
use standfast_simulation::primary::PrimaryHost;
use standfast_simulation::rig::{next_redo, small_primary};
use standfast_simulation::site::SegmentFile;
use standfast_simulation::standby;
use standfast_sqlite_wal::pace::STEADY_PORTION_PAGES;
use standfast_standby::applier::Applier;
use standfast_standby::received_log::ReceivedLog;
use standfast_testkit::{SimMachine, wait_until};
use standfast_transport::{RedoSource, StandbyLog};
use standfast_types::Scn;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Minimum number of portions, of 64 pages each.
const PORTIONS: u64 = 130;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Writes one transaction of many pages: enough for a checkpoint, too few to make one urgent.
fn write_many_pages(machine: &Arc<SimMachine>, host: &mut PrimaryHost) {
    write_pages(machine, host, PORTIONS * 64);
}

/// Writes one transaction of at least `pages` pages.
fn write_pages(machine: &Arc<SimMachine>, host: &mut PrimaryHost, pages: u64) {
    let application = open_plain(machine, Path::new("/app/d1.db")).unwrap();
    application
        .execute_batch(&format!(
            "INSERT INTO data SELECT 1, 1, zeroblob({pages} * page_size) FROM pragma_page_size"
        ))
        .unwrap();
    host.drain().unwrap();
}

#[test]
fn primary_stop_ends_throttling_of_the_checkpoint_in_flight() {
    let (machine, _geometry, _segment, mut host) = small_primary();
    host.shared.ship_through(Arc::new(NoShipping));
    write_many_pages(&machine, &mut host);
    let PrimaryHost { primary, environment, shared, source, .. } = host;

    // All redo is written, so the coming sync boundaries are those of the checkpoint.
    let (arrive, arrived) = channel();
    let (resume, may_resume) = channel();
    machine.at_boundary(5, move || {
        arrive.send(()).unwrap();
        may_resume.recv().unwrap();
    });
    let log = source.redo_log().clone();
    let threads =
        PrimaryThreads::start(&environment, Wiring::default(), primary, log, Box::new(|| Scn(u64::MAX)))
            .unwrap();
    arrived.recv_timeout(TIMEOUT).expect("a checkpoint syncs its portions");
    let stopping = std::thread::spawn(move || threads.stop(true));
    wait_until("the stop has begun", TIMEOUT, || shared.segment.state(1) == DatabaseState::Stopped);
    let before = machine.boundaries();
    resume.send(()).unwrap();
    stopping.join().unwrap().unwrap();
    let syncs = machine.boundaries() - before;
    assert!(syncs < PORTIONS / 2, "{syncs} sync boundaries after the stop had begun");
}

/// Otherwise the sync under the checkpoint gate would write all of it, while commits wait.
#[test]
fn checkpoint_of_a_long_wal_syncs_in_portions() {
    let (machine, _geometry, _segment, mut host) = small_primary();
    host.shared.ship_through(Arc::new(NoShipping));
    let pages = u64::from(CheckpointConfig::default().reset_frames) / 2;
    write_pages(&machine, &mut host, pages);
    let PrimaryHost { primary, environment, source, .. } = host;
    let before = machine.boundaries();
    let log = source.redo_log().clone();
    let threads =
        PrimaryThreads::start(&environment, Wiring::default(), primary, log, Box::new(|| Scn(u64::MAX)))
            .unwrap();
    let portions = pages / u64::from(STEADY_PORTION_PAGES);
    wait_until("portions are synced", TIMEOUT, || machine.boundaries() - before >= portions);
    threads.stop(true).unwrap();
}

#[test]
fn writeback_starts_for_frames_written_during_a_checkpoint() {
    let (machine, _geometry, _segment, mut host) = small_primary();
    host.shared.ship_through(Arc::new(NoShipping));
    write_many_pages(&machine, &mut host);
    let PrimaryHost { primary, environment, source, .. } = host;
    let (arrive, arrived) = channel();
    let (resume, may_resume) = channel::<()>();
    machine.at_boundary(5, move || {
        arrive.send(()).unwrap();
        let _ = may_resume.recv();
    });
    let log = source.redo_log().clone();
    let threads =
        PrimaryThreads::start(&environment, Wiring::default(), primary, log, Box::new(|| Scn(u64::MAX)))
            .unwrap();
    arrived.recv_timeout(TIMEOUT).expect("a checkpoint syncs its portions");
    let handed = || threads.checkpoint_counts().early_frames;
    let before = handed();
    let application = open_plain(&machine, Path::new("/app/d1.db")).unwrap();
    let pages = 100;
    application
        .execute_batch(&format!(
            "INSERT INTO data SELECT 2, 1, zeroblob({pages} * page_size) FROM pragma_page_size"
        ))
        .unwrap();
    wait_until("what came meanwhile is handed over", TIMEOUT, || handed() >= before + pages);
    drop(resume);
    threads.stop(true).unwrap();
}

/// Counts the sync boundaries of the step in which a standby applies and checkpoints many pages. It is ordered to stop
/// at the given boundary.
fn syncs_of_a_step(reported_at: Option<u64>) -> u64 {
    let (primary_machine, geometry, _segment, mut primary) = small_primary();
    primary.shared.ship_through(Arc::new(NoShipping));
    let (machine, segment) = (SimMachine::new(2), SegmentFile::unique());
    standby::create(&machine, &geometry, &primary, 2).unwrap();
    write_many_pages(&primary_machine, &mut primary);

    let environment = geometry.environment(&machine, &segment).unwrap();
    let mut received = ReceivedLog::open(&environment).unwrap();
    let shared = received.shared().clone();
    let mut applier = Applier::open(&environment, &shared, Limits::default()).unwrap();
    applier.recover().unwrap();
    let end = primary.source.durable();
    while received.received_end() < end {
        let redo = next_redo(&primary.source, received.received_end(), end, 1 << 20).unwrap();
        received.append(&[&redo], end).unwrap();
    }
    received.confirm(end).unwrap();

    if let Some(boundary) = reported_at {
        let shared = shared.clone();
        machine.at_boundary(boundary, move || shared.stop());
    }
    let before = machine.boundaries();
    assert!(applier.step().unwrap());
    assert_eq!(shared.applied(), end);
    assert!(shared.stopped().databases.is_empty());
    machine.boundaries() - before
}

#[test]
fn standby_stop_ends_throttling_of_the_checkpoint_in_flight() {
    let throttled = syncs_of_a_step(None);
    assert!(throttled > PORTIONS, "{throttled} sync boundaries");
    let reported_at = throttled / 2;
    let syncs = syncs_of_a_step(Some(reported_at));
    assert!(
        (reported_at..reported_at + 5).contains(&syncs),
        "{syncs} sync boundaries, asked to stop at {reported_at}"
    );
}
