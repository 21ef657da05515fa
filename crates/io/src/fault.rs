//! Numbered fault points in production code. They do something in builds with the feature `faults` only, which the
//! campaigns enable; in what is packaged a point is nothing, and no variable of the environment is looked at.

#[cfg(feature = "faults")]
mod armed;

#[cfg(feature = "faults")]
pub use armed::{DELAY_VARIABLE, VARIABLE, acknowledgement_delay, armed_by, check, check_file};

/// Places where a test can make the disk fail or the process die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Before a durable log write.
    LogWrite,
    /// After a durable log write, before anybody knows of it.
    LogWritten,
    /// Before a buffered write of a copy.
    Copy,
    /// Before a sync.
    Sync,
    /// Before a file is created.
    Create,
    /// Before a control file is replaced.
    Replace,
    /// Before redo is handed to a destination's socket.
    Send,
    /// Before a piece of an archived log is read to be sent to a standby that lacks it.
    ArchiveSend,
    /// After redo arrived at a standby, before it is written.
    Received,
    /// Before apply commits a batch to a standby database.
    ApplyCommit,
    /// After apply committed a batch, before its position is journalled.
    ApplyCommitted,
    /// During a checkpoint, before the log of a database is reset.
    CheckpointReset,
    /// While the log of a database is written anew: before its header, then before its frames, then before its index.
    LogRewrite,
    /// During recovery, before redo is applied to a database.
    RecoveryApply,
    /// Before new frames of a database are captured.
    Capture,
    /// Before the state is fixed of which a fresh copy of a database is made.
    FreshCopy,
    /// Before the write-ahead log of a database is synced.
    WalSync,
    /// Before a database file is synced.
    DatabaseSync,
    /// Before a page is written into a database file.
    DatabaseWrite,
    /// Before each step in which a database file gives its place to one that was made again.
    SetAside,
}

#[cfg(not(feature = "faults"))]
pub use without::{DELAY_VARIABLE, VARIABLE, acknowledgement_delay, armed_by, check, check_file};

#[cfg(not(feature = "faults"))]
mod without {
    use super::Fault;
    use std::io::Result;
    use std::path::Path;
    use std::time::Duration;

    /// The variable that arms fault points; `None`: this build has none.
    pub const VARIABLE: Option<&str> = None;
    /// The variable that delays acknowledgements; `None`: this build does not look at it.
    pub const DELAY_VARIABLE: Option<&str> = None;

    /// What has armed fault points in this process.
    pub fn armed_by() -> Option<String> {
        None
    }

    /// By how much acknowledgements of this process are to be delayed.
    pub fn acknowledgement_delay() -> Duration {
        Duration::ZERO
    }

    /// Does nothing in this build.
    ///
    /// # Errors
    /// None.
    #[inline(always)]
    pub fn check(_: Fault) -> Result<()> {
        Ok(())
    }

    /// Does nothing in this build.
    ///
    /// # Errors
    /// None.
    #[inline(always)]
    pub fn check_file(_: Fault, _: &Path) -> Result<()> {
        Ok(())
    }
}
