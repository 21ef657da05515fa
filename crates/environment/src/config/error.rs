//! Why an operation on an instance failed.

use rusqlite::ErrorCode;
use standfast_sqlite_wal::guard::GuardError;
use standfast_types::Hint;
use standfast_types::hint;
use std::borrow::Cow;
use std::path::PathBuf;

/// Why an operation on an instance failed. [`InstanceError::exit_code`] gives the exit code of the command line.
#[derive(Debug, thiserror::Error)]
pub enum InstanceError {
    #[error(transparent)]
    Config(#[from] crate::config::settings::ConfigError),
    #[error(transparent)]
    Log(#[from] standfast_log::LogError),
    #[error(transparent)]
    Guard(#[from] GuardError),
    #[error(transparent)]
    Capture(#[from] standfast_sqlite_wal::capture::CaptureError),
    #[error(transparent)]
    Segment(#[from] standfast_session::SegmentError),
    #[error("SQLite: {0}")]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Apply(#[from] standfast_apply::ApplyError),
    /// An error of a library that this crate does not know; `is_usage`: of the command line.
    #[error("{error}")]
    Other { error: Box<dyn std::error::Error + Send + Sync>, hint: Option<String>, is_usage: bool },
    /// A file could not be used.
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// What was being done: a verb and its object.
        doing: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    /// Stopped while no log switch was possible.
    #[error("stopped while commits waited for a log switch: {why}")]
    StoppedWaiting { why: String },
    /// A write or a sync of a protected database failed, or it cannot be captured.
    #[error(
        "database {name} has failed: {why}; what of it is on disk is not known, so no more is moved into it and no \
         commit to it is accepted"
    )]
    DatabaseFailed { name: String, why: String },
    /// A database was rebuilt, and is not served from the rebuilt file yet.
    #[error("database {name} is still offline, though it was made again: {why}; {kept}")]
    NotTaken { name: String, why: String, kept: String },
    /// The request cannot be carried out in the present state: what and why, and what to do.
    #[error("{what}")]
    Refused { what: String, hint: String },
    /// The instance does not run, or cannot be reached.
    #[error("the instance in {directory} does not run")]
    NotRunning { directory: PathBuf },
    #[error("the instance in {directory} already runs")]
    AlreadyRunning { directory: PathBuf },
    /// An error of a running instance, or one that was stored or sent as text.
    #[error("{what}")]
    Answered { what: String, hint: Option<String>, code: u8 },
    /// The instance has ended with an error that it has reported itself.
    #[error("the instance ended with an error; its alert log says which")]
    Reported { code: u8 },
    /// The instance met an error from which it cannot continue.
    #[error("{0}")]
    Failed(String),
}

impl Hint for InstanceError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            InstanceError::Config(error) => return error.hint(),
            InstanceError::Log(error) => return error.hint(),
            InstanceError::Guard(error) => return error.hint(),
            InstanceError::Capture(error) => return error.hint(),
            InstanceError::Segment(error) => error.hint()?.into(),
            InstanceError::Apply(error) => return error.hint(),
            InstanceError::Io { source, .. } => return standfast_io::remedy(source),
            InstanceError::StoppedWaiting { .. } => {
                "these commits are in their databases; they are taken up when the instance starts again, once \
                 there is room".into()
            }
            InstanceError::DatabaseFailed { .. } => {
                "fix the cause (for an error of a file, check its disk), then restart the instance: it writes \
                 the write-ahead log again and applies what is missing out of the redo, which is kept".into()
            }
            InstanceError::NotTaken { name, .. } => format!(
                "fix the cause, then give `standfast database resolve {name} --keep redo` again"
            )
            .into(),
            InstanceError::Refused { hint, .. } => hint.as_str().into(),
            InstanceError::NotRunning { directory } => {
                format!("start it with `standfast start -D {}`", directory.display()).into()
            },
            InstanceError::AlreadyRunning { directory } => {
                format!("stop it with `standfast stop -D {}`, or use another directory", directory.display()).into()
            },
            InstanceError::Answered { hint, .. } => hint.as_deref()?.into(),
            InstanceError::Sqlite(_) | InstanceError::Reported { .. } | InstanceError::Failed(_) => return None,
            InstanceError::Other { hint, .. } => hint.as_deref()?.into(),
        })
    }
}

impl InstanceError {
    /// Builds a refusal with its remedy.
    pub fn refused(what: impl Into<String>, hint: impl Into<String>) -> InstanceError {
        InstanceError::Refused { what: what.into(), hint: hint.into() }
    }

    /// Builds a failure with its remedy.
    pub fn failed(what: impl Into<String>, hint: impl Into<String>) -> InstanceError {
        InstanceError::Answered { what: what.into(), hint: Some(hint.into()), code: 1 }
    }

    /// Builds a failure of the text of an error, which may contain a hint.
    pub fn of_text(text: &str) -> InstanceError {
        let (what, hint) = hint::split(text);
        InstanceError::Answered { what: what.to_owned(), hint: hint.map(str::to_owned), code: 1 }
    }

    /// For `map_err`: what was being done (a verb and its object), and the file.
    pub fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> InstanceError {
        let path = path.into();
        move |source| InstanceError::Io { doing, path, source }
    }

    /// Whether another process has a lock or a lease on the database, which is released at the latest when that process
    /// ends.
    pub fn is_held_by_others(&self) -> bool {
        match self {
            InstanceError::Guard(GuardError::Busy { .. } | GuardError::Leased(_)) => true,
            InstanceError::Sqlite(error) => matches!(
                error.sqlite_error_code(),
                Some(
                    ErrorCode::DatabaseBusy
                        | ErrorCode::DatabaseLocked
                        | ErrorCode::FileLockingProtocolFailed
                )
            ),
            _ => false,
        }
    }

    /// Returns the exit code: 1 failed, 2 usage or configuration, 3 refused in the present state, 4 instance not
    /// running, 5 already running.
    pub fn exit_code(&self) -> u8 {
        match self {
            InstanceError::Config(_) | InstanceError::Log(standfast_log::LogError::Geometry { .. }) => 2,
            InstanceError::Other { is_usage: true, .. } => 2,
            InstanceError::Refused { .. }
            | InstanceError::Log(standfast_log::LogError::Foreign { .. })
            | InstanceError::Guard(GuardError::Journal(_) | GuardError::Leased(_)) => 3,
            InstanceError::Answered { code, .. } | InstanceError::Reported { code } => *code,
            InstanceError::NotRunning { .. } => 4,
            InstanceError::AlreadyRunning { .. } => 5,
            _ => 1,
        }
    }
}

impl From<standfast_log::Refusal> for InstanceError {
    fn from(standfast_log::Refusal { what, hint }: standfast_log::Refusal) -> InstanceError {
        InstanceError::refused(what, hint)
    }
}
