//! Fault points in production code. They act only in builds with the feature `faults`, which the campaigns enable. In
//! packaged builds a fault point is empty, and no environment variable is read.

#[cfg(feature = "faults")]
mod armed;

#[cfg(feature = "faults")]
pub use armed::{DELAY_VARIABLE, VARIABLE, acknowledgement_delay, armed_by, check, check_file};

/// Places where a test can make the disk fail or the process die.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Before a durable log write.
    LogWrite,
    /// After a durable log write, before it is reported.
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
    /// Before a packet of an archived log is read to be sent to a standby that lacks it.
    ArchiveSend,
    /// After redo arrived at a standby, before it is written.
    Received,
    /// Before apply commits a batch to a standby database.
    ApplyCommit,
    /// After apply committed a batch, before its position is journalled.
    ApplyCommitted,
    /// During a checkpoint, before the WAL of a database is reset.
    CheckpointReset,
    /// While the WAL of a database is rewritten: before its header, then before its frames, then before its wal-index.
    LogRewrite,
    /// During recovery, before redo is applied to a database.
    RecoveryApply,
    /// Before new frames of a database are captured.
    Capture,
    /// Before the state is fixed from which a full resync image of a database is made.
    FreshCopy,
    /// Before the WAL of a database is synced.
    WalSync,
    /// Before a database file is synced.
    DatabaseSync,
    /// Before a page is written into a database file.
    DatabaseWrite,
    /// Before each step that replaces a database file by one that was built again.
    SetAside,
    /// Before each step that makes an old primary a standby.
    Reinstate,
    /// Before each step that makes a standby a snapshot standby, or a physical standby again.
    Convert,
}

#[cfg(not(feature = "faults"))]
pub use without::{DELAY_VARIABLE, VARIABLE, acknowledgement_delay, armed_by, check, check_file};

#[cfg(not(feature = "faults"))]
mod without {
    use super::Fault;
    use std::io::Result;
    use std::path::Path;
    use std::time::Duration;

    /// The variable that arms fault points; `None` in a build without them.
    pub const VARIABLE: Option<&str> = None;
    /// The variable that delays acknowledgements; `None` in a build that ignores it.
    pub const DELAY_VARIABLE: Option<&str> = None;

    /// Returns the text that has armed fault points in this process.
    pub fn armed_by() -> Option<String> {
        None
    }

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
