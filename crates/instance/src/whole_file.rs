//! What the control file knows of database files that alone, without their WALs, hold everything.
//!
//! SQLite resets a WAL when all of it is in the database file. After a power loss the files may show the new WAL, of which the
//! redo knows nothing, and not the old one; recovery then has to know that nothing was in the old one only. So a checkpoint
//! that has moved everything is noted in the control file, durably, before the wal-index says that the WAL may be reset.

use crate::control::{DatabaseRecord, FileStamp, WholeFile};
use crate::database::Database;
use crate::environment::Environment;
use standfast_sqlite_wal::WalIndexHeader;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// The hook that notes that all of the WAL is in the database file. While the control file cannot be written no WAL may be reset.
pub fn note_when_all_moved(
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
        // Before the log is looked at again: of a log that has not grown everything is in the file. Recovery may begin behind the
        // last change already, and asks for a note that reaches to there.
        let scn = database.last_change().max(environment.of_control(|control| control.checkpoint));
        let has_grown = database.settled_header().is_none_or(|header| header.frames() != frame);
        // Of a database that waits for an image the redo does not know what its files hold.
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
                "database {}: its write-ahead log is not reset while the control file cannot be written: {error}",
                database.record().name
            ));
        }
        is_refused.store(noted.is_err(), SeqCst);
        noted.is_ok()
    })
}

/// How the file of a database is that holds everything, because its WAL, as `header` shows it, has nothing. The caller holds the write
/// lock, and moves no frames meanwhile.
pub fn stamp_without_wal(
    environment: &Environment,
    record: &DatabaseRecord,
    header: &WalIndexHeader,
) -> Option<FileStamp> {
    let is_whole = header.frames() == 0;
    is_whole.then(|| FileStamp::of(environment.disk.as_ref(), &record.path)).flatten()
}
