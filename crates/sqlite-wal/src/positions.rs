//! How far a WAL is: frames written, synced, backfilled, and durable in the database file.

use crate::guard::Guard;

/// Numbers of frames of the WAL with these salts, each at most the one before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// In the byte order of the file.
    pub raw_salts: [u32; 2],
    /// Published by the wal-index (mxFrame).
    pub written: u32,
    /// Durable in the WAL, as far as this connection knows: it has synced them, or they were backfilled before its last
    /// checkpoint.
    pub synced: u32,
    /// In the database file (nBackfill), perhaps not durably.
    pub backfilled: u32,
    /// Durable in the database file; 0 while it has unsynced writes of this connection.
    pub stored: u32,
}

impl Positions {
    /// Asserts the order of the positions, and that no frame has become backfilled that was not synced before.
    pub(crate) fn assert_order(&self) {
        debug_assert!(self.synced <= self.written, "synced beyond the end: {self:?}");
        debug_assert!(self.backfilled <= self.synced, "backfilled before the WAL was synced: {self:?}");
        debug_assert!(self.stored <= self.backfilled, "{self:?}");
    }
}

impl Guard<'_> {
    /// Returns the positions; `None` when they are not known: the WAL was reset meanwhile, or a writer is publishing.
    pub fn positions(&self) -> Option<Positions> {
        let (raw_salts, backfilled) = self.backfilled_of()?;
        let (of, synced) = self.synced_frames()?;
        let written =
            self.settled_wal_header().ok().filter(|header| header.raw_salts() == raw_salts)?.frames();
        let stored = if self.is_file_synced() { backfilled } else { 0 };
        (of == raw_salts).then_some(Positions { raw_salts, written, synced, backfilled, stored })
    }

    /// The salts of the WAL and nBackfill, which belong together.
    pub(crate) fn backfilled_of(&self) -> Option<([u32; 2], u32)> {
        let before = self.settled_wal_header().ok()?.raw_salts();
        let backfilled = self.wal_index().ok()?.backfilled();
        let after = self.settled_wal_header().ok()?.raw_salts();
        (before == after).then_some((before, backfilled))
    }
}
