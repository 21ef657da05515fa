//! File SCNs: records in the control file of database files that alone, without their WALs, hold everything.
//!
//! SQLite resets a WAL when all of it is backfilled. After a power loss the files may show the new WAL, which the redo
//! does not know, and not the old one; recovery must then know that nothing was in the old WAL only. So a checkpoint
//! that has backfilled everything is recorded durably in the control file before the wal-index says that the WAL may be
//! reset.

use crate::commit::database::Database;
use standfast_environment::context::environment::Environment;
use standfast_environment::state::control::{DatabaseRecord, FileStamp, WholeFile};
use standfast_sqlite_wal::WalIndexHeader;
use standfast_types::Hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// Returns the hook that records that all of the WAL is backfilled. While the control file cannot be written no WAL may
/// be reset.
pub fn note_when_all_backfilled(
    environment: &Arc<Environment>,
    database: &Arc<Database>,
) -> Box<dyn Fn(u32) -> bool + Send + Sync> {
    // Weak: the hook lives in the connection, which lives in the database.
    let (environment, database) = (Arc::downgrade(environment), Arc::downgrade(database));
    let is_refused = AtomicBool::new(false);
    Box::new(move |frame| {
        let (Some(environment), Some(database)) = (environment.upgrade(), database.upgrade()) else {
            return false;
        };
        // Read before the WAL is checked again: if the WAL has not grown, everything up to this SCN is in the file.
        // Recovery may already begin after the last change, and then requires a record that reaches that far.
        let scn = database.last_change().max(environment.of_control(|control| control.checkpoint));
        let has_grown = database.settled_header().is_none_or(|header| header.frames() != frame);
        // The redo does not know what the files of a database hold that waits for an image.
        if has_grown || database.owes_image() {
            return true;
        }
        let Some(stamp) = FileStamp::of(environment.disk.as_ref(), &database.record().path) else {
            return true;
        };
        let whole = WholeFile { database: database.id(), scn, stamp };
        let noted = environment.update_control(|control| control.note_whole(whole));
        if let Err(error) = &noted
            && !is_refused.swap(true, SeqCst)
        {
            environment.alert.say(format!(
                "database {}: its write-ahead log is not reset while the control file cannot be written: {}",
                database.record().name,
                error.in_one_line()
            ));
        }
        is_refused.store(noted.is_err(), SeqCst);
        noted.is_ok()
    })
}

/// Stamp of a database file that holds everything because its WAL, according to `header`, is empty; `None` otherwise.
/// The caller holds the write lock and does not backfill meanwhile.
pub fn stamp_without_wal(
    environment: &Environment,
    record: &DatabaseRecord,
    header: &WalIndexHeader,
) -> Option<FileStamp> {
    let is_whole = header.frames() == 0;
    is_whole.then(|| FileStamp::of(environment.disk.as_ref(), &record.path)).flatten()
}
