//! The application: a separate process with several threads and the extension loaded. It writes until it is ordered to
//! stop or is killed.

pub mod client;
mod transactions;
mod writer;

use crate::acknowledgements::Acknowledgements;
use crate::{During, Result};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use writer::Writer;

#[derive(Clone, Debug)]
pub struct ApplicationConfig {
    /// The loadable extension; without it, the application uses stock SQLite.
    pub extension: Option<PathBuf>,
    /// One or more databases. Thread `n` has database `n` (modulo their number) as its main one.
    pub databases: Vec<PathBuf>,
    pub acknowledgements: PathBuf,
    /// Number of the first thread's writer; the others follow.
    pub first_writer: usize,
    pub threads: usize,
    pub seed: u64,
    /// Only small transactions, for a campaign that measures how long they take.
    pub light: bool,
}

/// Writes until the order to stop. Retries after errors of the database: an application keeps running.
///
/// # Errors
/// When the extension or the file of acknowledgements cannot be used.
pub fn run(config: &ApplicationConfig) -> Result<()> {
    let acknowledgements = Acknowledgements::open(&config.acknowledgements)?;
    let _loaded = config.extension.as_deref().map(load_extension).transpose()?;
    std::thread::scope(|scope| {
        for thread in 0..config.threads {
            let acknowledgements = &acknowledgements;
            scope.spawn(move || Writer::new(config, acknowledgements, thread).work());
        }
    });
    Ok(())
}

/// Loads the extension into this process: every connection opened afterwards goes through its VFS.
///
/// # Errors
/// SQLite's.
pub fn load_extension(path: &Path) -> Result<Connection> {
    let during = || format!("load {}", path.display());
    let connection = Connection::open_in_memory().during(during)?;
    // SAFETY: the library is the one under test, built for SQLite; it stays loaded.
    unsafe {
        connection.load_extension_enable().during(during)?;
        connection.load_extension(path, Some("sqlite3_extension_init")).during(during)?;
    }
    connection.load_extension_disable().during(during)?;
    Ok(connection)
}
