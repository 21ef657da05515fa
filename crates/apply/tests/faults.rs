//! An error stops what it concerns, and nothing else.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use rusqlite::Connection;
use standfast_apply::{Apply, ApplyError, ApplyEvent, Condition, Pace, RedoInMemory, StartPoint};
use standfast_format::RecordBuilder;
use standfast_testkit::{Rng, TempDir};
use standfast_types::{Hint, IncarnationId, Scn, WalPosition, WalSalts};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

struct Pair {
    _here: TempDir,
    a: Primary,
    b: Primary,
    stream: Stream,
    standby: TempDir,
    apply: Apply,
}

fn pair() -> Pair {
    let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
    let mut stream = Stream::default();
    let mut a = Primary::new(here.path(), 1, "a.db", 1024);
    let mut b = Primary::new(here.path(), 2, "b.db", 1024);
    for primary in [&mut a, &mut b] {
        primary.run(&mut Stream::default(), &format!("{TABLE} {}", insert(100, 100)));
        primary.attach(&mut stream);
    }
    let mut apply = fresh(&standby, 0, small_limits());
    follow_well(&mut apply, &stream);
    Pair { _here: here, a, b, stream, standby, apply }
}

fn condition(apply: &Apply, primary: &Primary) -> Condition {
    apply.databases().into_iter().find(|status| status.database == primary.id).unwrap().condition
}

/// Changes the primary without capture, so that its redo no longer fits the standby.
fn lose_a_write(primary: &mut Primary) {
    primary.run(&mut Stream::default(), "UPDATE t SET body=randomblob(100) WHERE id<40");
}

#[test]
fn lost_write_stops_only_its_database_permanently() {
    let mut pair = pair();
    lose_a_write(&mut pair.a);
    pair.a.run(&mut pair.stream, "UPDATE t SET body=zeroblob(50) WHERE id=10");
    pair.b.run(&mut pair.stream, "UPDATE t SET body=zeroblob(50) WHERE id=10");
    let report = follow(&mut pair.apply, &pair.stream);
    let [(id, ApplyError::Diverged { name, page, scn, .. })] = &report.errors[..] else {
        panic!("{:?}", report.errors)
    };
    assert_eq!((*id, name.as_str()), (pair.a.id, "a.db"));
    // Page 1 is possible too, when the lost write moved entries of the index.
    assert!(*page > 0 && *scn < pair.stream.end(), "page {page}, {scn} of {}", pair.stream.end());
    assert_eq!(condition(&pair.apply, &pair.a), Condition::Stopped);
    pair.b.check(&pair.standby);
    let copy = Connection::open(pair.standby.join("a.db")).unwrap();
    let untouched: u32 =
        copy.query_row("SELECT length(body) FROM t WHERE id=10", [], |row| row.get(0)).unwrap();
    assert_eq!(untouched, 100);
    pair.apply.sync(&mut Default::default()).unwrap();
    assert_eq!(pair.apply.durable_scn(), pair.stream.end(), "its redo is not kept");
    drop(pair.apply);

    let (mut apply, report) =
        again(&pair.standby, &[&pair.a, &pair.b], &pair.stream, pair.stream.end(), small_limits());
    assert!(matches!(&report.errors[..], [(id, ApplyError::Stopped { .. })] if *id == pair.a.id));
    assert_eq!(condition(&apply, &pair.a), Condition::Stopped);
    pair.a.run(&mut pair.stream, "DELETE FROM t");
    pair.b.run(&mut pair.stream, "DELETE FROM t");
    follow_well(&mut apply, &pair.stream);
    pair.b.check(&pair.standby);

    pair.a.baseline(&mut pair.stream);
    pair.a.run(&mut pair.stream, &insert(7, 7));
    follow_well(&mut apply, &pair.stream);
    assert_eq!(condition(&apply, &pair.a), Condition::Live);
    pair.a.check(&pair.standby);
    drop(apply);
    let (apply, _) =
        again(&pair.standby, &[&pair.a, &pair.b], &pair.stream, pair.stream.end(), small_limits());
    assert_eq!(condition(&apply, &pair.a), Condition::Live, "a full copy ends the stop");
}

/// The image that would have made a stopped database good never comes, because the primary ends in the middle of it and
/// another one, whose database was good all the time, continues with the next commit.
#[test]
fn stopped_database_whose_image_never_came_is_not_good() {
    for restarted in [false, true] {
        let mut pair = pair();
        lose_a_write(&mut pair.a);
        pair.a.run(&mut pair.stream, "UPDATE t SET body=zeroblob(50) WHERE id=10");
        pair.b.run(&mut pair.stream, "UPDATE t SET body=zeroblob(50) WHERE id=10");
        assert_eq!(follow(&mut pair.apply, &pair.stream).errors.len(), 1);
        RecordBuilder::baseline(&mut pair.stream.bytes, pair.a.id, true);
        pair.b.run(&mut pair.stream, &insert(3, 3));
        follow_well(&mut pair.apply, &pair.stream);
        pair.apply.sync(&mut Default::default()).unwrap();
        let at = WalPosition { salts: WalSalts::default(), frame: 0 };
        RecordBuilder::wal_generation(&mut pair.stream.bytes, pair.a.id, at, 1, true);
        let mut apply = pair.apply;
        if restarted {
            drop(apply);
            let both = [&pair.a, &pair.b];
            apply = again(&pair.standby, &both, &pair.stream, pair.stream.end(), small_limits()).0;
        }
        follow(&mut apply, &pair.stream);
        let id = pair.a.id;
        let replacing = |apply: &Apply| apply.being_replaced().any(|replaced| replaced == id);
        assert!(replacing(&apply), "restarted {restarted}: it counts as good");
        pair.a.run(&mut pair.stream, &insert(2, 2));
        pair.b.run(&mut pair.stream, &insert(2, 2));
        let report = follow(&mut apply, &pair.stream);
        assert!(
            matches!(&report.errors[..], [(id, ApplyError::NoImage { .. })] if *id == pair.a.id),
            "{:?}",
            report.errors
        );
        assert_eq!(condition(&apply, &pair.a), Condition::Stopped);
        pair.b.check(&pair.standby);
        pair.a.baseline(&mut pair.stream);
        pair.a.run(&mut pair.stream, &insert(7, 7));
        follow_well(&mut apply, &pair.stream);
        assert!(!replacing(&apply));
        pair.a.check(&pair.standby);
    }
}

/// A disk error can leave the WAL inconsistent after the new header of a rewrite: connections other than the open ones
/// then see the state of the database file alone.
#[test]
fn full_resync_is_written_only_to_a_repaired_wal() {
    for is_lost in [false, true] {
        let mut pair = pair();
        lose_a_write(&mut pair.a);
        pair.a.run(&mut pair.stream, "UPDATE t SET body=zeroblob(50) WHERE id=10");
        assert_eq!(follow(&mut pair.apply, &pair.stream).errors.len(), 1);
        let wal = pair.standby.join("a.db-wal");
        let mut bytes = std::fs::read(&wal).unwrap();
        assert!(bytes.len() > 32 + 3 * (24 + 1024));
        bytes[16..24].copy_from_slice(&[0xAA; 8]);
        if is_lost {
            bytes[32 + 24 + 1024 + 24 + 100] ^= 1;
        }
        std::fs::write(&wal, bytes).unwrap();
        pair.a.baseline(&mut pair.stream);
        pair.a.run(&mut pair.stream, &insert(7, 7));
        pair.b.run(&mut pair.stream, &insert(7, 7));
        let report = follow(&mut pair.apply, &pair.stream);
        pair.b.check(&pair.standby);
        if is_lost {
            let stopped = matches!(&report.errors[..], [(_, ApplyError::SyncFailed { .. })]);
            assert!(stopped, "{:?}", report.errors);
            assert_eq!(condition(&pair.apply, &pair.a), Condition::Stopped);
            continue;
        }
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        pair.a.check(&pair.standby);
        let alone = TempDir::new("alone").unwrap();
        for name in ["a.db", "a.db-wal"] {
            std::fs::copy(pair.standby.join(name), alone.join(name)).unwrap();
        }
        pair.a.check(&alone);
    }
}

#[test]
fn new_copy_catches_up_with_the_other_databases() {
    let mut pair = pair();
    lose_a_write(&mut pair.a);
    pair.a.run(&mut pair.stream, "UPDATE t SET body=zeroblob(50) WHERE id=10");
    assert_eq!(follow(&mut pair.apply, &pair.stream).errors.len(), 1);
    let at = pair.stream.end();
    pair.apply.detach(pair.a.id).unwrap();
    let file = pair.standby.join("a.db");
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
    }
    pair.a.connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    std::fs::copy(pair.a.connection.path().unwrap(), &file).unwrap();
    pair.a.run(&mut pair.stream, &insert(50, 100));
    pair.b.run(&mut pair.stream, &insert(50, 100));
    assert_eq!(
        follow(&mut pair.apply, &pair.stream).errors.len(),
        1,
        "its redo is reported as that of no database"
    );
    pair.apply.attach_copy(pair.a.id, "a.db", pair.a.page_size, StartPoint::copy_at(at)).unwrap();
    assert_eq!(pair.apply.resume_scn(), Some(at));
    let mut redo = RedoInMemory { first: Scn::START, bytes: &pair.stream.bytes };
    let report = pair.apply.recover(at, pair.apply.applied(), &mut redo).unwrap();
    assert_eq!((report.transactions, report.errors.len()), (1, 0));
    pair.a.run(&mut pair.stream, &insert(5, 100));
    follow_well(&mut pair.apply, &pair.stream);
    pair.a.check(&pair.standby);
    pair.b.check(&pair.standby);
}

#[test]
fn gap_in_the_redo_is_never_skipped() {
    let mut pair = pair();
    let skipped = pair.stream.end();
    pair.a.run(&mut pair.stream, "UPDATE t SET body=1");
    let from = pair.stream.end();
    pair.a.run(&mut pair.stream, "UPDATE t SET body=2");
    let report = pair.apply.apply(from, pair.stream.from(from), pair.stream.end()).unwrap();
    assert_eq!(report.errors.len(), 2);
    assert!(
        matches!(report.errors[0].1, ApplyError::Gap { needed, given, .. } if needed == skipped && given == from)
    );
    assert_eq!(pair.apply.retry_failed(), Some(skipped));
    let mut redo = RedoInMemory { first: Scn::START, bytes: &pair.stream.bytes };
    assert!(pair.apply.recover(skipped, pair.stream.end(), &mut redo).unwrap().errors.is_empty());
    pair.a.check(&pair.standby);
}

#[test]
fn missing_redo_of_one_database_does_not_block_the_others() {
    let mut pair = pair();
    let oldest = pair.stream.end();
    pair.apply.sync(&mut Default::default()).unwrap();
    drop(pair.apply);
    pair.b.run(&mut pair.stream, "UPDATE t SET body=1");
    let mut apply = Apply::open(config(&pair.standby, 0, small_limits()), Box::new(|_| Ok(()))).unwrap();
    // The journal says that `a` has everything before `oldest`; a full resync of `b` is older.
    apply.attach_existing(pair.a.id, "a.db", pair.a.page_size, StartPoint::attached_at(Scn::START)).unwrap();
    apply.attach_copy(pair.b.id, "b.db", pair.b.page_size, StartPoint::copy_at(Scn(5000))).unwrap();
    let mut report = Default::default();
    apply.redo_begins_at(oldest, &mut report);
    assert!(matches!(&report.errors[..], [(id, ApplyError::Gap { .. })] if *id == pair.b.id), "{report:?}");
    assert_eq!(apply.resume_scn(), Some(oldest));
    let mut redo = RedoInMemory { first: oldest, bytes: pair.stream.from(oldest) };
    assert!(apply.recover(oldest, pair.stream.end(), &mut redo).unwrap().errors.is_empty());
    assert_eq!(condition(&apply, &pair.a), Condition::Live);
}

#[test]
fn apply_stops_before_damaged_redo() {
    let mut pair = pair();
    pair.a.run(&mut pair.stream, "UPDATE t SET body=1");
    let damaged = pair.stream.end();
    pair.a.run(&mut pair.stream, "UPDATE t SET body=2");
    let from = pair.apply.applied();
    let mut bytes = pair.stream.from(from).to_vec();
    bytes[damaged.bytes_since(from) as usize + 30] ^= 1;
    let error = pair.apply.apply(from, &bytes, pair.stream.end()).unwrap_err();
    assert!(matches!(error, ApplyError::Redo { scn, .. } if scn == damaged), "{error}");
    assert!(error.for_terminal().contains("hint:"));
}

#[test]
fn chunks_without_a_commit_are_dropped_when_capture_restarts() {
    let mut pair = pair();
    pair.a.record_vectors = 3;
    let start = pair.stream.bytes.len();
    pair.a.run(&mut pair.stream, "UPDATE t SET body=randomblob(100)");
    let first = standfast_format::peek_length(&pair.stream.bytes[start..]).unwrap();
    // Only a part of the transaction got out before the primary lost power, and the transaction was lost.
    pair.stream.bytes.truncate(start + first);
    RecordBuilder::wal_generation(&mut pair.stream.bytes, pair.a.id, Default::default(), 0, true);
    follow_well(&mut pair.apply, &pair.stream);
    pair.apply.sync(&mut Default::default()).unwrap();
    assert_eq!(pair.apply.durable_scn(), pair.stream.end());
    RecordBuilder::commit(&mut pair.stream.bytes, pair.a.id, 0, pair.apply.databases()[0].pages, 1).finish();
    follow_well(&mut pair.apply, &pair.stream);
    let copy = Connection::open(pair.standby.join("a.db")).unwrap();
    let verdict: String = copy.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(verdict, "ok");
}

#[test]
fn a_reader_sees_only_committed_states_while_redo_is_applied() {
    let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
    let mut stream = Stream::default();
    let mut primary = Primary::new(here.path(), 1, "bank.db", 1024);
    let accounts = "CREATE TABLE acct(id INTEGER PRIMARY KEY, bal INT); INSERT INTO acct \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<500) SELECT i, 1000 FROM n";
    primary.run(&mut Stream::default(), accounts);
    primary.attach(&mut stream);
    let mut apply = fresh(&standby, 0, small_limits());
    follow_well(&mut apply, &stream);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let connection = Connection::open(standby.join("bank.db")).unwrap();
            connection.busy_timeout(std::time::Duration::from_secs(10)).unwrap();
            let mut reads = 0;
            while !done.load(Ordering::Relaxed) || reads < 10 {
                let (sum, count): (i64, i64) = connection
                    .query_row("SELECT sum(bal), count(*) FROM acct", [], |row| {
                        Ok((row.get(0)?, row.get(1)?))
                    })
                    .unwrap();
                assert_eq!((sum, count), (500_000, 500));
                reads += 1;
            }
        });
        let mut rng = Rng::new(3);
        for _ in 0..300 {
            let (from, to, sum) = (1 + rng.below(500), 1 + rng.below(500), rng.below(100));
            let sql = format!(
                "BEGIN; UPDATE acct SET bal=bal-{sum} WHERE id={from}; UPDATE acct SET bal=bal+{sum} WHERE id={to}; COMMIT"
            );
            primary.run(&mut stream, &sql);
            follow_well(&mut apply, &stream);
            apply.checkpoint_if_due(&Pace::AtOnce, &mut Default::default()).unwrap();
        }
        done.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    primary.check(&standby);
}

#[test]
fn long_reader_keeps_its_snapshot_without_stopping_apply() {
    let mut pair = pair();
    let reader = Connection::open(pair.standby.join("a.db")).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    let before = pages(&reader);
    for _ in 0..40 {
        pair.a.run(&mut pair.stream, "UPDATE t SET body=randomblob(100)");
        follow_well(&mut pair.apply, &pair.stream);
        pair.apply.checkpoint_if_due(&Pace::AtOnce, &mut Default::default()).unwrap();
    }
    assert_eq!(pages(&reader), before);
    reader.execute_batch("COMMIT").unwrap();
    pair.a.check(&pair.standby);
}

#[test]
fn events_are_reported_in_redo_order() {
    let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
    let mut stream = Stream::default();
    let id = IncarnationId([7; 8]);
    RecordBuilder::incarnation(&mut stream.bytes, 3, id, Scn(1), 5);
    let mut primary = Primary::new(here.path(), 1, "app.db", 4096);
    primary.run(&mut Stream::default(), TABLE);
    primary.attach(&mut stream);
    RecordBuilder::end_of_redo(&mut stream.bytes, 6);
    let reported = Arc::new(Mutex::new(Vec::new()));
    let observer = {
        let reported = reported.clone();
        Box::new(move |event: &ApplyEvent| {
            reported.lock().unwrap().push(event.clone());
            Ok(())
        })
    };
    let mut apply = Apply::open(config(&standby, 0, small_limits()), observer).unwrap();
    let empty = &mut RedoInMemory { first: Scn::START, bytes: &[] };
    apply.recover(Scn::START, Scn::START, empty).unwrap();
    apply.apply(Scn::START, &stream.bytes, stream.end()).unwrap();
    let reported = reported.lock().unwrap();
    assert!(
        matches!(&reported[..], [
        ApplyEvent::Incarnation { number: 3, .. },
        ApplyEvent::Attached { name, .. },
        ApplyEvent::EndOfRedo { time_us: 6, scn },
    ] if name == "app.db" && *scn == stream.end()),
        "{reported:?}"
    );
}

#[test]
fn database_name_outside_the_directory_is_refused() {
    let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
    let mut stream = Stream::default();
    let mut primary = Primary::new(here.path(), 1, "app.db", 4096);
    primary.run(&mut Stream::default(), TABLE);
    primary.name = "../escape.db".to_owned();
    primary.attach(&mut stream);
    let mut apply = fresh(&standby, 0, small_limits());
    let report = follow(&mut apply, &stream);
    assert!(matches!(report.errors[0].1, ApplyError::Unusable { .. }), "{:?}", report.errors);
    assert!(!standby.path().parent().unwrap().join("escape.db").exists());
}

/// Attaches a further database, with pages of 4096 bytes, and applies to it.
#[track_caller]
fn attach_c(pair: &mut Pair) {
    let here = TempDir::new("primary").unwrap();
    let mut c = Primary::new(here.path(), 3, "c.db", 4096);
    c.run(&mut Stream::default(), TABLE);
    c.attach(&mut pair.stream);
    let report = follow(&mut pair.apply, &pair.stream);
    assert!(report.errors.is_empty(), "{:?}", report.errors);
}

#[test]
fn existing_file_is_set_aside_and_not_overwritten() {
    let mut pair = pair();
    let other = Connection::open(pair.standby.join("c.db")).unwrap();
    other.execute_batch("PRAGMA page_size=4096; PRAGMA journal_mode=WAL; CREATE TABLE mine(x); INSERT INTO mine VALUES(1)").unwrap();
    attach_c(&mut pair);
    drop(other);
    let names = std::fs::read_dir(pair.standby.path()).unwrap().map(|entry| entry.unwrap().path());
    let aside = names
        .filter(|path| path.to_string_lossy().contains("c.db.detached-"))
        .find(|path| !path.to_string_lossy().ends_with("-wal"))
        .expect("nothing was set aside");
    let kept = Connection::open(aside).unwrap();
    let rows: u32 = kept.query_row("SELECT count(*) FROM mine", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 1);
}

/// A new database is written and synced before any record of it is durable. A power loss in between leaves any of its
/// sectors, and the redo that makes it is applied again.
#[test]
fn new_database_replaces_the_remains_of_a_power_loss() {
    let other_page_size = |path: &std::path::Path| {
        let other = Connection::open(path).unwrap();
        other.execute_batch("PRAGMA page_size=8192; PRAGMA journal_mode=WAL; CREATE TABLE mine(x)").unwrap();
    };
    let without_header = |path: &std::path::Path| {
        other_page_size(path);
        let mut bytes = std::fs::read(path).unwrap();
        bytes[..512].fill(0);
        bytes.truncate(4096);
        std::fs::write(path, bytes).unwrap();
    };
    let leave: [&dyn Fn(&std::path::Path); 2] = [&without_header, &other_page_size];
    for leave in leave {
        let mut pair = pair();
        leave(&pair.standby.join("c.db"));
        attach_c(&mut pair);
    }
}
