//! The workload: 100,000 accounts; a transaction updates one of them and inserts one line of history.

use std::path::{Path, PathBuf};

use rusqlite::Connection;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::error::During;

pub const ACCOUNTS: u64 = 100_000;
/// Schema for both SQLite and PostgreSQL.
pub const SCHEMA: [&str; 2] = [
    "CREATE TABLE acct(id INTEGER PRIMARY KEY, bal INTEGER, pad TEXT)",
    "CREATE TABLE hist(id INTEGER PRIMARY KEY, conn INT, seq INT, acct INT, note TEXT)",
];
/// Content of `hist.note`, 40 characters long.
pub const NOTE: &str = "0123456789012345678901234567890123456789";
pub const PAD: usize = 60;

pub const BEGIN: &str = "BEGIN IMMEDIATE";
/// First statement; its parameter is the account.
pub const UPDATE: &str = "UPDATE acct SET bal=bal+1 WHERE id=?";
/// Second statement; its parameters are the client, its transaction number and the account.
pub const INSERT: &str =
    "INSERT INTO hist(conn,seq,acct,note) VALUES(?,?,?,'0123456789012345678901234567890123456789')";
pub const COMMIT: &str = "COMMIT";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layout {
    /// All clients write to one database.
    OneDatabase,
    /// Each client writes to a database of its own.
    DatabasePerClient,
}

impl Layout {
    pub fn label(self) -> &'static str {
        match self {
            Layout::OneDatabase => "one database",
            Layout::DatabasePerClient => "database each",
        }
    }

    /// Number of databases that `clients` need.
    pub fn databases(self, clients: usize) -> usize {
        match self {
            Layout::OneDatabase => 1,
            Layout::DatabasePerClient => clients,
        }
    }
}

/// Splits clients over application processes: 40 = 4 x 10, 8 = 2 x 4, 1 = 1 x 1. Returns the number of threads of each
/// process.
pub fn processes_of(clients: usize) -> Vec<usize> {
    let processes = match clients {
        0..=3 => 1,
        4..=15 => 2,
        _ => 4,
    };
    (0..processes).map(|nth| clients / processes + usize::from(nth < clients % processes)).collect()
}

/// Creates `count` equal databases `db0.db`, `db1.db`... in `directory`: WAL mode, empty WAL, synced.
pub fn create_databases(directory: &Path, count: usize) -> Result<Vec<PathBuf>> {
    let paths: Vec<PathBuf> = (0..count).map(|nth| directory.join(format!("db{nth}.db"))).collect();
    if let Some((first, others)) = paths.split_first() {
        create_seed(first)?;
        for path in others {
            std::fs::copy(first, path)
                .during(|| format!("copy {} to {}", first.display(), path.display()))?;
        }
    }
    for path in &paths {
        let synced = std::fs::File::open(path).and_then(|file| file.sync_all());
        synced.during(|| format!("sync {}", path.display()))?;
    }
    Ok(paths)
}

fn create_seed(path: &Path) -> Result<()> {
    let during = || format!("create database {}", path.display());
    let connection = Connection::open(path).during(during)?;
    let fill = format!(
        "PRAGMA synchronous=OFF; PRAGMA journal_mode=WAL; BEGIN; {};
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<{ACCOUNTS})
         INSERT INTO acct SELECT i, 0, printf('%.{PAD}c', 'x') FROM n; COMMIT;",
        SCHEMA.join(";")
    );
    connection.execute_batch(&fill).during(during)?;
    // The last connection to close checkpoints and removes the WAL.
    connection.close().map_err(|(_, error)| error).during(during)
}

/// Accounts that a client updates. A generator per client keeps clients independent of each other.
pub struct Accounts(u64);

impl Accounts {
    /// The sequence of one client, the same in every run.
    pub fn of_client(client: usize) -> Accounts {
        Accounts((client as u64).wrapping_mul(7919).wrapping_add(1))
    }

    /// Returns a number from 1 to [`ACCOUNTS`].
    pub fn next_account(&mut self) -> u64 {
        // Knuth's multiplier; the upper half is well mixed.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        1 + (self.0 >> 33) % ACCOUNTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_spread_over_processes_as_the_workload_says() {
        assert_eq!(processes_of(40), [10, 10, 10, 10]);
        assert_eq!(processes_of(8), [4, 4]);
        assert_eq!(processes_of(1), [1]);
        for clients in 1..100 {
            assert_eq!(processes_of(clients).iter().sum::<usize>(), clients);
        }
    }

    #[test]
    fn accounts_are_in_range_and_differ_between_clients() {
        let of = |client| {
            let mut accounts = Accounts::of_client(client);
            (0..1000).map(|_| accounts.next_account()).collect::<Vec<_>>()
        };
        assert!(of(3).iter().all(|id| (1..=ACCOUNTS).contains(id)));
        assert_ne!(of(0), of(1));
        assert_eq!(of(2), of(2));
    }

    #[test]
    fn note_has_forty_characters_and_is_in_the_statement() {
        assert_eq!(NOTE.len(), 40);
        assert!(INSERT.contains(NOTE));
    }
}
