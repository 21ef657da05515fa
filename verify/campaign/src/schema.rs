//! The tables that applications write to, and how a database is created.

use crate::{During, Result};
use rusqlite::Connection;
use std::path::Path;

/// `ledger`: the rows that are counted. `account`: updates in place. `ballast`: bulk that is inserted and deleted.
pub const SCHEMA: &str = "
    CREATE TABLE ledger(writer INTEGER NOT NULL, seq INTEGER NOT NULL, sum INTEGER NOT NULL,
                        payload BLOB NOT NULL, PRIMARY KEY(writer, seq)) WITHOUT ROWID;
    CREATE INDEX ledger_sum ON ledger(sum);
    CREATE TABLE account(id INTEGER PRIMARY KEY, balance INTEGER NOT NULL, pad TEXT NOT NULL);
    CREATE TABLE ballast(id INTEGER PRIMARY KEY, body BLOB NOT NULL);";

pub const ACCOUNTS: u64 = 5_000;

/// Writer number of rows that are rolled back; none may ever be visible.
pub const GHOST: i64 = -1;

/// Creates a database in WAL mode. `shrinking` makes it return free pages (incremental auto-vacuum).
///
/// # Errors
/// SQLite's.
pub fn create_database(path: &Path, page_size: u32, shrinking: bool) -> Result<()> {
    let during = || format!("create database {}", path.display());
    let connection = Connection::open(path).during(during)?;
    let vacuum = if shrinking { "INCREMENTAL" } else { "NONE" };
    let text = format!(
        "PRAGMA page_size={page_size}; PRAGMA auto_vacuum={vacuum}; PRAGMA journal_mode=WAL; {SCHEMA}
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<{ACCOUNTS})
         INSERT INTO account SELECT i, 0, printf('%.60c', 'x') FROM n;"
    );
    connection.execute_batch(&text).during(during)?;
    connection.close().map_err(|(_, error)| error).during(during)
}

/// Checksum of a ledger row (FNV-1a over all columns), as SQLite stores it.
pub fn row_sum(writer: u64, seq: u64, payload: &[u8]) -> i64 {
    let bytes = writer.to_le_bytes().into_iter().chain(seq.to_le_bytes()).chain(payload.iter().copied());
    let sum = bytes
        .fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    sum as i64
}
