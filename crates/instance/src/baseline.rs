//! A full copy of a database in the redo stream: for standbys when a database becomes protected, and when
//! its WAL was reset by somebody else.

use crate::control::{FileStamp, OwedImage};
use crate::database::{Database, WRITER_TIMEOUT, committed_pages};
use crate::environment::Environment;
use crate::error::InstanceError;
use rusqlite::Connection;
use standfast_format::{RecordBuilder, page_sum};
use standfast_io::fault::{self, Fault};
use standfast_sqlite_wal::WalIndexHeader;
use standfast_sqlite_wal::pace::Pace;
use standfast_types::{DatabaseId, PIECE_BYTES, PageNo, Scn, WalPosition};
use std::time::Duration;

/// A copy in the making. It reads from one snapshot while applications go on writing.
pub struct BaselineJob {
    database: DatabaseId,
    reader: Connection,
    position: WalPosition,
    pages: u32,
    next_page: PageNo,
    scratch: Vec<u8>,
    /// It may lack redo of before.
    may_lack: bool,
}

/// What the control file has to say when a full image of the state at `position` is begun: from `scn` on no redo of the database
/// is needed to bring its files there. Syncs the database file.
///
/// # Errors
/// When the file cannot be synced.
pub fn owed_image(
    environment: &Environment,
    database: &Database,
    position: WalPosition,
    scn: Scn,
) -> Result<OwedImage, InstanceError> {
    database.sync_file()?;
    let stamp = FileStamp::of(environment.disk.as_ref(), &database.record().path);
    let may_lack = database.image_may_lack();
    Ok(OwedImage { database: database.id(), scn, position, stamp, may_lack })
}

/// Writes [`owed_image`] to the control file.
///
/// # Errors
/// When the file cannot be synced or the control file cannot be written.
pub fn note_owed_image(
    environment: &Environment,
    database: &Database,
    position: WalPosition,
    scn: Scn,
) -> Result<(), InstanceError> {
    let owed = owed_image(environment, database, position, scn)?;
    environment.update_control(|control| control.owe_image(owed))
}

impl BaselineJob {
    /// Fixes the state to copy.
    ///
    /// # Errors
    /// See [`Database::snapshot_within`].
    pub fn begin(database: &Database) -> Result<BaselineJob, InstanceError> {
        BaselineJob::begin_within(database, WRITER_TIMEOUT)
    }

    /// [`BaselineJob::begin`], waiting up to `limit` for writers.
    ///
    /// # Errors
    /// See [`Database::snapshot_within`].
    pub fn begin_within(database: &Database, limit: Duration) -> Result<BaselineJob, InstanceError> {
        fault::check(Fault::FreshCopy)
            .map_err(InstanceError::io("sync the write-ahead log of", &database.record().path))?;
        let find = |reader: &Connection, header: &WalIndexHeader| {
            Ok((header.position(), committed_pages(reader, header)?))
        };
        let (reader, (position, pages)) = database.snapshot_within(limit, find)?;
        // The copy takes the place of all redo before it, so what it holds must survive until it is complete.
        database.sync_wal(&Pace::AtOnce)?;
        Ok(BaselineJob {
            database: database.id(),
            reader,
            position,
            pages,
            next_page: 1,
            scratch: Vec::new(),
            may_lack: database.image_may_lack(),
        })
    }

    /// Database copied.
    pub fn database(&self) -> DatabaseId {
        self.database
    }

    /// The state that the copy holds.
    pub fn position(&self) -> WalPosition {
        self.position
    }

    /// Pages of the database in that state.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Appends about `limit` bytes of the copy; true when it is complete.
    ///
    /// # Errors
    /// SQLite's.
    pub fn copy_piece(
        &mut self,
        limit: usize,
        now_us: u64,
        out: &mut Vec<u8>,
    ) -> Result<bool, InstanceError> {
        let start = out.len();
        if self.next_page == 1 {
            RecordBuilder::baseline(out, self.database, !self.may_lack);
        }
        let mut statement =
            self.reader.prepare_cached("SELECT pgno, data FROM sqlite_dbpage('main') WHERE pgno = ?1")?;
        while self.next_page <= self.pages {
            if out.len() - start >= limit {
                return Ok(false);
            }
            let mut record = RecordBuilder::change(out, self.database);
            while self.next_page <= self.pages && record.bytes() < PIECE_BYTES {
                let page_no = self.next_page;
                statement.query_row([page_no], |row| {
                    let image = row.get_ref(1)?.as_blob()?;
                    record.vector(page_no, None, image, page_sum(page_no, image), &mut self.scratch);
                    Ok(())
                })?;
                self.next_page += 1;
            }
            record.finish();
        }
        RecordBuilder::commit(out, self.database, now_us, self.pages, 0).finish();
        Ok(true)
    }
}
