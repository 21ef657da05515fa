//! A WAL that is partly backfilled and rewritten, on a machine that loses power at any time. What is left is the state
//! after a commit, no older than what was promised; or, where nothing of the new WAL counts, a database file from which
//! the redo continues: each of its pages is as some commit left it, from the promised one on.

#![allow(clippy::unwrap_used)]

use rusqlite::{Connection, OpenFlags};
use standfast_sqlite_wal::guard::{Guard, register_guard_vfs};
use standfast_sqlite_wal::pace::Pace;
use standfast_sqlite_wal::rewriting::{Suffix, WalSnapshot};
use standfast_sqlite_wal::{VfsFile, VfsFileKind};
use standfast_testkit::{CrashPlace, Loss, Rng, SimMachine, crash_replay_line, seeds};
use standfast_types::{PageSize, Scn};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATH: &str = "/app.db";
const PAGE_BYTES: usize = 512;

type Pages = Vec<Vec<u8>>;

/// The pages of the database after each commit.
type History = Arc<Mutex<Vec<Pages>>>;

fn size() -> PageSize {
    PageSize::from_header_field(PAGE_BYTES as u16).unwrap()
}

fn plain(machine: &Arc<SimMachine>) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
    let connection = Connection::open_with_flags_and_vfs(PATH, flags, machine.vfs_name())?;
    // SQLite syncs the header of a WAL before anything behind it, but no commit.
    connection.execute_batch("PRAGMA wal_autocheckpoint=0; PRAGMA synchronous=NORMAL")?;
    Ok(connection)
}

fn pages(machine: &Arc<SimMachine>) -> rusqlite::Result<Pages> {
    let connection = plain(machine)?;
    let mut statement = connection.prepare("SELECT data FROM sqlite_dbpage('main')")?;
    let rows = statement.query_map([], |row| row.get(0))?;
    rows.collect()
}

/// What a run leaves when the power fails.
struct Outcome {
    history: Vec<Pages>,
    /// The database file alone is at least at this commit.
    in_file: usize,
    /// The file and the WAL together are at least at this commit.
    in_log: usize,
    rewritten: u32,
}

struct Life {
    machine: Arc<SimMachine>,
    instance: Connection,
    wal: VfsFile,
    readers: Vec<Connection>,
    history: History,
    snapshot: Option<WalSnapshot>,
    suffix: Option<Suffix>,
    in_file: usize,
    in_log: usize,
    rewritten: u32,
}

/// Runs a transaction of an application; does nothing when another connection writes.
fn change(machine: &Arc<SimMachine>, history: &History, rng: &mut Rng) -> rusqlite::Result<()> {
    let application = plain(machine)?;
    application.execute_batch(&format!("PRAGMA cache_size={}", [3, 2000][rng.below(2) as usize]))?;
    let sql = match rng.below(40) {
        0 => "VACUUM".to_owned(),
        1 => format!("DELETE FROM t WHERE id % 7 = {}", rng.below(7)),
        2..=6 => format!("INSERT INTO t(n, pad) VALUES(0, zeroblob({}))", rng.between(100, 900)),
        _ => format!("UPDATE t SET n = n + 1 WHERE id % {} = {}", rng.between(3, 40), rng.below(3)),
    };
    match application.execute_batch(&sql) {
        Err(error) if error.sqlite_error_code() == Some(rusqlite::ErrorCode::DatabaseBusy) => return Ok(()),
        result => result?,
    }
    let pages = pages(machine)?;
    let mut history = history.lock().unwrap();
    if history.last() != Some(&pages) {
        history.push(pages);
    }
    Ok(())
}

impl Life {
    fn begin(machine: &Arc<SimMachine>) -> Life {
        let vfs = register_guard_vfs(Some(machine.vfs_name())).unwrap();
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE;
        let instance = Connection::open_with_flags_and_vfs(PATH, flags, vfs.as_str()).unwrap();
        instance
            .execute_batch(&format!(
                "PRAGMA page_size={PAGE_BYTES}; PRAGMA journal_mode=OFF; PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0;
                 CREATE TABLE t(id INTEGER PRIMARY KEY, n INTEGER, pad BLOB);
                 WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 30)
                 INSERT INTO t SELECT i, 0, zeroblob(300) FROM n"
            ))
            .unwrap();
        Guard::of(&instance).unwrap().hold_checkpoint_lock().unwrap();
        instance.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(())).unwrap();
        let wal = VfsFile::open(Some(machine.vfs_name()), PATH.as_ref(), VfsFileKind::Wal).unwrap();
        let history = Arc::new(Mutex::new(vec![pages(machine).unwrap()]));
        Life {
            machine: machine.clone(),
            instance,
            wal,
            readers: Vec::new(),
            history,
            snapshot: None,
            suffix: None,
            in_file: 0,
            in_log: 0,
            rewritten: 0,
        }
    }

    fn newest(&self) -> usize {
        self.history.lock().unwrap().len() - 1
    }

    fn snapshot(&self) -> Option<WalSnapshot> {
        let scn = Scn(self.newest() as u64);
        Guard::of(&self.instance).ok()?.settled_wal_header().ok().map(|header| WalSnapshot { header, scn })
    }

    /// Runs until the power fails, or to the end.
    fn run(mut self, rng: &mut Rng) -> Outcome {
        for _ in 0..rng.between(20, 90) {
            match rng.below(100) {
                0..=5 => self.machine.crash_at(1 + rng.below(4), *rng.pick(&CrashPlace::ALL).unwrap()),
                6..=40 => self.change_at(1 + rng.below(3), rng.fork()),
                _ => self.machine.cancel_crash(),
            }
            if self.step(rng).is_none() && !self.machine.is_powered() {
                break;
            }
        }
        let history = std::mem::take(&mut *self.history.lock().unwrap());
        Outcome { history, in_file: self.in_file, in_log: self.in_log, rewritten: self.rewritten }
    }

    /// Lets an application write while something is synced.
    fn change_at(&self, boundary: u64, mut rng: Rng) {
        let (machine, history) = (self.machine.clone(), self.history.clone());
        self.machine.at_boundary(boundary, move || {
            (0..rng.between(1, 3)).for_each(|_| _ = change(&machine, &history, &mut rng));
        });
    }

    fn step(&mut self, rng: &mut Rng) -> Option<()> {
        match rng.below(100) {
            0..=49 => change(&self.machine, &self.history, rng).ok(),
            50..=57 if self.readers.len() < 3 => {
                let reader = plain(&self.machine).ok()?;
                reader.execute_batch("BEGIN; SELECT count(*) FROM t").ok()?;
                self.readers.push(reader);
                Some(())
            }
            50..=69 => {
                let index = rng.below(self.readers.len().max(1) as u64) as usize;
                (index < self.readers.len()).then(|| drop(self.readers.remove(index)));
                Some(())
            }
            70..=73 => {
                self.snapshot = self.snapshot();
                Some(())
            }
            74..=83 if self.suffix.is_none() => self.backfill_prefix(),
            // A later backfill does not make the suffix shorter.
            74..=77 => self.move_some().map(drop),
            78..=93 => self.rewrite(rng),
            94..=97 => {
                let newest = self.newest();
                self.wal.sync().ok()?;
                self.in_log = newest;
                Some(())
            }
            _ => self.reset(),
        }
    }

    fn move_some(&mut self) -> Option<bool> {
        let guard = Guard::of(&self.instance).ok()?;
        let passive = || self.instance.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        guard.at_pace(&Pace::AtOnce, passive).ok()?;
        Some(true)
    }

    fn backfill_prefix(&mut self) -> Option<()> {
        let snapshot = self.snapshot.take().or_else(|| self.snapshot())?;
        self.move_some()?;
        let guard = Guard::of(&self.instance).ok()?;
        let is_state = guard.complete_backfill(&mut self.wal, size()).ok()?;
        guard.sync_backfilled().ok()?;
        self.suffix = is_state.then(|| Suffix::behind(&guard, &[snapshot], 1000)).flatten();
        if let Some(suffix) = &self.suffix {
            self.in_file = self.in_file.max(suffix.scn().0 as usize);
        }
        Some(())
    }

    fn rewrite(&mut self, rng: &mut Rng) -> Option<()> {
        let suffix = self.suffix?;
        // The WAL is needed as it is.
        if self.in_log > suffix.scn().0 as usize {
            self.suffix = None;
            return Some(());
        }
        let guard = Guard::of(&self.instance).ok()?;
        guard.sync_backfilled().ok()?;
        let Some(prepared) = guard.prepare_rewrite(&mut self.wal, size()).ok()? else { return Some(()) };
        if rng.chance(50) {
            change(&self.machine, &self.history, rng).ok()?;
        }
        guard.hold_write_lock().ok()?;
        let log = guard.rewrite_log(&mut self.wal, prepared, Duration::ZERO, || ());
        guard.release_write_lock();
        if log.ok()?.is_some() {
            self.rewritten += 1;
            self.suffix = None;
            // Nothing of it is on disk except the header.
            if rng.chance(20) {
                self.machine.cut_power();
            }
        }
        Some(())
    }

    fn reset(&mut self) -> Option<()> {
        let guard = Guard::of(&self.instance).ok()?;
        guard.hold_write_lock().ok()?;
        let reset =
            || self.instance.query_row("PRAGMA wal_checkpoint(RESTART)", [], |row| row.get::<_, i64>(0));
        let busy = reset();
        let newest = self.newest();
        guard.release_write_lock();
        if busy.ok()? == 0 {
            self.suffix = None;
            self.in_file = newest;
            self.in_log = newest;
        }
        Some(())
    }
}

/// Checks what a power loss left; true when the WAL was inconsistent.
fn check(machine: &Arc<SimMachine>, outcome: &Outcome) -> bool {
    let Outcome { history, in_file, in_log, .. } = outcome;
    let file = machine.contents(PATH).unwrap();
    let vfs = register_guard_vfs(Some(machine.vfs_name())).unwrap();
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE;
    let connection = Connection::open_with_flags_and_vfs(PATH, flags, vfs.as_str()).unwrap();
    connection.query_row("SELECT count(*) FROM sqlite_schema", [], |_| Ok(())).unwrap();
    let position = Guard::of(&connection).unwrap().wal_position();
    let torn = position.is_ok_and(|found| found.salts.is_of_rewritten_log() && found.frame == 0);
    if torn {
        let since = &history[*in_file..];
        for (index, found) in file.chunks(PAGE_BYTES).enumerate() {
            let known: Vec<_> = since.iter().map(|pages| pages.get(index).map(Vec::as_slice)).collect();
            // Beyond the end of some state the page may hold anything.
            assert!(known.contains(&Some(found)) || known.contains(&None), "page {}", index + 1);
        }
        let least = since.iter().map(Vec::len).min().unwrap();
        assert!(file.len() >= least * PAGE_BYTES, "{} bytes, {least} pages", file.len());
    } else {
        let found = pages(machine).unwrap();
        let since = &history[*in_file.max(in_log)..];
        assert!(since.contains(&found), "no state from commit {} on", in_file.max(in_log));
        let verdict: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
        assert_eq!(verdict, "ok");
    }
    torn
}

#[test]
fn redo_continues_after_any_power_loss_during_wal_rewrites() {
    let (mut rewritten, mut torn) = (0, 0);
    let all = seeds(1000);
    for seed in all.clone() {
        let result = std::panic::catch_unwind(|| {
            let machine = SimMachine::new(seed);
            let mut rng = Rng::new(seed);
            let outcome = Life::begin(&machine).run(&mut rng);
            let loss = [Loss::Random, Loss::Random, Loss::DropUnsynced][rng.below(3) as usize];
            machine.power_loss(loss, &mut rng);
            (outcome.rewritten, check(&machine, &outcome))
        });
        assert!(result.is_ok(), "{}", crash_replay_line(seed));
        let (times, is_torn) = result.unwrap();
        rewritten += times;
        torn += u32::from(is_torn);
    }
    println!("{rewritten} rewritten WALs, {torn} inconsistent");
    assert!(all.end - all.start < 1000 || (rewritten > 100 && torn > 5), "{rewritten} {torn}");
}
