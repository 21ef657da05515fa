//! Databases of applications on a simulated machine.

use crate::Outcome;
use rusqlite::{Connection, OpenFlags};
use standfast_testkit::{Rng, SimMachine};
use standfast_types::PageSize;
use std::path::Path;
use std::sync::Arc;

/// Creates a database with the tables of the applications, durably.
pub fn create_database(machine: &Arc<SimMachine>, path: &Path, rng: &mut Rng) -> Outcome<PageSize> {
    let page_bytes = rng.pick(&[512, 1024, 1024, 4096]).copied().unwrap_or(1024);
    let auto_vacuum = rng.pick(&[0, 0, 1, 2]).copied().unwrap_or(0);
    let made = || -> rusqlite::Result<()> {
        let connection = open_plain_create(machine, path)?;
        connection.execute_batch(&format!(
            "PRAGMA page_size={page_bytes}; PRAGMA auto_vacuum={auto_vacuum}; PRAGMA journal_mode=WAL;
             CREATE TABLE ledger(writer INTEGER, seq INTEGER, PRIMARY KEY(writer, seq));
             CREATE TABLE data(id INTEGER PRIMARY KEY, tag INTEGER, body BLOB);"
        ))
    };
    made().map_err(|error| error.to_string())?;
    let image = machine.contents(path).ok_or("the new database is not there")?;
    machine.install(path, &image);
    PageSize::new(page_bytes).ok_or_else(|| "an impossible page size".to_owned())
}

fn open_plain_create(machine: &Arc<SimMachine>, path: &Path) -> rusqlite::Result<Connection> {
    Connection::open_with_flags_and_vfs(path, rusqlite::OpenFlags::default(), machine.vfs_name())
}

/// Opens a database on a machine as any program would.
pub fn open_plain(machine: &Arc<SimMachine>, path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags_and_vfs(path, flags, machine.vfs_name())?;
    connection.execute_batch("PRAGMA synchronous=NORMAL")?;
    Ok(connection)
}
