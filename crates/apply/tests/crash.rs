//! A standby that dies resumes where it was, whichever of its files survived.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use rusqlite::Connection;
use standfast_apply::{Apply, ApplyError, AtRest, Limits, Pace, RedoInMemory, StartPoint};
use standfast_testkit::{Rng, TempDir};
use standfast_types::{DatabaseId, Scn, WAL_HEADER_BYTES};
use std::path::Path;

/// Returns what a kill leaves of a standby: its files as they are, without the shared memory.
fn killed(standby: &TempDir) -> TempDir {
    let copy = TempDir::new("killed").unwrap();
    for entry in std::fs::read_dir(standby.path()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| !extension.to_string_lossy().ends_with("-shm")) {
            std::fs::copy(&path, copy.join(path.file_name().unwrap())).unwrap();
        }
    }
    copy
}

fn wal(directory: &Path, name: &str) -> std::path::PathBuf {
    directory.join(format!("{name}-wal"))
}

/// Two databases, their stream, and a standby that has applied a part of it in batches of its own.
struct Scene {
    _here: TempDir,
    primaries: [Primary; 2],
    stream: Stream,
    standby: TempDir,
    apply: Option<Apply>,
    rng: Rng,
    /// State of each WAL at its last sync: header and length.
    synced: [(Vec<u8>, u64); 2],
}

const NAMES: [&str; 2] = ["a.db", "b.db"];

/// Returns the header of a WAL (it names the generation), and its length.
fn wal_state(path: &Path) -> (Vec<u8>, u64) {
    let bytes = std::fs::read(path).unwrap();
    (bytes[..bytes.len().min(WAL_HEADER_BYTES)].to_vec(), bytes.len() as u64)
}

impl Scene {
    fn new(seed: u64) -> Scene {
        let (here, standby) = (TempDir::new("primary").unwrap(), TempDir::new("standby").unwrap());
        let mut stream = Stream::default();
        let mut primaries =
            [Primary::new(here.path(), 1, "a.db", 1024), Primary::new(here.path(), 2, "b.db", 4096)];
        let apply = fresh(&standby, 0, small_limits());
        for primary in &mut primaries {
            primary.past = Some(Vec::new());
            primary.run(&mut Stream::default(), TABLE);
            primary.attach(&mut stream);
        }
        let mut scene = Scene {
            _here: here,
            primaries,
            stream,
            standby,
            apply: Some(apply),
            rng: Rng::new(seed),
            synced: Default::default(),
        };
        scene.advance(1);
        scene
    }

    /// Adds transactions and applies them, in batches that end at random records.
    fn advance(&mut self, batches: u32) {
        for _ in 0..batches {
            for primary in &mut self.primaries {
                history(primary, &mut self.stream, 1 + self.rng.below(4) as u32, &mut self.rng);
            }
            let apply = self.apply.as_mut().unwrap();
            while apply.applied().max(Scn::START) < self.stream.end() {
                let from = apply.applied().max(Scn::START);
                let upto = from + 600 + self.rng.below(20_000);
                let report = apply.apply(from, self.stream.from(from), upto.min(self.stream.end())).unwrap();
                assert!(report.errors.is_empty(), "{:?}", report.errors);
                if report.applied == from {
                    // No complete record ends below the limit.
                    follow_well(apply, &self.stream);
                }
            }
            let (checkpoint, sync) = (self.rng.chance(20), self.rng.chance(20));
            if checkpoint {
                apply.checkpoint_if_due(&Pace::AtOnce, &mut Default::default()).unwrap();
            }
            if sync {
                apply.sync(&mut Default::default()).unwrap();
            }
            if checkpoint || sync {
                self.synced = NAMES.map(|name| wal_state(&wal(self.standby.path(), name)));
            }
        }
    }

    /// Continues with the contents of `files`, and checks that the pages are those of the confirmed position.
    fn resume(&mut self, files: TempDir) {
        let [a, b] = &self.primaries;
        let (apply, _) = again(&files, &[a, b], &self.stream, self.stream.end(), small_limits());
        assert_eq!(apply.applied(), self.stream.end());
        [a, b].iter().for_each(|primary| primary.check(&files));
        self.apply = Some(apply);
        self.standby = files;
    }
}

#[test]
fn killed_standby_resumes_where_it_stopped() {
    for seed in 0..4 {
        let mut scene = Scene::new(seed);
        for _ in 0..6 {
            scene.advance(3);
            let files = killed(&scene.standby);
            scene.apply = None;
            scene.resume(files);
        }
    }
}

#[test]
fn wal_that_lost_its_end_is_replayed() {
    for seed in 0..6 {
        let mut scene = Scene::new(100 + seed);
        for _ in 0..6 {
            scene.advance(3);
            let files = killed(&scene.standby);
            scene.apply = None;
            for (at, name) in NAMES.into_iter().enumerate() {
                let path = wal(files.path(), name);
                let (header, bytes) = wal_state(&path);
                let safe = if header == scene.synced[at].0 { scene.synced[at].1 } else { 0 };
                let file = std::fs::File::options().write(true).open(&path).unwrap();
                file.set_len(scene.rng.between(safe.max(bytes / 2), bytes)).unwrap();
            }
            scene.resume(files);
        }
    }
}

#[test]
fn removed_wal_that_was_synced_is_rebuilt() {
    for seed in 0..6 {
        let mut scene = Scene::new(300 + seed);
        for _ in 0..4 {
            scene.advance(3);
            scene.apply.as_mut().unwrap().sync(&mut Default::default()).unwrap();
            let files = killed(&scene.standby);
            scene.apply = None;
            NAMES.iter().for_each(|name| std::fs::remove_file(wal(files.path(), name)).unwrap());
            scene.resume(files);
        }
    }
}

/// Redo is discarded once the WALs that hold it are synced, and a WAL is removed after a crash: what is before is in
/// the database file alone, or, where a reader prevented the backfill, recovery does not trust the file.
#[test]
fn removed_wal_takes_no_commit_whose_redo_is_gone() {
    for seed in 0..6 {
        let mut scene = Scene::new(400 + seed);
        let mut reader = None;
        for round in 0..4 {
            scene.advance(3);
            if round == 2 {
                let held = Connection::open(scene.standby.join("a.db")).unwrap();
                held.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
                reader = Some(held);
                scene.advance(2);
            }
            let mut report = Default::default();
            let apply = scene.apply.as_mut().unwrap();
            let given_up = apply.sync(&mut report).unwrap();
            apply.backfill_before(given_up, &Pace::AtOnce, &mut report).unwrap();
            assert!(report.errors.is_empty(), "{report:?}");
            let files = killed(&scene.standby);
            (scene.apply, reader) = (None, reader.filter(|_| round == 2));
            NAMES.iter().for_each(|name| std::fs::remove_file(wal(files.path(), name)).unwrap());
            let [a, b] = &scene.primaries;
            let mut apply = Apply::open(config(&files, 0, small_limits()), Box::new(|_| Ok(()))).unwrap();
            for primary in [a, b] {
                let start = StartPoint::attached_at(Scn::START);
                apply.attach_existing(primary.id, &primary.name, primary.page_size, start).unwrap();
            }
            let mut report = Default::default();
            apply.redo_begins_at(given_up, &mut report);
            let stopped: Vec<DatabaseId> = report.errors.iter().map(|(id, _)| *id).collect();
            drop(apply);
            if reader.is_some() {
                assert_eq!(stopped, [a.id]);
                assert!(matches!(report.errors[0].1, ApplyError::Gap { given, .. } if given == given_up));
                // With the redo the database continues.
                reader = None;
            } else {
                assert!(stopped.is_empty(), "{report:?}");
            }
            scene.resume(files);
        }
    }
}

#[test]
fn journal_that_lost_facts_only_lengthens_the_replay() {
    for seed in 0..6 {
        let mut scene = Scene::new(200 + seed);
        for round in 0..4 {
            scene.advance(3);
            let files = killed(&scene.standby);
            scene.apply = None;
            let journal = files.join("apply.journal");
            if round == 2 {
                std::fs::remove_file(&journal).unwrap();
            } else {
                let mut bytes = std::fs::read(&journal).unwrap();
                for fact in bytes[4096..].chunks_mut(32).filter(|_| scene.rng.chance(70)) {
                    fact[17] ^= 4;
                }
                std::fs::write(&journal, bytes).unwrap();
            }
            scene.resume(files);
        }
    }
}

#[test]
fn replay_is_atomic_for_readers_and_ends_at_the_confirmed_scn() {
    let mut scene = Scene::new(7);
    scene.advance(5);
    let files = killed(&scene.standby);
    scene.apply = None;
    std::fs::remove_file(files.join("apply.journal")).unwrap();
    let reader = Connection::open(files.join("a.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
    let before = pages(&reader);
    // Redo that the primary has not confirmed must not be applied.
    let confirmed = scene.stream.end();
    for primary in &mut scene.primaries {
        history(primary, &mut scene.stream, 3, &mut scene.rng);
    }
    let [a, b] = &scene.primaries;
    let (apply, report) = again(&files, &[a, b], &scene.stream, confirmed, small_limits());
    assert!(report.transactions > 10);
    assert_eq!(apply.applied(), confirmed);
    assert_eq!(pages(&reader), before, "the reader's snapshot stays");
    reader.execute_batch("COMMIT").unwrap();
    same(a.at(confirmed).unwrap(), &pages(&reader), "a.db");
}

#[test]
fn recovery_reads_no_further_than_the_horizon() {
    let mut scene = Scene::new(8);
    let limits = Limits { horizon_bytes: 0, ..small_limits() };
    scene.apply = None;
    let files = killed(&scene.standby);
    let _ = std::fs::remove_file(files.join("apply.journal"));
    let seen = scene.stream.end();
    let [a, b] = &scene.primaries;
    let (apply, _) = again(&files, &[a, b], &scene.stream, seen, limits);
    drop(apply);
    for primary in &mut scene.primaries {
        history(primary, &mut scene.stream, 3, &mut scene.rng);
    }
    let [a, b] = &scene.primaries;
    let (mut apply, report) = again(&files, &[a, b], &scene.stream, scene.stream.end(), limits);
    assert_eq!((report.applied, report.transactions), (seen, 0));
    follow_well(&mut apply, &scene.stream);
    [a, b].iter().for_each(|primary| primary.check(&files));
}

#[test]
fn nothing_is_replayed_after_a_clean_resume() {
    let mut scene = Scene::new(9);
    scene.advance(4);
    let files = killed(&scene.standby);
    scene.apply = None;
    let [a, b] = &scene.primaries;
    let (apply, report) = again(&files, &[a, b], &scene.stream, scene.stream.end(), small_limits());
    // The database that committed last is exact; the other one may have had no redo after its last position.
    assert_eq!(report.transactions, 0);
    assert_eq!(apply.applied(), scene.stream.end());
}

#[test]
fn open_transaction_is_reread_after_a_restart() {
    let mut scene = Scene::new(10);
    let before = scene.stream.end();
    scene.primaries[0].record_vectors = 2;
    let sql = insert(300, 200);
    scene.primaries[0].run(&mut scene.stream, &sql);
    scene.primaries[1].run(&mut scene.stream, "UPDATE t SET body='after the first records'");
    let bytes = scene.stream.from(before);
    let mut cut = 0;
    while cut < bytes.len() / 4 {
        cut += standfast_format::peek_length(&bytes[cut..]).unwrap();
    }
    let apply = scene.apply.as_mut().unwrap();
    apply.apply(before, &bytes[..cut], before + cut as u64).unwrap();
    apply.sync(&mut Default::default()).unwrap();
    assert_eq!(apply.durable_scn(), before, "the open transaction is needed again");
    assert_eq!(
        (apply.applied(), apply.complete_upto()),
        (before + cut as u64, before),
        "and is not in a copy"
    );
    let files = killed(&scene.standby);
    scene.apply = None;
    let confirmed = before + cut as u64;
    let [a, b] = &scene.primaries;
    let (mut apply, _) = again(&files, &[a, b], &scene.stream, confirmed, small_limits());
    assert_eq!(apply.applied(), confirmed);
    follow_well(&mut apply, &scene.stream);
    [a, b].iter().for_each(|primary| primary.check(&files));
}

/// Attaches the files of a clean shutdown, with its records.
fn after_stop(
    files: &TempDir,
    scene: &Scene,
    rests: &[(DatabaseId, AtRest)],
    oldest: Scn,
) -> Vec<(DatabaseId, ApplyError)> {
    let mut apply = Apply::open(config(files, 0, small_limits()), Box::new(|_| Ok(()))).unwrap();
    for primary in &scene.primaries {
        let rest = rests.iter().find(|(id, _)| *id == primary.id).map(|(_, rest)| rest);
        let start = StartPoint::attached_at(Scn::START);
        let path = files.join(&primary.name);
        let at = (primary.name.as_str(), path.as_path());
        apply.attach_at_rest(primary.id, at, primary.page_size, start, rest).unwrap();
    }
    let from = apply.resume_scn().unwrap_or(scene.stream.end());
    let mut redo = RedoInMemory { first: oldest, bytes: scene.stream.from(oldest) };
    apply.recover(from, scene.stream.end(), &mut redo).unwrap().errors
}

const FOREIGN: &str = "INSERT INTO t(body) VALUES('of another process')";

/// Redo of an application that changes a row and changes it back.
#[test]
fn commit_without_changed_pages_applies_to_an_empty_wal() {
    let mut scene = Scene::new(34);
    scene.advance(2);
    let rests = scene.apply.take().unwrap().rest(&mut Default::default()).unwrap();
    assert!(rests.iter().all(|(_, rest)| rest.wal.is_none()), "{rests:?}");
    let [a, b] = &mut scene.primaries;
    a.capture(&mut scene.stream);
    a.run(&mut scene.stream, "UPDATE t SET body=randomblob(50)");
    let (mut apply, _) = again(&scene.standby, &[a, b], &scene.stream, Scn::START, small_limits());
    follow_well(&mut apply, &scene.stream);
    a.check(&scene.standby);
}

#[test]
fn writes_to_a_stopped_standby_are_detected() {
    for (seed, statement, closes) in [
        (20, "SELECT count(*) FROM t", true),
        (21, "SELECT count(*) FROM t", false),
        (22, FOREIGN, true),
        (23, FOREIGN, false),
        (24, "VACUUM", true),
        (25, "PRAGMA user_version=7", false),
    ] {
        let mut scene = Scene::new(seed);
        scene.advance(4);
        let rests = scene.apply.take().unwrap().rest(&mut Default::default()).unwrap();
        assert!(rests.iter().all(|(_, rest)| rest.wal.is_none()), "{rests:?}");
        let other = Connection::open(scene.standby.join("a.db")).unwrap();
        other.query_row(statement, [], |_| Ok(())).ok();
        let open = if closes {
            drop(other);
            None
        } else {
            Some(other)
        };
        let errors = after_stop(&scene.standby, &scene, &rests, Scn::START);
        if statement.starts_with("SELECT") {
            assert!(errors.is_empty(), "{statement}: {errors:?}");
            continue;
        }
        let found: Vec<_> = errors.iter().map(|(id, error)| (*id, error.to_string())).collect();
        assert!(found.len() == 1 && found[0].0 == scene.primaries[0].id, "{statement}: {found:?}");
        assert!(found[0].1.contains("wrote to it"), "{found:?}");
        drop(open);
        // The stop is remembered without the record.
        let errors = after_stop(&scene.standby, &scene, &[], Scn::START);
        assert!(matches!(errors[..], [(_, ApplyError::Stopped { .. })]), "{errors:?}");
    }
}

#[test]
fn foreign_frames_after_those_of_a_killed_standby_are_detected() {
    for (seed, statement) in
        [(30, FOREIGN), (31, "PRAGMA user_version=7"), (32, "CREATE TABLE foreign_table(x)")]
    {
        let mut scene = Scene::new(seed);
        scene.advance(2);
        let oldest = scene.stream.end();
        scene.advance(1);
        let files = killed(&scene.standby);
        scene.apply = None;
        let other = Connection::open(files.join("a.db")).unwrap();
        other.execute_batch(statement).unwrap();
        // All redo since the first image of the database replaces any content.
        let copy = killed(&files);
        assert!(after_stop(&copy, &scene, &[], Scn::START).is_empty());
        scene.primaries.iter().for_each(|primary| primary.check(&copy));
        let errors = after_stop(&files, &scene, &[], oldest);
        let found: Vec<_> = errors.iter().map(|(id, error)| (*id, error.to_string())).collect();
        assert!(found.len() == 1 && found[0].0 == scene.primaries[0].id, "{statement}: {found:?}");
        assert!(found[0].1.contains("wrote to it"), "{found:?}");
    }
}

#[test]
fn frames_without_fact_or_redo_are_no_proof_of_a_writer() {
    /// Kind of a position, in a journal fact of 32 bytes.
    const POSITION: u8 = 1;
    for seed in 40..44 {
        let mut scene = Scene::new(seed);
        scene.advance(3);
        scene.apply.as_mut().unwrap().sync(&mut Default::default()).unwrap();
        let oldest = scene.stream.end();
        scene.advance(1);
        let files = killed(&scene.standby);
        scene.apply = None;
        // A power loss has taken the positions, and the redo of the frames before them is gone.
        let journal = files.join("apply.journal");
        let mut bytes = std::fs::read(&journal).unwrap();
        for fact in bytes[4096..].chunks_mut(32).filter(|fact| fact[4] == POSITION) {
            fact[17] ^= 4;
        }
        std::fs::write(&journal, bytes).unwrap();
        let errors = after_stop(&files, &scene, &[], oldest);
        assert!(errors.is_empty(), "seed {seed}: {errors:?}");
        scene.primaries.iter().for_each(|primary| primary.check(&files));
    }
}

#[test]
fn reader_that_keeps_the_wal_over_a_stop_is_not_a_writer() {
    let mut scene = Scene::new(33);
    let reader = Connection::open(scene.standby.join("a.db")).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM t").unwrap();
    scene.advance(3);
    let rests = scene.apply.take().unwrap().rest(&mut Default::default()).unwrap();
    assert!(rests.iter().any(|(_, rest)| rest.wal.is_some()), "{rests:?}");
    assert!(after_stop(&scene.standby, &scene, &rests, Scn::START).is_empty());
    reader.execute_batch("COMMIT; UPDATE t SET body='written after all'").unwrap();
    let errors = after_stop(&scene.standby, &scene, &rests, Scn::START);
    assert_eq!(errors.len(), 1, "{errors:?}");
}
