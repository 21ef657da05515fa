//! Hands what sessions have written to the WALs of databases to the disk, early and in small pieces, so that the sync
//! of a checkpoint finds most of it done. In a thread of its own: a pass of the checkpointer takes up to a second, and
//! what gathers meanwhile would go to the disk at once, in front of the next write of the redo log.

use crate::database::Database;
use crate::primary::PrimaryShared;
use standfast_sqlite_wal::write_back::WriteBack;
use standfast_types::DatabaseId;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// See the module. One thread runs [`DatabaseWriter::round`].
pub struct DatabaseWriter {
    shared: Arc<PrimaryShared>,
    logs: HashMap<DatabaseId, WriteBack>,
    early_frames: Arc<AtomicU64>,
}

impl DatabaseWriter {
    /// For the databases of `shared`; counts the frames that it handed over.
    pub fn new(shared: Arc<PrimaryShared>, early_frames: Arc<AtomicU64>) -> DatabaseWriter {
        DatabaseWriter { shared, logs: HashMap::new(), early_frames }
    }

    /// Nothing is expected for a while: no file is held meanwhile.
    pub fn rest(&mut self) {
        self.logs.values_mut().for_each(WriteBack::close);
    }

    /// Goes over all databases once. Nothing is durable by it, and nothing that it meets is an error: what it does not
    /// hand over, a sync finds.
    pub fn round(&mut self) {
        let databases = self.shared.all_databases();
        self.logs.retain(|id, _| databases.iter().any(|database| database.id() == *id));
        for database in databases.iter().filter(|database| database.failure().is_none()) {
            let Some(header) = database.header() else { continue };
            let log = self.logs.entry(database.id()).or_insert_with(|| write_back_of(database));
            if database.is_lazy(header.raw_salts()) {
                // What it grows by is not worth a place on the disk, unless it has to be synced as it is after all.
                log.begin_anew();
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
