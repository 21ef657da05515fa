//! The WAL of a standby database: how much of it must be on disk, its backfill, and how it is shortened.

use crate::ApplyError;
use crate::standby_file::{Log, OPEN_WAIT, StandbyFile};
use standfast_sqlite_wal::frame_sums::{frame_checksum, page_sums_behind};
use standfast_sqlite_wal::pace::Pace;
use standfast_sqlite_wal::rewrite::{RewriteError, room_for};
use standfast_sqlite_wal::tail::{Mark, Room, Tail};
use standfast_sqlite_wal::{VfsFile, VfsFileKind, WalIndexHeader, write_again};
use standfast_types::{PageNo, Scn, WalSalts};
use std::collections::HashMap;
use std::time::Duration;

/// How long a checkpoint that resets the WAL waits for readers; apply pauses meanwhile.
const RESET_WAIT: Duration = Duration::from_millis(20);

impl StandbyFile {
    /// Repairs an inconsistent WAL; see [`Guard::repair_inconsistent_wal`](standfast_sqlite_wal::guard::Guard::repair_inconsistent_wal).
    pub(crate) fn repair_inconsistent_wal(&mut self) -> Result<(), ApplyError> {
        let mut wal = self.open_wal()?;
        let repaired = self.guard()?.repair_inconsistent_wal(&mut wal, self.plan.page_size);
        repaired.map_err(|error| self.unusable_log(error))?;
        self.wal = Some(wal);
        Ok(())
    }

    /// Completes a WAL after a write or a sync that may have failed, before more is written to it that must survive.
    ///
    /// # Errors
    /// `SyncFailed`, also when the WAL does not hold what its wal-index says. It is as inconsistent as before.
    pub(crate) fn make_sure_of_log(&mut self) -> Result<(), ApplyError> {
        self.repair_inconsistent_wal()?;
        let (header, page_size) = (self.wal_header()?, self.plan.page_size);
        let mut sure = false;
        self.with_wal(|wal| {
            sure = write_again(wal, &header, page_size)?;
            Ok(())
        })?;
        let unlike = || std::io::Error::other("the write-ahead log does not hold what its index says");
        if sure { Ok(()) } else { Err(self.sync_failed(unlike())) }
    }

    fn unusable_log(&self, error: RewriteError) -> ApplyError {
        match error {
            RewriteError::Guard(source) => ApplyError::Guard { name: self.plan.name.clone(), source },
            RewriteError::Io(error) => self.sync_failed(error),
        }
    }

    /// Backfills frames as far as readers allow, without waiting for them.
    ///
    /// # Errors
    /// `Sqlite`.
    pub fn checkpoint(&self, pace: &Pace) -> Result<(), ApplyError> {
        self.guard()?.at_pace(pace, || self.run_checkpoint("PRAGMA wal_checkpoint(PASSIVE)"))
    }

    pub fn log(&self) -> Log {
        self.log
    }

    /// Ends the deferred sync: from now on the WAL is synced and backfilled as it is.
    pub fn end_deferral(&mut self) {
        self.log = Log::Plain;
    }

    /// Returns how many frames to backfill before the rest of the WAL may stay unsynced.
    pub fn beginning(&self, every: u32) -> u32 {
        match self.log {
            Log::Rewritten { frames } => room_for(frames),
            Log::Plain | Log::Deferred(_) => room_for(self.pages).min(every),
        }
    }

    /// Returns whether a WAL of `frames` frames has room for a rewrite of its suffix.
    pub fn room(&mut self, frames: u32) -> Room {
        let Log::Deferred(mut tail) = self.log else { return Room::Enough };
        let size = self.plan.page_size;
        let room = self.guard().map_or(Room::Enough, |guard| tail.room(&guard, size, frames));
        self.log = Log::Deferred(tail);
        room
    }

    /// Backfills like [`StandbyFile::checkpoint`]. The frames after those backfilled then need no sync, if all of the
    /// WAL was backfilled, and not more than `longest` frames. `scn`: the WAL holds everything committed before it.
    ///
    /// # Errors
    /// `Sqlite`, `SyncFailed`.
    pub fn backfill_prefix(&mut self, pace: &Pace, scn: Scn, longest: u32) -> Result<(), ApplyError> {
        let mark = Mark { header: self.wal_header()?, scn };
        self.checkpoint(pace)?;
        let mut wal = self.take_wal()?;
        let guard = self.guard()?;
        let completed = guard.complete_backfill(&mut wal, self.plan.page_size);
        let completed = completed.and_then(|completed| guard.sync_backfilled().map(|()| completed));
        let completed = completed.map_err(|source| self.sqlite("checkpointing", source))?;
        let tail = completed.then(|| Tail::behind(&guard, &[mark], longest)).flatten();
        self.log = tail.map_or(Log::Plain, Log::Deferred);
        self.wal = Some(wal);
        Ok(())
    }

    /// Shortens the WAL, if the readers are gone within 20 ms: rewrites it with the newest version of each page where
    /// possible, else backfills all frames and restarts it. Redo is kept from `durable_scn` on.
    ///
    /// # Errors
    /// `Sqlite`, `SyncFailed`.
    pub fn shorten_wal(&mut self, durable_scn: Scn) -> Result<(), ApplyError> {
        // Frames that were synced since are needed as they are.
        if matches!(self.log, Log::Deferred(tail) if durable_scn <= tail.scn()) && self.rewrite()? {
            return Ok(());
        }
        self.log = Log::Plain;
        self.reset_wal()
    }

    /// Rewrites the WAL. False when it cannot be rewritten and is to be reset instead; true also when readers prevented
    /// it.
    fn rewrite(&mut self) -> Result<bool, ApplyError> {
        let size = self.plan.page_size;
        let synced = self.guard()?.sync_backfilled();
        synced.map_err(|source| self.sqlite("checkpointing", source))?;
        let mut wal = self.take_wal()?;
        let guard = self.guard();
        let written = guard.map(|guard| match guard.prepare_rewrite(&mut wal, size) {
            Ok(Some(prepared)) => guard.rewrite_log(&mut wal, prepared, RESET_WAIT, || ()).map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        });
        self.wal = Some(wal);
        let Some(written) = written?.map_err(|error| self.unusable_log(error))? else { return Ok(false) };
        if let Some(log) = written {
            self.log = Log::Rewritten { frames: log.frames() };
            self.write_back.restart_wal();
        }
        Ok(true)
    }

    /// Backfills all frames and restarts the WAL, if the readers are gone within 20 ms.
    ///
    /// # Errors
    /// `Sqlite`.
    pub fn reset_wal(&self) -> Result<(), ApplyError> {
        let wait = |limit| {
            self.connection.busy_timeout(limit).map_err(|source| self.sqlite("checkpointing", source))
        };
        wait(RESET_WAIT)?;
        let result = self.run_checkpoint("PRAGMA wal_checkpoint(TRUNCATE)");
        wait(OPEN_WAIT)?;
        result
    }

    fn run_checkpoint(&self, sql: &str) -> Result<(), ApplyError> {
        let run = || self.connection.prepare_cached(sql)?.query_row([], |_| Ok(()));
        match run() {
            Err(rusqlite::Error::SqliteFailure(error, _))
                if error.code == rusqlite::ErrorCode::DatabaseBusy =>
            {
                Ok(())
            }
            other => other.map_err(|source| self.sqlite("checkpointing", source)),
        }
    }

    /// Truncates a WAL without frames to zero, durably, as SQLite's own TRUNCATE checkpoint does: readers read none of
    /// it.
    ///
    /// # Errors
    /// `SyncFailed`.
    pub fn cut_empty_wal(&mut self) -> Result<(), ApplyError> {
        self.with_wal(|wal| {
            wal.truncate(0)?;
            wal.sync()
        })
    }

    /// Returns the checksum of a frame of the WAL with these salts; `None` when the WAL has no such frame.
    ///
    /// # Errors
    /// `SyncFailed` when it cannot be read.
    pub fn frame_checksum(&mut self, salts: WalSalts, frame: u32) -> Result<Option<u32>, ApplyError> {
        let page_size = self.plan.page_size;
        let mut checksum = None;
        self.with_wal(|wal| {
            checksum = frame_checksum(wal, page_size, salts, frame)?;
            Ok(())
        })?;
        Ok(checksum)
    }

    /// Returns checksums of the newest images of the pages in the frames after `after`.
    ///
    /// # Errors
    /// `SyncFailed` when they cannot be read.
    pub fn page_sums_behind(&mut self, after: u32) -> Result<HashMap<PageNo, u32>, ApplyError> {
        let (header, page_size) = (self.wal_header()?, self.plan.page_size);
        let mut sums = HashMap::new();
        if header.frames() > after {
            self.with_wal(|wal| {
                sums = page_sums_behind(wal, page_size, header.salts(), after, header.frames())?;
                Ok(())
            })?;
        }
        Ok(sums)
    }

    /// Makes all commits survive a power loss.
    ///
    /// # Errors
    /// `SyncFailed`.
    pub fn sync_wal(&mut self, pace: &Pace) -> Result<(), ApplyError> {
        let header = self.wal_header()?;
        self.with_wal(|wal| wal.sync_used(Some(header), pace))
    }

    pub(crate) fn with_wal(
        &mut self,
        work: impl FnOnce(&mut VfsFile) -> std::io::Result<()>,
    ) -> Result<(), ApplyError> {
        let mut wal = self.take_wal()?;
        let done = work(&mut wal);
        self.wal = Some(wal);
        done.map_err(|error| self.sync_failed(error))
    }

    fn take_wal(&mut self) -> Result<VfsFile, ApplyError> {
        self.wal.take().map_or_else(|| self.open_wal(), Ok)
    }

    fn open_wal(&self) -> Result<VfsFile, ApplyError> {
        VfsFile::open(self.plan.vfs_base.as_deref(), &self.plan.path, VfsFileKind::Wal)
            .map_err(|error| self.sync_failed(error))
    }

    fn sync_failed(&self, error: std::io::Error) -> ApplyError {
        ApplyError::SyncFailed { name: self.plan.name.clone(), why: error.to_string() }
    }

    fn wal_header(&self) -> Result<WalIndexHeader, ApplyError> {
        let name = || self.plan.name.clone();
        self.guard()?.wal_header().map_err(|source| ApplyError::Guard { name: name(), source })
    }
}
