//! The application: a process of its own, with several threads and the extension loaded, that writes until it
//! is told to stop or killed.

pub mod client;
mod transactions;
mod writer;

use crate::acknowledgements::Acknowledgements;
use crate::{During, Result};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use writer::Writer;

/// What an application works on.
#[derive(Clone, Debug)]
pub struct ApplicationConfig {
    /// The loadable extension; without it, the application is one of stock SQLite.
    pub extension: Option<PathBuf>,
    /// One or more databases; the first ones are the main ones of the first threads.
    pub databases: Vec<PathBuf>,
    /// File of what was acknowledged.
    pub acknowledgements: PathBuf,
    /// Number of the first thread's writer; the others follow.
    pub first_writer: usize,
    /// Threads.
    pub threads: usize,
    /// What the transactions are is drawn from this.
    pub seed: u64,
    /// Only small transactions, for a campaign that looks at how long they take.
    pub light: bool,
}

/// Writes until the order to stop. Trouble with the database is waited out: an application lives on.
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
