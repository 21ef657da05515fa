use std::path::PathBuf;

/// Why a measurement gave no number.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// This machine lacks something; the measurement is skipped, not failed.
    #[error("{0}")]
    Unavailable(String),
    /// Ctrl-C, SIGTERM or SIGHUP; every process that was started has been ended.
    #[error("interrupted")]
    Interrupted,
    /// A file or process operation failed.
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    /// A program ended with a failure, or did not become ready.
    #[error("{program}: {problem}{output}")]
    Program {
        program: String,
        problem: String,
        /// The last lines of its output, each on a line of its own; may be empty.
        output: String,
    },
    /// The workload itself failed: wrong counts, or an error from the database.
    #[error("workload: {0}")]
    Workload(String),
    /// SQLite refused something outside the measured transactions.
    #[error("{what}: {source}")]
    Sqlite { what: String, source: rusqlite::Error },
    /// The harness does not understand the output of a program.
    #[error("cannot read {what}: {detail}; are both from the same build?")]
    Unreadable { what: String, detail: String },
    /// The scratch directory is on a file system in memory.
    #[error(
        "{} is in memory (tmpfs): a durable write there measures nothing; pass --dir with a directory on the disk to be measured",
        .0.display()
    )]
    InMemory(PathBuf),
}

pub type Result<T> = std::result::Result<T, BenchError>;

/// Reads a JSON document; `what` names it in the error.
pub(crate) fn parsed<T: serde::de::DeserializeOwned>(what: &str, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| BenchError::Unreadable {
        what: what.into(),
        detail: format!("{error} in {:.200}", text.trim()),
    })
}

/// Adds the operation to an error of the operating system or of SQLite.
pub(crate) trait During<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T> During<T> for std::io::Result<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| BenchError::Io { what: what(), source })
    }
}

impl<T> During<T> for rusqlite::Result<T> {
    fn during(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|source| BenchError::Sqlite { what: what(), source })
    }
}
