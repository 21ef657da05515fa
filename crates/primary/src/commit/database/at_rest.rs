//! The files of a database whose primary gives up its role.

use super::Database;
use standfast_environment::config::error::InstanceError;
use standfast_environment::state::control::{FileStamp, RestingFile, RestingWal};
use standfast_io::Disk;
use standfast_sqlite_wal::guard::{Guard, GuardError};
use std::time::Duration;

/// State of the files once no process writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// The WAL has frames that are not in the database: a reader keeps them from being backfilled, or they are not
    /// captured.
    Backfilling,
    /// The database file durably holds everything. `None`: its file system has no modification time to note.
    Resting(Option<RestingFile>),
}

impl Database {
    /// Waits until no transaction has the write lock.
    ///
    /// # Errors
    /// `Refused` when one still has it after `limit`.
    pub fn await_writers(&self, limit: Duration) -> Result<(), InstanceError> {
        match self.without_writers(limit) {
            Ok(connection) => {
                Guard::of(&connection)?.release_write_lock();
                Ok(())
            }
            Err(GuardError::Busy { .. }) => Err(InstanceError::refused(
                format!("a write transaction is open on database {}", self.record().name),
                "let it end, or end its process, and try again",
            )),
            Err(error) => Err(error.into()),
        }
    }

    /// Backfills what readers allow, and returns the state of the files. A WAL that no reader uses is cut to nothing.
    ///
    /// # Errors
    /// When a process writes, or a file cannot be read, cut or synced.
    pub fn come_to_rest(&self, disk: &dyn Disk) -> Result<Rest, InstanceError> {
        let connection = self.connection();
        // Fails where there are readers; how far it came is what counts.
        let _ = connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        let guard = Guard::of(&connection)?;
        guard.hold_write_lock()?;
        let rest = self.files_at_rest(disk, &guard);
        guard.release_write_lock();
        rest
    }

    fn files_at_rest(&self, disk: &dyn Disk, guard: &Guard<'_>) -> Result<Rest, InstanceError> {
        let (header, backfilled) = (guard.wal_header()?, guard.wal_index()?.backfilled());
        if backfilled < header.frames() {
            return Ok(Rest::Backfilling);
        }
        let wal = (header.frames() > 0).then(|| RestingWal {
            position: header.position(),
            checksum: header.last_checksum(),
            is_in_file: true,
        });
        self.with_wal(|file| {
            let cut = if wal.is_none() { file.truncate(0) } else { Ok(()) };
            cut.and_then(|()| file.sync())
                .map_err(InstanceError::io("cut and sync the write-ahead log of", &self.record().path))
        })?;
        self.sync_file()?;
        let stamp = FileStamp::of(disk, &self.record().path);
        Ok(Rest::Resting(stamp.map(|stamp| RestingFile { database: self.id(), stamp, wal })))
    }
}
