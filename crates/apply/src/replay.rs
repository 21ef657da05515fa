//! Recovery of one database of a primary: applies a range of redo in one transaction, before any process may open the
//! database. The database may hold any state between the two ends of the range, or a mixture of them that no reader has
//! seen: vectors hold absolute bytes, and only the pages at the end are verified.

use crate::database::{Database, Done, Mode, Redo};
use crate::dirty_pages::DirtyPages;
use crate::standby_file::{FilePlan, StandbyFile};
use crate::{ApplyError, Limits};
use standfast_format::{Record, decode_record};
use standfast_sqlite_wal::pace::Pace;
use standfast_types::{DatabaseId, PageSize, Scn, WalPosition};
use std::path::Path;

/// Bytes of redo gathered before they are turned into pages.
const STRETCH_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replayed {
    pub transactions: u64,
    /// The committed state of the database after the replay, durable.
    pub position: WalPosition,
}

/// Replays redo into one database. Holds the write lock and the checkpoint lock of the database while it lives.
pub struct Replay {
    database: Database,
    dirty_pages: DirtyPages,
    /// Consecutive records from `first` on that are not yet turned into pages.
    bytes: Vec<u8>,
    first: Scn,
}

impl Replay {
    /// Opens the database at `path`, which holds all transactions that begin before `from`; redo follows from there on.
    ///
    /// # Errors
    /// When the database cannot be opened, or another process writes to it.
    pub fn open(
        id: DatabaseId,
        path: &Path,
        page_size: PageSize,
        vfs_base: Option<&str>,
        from: Scn,
    ) -> Result<Replay, ApplyError> {
        let plan = FilePlan::alone(path, page_size, vfs_base)?;
        let (name, limits) = (plan.name.clone(), Limits::default());
        let file = StandbyFile::open(plan, false)?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        let database = Database::new(id, &name, file, from, from, directory, &limits);
        Ok(Replay { database, dirty_pages: DirtyPages::default(), bytes: Vec::new(), first: from })
    }

    /// Takes the next record of the stream, of any database, which starts at `start`.
    ///
    /// # Errors
    /// When a page cannot be read or written, or the redo is malformed.
    pub fn take(&mut self, start: Scn, record: &[u8]) -> Result<(), ApplyError> {
        let ours = match decode_record(record).map_err(|source| ApplyError::Redo { scn: start, source })?.0 {
            Record::Change { database, .. }
            | Record::Commit { database, .. }
            | Record::WalGeneration { database, .. }
            | Record::Baseline { database, .. } => database == self.database.id,
            _ => false,
        };
        if self.bytes.is_empty() {
            self.first = start;
        }
        if ours {
            self.database.work_queue.push(self.bytes.len() as u32);
        }
        self.bytes.extend_from_slice(record);
        if self.bytes.len() < STRETCH_BYTES { Ok(()) } else { self.take_work_queue() }
    }

    fn take_work_queue(&mut self) -> Result<(), ApplyError> {
        let redo = Redo { first: self.first, bytes: &self.bytes };
        self.database.take_work_queue(redo, Mode::Replay, &mut self.dirty_pages)?;
        self.bytes.clear();
        Ok(())
    }

    /// Verifies every page, commits, and makes the result survive a power loss.
    ///
    /// # Errors
    /// `Diverged` when a page differs from the redo; the database is unchanged then.
    pub fn finish(mut self) -> Result<Replayed, ApplyError> {
        self.take_work_queue()?;
        let Done { transactions, .. } = self.database.finish_replay(&mut self.dirty_pages)?;
        self.database.file.sync_wal(&Pace::AtOnce)?;
        Ok(Replayed { transactions, position: self.database.file.wal_position()? })
    }
}
