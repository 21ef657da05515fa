//! Why an operation on the redo log failed.

use standfast_format::DecodeError;
use standfast_types::{Hint, InstanceId, Scn};
use std::borrow::Cow;
use std::path::PathBuf;

/// Why an operation on the redo log failed.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error("cannot {doing} {path}: {source}")]
    Io {
        /// The failed operation: a verb and its object.
        doing: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    /// A write failed. Whether it reached the disk is unknown, so it is never retried.
    #[error("the redo log is poisoned: a write at SCN {at} failed ({cause})")]
    Poisoned { at: Scn, cause: String },
    /// A file of another format version, or a damaged record.
    #[error("redo log {path}: {source}")]
    Damaged { path: PathBuf, source: DecodeError },
    #[error("no redo log holds SCN {at}; the oldest begins at SCN {oldest}")]
    TooOld {
        at: Scn,
        /// Oldest position that can be read.
        oldest: Scn,
    },
    /// No log holds the position, although one should.
    #[error("no redo log holds SCN {at}: an archived log is missing in {directory}")]
    Missing { at: Scn, directory: PathBuf },
    /// Every member of a group is stale: all of them were dropped earlier.
    #[error(
        "redo log {path} is all that is left of its group, and it lacks redo: it was dropped while another member went on"
    )]
    OnlyDistrusted { path: PathBuf },
    /// The files have another geometry than the configuration.
    #[error("redo log {path} has {setting} = {found}, but {configured} is configured")]
    Geometry { path: PathBuf, setting: &'static str, found: u64, configured: u64 },
    /// An archived log is damaged, incomplete, or not a finished archived log.
    #[error("archived log {path} is damaged or incomplete: nothing of it is right from SCN {at} on")]
    NotWhole {
        path: PathBuf,
        /// First SCN that cannot be read.
        at: Scn,
    },
    /// Redo that was written to a log can no longer be read.
    #[error("redo log {path} is damaged: redo from SCN {at} on was written to it and cannot be read")]
    Lost {
        path: PathBuf,
        /// First SCN that cannot be read.
        at: Scn,
    },
    /// Redo that was written to the log being filled can no longer be read.
    #[error(
        "redo log {path} is damaged: redo from SCN {from} to SCN {to} was written to it and cannot be read"
    )]
    LostEnd {
        path: PathBuf,
        /// First SCN that cannot be read.
        from: Scn,
        /// The log had reached at least this SCN.
        to: Scn,
    },
    /// A file holds redo of another family.
    #[error(
        "redo log {path} holds redo of instance {found} or a standby of it, and this one belongs to instance {family}"
    )]
    Foreign {
        path: PathBuf,
        /// Family of the redo in the file.
        found: InstanceId,
        family: InstanceId,
    },
    /// A file holds newer redo than all groups of the layout.
    #[error("redo log {path} holds newer redo than all groups that the control file names")]
    Unlisted { path: PathBuf },
    /// A group without readable members was to be read.
    #[error("a redo log group has no member that can be read")]
    Unopened,
    /// No group has a valid header.
    #[error("no valid redo log group in {directory}")]
    NoGroups { directory: PathBuf },
}

impl Hint for LogError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            LogError::Io { source, .. } => standfast_io::remedy(source)?,
            LogError::Poisoned { .. } => {
                "repair the device, then restart the instance; recovery keeps everything that was acknowledged".into()
            }
            LogError::Damaged { .. } => {
                "restore the file from another member, or start with the directory it belongs to".into()
            }
            LogError::TooOld { .. } => "a standby that needs it must be created again".into(),
            LogError::Missing { .. } => "put it back, or a copy of it from another instance".into(),
            LogError::OnlyDistrusted { .. } => {
                "bring the other member back (redo.members names its directory); without it what was \
                 acknowledged since is lost here, and a standby has to take over (`standfast failover` there)".into()
            }
            LogError::Geometry { setting, found, .. } => format!(
                "set {setting} = {found} again in standfast.toml; `standfast log group` changes the groups of an instance \
                 that runs"
            )
            .into(),
            LogError::NotWhole { .. } => {
                "copy it again from the instance that archived it; `standfast log dump FILE` shows what is left \
                 of it".into()
            }
            LogError::Lost { .. } => {
                "put a whole copy of it in its place, from another member or, of an archived log, from another \
                 instance; `standfast log dump FILE` shows what is left of it".into()
            }
            LogError::LostEnd { from, .. } => format!(
                "a standby waits until its primary, or who else feeds it, has sent that again; where a primary cannot \
                 read its own log, fail over to a standby, which has the redo, or continue without it: `standfast start \
                 --until-scn {from}`"
            )
            .into(),
            LogError::Foreign { .. } => {
                "is the right volume mounted there, and does redo.members name directories that only this \
                 instance uses? What is there was not changed".into()
            }
            LogError::Unlisted { .. } => {
                "the control file is older than the redo log; bring back the one that belongs to it, or create \
                 the instance again".into()
            }
            LogError::NoGroups { .. } => "is this a directory made by `standfast init`?".into(),
            _ => return None,
        })
    }
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
