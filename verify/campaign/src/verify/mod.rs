//! Checks of databases with plain SQLite.

mod ledger;
mod pages;

pub use ledger::check_ledger;
pub use pages::{Comparison, compare_pages};

use crate::{During, Result};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Findings {
    /// Acknowledged rows that are missing or damaged.
    pub lost: u64,
    /// Rows that must not be there: rolled back, never attempted, or after a gap.
    pub surplus: u64,
    pub integrity_failures: u64,
    /// Pages that differ between primary and standby.
    pub page_differences: u64,
    #[serde(skip)]
    pub notes: Vec<String>,
}

impl Findings {
    pub fn none(&self) -> bool {
        self.lost + self.surplus + self.integrity_failures + self.page_differences == 0
    }

    /// Adds the findings of another check.
    pub fn add(&mut self, other: Findings) {
        self.lost += other.lost;
        self.surplus += other.surplus;
        self.integrity_failures += other.integrity_failures;
        self.page_differences += other.page_differences;
        self.notes.extend(other.notes);
    }
}

/// Opens a database for reading, without the extension, as `sqlite3` would.
///
/// # Errors
/// SQLite's.
pub fn open_plain(path: &Path) -> Result<Connection> {
    let during = || format!("open {}", path.display());
    let connection = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).during(during)?;
    connection.busy_timeout(Duration::from_secs(30)).during(during)?;
    // Lets pages be compared even if this SQLite does not understand the schema.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_WRITABLE_SCHEMA, true).during(during)?;
    Ok(connection)
}

/// Runs `PRAGMA integrity_check`.
///
/// # Errors
/// SQLite's, when the check itself cannot be made.
pub fn check_integrity(path: &Path) -> Result<Findings> {
    let answer = open_plain(path)?.query_row("PRAGMA integrity_check", [], |row| row.get::<_, String>(0));
    let answer = answer.during(|| format!("check {}", path.display()))?;
    let mut findings = Findings::default();
    if answer != "ok" {
        findings.integrity_failures = 1;
        findings.notes.push(format!("integrity_check of {}: {answer}", path.display()));
    }
    Ok(findings)
}
