//! Hands frames that sessions have written to WALs to the disk, early and in chunks, so that the sync of a checkpoint
//! finds most of it done. In its own thread: a pass of the checkpointer takes up to a second, and what gathers
//! meanwhile would go to the disk all together, in front of the next write of the redo log.

use crate::commit::database::Database;
use crate::commit::primary::PrimaryShared;
use standfast_sqlite_wal::write_back::WriteBack;
use standfast_types::DatabaseId;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// One thread runs [`DatabaseWriter::pass`].
pub struct DatabaseWriter {
    shared: Arc<PrimaryShared>,
    logs: HashMap<DatabaseId, WriteBack>,
    early_frames: Arc<AtomicU64>,
}

impl DatabaseWriter {
    /// Creates it for the databases of `shared`; adds the frames that it hands over to `early_frames`.
    pub fn new(shared: Arc<PrimaryShared>, early_frames: Arc<AtomicU64>) -> DatabaseWriter {
        DatabaseWriter { shared, logs: HashMap::new(), early_frames }
    }

    /// Closes all files, because no frames are expected for a while.
    pub fn rest(&mut self) {
        self.logs.values_mut().for_each(WriteBack::close);
    }

    /// Visits all databases once. It makes nothing durable, and nothing that it meets is an error: a sync covers what
    /// it does not hand over.
    pub fn pass(&mut self) {
        let databases = self.shared.all_databases();
        self.logs.retain(|id, _| databases.iter().any(|database| database.id() == *id));
        for database in databases.iter().filter(|database| database.failure().is_none()) {
            let Some(header) = database.header() else { continue };
            let log = self.logs.entry(database.id()).or_insert_with(|| write_back_of(database));
            if database.is_deferred(header.raw_salts()) {
                // The growth of a deferred-sync WAL is not worth writing, unless the WAL has to be synced as it is
                // after all.
                log.restart_wal();
                continue;
            }
            log.grew_to(header.frames());
            self.early_frames.fetch_add(log.hand_most().into(), Relaxed);
        }
    }
}

fn write_back_of(database: &Database) -> WriteBack {
    let record = database.record();
    WriteBack::new(&record.path, record.page_size.bytes())
}
