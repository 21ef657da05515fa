use rusqlite::ErrorCode;
use standfast_format::DecodeError;
use standfast_sqlite_wal::guard::GuardError;
use standfast_types::{DatabaseId, Hint, PageNo, Scn};
use std::borrow::Cow;
use std::path::PathBuf;

/// Why redo is not in the database.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The apply journal could not be read or written. Nothing more is applied.
    #[error("apply journal {path}: {source}")]
    Journal { path: PathBuf, source: std::io::Error },
    /// The file is not an apply journal of this version.
    #[error("apply journal {path}: {why}")]
    ForeignJournal { path: PathBuf, why: &'static str },
    /// Redo that cannot be decoded. Nothing after it is applied.
    #[error("redo at SCN {scn} is damaged: {source}")]
    Redo { scn: Scn, source: DecodeError },
    /// The caller's source of redo failed during recovery.
    #[error("cannot read redo from SCN {from}: {source}")]
    Source {
        /// SCN at which the redo was to start.
        from: Scn,
        source: std::io::Error,
    },
    /// The observer could not record an event of the redo.
    #[error("cannot record what the redo says at SCN {scn}: {source}")]
    Event { scn: Scn, source: std::io::Error },
    /// The given redo starts after the SCN that a database needs next.
    #[error("database {name}: redo from SCN {needed} on is needed, but what was given starts at {given}")]
    Gap { name: String, needed: Scn, given: Scn },
    /// A record of a database that was never attached.
    #[error("redo at SCN {scn} changes database number {database}, which this standby does not have")]
    UnknownDatabase { database: DatabaseId, scn: Scn },
    /// A page differs from the primary's: a lost write, damaged storage or a write by another process.
    #[error(
        "database {name}: page {page} is not what the primary has as of SCN {scn} (checksum {found:08x}, expected {expected:08x})"
    )]
    Diverged {
        name: String,
        page: PageNo,
        /// Commit that changed the page last.
        scn: Scn,
        expected: u32,
        found: u32,
    },
    /// Apply of the database had stopped before this process started.
    #[error(
        "database {name}: apply stopped at SCN {scn} because a page differed from the primary, another process wrote to it, or the storage failed"
    )]
    Stopped {
        name: String,
        /// Last commit that is in it.
        scn: Scn,
    },
    /// Another process wrote to the files while this standby did not run.
    #[error(
        "database {name}: a process that does not use Standfast wrote to it while this standby did not run: {why}"
    )]
    WrittenTo { name: String, why: String },
    #[error("database {name}: {doing}: {source}")]
    Sqlite { name: String, doing: &'static str, source: rusqlite::Error },
    /// The locks that keep other processes from writing could not be taken.
    #[error("database {name}: {source}")]
    Guard { name: String, source: GuardError },
    #[error("database {name}: {doing}: {source}")]
    Io { name: String, doing: &'static str, source: std::io::Error },
    /// A full resync image would replace content of a database that it may lack, and that content cannot be kept.
    #[error(
        "database {name}: an image of it that may lack redo which is here is not applied, because what it would replace cannot be kept as {path}: {source}"
    )]
    NotKept {
        name: String,
        /// The file that could not be made.
        path: PathBuf,
        source: std::io::Error,
    },
    /// A full resync image had begun and never came: a failover, or a crash of the primary, ended it.
    #[error(
        "database {name}: the full image of it that had begun has not come, and without that it lacks redo before SCN {scn}"
    )]
    NoImage {
        name: String,
        /// The commit that cannot be applied.
        scn: Scn,
    },
    /// The storage could not make a database durable. A second attempt would prove nothing: the system may have dropped
    /// what it could not write.
    #[error("database {name}: syncing failed: {why}")]
    SyncFailed { name: String, why: String },
    /// A file of the database is no longer the one that its path names.
    #[error("database {name}: {why}")]
    Moved {
        name: String,
        /// Which file, and what became of it.
        why: String,
    },
    /// The file is not the expected database.
    #[error("database {name}: {why}")]
    Unusable { name: String, why: &'static str },
}

impl Hint for ApplyError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        let text = match self {
            ApplyError::Journal { .. } => {
                "check the disk, then restart the standby; it resumes where the journal ends"
            }
            ApplyError::ForeignJournal { .. } => {
                "the file was not written by this version of standfast; create the standby again"
            }
            ApplyError::Redo { .. } => {
                "the standby log holds bytes that the primary did not write; stop the standby and run \
                 `standfast reinstate`"
            }
            ApplyError::Gap { .. } => {
                "register the archived logs in between with `standfast register logfile`; where they are gone, \
                 `standfast unprotect` and `standfast protect` at the primary copy it here again"
            }
            ApplyError::UnknownDatabase { .. } | ApplyError::Stopped { .. } => {
                "`standfast unprotect` and `standfast protect` at the primary copy it here again"
            }
            ApplyError::NoImage { .. } => {
                "`standfast unprotect` and `standfast protect` at the primary copy it here again"
            }
            ApplyError::Diverged { .. } => {
                "apply of this database has stopped, nothing was overwritten; a write was lost or another \
                 process changed the file: check the storage; then `standfast unprotect` and `standfast protect` \
                 at the primary copy it here again"
            }
            ApplyError::Sqlite { .. } | ApplyError::Io { .. } => {
                "apply of this database pauses; fix the cause (space, permissions, disk) and restart the standby"
            }
            ApplyError::NotKept { .. } => {
                "make room there, for instance with `standfast database kept --remove FILE` of files that are \
                 not needed any more; it is tried again by itself"
            }
            ApplyError::SyncFailed { .. } => {
                "apply of this database has stopped, since what the storage lost is not known; check the \
                 storage; then `standfast unprotect` and `standfast protect` at the primary copy it here again"
            }
            ApplyError::Moved { .. } => {
                "apply of this database has stopped, because no program that opens it would see what is applied; \
                 find out which process removes or replaces files here, then `standfast unprotect` and \
                 `standfast protect` it at the primary: that copies it again"
            }
            ApplyError::Unusable { .. } => {
                "move the file away; then `standfast unprotect` and `standfast protect` at the primary copy it \
                 here again"
            }
            ApplyError::Event { source, .. } => {
                let first = standfast_io::remedy(source).map_or_else(String::new, |hint| format!("{hint}; "));
                return Some(
                    format!("{first}check the disk of the standby's own files, then restart it").into(),
                );
            }
            ApplyError::WrittenTo { name, .. } => {
                let text = format!(
                    "redo is not applied on top of that; `standfast unprotect {name}` and `standfast protect` at the \
                     primary copy it here again, and the file that is here stays as {name}.detached-SCN"
                );
                return Some(text.into());
            }
            ApplyError::Source { source, .. } => return standfast_io::remedy(source),
            ApplyError::Guard { source, .. } => return source.hint(),
        };
        Some(text.into())
    }
}

impl ApplyError {
    /// Returns whether the opened file is no SQLite database, or not one that redo can be applied to.
    pub(crate) fn is_another_file(&self) -> bool {
        match self {
            ApplyError::Sqlite { source, .. } => matches!(
                source.sqlite_error_code(),
                Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt)
            ),
            error => matches!(error, ApplyError::Unusable { .. }),
        }
    }

    pub fn written_to(name: &str, why: impl Into<String>) -> ApplyError {
        ApplyError::WrittenTo { name: name.to_owned(), why: why.into() }
    }
}
