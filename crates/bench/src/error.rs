use std::path::PathBuf;

/// Why a measurement gave no number.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// Something this machine does not have; the measurement is skipped, not failed.
    #[error("{0}")]
    Unavailable(String),
    /// Ctrl-C or SIGTERM; everything started has been ended.
    #[error("interrupted")]
    Interrupted,
    /// A file or process operation failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, with the path.
        what: String,
        /// The operating system's answer.
        source: std::io::Error,
    },
    /// A program ended with a failure, or did not become ready.
    #[error("{program}: {problem}{output}")]
    Program {
        /// Its name and arguments.
        program: String,
        /// How it failed.
        problem: String,
        /// The last lines it wrote, each on a line of its own; may be empty.
        output: String,
    },
    /// The workload itself failed: wrong counts, or an error from the database.
    #[error("workload: {0}")]
    Workload(String),
    /// SQLite refused something outside the measured transactions.
    #[error("{what}: {source}")]
    Sqlite {
        /// What was being done.
        what: String,
        /// SQLite's answer.
        source: rusqlite::Error,
    },
    /// The output of a program was not what this harness understands.
    #[error("cannot read {what}: {detail}; are both from the same build?")]
    Unreadable {
        /// Which output.
        what: String,
        /// What was wrong with it.
        detail: String,
    },
    /// The scratch directory is on a file system in memory.
    #[error(
        "{} is in memory (tmpfs): a durable write there measures nothing; pass --dir with a directory on the disk to be measured",
        .0.display()
    )]
    InMemory(PathBuf),
}

/// Shorthand used through the crate.
pub type Result<T> = std::result::Result<T, BenchError>;

/// Reads a document of JSON that `what` names.
pub(crate) fn parsed<T: serde::de::DeserializeOwned>(what: &str, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| BenchError::Unreadable {
        what: what.into(),
        detail: format!("{error} in {:.200}", text.trim()),
    })
}

/// Adds what was being done to an error of the operating system.
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
