//! A standby whose machine loses power at any sync, losing any unsynced sectors, resumes and ends in the pages of the
//! primary. It never asks for redo that it reported as no longer needed.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use rusqlite::{Connection, OpenFlags};
use standfast_apply::{
    Apply, ApplyConfig, ApplyError, ApplyEvent, ApplyReport, Condition, Limits, Pace, RedoInMemory,
    StartPoint,
};
use standfast_testkit::{CrashPlace, Loss, Rng, SimMachine, TempDir, crash_replay_line, seeds};
use standfast_types::{DatabaseId, Hint, PageSize, Scn};
use std::sync::{Arc, Mutex, OnceLock};

type Catalogue = Arc<Mutex<Vec<(DatabaseId, String, PageSize, Scn)>>>;
type Images = Vec<(Scn, Vec<Vec<u8>>)>;

/// A history of two databases, and their pages after each commit.
struct Story {
    redo: Vec<u8>,
    pages: [(&'static str, Images); 2],
}

impl Story {
    fn end(&self) -> Scn {
        Scn::START + self.redo.len() as u64
    }
}

/// Builds the story once; the second database is attached in the middle.
fn story() -> &'static Story {
    static STORY: OnceLock<Story> = OnceLock::new();
    STORY.get_or_init(|| {
        let here = TempDir::new("primary").unwrap();
        let mut stream = Stream::default();
        let mut rng = Rng::new(77);
        let mut primaries =
            [Primary::new(here.path(), 1, "a.db", 512), Primary::new(here.path(), 2, "b.db", 1024)];
        for primary in &mut primaries {
            primary.past = Some(Vec::new());
            primary.run(&mut Stream::default(), TABLE);
            primary.past = Some(Vec::new());
            primary.attach(&mut stream);
            history(primary, &mut stream, 10, &mut rng);
        }
        for _ in 0..20 {
            let index = rng.below(2) as usize;
            history(&mut primaries[index], &mut stream, 2, &mut rng);
        }
        let [a, b] = primaries;
        Story { redo: stream.bytes, pages: [("a.db", a.past.unwrap()), ("b.db", b.past.unwrap())] }
    })
}

/// State that survives the power loss: the instance's catalogue, what the standby log has hardened, and what apply has
/// promised.
#[derive(Default)]
struct Outside {
    catalogue: Catalogue,
    confirmed: Scn,
    promised: Scn,
}

fn well(report: &ApplyReport) -> Result<(), String> {
    if report.errors.is_empty() { Ok(()) } else { Err(format!("{:?}", report.errors)) }
}

fn open(machine: &Arc<SimMachine>, outside: &Outside) -> Result<Apply, ApplyError> {
    let config = ApplyConfig {
        directory: "/standby".into(),
        journal: "/standby/apply.journal".into(),
        disk: Arc::new(machine.disk()),
        vfs_base: Some(machine.vfs_name().to_owned()),
        workers: 0,
        limits: Limits {
            image_bytes: 64 << 10,
            cache_kib: 16,
            checkpoint_frames: 60,
            reset_frames: 200,
            horizon_bytes: 3_000,
            ..Limits::default()
        },
    };
    let catalogue = outside.catalogue.clone();
    let observer = move |event: &ApplyEvent| {
        if let ApplyEvent::Attached { database, name, page_size, scn } = event {
            let mut catalogue = catalogue.lock().unwrap();
            if catalogue.iter().all(|(known, ..)| known != database) {
                catalogue.push((*database, name.clone(), *page_size, *scn));
            }
        }
        Ok(())
    };
    let mut apply = Apply::open(config, Box::new(observer))?;
    for (id, name, page_size, scn) in outside.catalogue.lock().unwrap().iter() {
        apply.attach_existing(*id, name, *page_size, StartPoint::attached_at(*scn))?;
    }
    Ok(apply)
}

/// Returns the pages of a database as a plain reader sees them.
fn read(machine: &Arc<SimMachine>, name: &str) -> rusqlite::Result<Vec<Vec<u8>>> {
    let path = format!("/standby/{name}");
    let reader =
        Connection::open_with_flags_and_vfs(path, OpenFlags::SQLITE_OPEN_READ_WRITE, machine.vfs_name())?;
    let mut statement = reader.prepare("SELECT data FROM sqlite_dbpage('main')")?;
    let rows = statement.query_map([], |row| row.get(0))?;
    rows.collect()
}

fn check(machine: &Arc<SimMachine>, story: &Story, outside: &Outside, at: Scn) -> Result<(), String> {
    for (name, images) in &story.pages {
        let Some((_, expected)) = images.iter().rev().find(|(commit, _)| *commit <= at) else { continue };
        if outside.catalogue.lock().unwrap().iter().any(|(_, known, ..)| known == name) {
            let found = read(machine, name).map_err(|error| format!("{name}: {error}"))?;
            same(expected, &found, name);
        }
    }
    Ok(())
}

/// Runs one life of the standby, until the redo ends or an error occurs.
fn live(
    machine: &Arc<SimMachine>,
    story: &Story,
    outside: &mut Outside,
    rng: &mut Rng,
) -> Result<(), String> {
    let failed = |error: ApplyError| error.to_string();
    if rng.chance(30) {
        // A reader that opens the database before the standby recovers the WAL, and removes it when it closes.
        for (_, name, ..) in outside.catalogue.lock().unwrap().iter() {
            read(machine, name).map_err(|error| error.to_string())?;
        }
    }
    let mut apply = open(machine, outside).map_err(failed)?;
    // Older redo may still exist, and is needed where a reader has removed the WAL.
    if rng.chance(50) {
        let mut report = ApplyReport::default();
        apply.redo_begins_at(outside.promised, &mut report);
        well(&report)?;
        let from = apply.resume_scn().unwrap_or(Scn::START);
        assert!(from >= outside.promised, "redo from {from} is asked for, {} was promised", outside.promised);
    }
    let from = apply.resume_scn().unwrap_or(Scn::START);
    let mut redo = Chunked(RedoInMemory { first: Scn::START, bytes: &story.redo });
    let report = apply.recover(from, outside.confirmed.max(from), &mut redo).map_err(failed)?;
    well(&report)?;
    check(machine, story, outside, apply.applied())?;
    while apply.applied() < story.end() {
        let from = apply.applied();
        let start = from.bytes_since(Scn::START) as usize;
        let record = standfast_format::peek_length(&story.redo[start..]).unwrap() as u64;
        let upto = (from + record.max(200 + rng.below(6_000))).min(story.end());
        outside.confirmed = outside.confirmed.max(upto);
        let report = apply.apply(from, &story.redo[start..], upto).map_err(failed)?;
        well(&report)?;
        let mut report = ApplyReport::default();
        if rng.chance(40) {
            apply.checkpoint_if_due(&Pace::AtOnce, &mut report).map_err(failed)?;
        }
        if rng.chance(20) {
            let promised = apply.sync(&mut report).map_err(failed)?;
            apply.backfill_before(promised, &Pace::AtOnce, &mut report).map_err(failed)?;
            well(&report)?;
            outside.promised = outside.promised.max(promised);
        }
        well(&report)?;
    }
    check(machine, story, outside, story.end())
}

fn lives_of(machine: &Arc<SimMachine>, seed: u64, crashes: u32) {
    let story = story();
    let mut rng = Rng::new(seed);
    let mut outside = Outside { confirmed: Scn::START, ..Outside::default() };
    for _ in 0..crashes {
        let place = *rng.pick(&CrashPlace::ALL).unwrap();
        machine.crash_at(1 + rng.below(60), place);
        let outcome = live(machine, story, &mut outside, &mut rng);
        if machine.is_powered() {
            assert_eq!(outcome, Ok(()), "without a power loss");
        }
        let loss = if rng.chance(70) {
            Loss::Random
        } else {
            *rng.pick(&[Loss::DropUnsynced, Loss::KeepUnsynced]).unwrap()
        };
        machine.power_loss(loss, &mut rng);
    }
    machine.cancel_crash();
    assert_eq!(live(machine, story, &mut outside, &mut rng), Ok(()));
    for name in ["a.db", "b.db"] {
        let path = format!("/standby/{name}");
        let reader =
            Connection::open_with_flags_and_vfs(path, OpenFlags::SQLITE_OPEN_READ_WRITE, machine.vfs_name())
                .unwrap();
        let verdict: String = reader.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(verdict, "ok");
    }
}

#[test]
fn a_standby_survives_any_series_of_power_losses() {
    for seed in seeds(40) {
        let result = std::panic::catch_unwind(|| lives_of(&SimMachine::new(seed), seed, 5));
        assert!(result.is_ok(), "{}", crash_replay_line(seed));
    }
}

#[test]
fn standby_survives_a_power_loss_at_every_sync() {
    let story = story();
    let run = |machine: &Arc<SimMachine>| {
        let mut outside = Outside { confirmed: Scn::START, ..Outside::default() };
        let outcome = live(machine, story, &mut outside, &mut Rng::new(4));
        (outcome, outside)
    };
    let rehearsal = SimMachine::new(1);
    assert_eq!(run(&rehearsal).0, Ok(()));
    let boundaries = rehearsal.boundaries();
    assert!(boundaries > 30, "only {boundaries} boundaries");
    for boundary in 1..=boundaries {
        for (at, place) in CrashPlace::ALL.into_iter().enumerate() {
            let machine = SimMachine::new(1);
            machine.crash_at(boundary, place);
            let (_, mut outside) = run(&machine);
            machine.power_loss([Loss::Random, Loss::DropUnsynced, Loss::Random][at], &mut Rng::new(boundary));
            machine.cancel_crash();
            let outcome = live(&machine, story, &mut outside, &mut Rng::new(9));
            assert_eq!(outcome, Ok(()), "boundary {boundary} {place:?}");
        }
    }
}

#[test]
fn full_disk_pauses_apply_until_there_is_room() {
    let story = story();
    let machine = SimMachine::new(3);
    let outside = Outside { confirmed: Scn::START, ..Outside::default() };
    let mut apply = open(&machine, &outside).unwrap();
    let mut redo = RedoInMemory { first: Scn::START, bytes: &story.redo };
    apply.recover(Scn::START, Scn::START, &mut redo).unwrap();
    let half = story.redo.len() / 2;
    let report = apply.apply(Scn::START, &story.redo[..half], story.end()).unwrap();
    assert_eq!(well(&report), Ok(()));
    let (from, before) = (apply.applied(), apply.sync(&mut Default::default()).unwrap());
    machine.set_capacity(1 << 20);
    let rest = &story.redo[from.bytes_since(Scn::START) as usize..];
    let report = apply.apply(from, rest, story.end()).unwrap();
    assert!(matches!(&report.errors[..], [(_, ApplyError::Sqlite { .. }), ..]), "{:?}", report.errors);
    assert!(report.errors[0].1.for_terminal().contains("hint:"));
    apply.sync(&mut Default::default()).unwrap();
    assert_eq!(apply.durable_scn(), before, "the redo of a paused database is kept");
    machine.set_capacity(1 << 40);
    let again = apply.retry_failed().unwrap();
    assert!(again <= from);
    let report = apply.recover(again, apply.applied(), &mut redo).unwrap();
    assert_eq!(well(&report), Ok(()));
    check(&machine, story, &outside, story.end()).unwrap();
    apply.sync(&mut Default::default()).unwrap();
    assert_eq!(apply.durable_scn(), story.end());
}

#[test]
fn failed_journal_write_ends_apply_with_an_error() {
    let story = story();
    let machine = SimMachine::new(3);
    let outside = Outside { confirmed: Scn::START, ..Outside::default() };
    let mut apply = open(&machine, &outside).unwrap();
    machine.fail_at(1);
    let error = apply.apply(Scn::START, &story.redo, story.end()).unwrap_err();
    assert!(matches!(error, ApplyError::Journal { .. }), "{error}");
    assert!(error.for_terminal().contains("hint:"));
}

#[test]
fn failed_sync_stops_its_database_permanently() {
    let story = story();
    let machine = SimMachine::new(3);
    let outside = Outside { confirmed: Scn::START, ..Outside::default() };
    let mut apply = open(&machine, &outside).unwrap();
    let report = apply.apply(Scn::START, &story.redo, story.end()).unwrap();
    assert_eq!(well(&report), Ok(()));
    machine.fail_at(1);
    let mut report = ApplyReport::default();
    apply.sync(&mut report).unwrap();
    let [(stopped, ApplyError::SyncFailed { .. })] = &report.errors[..] else {
        panic!("{:?}", report.errors)
    };
    let condition = |apply: &Apply| {
        apply.databases().iter().find(|status| status.database == *stopped).unwrap().condition
    };
    assert_eq!(condition(&apply), Condition::Stopped);
    drop(apply);
    assert_eq!(condition(&open(&machine, &outside).unwrap()), Condition::Stopped);
}
