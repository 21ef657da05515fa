//! The load: a process with a thread and a connection for each of its databases. It commits small transactions as fast
//! as it can until it is ordered to stop or is killed.

use crate::acknowledgements::Acknowledgements;
use crate::application::load_extension;
use crate::{During, Result};
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Rows that are overwritten cyclically, so that a database keeps its size.
pub const ROWS: u64 = 500;
const BUSY_TIMEOUT: Duration = Duration::from_secs(20);
/// Delay after an error, which may persist.
const AFTER_ERROR: Duration = Duration::from_millis(20);

/// Creates a database of the load at `path`.
///
/// # Errors
/// SQLite's.
pub fn create_database(path: &Path) -> Result<()> {
    let during = || format!("create database {}", path.display());
    let connection = Connection::open(path).during(during)?;
    connection
        .execute_batch(
            "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=0;
             CREATE TABLE t(id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, x BLOB);
             CREATE TABLE bulk(id INTEGER PRIMARY KEY, x BLOB);",
        )
        .during(during)?;
    connection.close().map_err(|(_, error)| error).during(during)
}

/// Returns the newest row of the database at `path`, read without the extension.
///
/// # Errors
/// SQLite's.
pub fn newest(path: &Path) -> Result<u64> {
    let newest = crate::verify::open_plain(path)?.query_row(NEWEST, [], |row| row.get::<_, i64>(0));
    newest.map(|seq| seq as u64).during(|| format!("read {}", path.display()))
}

const NEWEST: &str = "SELECT coalesce(max(seq), 0) FROM t";

#[derive(Clone, Debug)]
pub struct LoadConfig {
    pub extension: PathBuf,
    pub databases: Vec<PathBuf>,
    pub acknowledgements: PathBuf,
    /// Number of the writer of each database, in the same order.
    pub writers: Vec<usize>,
}

/// Commits until the order to stop.
///
/// # Errors
/// When the extension or the file of acknowledgements cannot be used.
pub fn run(config: &LoadConfig) -> Result<()> {
    let acknowledgements = Acknowledgements::open(&config.acknowledgements)?;
    let _loaded = load_extension(&config.extension)?;
    std::thread::scope(|scope| {
        for (database, writer) in config.databases.iter().zip(&config.writers) {
            let acknowledgements = &acknowledgements;
            scope.spawn(move || {
                while !acknowledgements.stop_ordered() {
                    if let Err(error) = write(database, *writer, acknowledgements) {
                        acknowledgements.entry(*writer, 0).refuse();
                        eprintln!("{}: {error}", database.display());
                        std::thread::sleep(AFTER_ERROR);
                    }
                }
            });
        }
    });
    Ok(())
}

fn write(database: &Path, writer: usize, acknowledgements: &Acknowledgements) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(database, flags)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    let mut seq = connection.query_row(NEWEST, [], |row| row.get::<_, i64>(0))? as u64;
    let entry = acknowledgements.entry(writer, 0);
    let mut insert =
        connection.prepare("INSERT OR REPLACE INTO t(id, seq, x) VALUES (?1, ?2, zeroblob(60))")?;
    while !acknowledgements.stop_ordered() {
        seq += 1;
        entry.attempt(seq);
        let begun = Instant::now();
        let committed = insert.execute([(seq % ROWS) as i64, seq as i64]);
        entry.waited(begun.elapsed());
        committed?;
        entry.acknowledge(seq);
    }
    Ok(())
}
