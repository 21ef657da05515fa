//! The faults.

use clap::ValueEnum;
use serde::Serialize;

/// What is put into one database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// Plain and extended processes of a SQLite before 3.50.2 commit WAL frames without checksums.
    ZeroedFrames,
    /// Writes of spilled transactions fail while they read their frames back.
    SpillError,
    /// The database is protected again and again while a writer restarts its wholly backfilled WAL.
    ProtectBackfilled,
    /// Its wal-index is truncated.
    TruncatedIndex,
    /// Its wal-index publishes more frames than there are.
    BadFrameCount,
    /// Its wal-index publishes a database of 2^31 pages.
    BadSize,
    /// Its volume is filled by its WAL.
    FullVolume,
    /// A reader keeps its WAL from being reset while it grows.
    LongReader,
    /// A write transaction stays open over a restart of the primary.
    OpenOverRestart,
    /// The database is protected while a transaction has it locked.
    LockedProtect,
    /// Its applications are stopped, one of them with the write lock.
    StuckApplication,
    /// Control experiment: the primary itself is stopped, which every database must notice.
    #[value(hide = true)]
    FrozenPrimary,
}

impl Fault {
    /// Returns all faults but `FrozenPrimary`, the control experiment.
    pub fn all() -> Vec<Fault> {
        Fault::value_variants().iter().copied().filter(|fault| *fault != Fault::FrozenPrimary).collect()
    }

    /// Name on the command line and in reports.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Whether the fault itself restarts the primary.
    pub fn restarts_primary(self) -> bool {
        self == Fault::OpenOverRestart
    }

    /// Whether the database may be offline while the fault lasts, or not protected.
    pub fn may_go_offline(self) -> bool {
        use Fault::{
            BadFrameCount, BadSize, LockedProtect, OpenOverRestart, ProtectBackfilled, TruncatedIndex,
        };
        matches!(
            self,
            BadFrameCount | BadSize | LockedProtect | OpenOverRestart | ProtectBackfilled | TruncatedIndex
        )
    }

    /// Whether the fault changes the files so that what was acknowledged in this database says nothing afterwards.
    pub fn spoils_files(self) -> bool {
        matches!(self, Fault::TruncatedIndex | Fault::BadFrameCount | Fault::BadSize)
    }
}
