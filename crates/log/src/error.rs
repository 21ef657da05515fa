use standfast_format::DecodeError;
use standfast_types::Scn;
use std::path::PathBuf;

/// Why the redo log cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The file system failed.
    #[error("cannot {doing} {path}: {source}{}", standfast_io::hint(source))]
    Io {
        /// What was being done: a verb and its object.
        doing: &'static str,
        /// File concerned.
        path: PathBuf,
        /// Cause.
        source: std::io::Error,
    },
    /// A write failed once; whether it reached the disk is unknown, so it is never retried.
    #[error(
        "the redo log is poisoned: a write at SCN {at} failed ({cause})\nhint: repair the device, then restart the instance; recovery keeps everything that was acknowledged"
    )]
    Poisoned {
        /// Position of the failed write.
        at: Scn,
        /// Its cause.
        cause: String,
    },
    /// A file is not what the configuration says.
    #[error(
        "redo log {path}: {source}\nhint: restore the file from another member, or start with the directory it belongs to"
    )]
    Damaged {
        /// File concerned.
        path: PathBuf,
        /// What is wrong.
        source: DecodeError,
    },
    /// No log holds the position.
    #[error(
        "no redo log holds SCN {at}; the oldest begins at SCN {oldest}\nhint: a standby that needs it must be created anew"
    )]
    TooOld {
        /// Position asked for.
        at: Scn,
        /// Oldest position that can be read.
        oldest: Scn,
    },
    /// A group has only members that were dropped earlier.
    #[error(
        "redo log {path} is all that is left of its group, and it lacks redo: it was dropped while another member went on\nhint: bring the other member back (redo.members names its directory); without it what was acknowledged since is lost here, and a standby has to take over (`standfast failover` there)"
    )]
    OnlyDistrusted {
        /// File concerned.
        path: PathBuf,
    },
    /// Existing files do not have the geometry of the configuration.
    #[error(
        "redo log {path} has {setting} = {found}, but {configured} is configured\nhint: set {setting} = {found} again in standfast.toml; existing logs cannot be resized"
    )]
    Geometry {
        /// File concerned.
        path: PathBuf,
        /// Full name of the setting.
        setting: &'static str,
        /// What the files have.
        found: u64,
        /// What is configured.
        configured: u64,
    },
    /// An archived log is not what it says it is.
    #[error(
        "archived log {path} is damaged or incomplete: nothing of it is right from SCN {at} on\nhint: copy it again from the instance that archived it; `standfast log dump FILE` shows what is left of it"
    )]
    NotWhole {
        /// File concerned.
        path: PathBuf,
        /// First position that cannot be read.
        at: Scn,
    },
    /// A group without members was to be read.
    #[error("a redo log group has no member that can be read")]
    Unopened,
    /// There are no usable log groups.
    #[error("no valid redo log group in {directory}\nhint: is this a directory made by `standfast init`?")]
    NoGroups {
        /// Where they were looked for.
        directory: PathBuf,
    },
}

impl LogError {
    pub(crate) fn io(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> LogError {
        let path = path.into();
        move |source| LogError::Io { doing, path, source }
    }
}
