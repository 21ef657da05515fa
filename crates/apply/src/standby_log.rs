//! The WAL of a standby database: carries out what [`standfast_sqlite_wal::lifecycle`] decides, and repairs.

use crate::ApplyError;
use crate::standby_file::{OPEN_WAIT, StandbyFile};
use standfast_sqlite_wal::frame_sums::{frame_checksum, page_sums_behind};
use standfast_sqlite_wal::lifecycle::{Action, Look, Rewrite, State, WalLifecycle};
use standfast_sqlite_wal::pace::Pace;
use standfast_sqlite_wal::rewriting::{RewriteError, Suffix, WalSnapshot};
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

    /// Returns the state of the WAL: how much of it must be on disk.
    pub fn log(&self) -> State {
        self.lifecycle.state()
    }

    /// See [`WalLifecycle::durable_after_sync`].
    pub fn durable_after_sync(&self, held: Scn, durable: Scn) -> Scn {
        self.lifecycle.durable_after_sync(held, durable)
    }

    /// See [`WalLifecycle::frames`].
    pub fn wal_frames(&self) -> u32 {
        self.lifecycle.frames()
    }

    pub fn lifecycle(&mut self) -> &mut WalLifecycle {
        &mut self.lifecycle
    }

    /// Returns what is due for the WAL. Redo is kept from `durable_scn` on.
    pub fn what_is_due(&mut self, look: Look, durable_scn: Scn) -> Action {
        self.lifecycle.synced_upto(durable_scn);
        let look = Look { database_pages: self.pages, ..look };
        match self.lifecycle.look(look) {
            Action::CountPages { after } => {
                let pages = self.guard().map_or(0, |guard| guard.pages_behind(after));
                self.lifecycle.counted(pages)
            }
            action => action,
        }
    }

    /// Backfills, rewrites or resets the WAL. Waits up to 20 ms for readers where it has to. `scn`: the WAL holds
    /// everything committed before it. A prefix of more than `longest` frames is not rewritten.
    ///
    /// # Errors
    /// `Sqlite`, `SyncFailed`.
    pub fn carry_out(
        &mut self,
        action: Action,
        pace: &Pace,
        scn: Scn,
        longest: u32,
    ) -> Result<(), ApplyError> {
        match action {
            Action::Backfill { defers, .. } => self.backfill_prefix(pace, scn, longest, defers),
            Action::Rewrite => {
                let outcome = self.rewrite()?;
                let next = self.lifecycle.rewritten(outcome);
                if next == Action::Reset { self.reset_wal() } else { Ok(()) }
            }
            Action::Reset => self.reset_wal(),
            Action::Rest | Action::TakeSnapshot | Action::CountPages { .. } => Ok(()),
        }
    }

    /// Backfills like [`StandbyFile::checkpoint`]. With `defers`, the frames after those backfilled then need no sync,
    /// if all of the WAL was backfilled, and not more than `longest` frames.
    fn backfill_prefix(
        &mut self,
        pace: &Pace,
        scn: Scn,
        longest: u32,
        defers: bool,
    ) -> Result<(), ApplyError> {
        let snapshot = WalSnapshot { header: self.wal_header()?, scn };
        self.checkpoint(pace)?;
        let mut wal = self.take_wal()?;
        let guard = self.guard()?;
        let completed =
            if defers { guard.complete_backfill(&mut wal, self.plan.page_size) } else { Ok(false) };
        let completed = completed.and_then(|completed| guard.sync_backfilled().map(|()| completed));
        let completed = completed.map_err(|source| self.sqlite("checkpointing", source))?;
        let positions = guard.positions();
        let suffix = completed.then(|| Suffix::behind(&guard, &[snapshot], longest)).flatten();
        self.lifecycle.backfilled(positions, suffix);
        self.wal = Some(wal);
        Ok(())
    }

    fn rewrite(&mut self) -> Result<Rewrite, ApplyError> {
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
        let Some(written) = written?.map_err(|error| self.unusable_log(error))? else {
            return Ok(Rewrite::Impossible);
        };
        let Some(log) = written else { return Ok(Rewrite::Later) };
        self.write_back.restart_wal();
        Ok(Rewrite::Done { raw_salts: log.raw_salts, frames: log.frames() })
    }

    /// Backfills all frames and restarts the WAL, if the readers are gone within 20 ms.
    ///
    /// # Errors
    /// `Sqlite`.
    pub fn reset_wal(&mut self) -> Result<(), ApplyError> {
        self.lifecycle.end_deferral();
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
