//! Why snapshots cannot be written or read.

use standfast_types::Hint;
use std::borrow::Cow;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error("cannot {doing} {path}: {source}")]
    Repository { doing: &'static str, path: PathBuf, source: rusqlite::Error },
    #[error("there are no snapshots: {path} does not exist")]
    Missing { path: PathBuf },
    /// Another version of this program wrote the repository.
    #[error("{path} has schema version {found}, this program knows {known}")]
    Version { path: PathBuf, found: i64, known: i64 },
    #[error("snapshot {id} in {path} is damaged: {why}")]
    Damaged { id: i64, path: PathBuf, why: String },
    #[error("there is no snapshot {id}")]
    Unknown { id: i64 },
    #[error("an interval needs two snapshots, there are {found}")]
    TooFew { found: usize },
    #[error("snapshot {to} is not later than snapshot {from}")]
    Order {
        /// The snapshot that was named first.
        from: i64,
        /// The snapshot that was named second.
        to: i64,
    },
}

impl Hint for ReportError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            ReportError::Repository { .. } => {
                "see to the room and the permissions of its directory; a damaged repository can be moved away, a \
                 new one is begun".into()
            }
            ReportError::Missing { .. } => {
                "a running instance takes one every snapshot.interval_s seconds; `standfast snapshot` takes one \
                 now".into()
            }
            ReportError::Version { .. } => {
                "use the version of standfast that wrote it, or move it away".into()
            }
            ReportError::Damaged { .. } => "choose others; `standfast snapshot list` shows them".into(),
            ReportError::Unknown { .. } => "`standfast snapshot list` shows those that there are".into(),
            ReportError::TooFew { .. } => {
                "`standfast snapshot` takes one now, the instance one every snapshot.interval_s seconds".into()
            }
            ReportError::Order { .. } => "name the earlier one first".into(),
        })
    }
}

impl ReportError {
    /// Whether the caller named the wrong snapshots.
    pub fn is_usage(&self) -> bool {
        matches!(self, ReportError::Unknown { .. } | ReportError::Order { .. })
    }
}
