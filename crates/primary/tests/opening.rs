//! What an opening of a primary does with redo and databases after a stop of any kind, on a simulated machine.

#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

use standfast_io::Disk;
use standfast_primary::commit::primary::NoShipping;
use standfast_simulation::databases::{create_database, open_plain};
use standfast_simulation::primary::PrimaryHost;
use standfast_simulation::rig::{commit, rows, small_primary};
use standfast_simulation::site::{Geometry, SegmentFile, paths};
use standfast_testkit::{CrashPlace, Loss, Rng, SimMachine};
use standfast_types::{DatabaseId, ReleasePosition, Scn};
use std::path::{Path, PathBuf};
use std::sync::Arc;

#[test]
fn recovery_releases_no_commit_that_waited_for_a_standby() {
    let (machine, geometry, segment, mut host) = small_primary();
    let id = DatabaseId(1);
    let application = open_plain(&machine, Path::new("/app/d1.db")).unwrap();
    application.execute_batch("INSERT INTO ledger VALUES(1, 1)").unwrap();
    let header = host.shared.database(id).unwrap().header().unwrap();
    let epoch = host.shared.segment.announce_generation(id.0, header.raw_salts());
    let commit = ReleasePosition::new(epoch, header.frames());
    let released = |host: &PrimaryHost| ReleasePosition(host.shared.segment.durable(id.0)) >= commit;
    host.drain().unwrap();
    assert!(!released(&host), "no destination has it");
    host.leave();
    let host = PrimaryHost::open(&machine, &geometry, &segment).unwrap();
    assert!(!released(&host), "the destinations are not known yet");
    host.shared.ship_through(Arc::new(NoShipping));
    assert!(released(&host), "there is none to wait for");
}

#[test]
fn log_switch_works_after_power_loss_at_any_point_of_a_switch() {
    let mut boundary = 0;
    loop {
        boundary += 1;
        let (machine, geometry, segment, mut host) = small_primary();
        host.switch_log().unwrap();
        machine.crash_at(boundary, CrashPlace::After);
        let switched = host.switch_log();
        drop(host);
        if switched.is_ok() && machine.is_powered() {
            break;
        }
        machine.power_loss(Loss::DropUnsynced, &mut Rng::new(1));
        segment.lose();
        let mut host = PrimaryHost::open(&machine, &geometry, &segment).unwrap();
        for _ in 0..3 {
            host.switch_log().unwrap_or_else(|error| panic!("boundary {boundary}: {error}"));
            host.checkpoint().unwrap();
        }
    }
    assert!(boundary > 2, "a switch passes more than {boundary} boundaries");
}

#[test]
fn wal_with_only_a_durable_header_needs_no_full_resync() {
    let (machine, geometry, segment, mut host) = small_primary();
    let path = Path::new("/app/d1.db");
    // Keeps the wal-index alive.
    let application = open_plain(&machine, path).unwrap();
    // An empty WAL was reset: after a restart of the instance, recovery begins in a WAL generation that is in no
    // file.
    host.checkpoint_everything().unwrap();
    host.leave();
    let mut host = PrimaryHost::open(&machine, &geometry, &segment).unwrap();
    host.shared.ship_through(Arc::new(NoShipping));
    for _ in 0..3 {
        commit(&machine, &host, DatabaseId(1));
    }
    host.drain().unwrap();
    machine.power_loss(Loss::DropUnsynced, &mut Rng::new(1));
    drop((host, application));
    segment.lose();
    let wal = machine.contents("/app/d1.db-wal").unwrap();
    assert_eq!(wal.len(), 32, "SQLite takes it for no log");
    let host = PrimaryHost::open(&machine, &geometry, &segment).unwrap();
    assert!(!host.alerts().contains("full image"), "{}", host.alerts());
    drop(host);
    assert_eq!(rows(&machine, path), 3);
}

#[test]
fn page_damaged_while_the_instance_did_not_run_is_not_shipped() {
    let (machine, geometry, segment, mut host) = small_primary();
    host.shared.ship_through(Arc::new(NoShipping));
    let path = Path::new("/app/d1.db");
    // Keeps the wal-index alive.
    let application = open_plain(&machine, path).unwrap();
    application.execute_batch("INSERT INTO data VALUES(1, 7, randomblob(40000))").unwrap();
    commit(&machine, &host, DatabaseId(1));
    host.drain().unwrap();
    host.checkpoint_everything().unwrap();
    // Recovery begins after the redo of the page that is damaged, and the WAL is one that the redo knows.
    commit(&machine, &host, DatabaseId(1));
    host.drain().unwrap();
    host.leave();
    let mut content = machine.contents(path).unwrap();
    let last = content.len() - 100;
    content[last] ^= 1;
    machine.install(path, &content);
    let mut host = PrimaryHost::open(&machine, &geometry, &segment).unwrap();
    host.shared.ship_through(Arc::new(NoShipping));
    host.drain().unwrap();
    assert_eq!(host.resynchronisations(), 0, "{}", host.alerts());
    assert!(host.alerts().contains("is not what the redo says"), "{}", host.alerts());
}

#[test]
fn full_resync_releases_no_commit_before_it_is_complete() {
    let (machine, _, _segment, mut host) = small_primary();
    host.shared.ship_through(Arc::new(NoShipping));
    let path = PathBuf::from("/app/d2.db");
    let page_size = create_database(&machine, &path, &mut Rng::new(6)).unwrap();
    // Two transactions in the WAL before the copy begins: capture starts after them, and they count as captured
    // only with the copy.
    open_plain(&machine, &path).unwrap().execute_batch("INSERT INTO ledger VALUES(1, 1)").unwrap();
    let application = open_plain(&machine, &path).unwrap();
    application.execute_batch("INSERT INTO ledger VALUES(1, 2)").unwrap();
    let id = host.protect("d2.db", path, page_size, true).unwrap();
    let header = host.shared.database(id).unwrap().header().unwrap();
    let commit = ReleasePosition::new(host.shared.segment.epoch(id.0).0, header.frames());
    let released = |host: &PrimaryHost| ReleasePosition(host.shared.segment.durable(id.0)) >= commit;
    assert!(header.frames() > 0);
    assert!(!released(&host), "the copy is not in the redo yet");
    host.drain().unwrap();
    assert!(released(&host));
}

/// Returns a primary after a power loss that has run without its first database, which lacks an acknowledged
/// commit. The second database has had commits since, so the redo of the first one is only in archived logs.
fn lived_on_without_the_first() -> (Arc<SimMachine>, Geometry, SegmentFile) {
    let (machine, geometry, segment, mut host) = small_primary();
    host.shared.ship_through(Arc::new(NoShipping));
    let path = PathBuf::from("/app/d2.db");
    let page_size = create_database(&machine, &path, &mut Rng::new(6)).unwrap();
    let second = host.protect("d2.db", path, page_size, false).unwrap();
    // Recovery begins where the database has a WAL.
    commit(&machine, &host, DatabaseId(1));
    host.drain().unwrap();
    host.switch_log().unwrap();
    host.checkpoint().unwrap();
    let before = rows(&machine, Path::new(FIRST));
    let acknowledged = commit(&machine, &host, DatabaseId(1));
    host.drain().unwrap();
    assert!(ReleasePosition(host.shared.segment.durable(1)) >= acknowledged);
    host.leave();
    machine.power_loss(Loss::DropUnsynced, &mut Rng::new(1));
    segment.lose();
    assert_eq!(rows(&machine.copy(1), Path::new(FIRST)), before, "its log has lost the commit");
    machine.disk().rename(Path::new(FIRST), Path::new(AWAY)).unwrap();
    for start in 0..2 {
        let environment = geometry.environment(&machine, &segment).unwrap();
        let mut host = PrimaryHost::open_without(&machine, environment, 1).unwrap();
        host.shared.ship_through(Arc::new(NoShipping));
        host.keep_archives_from(Scn(u64::MAX));
        for _ in 0..4 {
            commit(&machine, &host, second);
            host.drain().unwrap();
            host.switch_log().unwrap();
            host.checkpoint().unwrap();
            host.archive().unwrap();
        }
        let control = host.environment.control();
        let from = control.offline_from(DatabaseId(1)).unwrap();
        assert!(control.checkpoint > from, "start {start}: recovery of the others has moved on");
        assert!(host.source.redo_log().archived()[0].header.first_scn <= from, "start {start}");
        host.leave();
    }
    machine.disk().rename(Path::new(AWAY), Path::new(FIRST)).unwrap();
    (machine, geometry, segment)
}

const FIRST: &str = "/app/d1.db";
const AWAY: &str = "/app/d1.away";

#[test]
fn database_absent_at_start_catches_up_from_archived_logs() {
    let (machine, geometry, segment) = lived_on_without_the_first();
    let host = PrimaryHost::open(&machine, &geometry, &segment).unwrap();
    assert_eq!(rows(&machine, Path::new(FIRST)), 2);
    assert_eq!(host.environment.control().offline, []);
    assert_eq!(host.resynchronisations(), 0);
    host.keep_archives_from(Scn(u64::MAX));
    host.archive().unwrap();
    assert_eq!(host.source.redo_log().archived(), [], "no destination needs them any more");
}

#[test]
fn database_whose_redo_is_gone_is_refused_and_not_resynced() {
    let (machine, geometry, segment) = lived_on_without_the_first();
    for archived in machine.disk().list(&paths().archive).unwrap() {
        machine.disk().remove(&archived).unwrap();
    }
    let environment = geometry.environment(&machine, &segment).unwrap();
    let mut host = PrimaryHost::open_without(&machine, environment, 1).unwrap();
    for words in ["needs the redo from SCN", "put the archived logs", "standfast database resolve d1.db"] {
        assert!(host.alerts().contains(words), "no `{words}` in {}", host.alerts());
    }
    assert_eq!(host.resynchronisations(), 0);
    host.drain().unwrap();
    assert_eq!(rows(&machine, Path::new(FIRST)), 1, "nothing was applied");
    assert!(host.environment.control().offline_from(DatabaseId(1)).is_some());
}

#[test]
fn database_that_returns_with_other_content_is_refused() {
    let (machine, geometry, segment) = lived_on_without_the_first();
    let file = open_plain(&machine, Path::new(FIRST)).unwrap();
    file.execute_batch("PRAGMA wal_checkpoint(TRUNCATE); DELETE FROM data; INSERT INTO ledger VALUES(9, 9)")
        .unwrap();
    drop(file);
    let environment = geometry.environment(&machine, &segment).unwrap();
    let host = PrimaryHost::open_without(&machine, environment, 1).unwrap();
    for words in ["does not stand where the redo says", "fail over", "standfast database resolve d1.db"] {
        assert!(host.alerts().contains(words), "no `{words}` in {}", host.alerts());
    }
}
