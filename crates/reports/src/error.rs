//! Why snapshots cannot be written or read.

use std::path::PathBuf;

/// The remedy follows `hint:` in the text.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(
        "cannot {doing} {path}: {source}\nhint: see to the room and the permissions of its directory; a damaged \
             repository can be moved away, a new one is begun"
    )]
    Repository { doing: &'static str, path: PathBuf, source: rusqlite::Error },
    #[error(
        "there are no snapshots: {path} does not exist\nhint: a running instance takes one every \
             snapshot.interval_s seconds; `standfast snapshot` takes one now"
    )]
    Missing { path: PathBuf },
    /// Another version of this program wrote the repository.
    #[error(
        "{path} has schema version {found}, this program knows {known}\nhint: use the version of standfast that \
             wrote it, or move it away"
    )]
    Version { path: PathBuf, found: i64, known: i64 },
    #[error(
        "snapshot {id} in {path} is damaged: {why}\nhint: choose others; `standfast snapshot list` shows them"
    )]
    Damaged { id: i64, path: PathBuf, why: String },
    #[error("there is no snapshot {id}\nhint: `standfast snapshot list` shows those that there are")]
    Unknown { id: i64 },
    #[error(
        "an interval needs two snapshots, there are {found}\nhint: `standfast snapshot` takes one now, the \
             instance one every snapshot.interval_s seconds"
    )]
    TooFew { found: usize },
    #[error("snapshot {to} is not later than snapshot {from}\nhint: name the earlier one first")]
    Order {
        /// The snapshot that was named first.
        from: i64,
        /// The snapshot that was named second.
        to: i64,
    },
}

impl ReportError {
    /// Whether the caller named the wrong snapshots.
    pub fn is_usage(&self) -> bool {
        matches!(self, ReportError::Unknown { .. } | ReportError::Order { .. })
    }
}
