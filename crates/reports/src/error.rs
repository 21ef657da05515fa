//! Why snapshots cannot be written or read.

use std::path::PathBuf;

/// See the module. The remedy follows `hint:`.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// SQLite cannot do something with the repository.
    #[error(
        "cannot {doing} {path}: {source}\nhint: see to the room and the permissions of its directory; a damaged \
             repository can be moved away, a new one is begun"
    )]
    Repository {
        /// What was being done: a verb.
        doing: &'static str,
        /// The repository.
        path: PathBuf,
        /// Cause.
        source: rusqlite::Error,
    },
    /// There is no repository.
    #[error(
        "there are no snapshots: {path} does not exist\nhint: a running instance takes one every \
             snapshot.interval_s seconds; `standfast snapshot` takes one now"
    )]
    Missing {
        /// Where it would be.
        path: PathBuf,
    },
    /// It was written by another version of this program.
    #[error(
        "{path} has schema version {found}, this program knows {known}\nhint: use the version of standfast that \
             wrote it, or move it away"
    )]
    Version {
        /// The repository.
        path: PathBuf,
        /// What it says.
        found: i64,
        /// What is written here.
        known: i64,
    },
    /// A snapshot does not decode.
    #[error(
        "snapshot {id} in {path} is damaged: {why}\nhint: choose others; `standfast snapshot list` shows them"
    )]
    Damaged {
        /// Its number.
        id: i64,
        /// The repository.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// No such snapshot.
    #[error("there is no snapshot {id}\nhint: `standfast snapshot list` shows those that there are")]
    Unknown {
        /// The number that was asked for.
        id: i64,
    },
    /// Fewer snapshots than an interval needs.
    #[error(
        "an interval needs two snapshots, there are {found}\nhint: `standfast snapshot` takes one now, the \
             instance one every snapshot.interval_s seconds"
    )]
    TooFew {
        /// How many there are.
        found: usize,
    },
    /// The second snapshot is not later.
    #[error("snapshot {to} is not later than snapshot {from}\nhint: name the earlier one first")]
    Order {
        /// The first that was named.
        from: i64,
        /// The second.
        to: i64,
    },
}

impl ReportError {
    /// Whether other snapshots should have been asked for.
    pub fn is_usage(&self) -> bool {
        matches!(self, ReportError::Unknown { .. } | ReportError::Order { .. })
    }
}
