//! Applies redo of real SQLite histories to a standby: the pages are those of the primary.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use rusqlite::Connection;
use standfast_apply::{Apply, ApplyReport, Limits, Pace};
use standfast_sqlite_wal::log_length::share;
use standfast_testkit::{Rng, TempDir};
use standfast_types::{WAL_FRAME_HEADER_BYTES, WAL_HEADER_BYTES, WalSalts};
use std::path::Path;

#[test]
fn a_history_ends_in_the_same_pages_at_every_page_size() {
    for (page_size, workers) in [(512, 0), (4096, 0), (4096, 2), (65_536, 0)] {
        let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
        let mut rng = Rng::new(u64::from(page_size));
        let mut stream = Stream::default();
        let mut primary = Primary::new(here.path(), 1, "app.db", page_size);
        primary.run(&mut Stream::default(), TABLE);
        primary.attach(&mut stream);
        let mut apply = fresh(&standby, workers, small_limits());
        for _ in 0..8 {
            history(&mut primary, &mut stream, 15, &mut rng);
            let report = follow_well(&mut apply, &stream);
            assert!(report.transactions >= 15);
            apply.checkpoint_if_due(&Pace::AtOnce, &mut Default::default()).unwrap();
            primary.check(&standby);
        }
    }
}

#[test]
fn apply_per_transaction_and_apply_of_all_give_the_same_pages() {
    let here = TempDir::new("primary").unwrap();
    let (step_by_step, at_once) = (TempDir::new("standby").unwrap(), TempDir::new("standby").unwrap());
    let mut stream = Stream::default();
    let mut primary = Primary::new(here.path(), 1, "app.db", 1024);
    primary.run(&mut Stream::default(), TABLE);
    primary.attach(&mut stream);
    let mut apply = fresh(&step_by_step, 0, Limits::default());
    let mut rng = Rng::new(1);
    for _ in 0..60 {
        history(&mut primary, &mut stream, 1, &mut rng);
        follow_well(&mut apply, &stream);
    }
    primary.check(&step_by_step);
    let mut apply = fresh(&at_once, 0, Limits::default());
    assert_eq!(follow_well(&mut apply, &stream).transactions, 61);
    primary.check(&at_once);
}

#[test]
fn database_growth_and_shrinking_apply_in_and_across_batches() {
    let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
    let mut stream = Stream::default();
    let mut primary = Primary::new(here.path(), 1, "app.db", 1024);
    primary.run(&mut Stream::default(), TABLE);
    primary.attach(&mut stream);
    let mut apply = fresh(&standby, 0, small_limits());
    follow_well(&mut apply, &stream);
    for together in [false, true, false, true] {
        for sql in [
            &insert(500, 300),
            "DELETE FROM t WHERE id % 10 > 0",
            "VACUUM",
            &insert(20, 300),
            "DELETE FROM t",
            "VACUUM",
        ] {
            primary.run(&mut stream, sql);
            if !together {
                follow_well(&mut apply, &stream);
                primary.check(&standby);
            }
        }
        follow_well(&mut apply, &stream);
        primary.check(&standby);
        let _ = apply.checkpoint_if_due(&Pace::AtOnce, &mut Default::default());
        primary.check(&standby);
    }
}

#[test]
fn auto_vacuum_of_the_primary_is_applied_and_not_repeated() {
    let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
    let mut stream = Stream::default();
    let connection = Connection::open(here.join("app.db")).unwrap();
    connection.execute_batch("PRAGMA auto_vacuum=FULL; CREATE TABLE a(x); ").unwrap();
    drop(connection);
    let mut primary = Primary::new(here.path(), 1, "app.db", 4096);
    primary.run(&mut Stream::default(), TABLE);
    primary.attach(&mut stream);
    let mut apply = fresh(&standby, 0, small_limits());
    for sql in [&insert(400, 500), "DELETE FROM t WHERE id > 30", &insert(100, 500), "DELETE FROM t"] {
        primary.run(&mut stream, sql);
        follow_well(&mut apply, &stream);
        primary.check(&standby);
    }
}

#[test]
fn chunked_transaction_counts_when_its_commit_record_arrives() {
    let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
    let mut stream = Stream::default();
    let mut primary = Primary::new(here.path(), 1, "app.db", 1024);
    primary.run(&mut Stream::default(), TABLE);
    primary.attach(&mut stream);
    let mut apply = fresh(&standby, 0, small_limits());
    follow_well(&mut apply, &stream);
    primary.record_vectors = 5;
    let before = stream.end();
    primary.run(&mut stream, &insert(2000, 300));
    let bytes = stream.from(before);
    let mut at = 0;
    let reader = Connection::open(standby.join("app.db")).unwrap();
    let count = || reader.query_row("SELECT count(*) FROM t", [], |row| row.get::<_, u32>(0)).unwrap();
    while at < bytes.len() {
        assert_eq!(count(), 0);
        let length = standfast_format::peek_length(&bytes[at..]).unwrap();
        let from = apply.applied();
        let report = apply.apply(from, &bytes[at..at + length], from + length as u64).unwrap();
        assert!(report.errors.is_empty(), "{:?}", report.errors);
        at += length;
    }
    assert_eq!(count(), 2000);
    primary.check(&standby);
}

#[test]
fn second_full_resync_image_replaces_the_database() {
    let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
    let mut stream = Stream::default();
    let mut primary = Primary::new(here.path(), 1, "app.db", 4096);
    primary.run(&mut Stream::default(), &format!("{TABLE} {}", insert(300, 400)));
    primary.attach(&mut stream);
    let mut apply = fresh(&standby, 0, small_limits());
    follow_well(&mut apply, &stream);
    // Not captured: the standby lacks it.
    primary.run(&mut Stream::default(), "DELETE FROM t WHERE id > 20; CREATE TABLE other(x);");
    primary.run(&mut Stream::default(), "VACUUM");
    primary.record_vectors = 3;
    primary.baseline(&mut stream);
    primary.run(&mut stream, &insert(5, 100));
    follow_well(&mut apply, &stream);
    primary.check(&standby);
}

#[test]
fn full_resync_image_may_change_the_text_encoding() {
    let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
    let mut stream = Stream::default();
    let utf16 = Connection::open(here.join("app.db")).unwrap();
    utf16
        .execute_batch("PRAGMA encoding='UTF-16le'; PRAGMA auto_vacuum=INCREMENTAL; CREATE TABLE a(x)")
        .unwrap();
    drop(utf16);
    let mut primary = Primary::new(here.path(), 1, "app.db", 4096);
    primary.run(&mut Stream::default(), TABLE);
    primary.attach(&mut stream);
    let mut apply = fresh(&standby, 0, small_limits());
    follow_well(&mut apply, &stream);
    for sql in [
        "CREATE TABLE b(x); INSERT INTO b VALUES('text')",
        "DROP TABLE b",
        "PRAGMA incremental_vacuum",
        &insert(90, 90),
    ] {
        primary.run(&mut stream, sql);
        follow_well(&mut apply, &stream);
        primary.check(&standby);
    }
}

#[test]
fn unparsable_schema_is_applied_like_any_other() {
    let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
    let mut stream = Stream::default();
    let mut primary = Primary::new(here.path(), 1, "app.db", 4096);
    primary.run(&mut Stream::default(), TABLE);
    primary.attach(&mut stream);
    let mut apply = fresh(&standby, 0, small_limits());
    for sql in [
        "CREATE TABLE future(x); PRAGMA writable_schema=ON; \
         UPDATE sqlite_schema SET sql='CREATE TABLE future(x) WITH NEW SYNTAX' WHERE name='future'; PRAGMA schema_version=77",
        "INSERT INTO t(body) VALUES(1)",
        "PRAGMA schema_version=78",
        "INSERT INTO t(body) VALUES(2)",
    ] {
        primary.run(&mut stream, sql);
        follow_well(&mut apply, &stream);
    }
    let (here, copy) = (pages(&primary.connection), Connection::open(standby.join("app.db")).unwrap());
    copy.execute_batch("PRAGMA writable_schema=ON").unwrap();
    same(&here, &pages(&copy), "app.db");
    drop(apply);
    let (mut apply, _) = again(&standby, &[&primary], &stream, stream.end(), small_limits());
    primary.run(&mut stream, "INSERT INTO t(body) VALUES(3)");
    follow_well(&mut apply, &stream);
}

#[test]
fn many_databases_share_the_stream() {
    for workers in [0, 2] {
        let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
        let mut stream = Stream::default();
        let mut rng = Rng::new(5);
        let mut primaries: Vec<_> =
            (0..6).map(|i| Primary::new(here.path(), i, &format!("{i}.db"), 512 << i)).collect();
        let mut apply = fresh(&standby, workers, small_limits());
        for primary in &mut primaries {
            primary.run(&mut Stream::default(), TABLE);
            primary.attach(&mut stream);
        }
        for _ in 0..5 {
            for _ in 0..40 {
                let index = rng.below(6) as usize;
                history(&mut primaries[index], &mut stream, 2, &mut rng);
            }
            follow_well(&mut apply, &stream);
            apply.checkpoint_if_due(&Pace::AtOnce, &mut Default::default()).unwrap();
            apply.sync(&mut Default::default()).unwrap();
            assert_eq!(apply.durable_scn(), stream.end());
        }
        primaries.iter().for_each(|primary| primary.check(&standby));
    }
}

/// Returns the frames in the WAL, by its wal-index.
fn wal_frames(standby: &TempDir, name: &str) -> u32 {
    let index = std::fs::read(standby.join(format!("{name}-shm"))).unwrap();
    u32::from_ne_bytes(index[16..20].try_into().unwrap())
}

/// In chunks of 256 KiB between the steps; immediately where apply is behind or a checkpoint follows.
#[test]
fn applied_frames_are_written_back_in_chunks_unless_apply_lags() {
    let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
    let mut stream = Stream::default();
    let mut primary = Primary::new(here.path(), 1, "app.db", 4096);
    primary.run(&mut Stream::default(), "CREATE TABLE t(id INTEGER PRIMARY KEY, body BLOB)");
    primary.attach(&mut stream);
    let mut apply = fresh(&standby, 0, Limits { checkpoint_frames: 1_000, ..Limits::default() });
    let throttled = || Pace::ThrottledUntil(Default::default());
    // At the third step a checkpoint is due, which syncs all of it.
    for (pace, chunks) in [(throttled(), 4..=8), (Pace::AtOnce, 0..=0), (throttled(), 0..=0)] {
        (0..8).for_each(|_| primary.run(&mut stream, &insert(50, 3_000)));
        follow_well(&mut apply, &stream);
        assert!(!apply.write_back(), "nothing before a step has ended");
        apply.checkpoint_if_due(&pace, &mut Default::default()).unwrap();
        let handed = calls_of_write_back(&mut apply);
        assert!(chunks.contains(&handed), "{handed} chunks before the last one, at {pace:?}");
    }
}

/// Returns the number of calls before the last one.
fn calls_of_write_back(apply: &mut Apply) -> u32 {
    let mut calls = 0;
    while apply.write_back() {
        calls += 1;
    }
    calls
}

#[test]
fn write_back_of_many_databases_is_spread_out() {
    let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
    let mut stream = Stream::default();
    let mut apply = fresh(&standby, 0, Limits::default());
    for id in 1..=16 {
        let mut primary = Primary::new(here.path(), id, &format!("{id}.db"), 512);
        primary.run(&mut Stream::default(), "CREATE TABLE t(id INTEGER PRIMARY KEY, body BLOB)");
        primary.attach(&mut stream);
        primary.run(&mut stream, &insert(80, 400));
    }
    follow_well(&mut apply, &stream);
    apply.checkpoint_if_due(&Pace::ThrottledUntil(Default::default()), &mut Default::default()).unwrap();
    let calls = calls_of_write_back(&mut apply);
    assert!((8..16).contains(&calls), "{calls}: two of them at a time first, then one");
}

/// The suffix of a deferred-sync WAL stays unsynced until the rewrite, unless no more redo comes or it takes too long.
#[test]
fn deferred_sync_wal_is_synced_when_idle_or_after_a_while() {
    let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
    let mut stream = Stream::default();
    let mut primary = Primary::new(here.path(), 1, "app.db", 512);
    primary.run(&mut Stream::default(), "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, pad BLOB)");
    primary.attach(&mut stream);
    let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100)
                INSERT INTO t SELECT i, 0, zeroblob(300) FROM n";
    primary.run(&mut stream, fill);
    let mut apply = fresh(&standby, 0, Limits { checkpoint_frames: 200, ..Limits::default() });
    let mut report = ApplyReport::default();
    let mut change = |apply: &mut Apply, stream: &mut Stream| {
        primary.run(stream, "UPDATE t SET n = n + 1 WHERE id % 9 = 0");
        follow_well(apply, stream);
        apply.checkpoint_if_due(&Pace::AtOnce, &mut ApplyReport::default()).unwrap();
    };
    let mut until_it_is = |left: bool, apply: &mut Apply| {
        for calls in 1..100 {
            change(apply, &mut stream);
            apply.sync_lazily(&Pace::AtOnce, &mut report).unwrap();
            assert_eq!(apply.is_unsynced(), apply.durable_scn() < apply.applied());
            if apply.is_unsynced() == left {
                return calls;
            }
        }
        panic!("never left, or left for ever");
    };
    until_it_is(true, &mut apply);
    let moved = apply.durable_scn();
    let calls = until_it_is(false, &mut apply);
    assert!(calls > 5 && apply.durable_scn() > moved, "left {calls} times");
    until_it_is(true, &mut apply);
    apply.sync_lazily(&Pace::AtOnce, &mut report).unwrap();
    assert_eq!(apply.durable_scn(), apply.applied(), "nothing came since");
    assert!(report.errors.is_empty());
    primary.check(&standby);
}

/// Returns the salts of the WAL file, and whether the instance has rewritten that WAL.
fn wal_salts(standby: &TempDir, name: &str) -> (WalSalts, bool) {
    let wal = std::fs::read(standby.join(format!("{name}-wal"))).unwrap();
    let word = |at: usize| u32::from_be_bytes(wal[at..at + 4].try_into().unwrap());
    let salts = WalSalts(word(16), word(20));
    (salts, salts.is_of_rewritten_log())
}

#[test]
fn wal_is_reset_and_never_rewritten_with_the_setting_off() {
    for rewrite_wals in [true, false] {
        let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
        let mut stream = Stream::default();
        let mut primary = Primary::new(here.path(), 1, "app.db", 512);
        primary.run(&mut Stream::default(), "CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, pad BLOB)");
        primary.attach(&mut stream);
        let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 40)
                    INSERT INTO t SELECT i, 0, zeroblob(300) FROM n";
        primary.run(&mut stream, fill);
        let limits = Limits { checkpoint_frames: 100, reset_frames: 200, rewrite_wals, ..Limits::default() };
        let mut apply = fresh(&standby, 0, limits);
        let mut report = ApplyReport::default();
        let (mut generations, mut longest) = (Vec::new(), 0);
        for _ in 0..300 {
            primary.run(&mut stream, "UPDATE t SET n = n + 1 WHERE id % 9 = 0");
            follow_well(&mut apply, &stream);
            apply.checkpoint_if_due(&Pace::AtOnce, &mut report).unwrap();
            if !rewrite_wals {
                apply.sync_lazily(&Pace::AtOnce, &mut report).unwrap();
                assert!(!apply.is_unsynced(), "no suffix waits for a rewrite");
            }
            let found = wal_salts(&standby, "app.db");
            (!generations.contains(&found)).then(|| generations.push(found));
            longest = longest.max(wal_frames(&standby, "app.db"));
        }
        let rewritten = generations.iter().filter(|(_, rewritten)| *rewritten).count();
        assert_eq!(rewritten > 2, rewrite_wals, "{generations:?}");
        assert!(generations.len() > 2 && longest < 400, "{} WALs, {longest}", generations.len());
        assert_eq!(apply.release_for_failover().unwrap(), stream.end());
        assert!(rewrite_wals || !wal_salts(&standby, "app.db").1);
        assert!(report.errors.is_empty());
        primary.check(&standby);
    }
}

#[test]
fn many_databases_share_the_maximum_wal_length() {
    let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
    let mut stream = Stream::default();
    let many = (1..).find(|many| share(2_000, *many) == 1_000).unwrap();
    let names: Vec<_> = (0..many).map(|i| format!("{i}.db")).collect();
    let mut primaries: Vec<_> =
        (0..).zip(&names).map(|(i, name)| Primary::new(here.path(), i, name, 512)).collect();
    let limits = Limits { checkpoint_frames: 1_500, reset_frames: 2_000, ..Limits::default() };
    let mut apply = fresh(&standby, 0, limits);
    for primary in &mut primaries {
        primary.run(&mut Stream::default(), "CREATE TABLE t(id INTEGER PRIMARY KEY, body BLOB)");
        primary.attach(&mut stream);
    }
    for (at, primary) in primaries.iter_mut().enumerate() {
        primary.run(&mut stream, &insert(1_100, 400));
        follow_well(&mut apply, &stream);
        apply.checkpoint_if_due(&Pace::AtOnce, &mut Default::default()).unwrap();
        let is_not_too_long = share(2_000, at + 1) > 1_200;
        assert!(wal_frames(&standby, &names[at]) > 1_000 || !is_not_too_long, "the first ones are not");
    }
    // So many long WALs may have 1,000 frames each: the idle ones restart with the one that is written.
    primaries[0].run(&mut stream, "DELETE FROM t WHERE id = 1");
    follow_well(&mut apply, &stream);
    apply.checkpoint_if_due(&Pace::AtOnce, &mut Default::default()).unwrap();
    let frames: Vec<_> = names.iter().map(|name| wal_frames(&standby, name)).collect();
    assert!(frames.iter().all(|frames| *frames < 1_000), "{frames:?}");
    primaries.iter().for_each(|primary| primary.check(&standby));
}

#[test]
fn detached_database_is_released_and_keeps_its_file() {
    let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
    let mut stream = Stream::default();
    let mut primary = Primary::new(here.path(), 1, "app.db", 4096);
    primary.run(&mut Stream::default(), TABLE);
    primary.attach(&mut stream);
    primary.run(&mut stream, &insert(10, 10));
    standfast_format::RecordBuilder::detach(&mut stream.bytes, primary.id);
    let mut apply = fresh(&standby, 0, small_limits());
    follow_well(&mut apply, &stream);
    assert!(apply.databases().is_empty());
    primary.check(&standby);
    let free = Connection::open(standby.join("app.db")).unwrap();
    free.execute_batch("INSERT INTO t(body) VALUES('mine again')").unwrap();
}

#[test]
fn standby_database_is_writable_only_after_its_release() {
    let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
    let mut stream = Stream::default();
    let mut primary = Primary::new(here.path(), 1, "app.db", 4096);
    primary.run(&mut Stream::default(), TABLE);
    primary.attach(&mut stream);
    let mut apply = fresh(&standby, 0, small_limits());
    follow_well(&mut apply, &stream);
    let other = Connection::open(standby.join("app.db")).unwrap();
    other.busy_timeout(std::time::Duration::ZERO).unwrap();
    assert!(other.execute_batch("INSERT INTO t(body) VALUES('no')").is_err());
    assert_eq!(apply.release_for_failover().unwrap(), stream.end());
    other.execute_batch("INSERT INTO t(body) VALUES('yes')").unwrap();
}

/// Returns the size in pages in the newest commit of a database's WAL: the one that counts after a checkpoint, whatever
/// page 1 says.
fn committed_pages(database: &Path, page_bytes: usize) -> usize {
    let wal = std::fs::read(format!("{}-wal", database.display())).unwrap();
    let frames = wal[WAL_HEADER_BYTES..]
        .chunks_exact(WAL_FRAME_HEADER_BYTES + page_bytes)
        .filter(|frame| frame[8..16] == wal[16..24]);
    let mut sizes = frames.map(|frame| u32::from_be_bytes([frame[4], frame[5], frame[6], frame[7]]));
    sizes.rfind(|size| *size > 0).unwrap() as usize
}

#[test]
fn sqlite_commits_the_size_of_a_truncated_database() {
    let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
    let mut stream = Stream::default();
    let mut primary = Primary::new(here.path(), 1, "app.db", 1024);
    primary.run(&mut Stream::default(), TABLE);
    primary.attach(&mut stream);
    let mut apply = fresh(&standby, 0, Limits::default());
    // Together, a VACUUM truncates what its own batch has grown; alone, what was committed before.
    for together in [false, true] {
        for sql in [insert(300, 300).as_str(), "DELETE FROM t WHERE id % 10 > 0", "VACUUM"] {
            primary.run(&mut stream, sql);
            if !together {
                follow_well(&mut apply, &stream);
            }
        }
        follow_well(&mut apply, &stream);
        let pages = pages(&primary.connection).len();
        assert_eq!(committed_pages(&standby.join("app.db"), 1024), pages, "together: {together}");
    }
}
