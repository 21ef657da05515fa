//! A seeded history of SQLite transactions on a simulated machine, and a check of the state after a crash.

use rusqlite::{Connection, OpenFlags, Result};
use standfast_testkit::{Rng, SimMachine};
use std::collections::BTreeMap;
use std::sync::Arc;

pub const DATABASE: &str = "/db/app.db";

/// Content of the table: key to value.
pub type Rows = BTreeMap<i64, Vec<u8>>;

/// State known to the application when its history ends.
#[derive(Debug, Default)]
pub struct Known {
    /// Rows after the last commit that returned.
    pub acknowledged: Rows,
    /// Rows if the failed transaction was committed nevertheless.
    pub attempted: Option<Rows>,
}

/// How the connection is set up.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub journal: &'static str,
    pub synchronous: &'static str,
}

pub fn connect(machine: &Arc<SimMachine>) -> Result<Connection> {
    Connection::open_with_flags_and_vfs(DATABASE, OpenFlags::default(), machine.vfs_name())
}

/// Runs up to `transactions` transactions on top of `rows`; ends at the first error, because the power fails.
pub fn run_history(
    machine: &Arc<SimMachine>,
    setup: Setup,
    seed: u64,
    transactions: u32,
    rows: Rows,
) -> Known {
    let mut known = Known { acknowledged: rows, attempted: None };
    let mut rng = Rng::new(seed);
    let _ = transactions_until_an_error(machine, setup, &mut rng, transactions, &mut known);
    known
}

fn transactions_until_an_error(
    machine: &Arc<SimMachine>,
    setup: Setup,
    rng: &mut Rng,
    transactions: u32,
    known: &mut Known,
) -> Result<()> {
    let mut connection = open(machine, setup, rng)?;
    for _ in 0..transactions {
        let mut next = known.acknowledged.clone();
        known.attempted = None;
        connection.execute_batch("BEGIN IMMEDIATE")?;
        change_rows(&connection, rng, &mut next)?;
        if rng.chance(10) {
            connection.execute_batch("ROLLBACK")?;
        } else {
            known.attempted = Some(next.clone());
            connection.execute_batch("COMMIT")?;
            known.attempted = None;
            known.acknowledged = next;
        }
        match rng.below(20) {
            0 => connection.execute_batch("PRAGMA wal_checkpoint(PASSIVE)")?,
            1 => connection.execute_batch("PRAGMA wal_checkpoint(RESTART)")?,
            2 => connection.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")?,
            3 => connection.execute_batch("VACUUM")?,
            4 => {
                drop(connection);
                connection = open(machine, setup, rng)?;
            }
            _ => {}
        }
    }
    Ok(())
}

fn open(machine: &Arc<SimMachine>, setup: Setup, rng: &mut Rng) -> Result<Connection> {
    let connection = connect(machine)?;
    // A small cache makes large transactions spill into the WAL before they commit.
    connection.execute_batch(&format!(
        "PRAGMA page_size = {}; PRAGMA cache_size = 4; PRAGMA wal_autocheckpoint = {};
         PRAGMA journal_mode = {}; PRAGMA synchronous = {};
         CREATE TABLE IF NOT EXISTS kept(key INTEGER PRIMARY KEY, value BLOB);",
        512 << rng.below(4),
        rng.between(5, 40),
        setup.journal,
        setup.synchronous
    ))?;
    Ok(connection)
}

fn change_rows(connection: &Connection, rng: &mut Rng, rows: &mut Rows) -> Result<()> {
    let changes = if rng.chance(10) { 30 } else { rng.between(1, 4) };
    for _ in 0..changes {
        let key = rng.below(60) as i64;
        if rng.chance(20) {
            connection.execute("DELETE FROM kept WHERE key = ?1", [key])?;
            rows.remove(&key);
        } else {
            let bytes_max = if rng.chance(5) { 9000 } else { 300 };
            let bytes = rng.below(bytes_max) as usize;
            let value = rng.bytes(bytes);
            connection.execute("REPLACE INTO kept VALUES (?1, ?2)", (key, &value))?;
            rows.insert(key, value);
        }
    }
    Ok(())
}

/// Opens the database as after a reboot, lets SQLite recover it and returns its rows; the error describes any
/// corruption.
pub fn recover(machine: &Arc<SimMachine>) -> std::result::Result<Rows, String> {
    read_rows(machine).map_err(|error| error.to_string())?
}

fn read_rows(machine: &Arc<SimMachine>) -> Result<std::result::Result<Rows, String>> {
    let connection = connect(machine)?;
    let verdict: String = connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
    if verdict != "ok" {
        return Ok(Err(verdict));
    }
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    if tables == 0 {
        return Ok(Ok(Rows::new()));
    }
    let mut statement = connection.prepare("SELECT key, value FROM kept")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(Ok(rows.collect::<Result<Rows>>()?))
}

/// Checks that the recovered database holds every acknowledged commit, and at most the one whose COMMIT failed besides.
pub fn check(machine: &Arc<SimMachine>, known: &Known) -> std::result::Result<Rows, String> {
    let rows = recover(machine)?;
    if rows == known.acknowledged || Some(&rows) == known.attempted.as_ref() {
        return Ok(rows);
    }
    let missing = known.acknowledged.iter().filter(|(key, value)| rows.get(key) != Some(value)).count();
    Err(format!("{missing} of {} acknowledged rows are missing or differ", known.acknowledged.len()))
}
