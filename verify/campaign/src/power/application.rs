//! Applications of a history: plain SQLite connections that run one after another.

use super::truth::{State, Truth};
use rusqlite::{Connection, ErrorCode, params};
use standfast_simulation::Outcome;
use standfast_simulation::databases::open_plain;
use standfast_simulation::primary::PrimaryHost;
use standfast_testkit::{Rng, SimMachine};
use standfast_types::DatabaseId;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Size in bytes above which an application deletes rows: a VACUUM must fit a log group.
const PAGE_BYTES_MAX: u64 = 120 << 10;

pub struct AppDatabase {
    /// Its path on the primary's machine.
    pub path: PathBuf,
    /// What must be found in it.
    pub truth: Truth,
    writers: Vec<Writer>,
    /// Holds a read mark, which keeps the WAL from being reset.
    reader: Option<Connection>,
}

struct Writer {
    connection: Connection,
    in_transaction: bool,
}

impl AppDatabase {
    /// Describes an existing database that has no connections yet.
    pub fn new(machine: &Arc<SimMachine>, id: DatabaseId, name: &str, path: PathBuf) -> Outcome<AppDatabase> {
        let read = || State::read(&open_plain(machine, &path)?);
        let state = read().map_err(|error| error.to_string())?;
        Ok(AppDatabase {
            truth: Truth::new(id, name.to_owned(), state),
            path,
            writers: Vec::new(),
            reader: None,
        })
    }

    /// Lets all processes that use the database die.
    pub fn die(&mut self) {
        self.writers.clear();
        self.reader = None;
        self.truth.sessions_died();
    }

    /// Whether a writer is in the middle of a write transaction.
    pub fn is_written(&self) -> bool {
        self.writers.iter().any(|writer| writer.in_transaction)
    }

    /// Rolls back every open write transaction.
    pub fn give_up_writing(&mut self) {
        self.writers.iter_mut().for_each(Writer::give_up);
    }

    /// Opens a reader, or closes the present one.
    pub fn toggle_reader(&mut self, machine: &Arc<SimMachine>) -> Outcome<()> {
        let open = || -> rusqlite::Result<Connection> {
            let reader = open_plain(machine, &self.path)?;
            reader.execute_batch("BEGIN; SELECT count(*) FROM ledger")?;
            Ok(reader)
        };
        self.reader = match self.reader.take() {
            Some(_) => None,
            None => Some(open().map_err(|error| error.to_string())?),
        };
        Ok(())
    }

    /// Runs a transaction, or a part of one, on one writer.
    pub fn turn(&mut self, host: &PrimaryHost, rng: &mut Rng) -> Outcome<()> {
        let machine = &host.machine;
        let index = match self.writers.iter().position(|writer| writer.in_transaction) {
            Some(index) => index,
            None => {
                let index = rng.below(3) as usize;
                while self.writers.len() <= index {
                    let writer = open_writer(machine, &self.path, rng).map_err(|error| error.to_string())?;
                    self.writers.push(writer);
                }
                index
            }
        };
        let writer = &mut self.writers[index];
        match writer.turn(index as i64, rng) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(rusqlite::Error::SqliteFailure(error, _))
                if matches!(error.code, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) =>
            {
                writer.give_up();
                return Ok(());
            }
            Err(error) => return Err(format!("application on {}: {error}", self.path.display())),
        }
        // Read on another connection: the cache of the writer may hold other bytes of a free page than it committed.
        let read = || State::read(&open_plain(machine, &self.path)?);
        let state = read().map_err(|error| error.to_string())?;
        if self.truth.newest() == Some(&state) {
            // Nothing changed, so there is no commit to wait for.
            return Ok(());
        }
        self.note_commit(host, state, rng)
    }

    /// Does what a session does between its commit and its wait, except for steps that it did not reach before it died.
    fn note_commit(&mut self, host: &PrimaryHost, state: State, rng: &mut Rng) -> Outcome<()> {
        let id = self.truth.id.0;
        let header = host.shared.database(self.truth.id).and_then(|database| database.header());
        let header = header.ok_or("no process publishes, yet the wal-index is inconsistent")?;
        let segment = &host.shared.segment;
        let epoch = rng.chance(90).then(|| segment.announce_generation(id, header.raw_salts()));
        if rng.chance(90) {
            segment.mark_dirty(id);
        }
        self.truth.committed(state, header.raw_salts(), header.frames(), epoch);
        Ok(())
    }
}

fn open_writer(machine: &Arc<SimMachine>, path: &Path, rng: &mut Rng) -> rusqlite::Result<Writer> {
    let connection = open_plain(machine, path)?;
    // A small cache spills: frames of open transactions are in the WAL before their commit frame.
    let cache = rng.pick(&[5, 20, 2000]).copied().unwrap_or(20);
    let autocheckpoint = rng.pick(&[0, 10, 1000]).copied().unwrap_or(0);
    connection
        .execute_batch(&format!("PRAGMA cache_size={cache}; PRAGMA wal_autocheckpoint={autocheckpoint}"))?;
    Ok(Writer { connection, in_transaction: false })
}

impl Writer {
    /// Returns true when something was committed.
    fn turn(&mut self, writer: i64, rng: &mut Rng) -> rusqlite::Result<bool> {
        let connection = &self.connection;
        if !self.in_transaction {
            let page_count: u32 = connection.query_row("PRAGMA page_count", [], |row| row.get(0))?;
            let page_bytes: u32 = connection.query_row("PRAGMA page_size", [], |row| row.get(0))?;
            if u64::from(page_count) * u64::from(page_bytes) > PAGE_BYTES_MAX {
                connection.execute("DELETE FROM data WHERE id % 5 <> ?1", [rng.below(5) as i64])?;
                return Ok(true);
            }
            match rng.below(40) {
                0 => return connection.execute_batch("VACUUM").map(|()| true),
                1 | 2 => {
                    return connection.execute_batch("PRAGMA incremental_vacuum(7)").map(|()| true);
                }
                _ => {}
            }
            connection.execute_batch("BEGIN IMMEDIATE")?;
            self.in_transaction = true;
        }
        for _ in 0..rng.between(1, 4) {
            change(connection, rng)?;
        }
        match rng.below(100) {
            0..=7 => return Ok(false),
            8..=12 => {
                self.give_up();
                return Ok(false);
            }
            _ => {}
        }
        let seq: i64 = connection.query_row(
            "SELECT coalesce(max(seq), 0) + 1 FROM ledger WHERE writer = ?1",
            [writer],
            |row| row.get(0),
        )?;
        connection.execute("INSERT INTO ledger(writer, seq) VALUES(?1, ?2)", [writer, seq])?;
        connection.execute_batch("COMMIT")?;
        self.in_transaction = false;
        Ok(true)
    }

    fn give_up(&mut self) {
        if std::mem::take(&mut self.in_transaction) {
            // Fails only when SQLite has already rolled back.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }
}

fn change(connection: &Connection, rng: &mut Rng) -> rusqlite::Result<()> {
    match rng.below(24) {
        0..=8 => insert(connection, rng, 200),
        9 => insert(connection, rng, 9_000),
        10..=15 => {
            let bytes = rng.between(1, 300) as usize;
            let body = rng.bytes(bytes);
            let (modulus, rest) = (rng.between(3, 40) as i64, rng.below(3) as i64);
            let update = "UPDATE data SET body = ?1, tag = tag + 1 WHERE id % ?2 = ?3";
            connection.execute(update, params![body, modulus, rest]).map(drop)
        }
        16 | 17 => {
            let (modulus, rest) = (rng.between(2, 20) as i64, rng.below(2) as i64);
            connection.execute("DELETE FROM data WHERE id % ?1 = ?2", [modulus, rest]).map(drop)
        }
        18 => connection.execute_batch("CREATE INDEX IF NOT EXISTS by_tag ON data(tag, id)"),
        19 => connection.execute_batch("DROP INDEX IF EXISTS by_tag"),
        20 => connection.execute_batch(
            "CREATE TABLE IF NOT EXISTS other(a, b); INSERT INTO other VALUES(1, hex(zeroblob(500)))",
        ),
        21 => connection.execute_batch("DROP TABLE IF EXISTS other"),
        _ => {
            connection.execute_batch("SAVEPOINT part")?;
            insert(connection, rng, 3_000)?;
            connection.execute("DELETE FROM data WHERE id % 3 = 1", [])?;
            let undo = if rng.chance(60) { "ROLLBACK TO part; " } else { "" };
            connection.execute_batch(&format!("{undo}RELEASE part"))
        }
    }
}

fn insert(connection: &Connection, rng: &mut Rng, bytes_max: u64) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached("INSERT INTO data(tag, body) VALUES(?1, ?2)")?;
    for _ in 0..rng.between(1, 6) {
        let bytes = rng.between(1, bytes_max) as usize;
        insert.execute(params![rng.below(10) as i64, rng.bytes(bytes)])?;
    }
    Ok(())
}
