//! What a checkpoint does to the disk at each pace, counted in syncs.

#![allow(clippy::unwrap_used)]

use rusqlite::{Connection, ErrorCode, OpenFlags};
use standfast_sqlite_wal::guard::{Guard, register_guard_vfs};
use standfast_sqlite_wal::pace::{PORTION_PAGES, Pace, STEADY_PORTION_PAGES};
use standfast_testkit::SimMachine;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// A guarded database on a machine of its own.
struct Rig {
    machine: Arc<SimMachine>,
    connection: Connection,
}

impl Rig {
    fn new() -> Rig {
        let machine = SimMachine::new(1);
        let vfs = register_guard_vfs(Some(machine.vfs_name())).unwrap();
        let connection =
            Connection::open_with_flags_and_vfs("/app.db", OpenFlags::default(), vfs.as_str()).unwrap();
        connection
            .execute_batch(
                "PRAGMA page_size=512; PRAGMA journal_mode=OFF; PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0; CREATE TABLE t(x)",
            )
            .unwrap();
        Rig { machine, connection }
    }

    /// Writes every page. Returns the number of complete portions, which is smaller if a portion has one page more.
    fn fill(&self) -> u64 {
        self.connection
            .execute_batch("BEGIN; DELETE FROM t; INSERT INTO t VALUES(randomblob(228000)); COMMIT")
            .unwrap();
        let pages: u32 = self.connection.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        let portions = pages / PORTION_PAGES;
        assert!(portions > 6 && portions > pages / (PORTION_PAGES + 1), "{pages} pages");
        portions.into()
    }

    /// Syncs of a checkpoint that backfills everything.
    fn syncs(&self) -> u64 {
        let before = self.machine.boundaries();
        let counts = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let (busy, frames, backfilled): (i64, i64, i64) =
            self.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], counts).unwrap();
        assert!(busy == 0 && frames > 0 && backfilled == frames, "{busy} {frames} {backfilled}");
        self.machine.boundaries() - before
    }

    /// Returns how many syncs [`Guard::sync_backfilled`] makes.
    fn syncs_of_the_rest(&self) -> u64 {
        let before = self.machine.boundaries();
        Guard::of(&self.connection).unwrap().sync_backfilled().unwrap();
        self.machine.boundaries() - before
    }

    fn syncs_at(&self, pace: &Pace) -> u64 {
        Guard::of(&self.connection).unwrap().at_pace(pace, || self.syncs())
    }
}

fn throttled_until(hurry: &Arc<AtomicBool>) -> Pace {
    Pace::ThrottledUntil(hurry.clone())
}

/// The sync of the WAL before, and that of the database after.
const ALWAYS: u64 = 2;

#[test]
fn throttled_checkpoint_syncs_each_portion_separately() {
    let (rig, hurry) = (Rig::new(), Arc::default());
    let portions = rig.fill();
    assert_eq!(rig.syncs_at(&throttled_until(&hurry)), ALWAYS + portions);
}

#[test]
fn immediate_checkpoint_syncs_no_more_than_sqlite_does() {
    let hurry = Arc::new(AtomicBool::new(true));
    for pace in [Pace::AtOnce, Pace::PacedUntil(hurry.clone()), throttled_until(&hurry)] {
        let rig = Rig::new();
        rig.fill();
        assert_eq!(rig.syncs_at(&pace), ALWAYS, "{pace:?}");
    }
}

#[test]
fn throttled_checkpoint_hurries_as_soon_as_requested() {
    for portion in [1, 3] {
        let (rig, hurry) = (Rig::new(), Arc::<AtomicBool>::default());
        rig.fill();
        let reported = hurry.clone();
        rig.machine.at_boundary(1 + portion, move || reported.store(true, SeqCst));
        assert_eq!(
            rig.syncs_at(&throttled_until(&hurry)),
            ALWAYS + portion,
            "hurried during portion {portion}"
        );
    }
}

#[test]
fn paced_checkpoint_syncs_larger_portions_separately() {
    let rig = Rig::new();
    let portions = rig.fill() * u64::from(PORTION_PAGES) / u64::from(STEADY_PORTION_PAGES);
    assert!(portions > 0);
    assert_eq!(rig.syncs_at(&Pace::PacedUntil(Arc::default())), ALWAYS + portions);
}

/// SQLite syncs the database when all frames are in it. While others write that never happens, and a thousand pages
/// were left to the sync behind the checkpoint gate.
#[test]
fn backfilled_pages_are_synced_once_on_request() {
    let rig = Rig::new();
    rig.fill();
    assert_eq!(rig.syncs_of_the_rest(), 0, "nothing was backfilled");
    let reader =
        Connection::open_with_flags_and_vfs("/app.db", OpenFlags::default(), rig.machine.vfs_name()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
    rig.connection.execute_batch("INSERT INTO t VALUES(1)").unwrap();
    let before = rig.machine.boundaries();
    rig.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
    assert_eq!(rig.machine.boundaries() - before, 1, "of the WAL, and not of the database");
    assert_eq!([rig.syncs_of_the_rest(), rig.syncs_of_the_rest()], [1, 0]);
    reader.execute_batch("COMMIT").unwrap();
    assert_eq!(rig.syncs(), ALWAYS);
    assert_eq!(rig.syncs_of_the_rest(), 0, "SQLite has synced it");
}

#[test]
fn failed_sync_of_backfilled_pages_is_reported_and_due_again() {
    let rig = Rig::new();
    rig.fill();
    let reader =
        Connection::open_with_flags_and_vfs("/app.db", OpenFlags::default(), rig.machine.vfs_name()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
    rig.connection.execute_batch("INSERT INTO t VALUES(1)").unwrap();
    rig.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(())).unwrap();
    rig.machine.fail_at(1);
    let failed = Guard::of(&rig.connection).unwrap().sync_backfilled().unwrap_err();
    assert_eq!(
        failed.sqlite_error().map(|error| error.extended_code),
        Some(rusqlite::ffi::SQLITE_IOERR_FSYNC)
    );
    assert_eq!(rig.syncs_of_the_rest(), 1);
}

#[test]
fn each_checkpoint_has_its_own_pace() {
    let (rig, hurry) = (Rig::new(), Arc::default());
    for _ in 0..2 {
        let portions = rig.fill();
        assert_eq!(rig.syncs_at(&throttled_until(&hurry)), ALWAYS + portions, "portions begin again");
        rig.fill();
        assert_eq!(rig.syncs(), ALWAYS, "one of which nothing was reported");
    }
}

#[test]
fn checkpoint_with_a_failed_sync_counts_nothing_as_backfilled() {
    let (rig, hurry) = (Rig::new(), Arc::default());
    rig.fill();
    rig.machine.fail_at(3);
    let guard = Guard::of(&rig.connection).unwrap();
    let checkpoint = || rig.connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
    let failed = guard.at_pace(&throttled_until(&hurry), checkpoint).unwrap_err();
    assert_eq!(failed.sqlite_error_code(), Some(ErrorCode::SystemIoFailure), "{failed}");
    assert_eq!(guard.wal_index().unwrap().backfilled(), 0);
    assert_eq!(rig.syncs(), ALWAYS, "the next one backfills everything");
}
