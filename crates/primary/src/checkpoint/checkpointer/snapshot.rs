//! How far a WAL is in the redo.

use crate::commit::database::Database;
use standfast_sqlite_wal::rewriting::WalSnapshot;

/// Returns an SCN up to which everything is captured, and a header of the WAL that holds at least that.
pub(super) fn snapshot_of(database: &Database) -> Option<WalSnapshot> {
    let scn = database.last_commit();
    // Read after the SCN: the WAL only grows.
    database.settled_header().map(|header| WalSnapshot { header, scn })
}
