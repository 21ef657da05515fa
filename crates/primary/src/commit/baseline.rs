//! A full resync image of a database in the redo stream: for standbys when a database becomes protected, and when
//! another process has reset its WAL.

use crate::commit::database::{Database, WRITER_TIMEOUT, committed_pages};
use rusqlite::Connection;
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::state::control::{FileStamp, OwedImage};
use standfast_format::{RecordBuilder, page_sum};
use standfast_io::fault::{self, Fault};
use standfast_sqlite_wal::WalIndexHeader;
use standfast_sqlite_wal::pace::Pace;
use standfast_types::{DatabaseId, FULL_RECORD_BYTES, PageNo, Scn, WalPosition};
use std::time::Duration;

/// A full resync image in progress. It reads from one snapshot while applications continue to write.
pub struct BaselineJob {
    database: DatabaseId,
    reader: Connection,
    position: WalPosition,
    pages: u32,
    next_page: PageNo,
    scratch: Vec<u8>,
    /// The image may lack earlier redo.
    may_lack: bool,
}

/// Returns what the control file must record when a full resync image of the state at `position` begins: from `scn` on
/// no redo of the database is needed to bring its files to that state. Syncs the database file.
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

/// Writes the result of [`owed_image`] to the control file.
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
    /// Fixes the snapshot to copy, waiting up to `WRITER_TIMEOUT` for writers.
    ///
    /// # Errors
    /// See [`Database::snapshot_within`].
    pub fn begin(database: &Database) -> Result<BaselineJob, InstanceError> {
        BaselineJob::begin_within(database, WRITER_TIMEOUT)
    }

    /// Fixes the snapshot to copy, waiting up to `limit` for writers.
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
        // The image replaces all earlier redo, so what it copies must survive until the image is complete.
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

    pub fn database(&self) -> DatabaseId {
        self.database
    }

    pub fn position(&self) -> WalPosition {
        self.position
    }

    /// Pages of the database in that snapshot.
    pub fn pages(&self) -> u32 {
        self.pages
    }

    /// Appends about `limit` bytes of the image; true when it is complete.
    ///
    /// # Errors
    /// When SQLite cannot read a page.
    pub fn copy_part(&mut self, limit: usize, now_us: u64, out: &mut Vec<u8>) -> Result<bool, InstanceError> {
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
            while self.next_page <= self.pages && record.bytes() < FULL_RECORD_BYTES {
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
