//! When a primary releases commits and backfills them, on a simulated machine that loses power at any sync boundary.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use standfast_instruments::Cause;
use standfast_log::RedoChunk;
use standfast_primary::commit::primary::{NoShipping, PrimaryShared, Shipping};
use standfast_simulation::primary::PrimaryHost;
use standfast_simulation::rig::{commit, rows, small_primary, try_commit};
use standfast_testkit::{CrashPlace, Loss, Rng, SimMachine};
use standfast_types::{DatabaseId, ReleasePosition, Scn};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};

const DATABASE: &str = "/app/d1.db";
const COMMITS: u32 = 4;

fn is_released(host: &PrimaryHost, commit: ReleasePosition) -> bool {
    ReleasePosition(host.shared.segment.durable(1)) >= commit
}

/// Commits, switches logs, checkpoints and archives until something fails; returns how many commits were made and how
/// many of them were acknowledged.
fn work(machine: &Arc<SimMachine>, host: &mut PrimaryHost) -> (u32, u32) {
    let (mut committed, mut acknowledged) = (0, 0);
    for round in 0..COMMITS {
        committed += 1;
        // The outcome of a commit that fails is unknown.
        let Ok(position) = try_commit(machine, host, DatabaseId(1)) else { break };
        let written = host.drain();
        acknowledged += u32::from(is_released(host, position));
        let cared_for = match round % 3 {
            0 => host.switch_log(),
            1 => host.checkpoint_everything(),
            _ => host.archive(),
        };
        if written.and(cared_for).is_err() || !machine.is_powered() {
            break;
        }
    }
    (committed, acknowledged)
}

#[test]
fn acknowledged_commits_survive_power_loss_at_every_boundary() {
    for place in CrashPlace::ALL {
        for loss in [Loss::DropUnsynced, Loss::Random] {
            let mut boundary = 0;
            loop {
                boundary += 1;
                let at = format!("boundary {boundary}, {place:?}, {loss:?}");
                let (machine, geometry, segment, mut host) = small_primary();
                host.shared.ship_through(Arc::new(NoShipping));
                machine.crash_at(boundary, place);
                let (committed, acknowledged) = work(&machine, &mut host);
                let is_finished = machine.is_powered();
                host.leave();
                machine.power_loss(loss, &mut Rng::new(boundary));
                segment.lose();
                let host = PrimaryHost::open(&machine, &geometry, &segment)
                    .unwrap_or_else(|error| panic!("{at}: {error}"));
                let found = rows(&machine, Path::new(DATABASE));
                assert!((acknowledged..=committed).contains(&found), "{at}: {found} of {acknowledged}");
                drop(host);
                if is_finished {
                    assert_eq!(acknowledged, COMMITS, "{at}");
                    break;
                }
            }
            assert!(boundary > 10, "the work passes more than {boundary} boundaries");
        }
    }
}

/// A destination that has redo up to a limit.
struct Destination(AtomicU64);

impl Shipping for Destination {
    fn offer(&self, _: &Arc<RedoChunk>, _: Scn) {}

    fn releasable(&self, local: Scn) -> Scn {
        local.min(Scn(self.0.load(SeqCst)))
    }
}

#[test]
fn commit_waits_for_a_required_destination_and_for_no_more() {
    let (machine, _geometry, _segment, mut host) = small_primary();
    let destination = Arc::new(Destination(AtomicU64::new(host.shared.buffer.captured().0)));
    host.shared.ship_through(destination.clone());
    let mut ends = Vec::new();
    for _ in 0..2 {
        let position = commit(&machine, &host, DatabaseId(1));
        host.drain().unwrap();
        ends.push((position, host.source.redo_log().checkpoint().max(host.shared.buffer.durable())));
    }
    assert!(!is_released(&host, ends[0].0), "the destination has none of it");
    destination.0.store(ends[0].1.0, SeqCst);
    host.shared.release(Cause::Decision);
    assert!(is_released(&host, ends[0].0) && !is_released(&host, ends[1].0));
    destination.0.store(ends[1].1.0, SeqCst);
    host.shared.release(Cause::Decision);
    assert!(is_released(&host, ends[1].0));
}

/// A destination that acknowledges redo before it is written here, as a fast link does beside a slow disk.
#[derive(Default)]
struct FasterThanTheDisk {
    shared: OnceLock<Weak<PrimaryShared>>,
    asked: AtomicU64,
    released_early: AtomicBool,
}

impl Shipping for FasterThanTheDisk {
    fn offer(&self, chunk: &Arc<RedoChunk>, _: Scn) {
        let Some(shared) = self.shared.get().and_then(Weak::upgrade) else { return };
        shared.release(Cause::Decision);
        self.asked.fetch_add(u64::from(chunk.end() > shared.buffer.durable()), SeqCst);
        self.released_early.fetch_or(shared.released() > shared.buffer.durable(), SeqCst);
    }

    fn releasable(&self, local: Scn) -> Scn {
        local
    }
}

#[test]
fn acknowledgement_before_the_local_write_releases_nothing() {
    let (machine, _geometry, _segment, mut host) = small_primary();
    let destination = Arc::new(FasterThanTheDisk::default());
    destination.shared.set(Arc::downgrade(&host.shared)).unwrap();
    host.shared.ship_through(destination.clone());
    for _ in 0..3 {
        let position = commit(&machine, &host, DatabaseId(1));
        host.drain().unwrap();
        assert!(is_released(&host, position));
    }
    assert!(destination.asked.load(SeqCst) >= 3, "it has acknowledged what is not written here");
    assert!(!destination.released_early.load(SeqCst));
}

#[test]
fn checkpoint_backfills_no_frame_that_is_not_in_the_redo() {
    let (machine, _geometry, _segment, mut host) = small_primary();
    host.shared.ship_through(Arc::new(NoShipping));
    let path = Path::new(DATABASE);
    host.drain().unwrap();
    let before = machine.contents(path).unwrap();
    // Committed by the application, not captured.
    commit(&machine, &host, DatabaseId(1));
    host.checkpoint().unwrap();
    let database = host.shared.database(DatabaseId(1)).unwrap();
    let connection = database.connection();
    let _ = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    drop(connection);
    assert_eq!(machine.contents(path).unwrap(), before);
    assert_eq!(database.backfilled(), 0);
    host.drain().unwrap();
    host.checkpoint_everything().unwrap();
    assert_ne!(machine.contents(path).unwrap(), before);
}
