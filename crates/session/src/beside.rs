//! The files that SQLite keeps beside a database.

use std::path::{Path, PathBuf};

pub fn wal_path(database: &Path) -> PathBuf {
    beside(database, "-wal")
}

pub fn wal_index_path(database: &Path) -> PathBuf {
    beside(database, "-shm")
}

pub fn journal_path(database: &Path) -> PathBuf {
    beside(database, "-journal")
}

pub(crate) fn beside(database: &Path, suffix: &str) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}
