//! Redo that is being written.

use standfast_instruments::BatchTimes;
use standfast_sqlite_wal::capture::CommitMark;
use standfast_types::Scn;

/// What a batch does after handing over its chunk.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    Wait,
    /// Capture more; the write is awaited later.
    Resume,
}

/// A chunk whose write is in flight.
pub(super) struct InFlight {
    pub(super) first: Scn,
    pub(super) end: Scn,
    pub(super) marks: Vec<CommitMark>,
    pub(super) records: u64,
    pub(super) times: BatchTimes,
    pub(super) number: u64,
}
