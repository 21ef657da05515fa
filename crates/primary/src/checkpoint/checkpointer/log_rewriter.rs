//! The life of a WAL of a primary while it can be rewritten: a prefix is backfilled, the suffix stays deferred-sync
//! ([`standfast_sqlite_wal::tail`]), and behind the checkpoint gate the newest version of each page of the suffix
//! becomes the next WAL. [`Checkpointer`] decides when.

use super::outcome::Rewrite;
use super::{Checkpointer, WRITER_TIMEOUT, all_is_in_redo, passive, wait_until};
use crate::commit::database::Database;
use rusqlite::Connection;
use standfast_instruments::{Event, waiting};
use standfast_io::fault::{self, Fault};
use standfast_sqlite_wal::guard::Guard;
use standfast_sqlite_wal::pace::Pace;
use standfast_sqlite_wal::rewrite::{Prepared, RewriteError, RewrittenLog};
use standfast_sqlite_wal::tail::{Mark, Tail};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A WAL that was not handed to the disk as it grew is handed over within this many back-offs: 512 MB/s at most.
const HAND_OVER_BACK_OFFS: u32 = 3;

/// How often the next WAL is prepared before the rewrite is abandoned.
const PREPARED_AT_MOST: u32 = 3;

impl Checkpointer {
    /// Runs a passive checkpoint. If it backfills everything up to one of `marks`, and that prefix is not longer than
    /// twice `passive_frames`, the rest of the WAL may stay deferred-sync.
    pub(super) fn backfill_prefix(&mut self, database: &Arc<Database>, marks: &[Mark], throttled: bool) {
        let connection = database.connection();
        // A WAL that is already long must not grow during a throttled backfill.
        let pace = if throttled {
            Pace::ThrottledUntil(self.hurry.clone())
        } else {
            Pace::PacedUntil(self.hurry.clone())
        };
        let mut is_state = false;
        let moved = passive(&connection, &pace).and_then(|done| {
            is_state = complete_and_sync(&connection, database)?;
            Ok(done)
        });
        self.counts.passive += 1;
        if !self.judge(database, moved) || !is_state {
            return;
        }
        let longest = 2 * self.config.passive_frames;
        let tail = Guard::of(&connection).ok().and_then(|guard| Tail::behind(&guard, marks, longest));
        if let Some(tail) = &tail {
            database.set_synced(tail.scn());
        }
        self.set_tail(database, tail);
    }

    /// Lets the WAL be synced and backfilled as it is. What of it is not on disk first goes there incrementally.
    pub(super) fn end_deferral(&mut self, database: &Database, frames: u32) {
        self.set_tail(database, None);
        if let Some(progress) = self.progress.get_mut(&database.id()) {
            progress.passive_at = frames;
            progress.gate_again = Instant::now() + self.gate_back_off * HAND_OVER_BACK_OFFS;
        }
    }

    pub(super) fn set_tail(&mut self, database: &Database, tail: Option<Tail>) {
        database.set_deferred(tail.as_ref().map(Tail::raw_salts));
        if let Some(progress) = self.progress.get_mut(&database.id()) {
            progress.tail = tail;
        }
    }

    /// Rewrites the WAL while new transactions wait at their start, if its backfilled prefix has the space. If not, the
    /// WAL is shortened in another way.
    pub(super) fn rewrite_behind_gate(&mut self, database: &Arc<Database>) -> Rewrite {
        let Some(progress) = self.progress.get(&database.id()) else { return Rewrite::Impossible };
        let Some(tail) = progress.tail else { return Rewrite::Impossible };
        // Recovery begins after what the database file alone holds: the WAL is needed as it is.
        if progress.last_synced > tail.scn() {
            return Rewrite::Impossible;
        }
        let connection = database.connection();
        let Ok(guard) = Guard::of(&connection) else { return Rewrite::Impossible };
        // Syncs what was backfilled by other code than [`Checkpointer::backfill_prefix`].
        let synced = guard.sync_backfilled().map(|()| true);
        if !self.judge(database, synced) {
            return Rewrite::Later;
        }
        let (segment, id, size) = (self.shared.segment, database.id().0, database.record().page_size);
        let prepare = || database.with_wal(|wal| Ok(guard.prepare_rewrite(wal, size))).ok()?.ok()?;
        // A preparation that is kept waiting may find more changed pages than there is space for, so try again.
        let Some(prepared) = (0..PREPARED_AT_MOST).find_map(|_| prepare()) else {
            return Rewrite::Impossible;
        };
        let start = Instant::now();
        let limit = Duration::from_millis(self.config.gate_ms);
        segment.close_gate(id);
        let is_quiescent =
            wait_until(start + limit, || !segment.owned(id) && !segment.has_commit_waiters(id));
        let written = if is_quiescent && fault::check(Fault::CheckpointReset).is_ok() {
            self.rewrite(database, &guard, prepared, start + limit)
        } else {
            Ok(None)
        };
        segment.open_gate(id);
        segment.ring();
        self.count_gate(start);
        match written {
            Ok(Some(log)) => {
                self.counts.rewrites += 1;
                self.set_tail(database, None);
                if let Some(progress) = self.progress.get_mut(&database.id()) {
                    progress.passive_at = 0;
                    progress.rewritten = Some((log.raw_salts, log.frames()));
                }
                Rewrite::Done
            }
            Ok(None) => Rewrite::Later,
            Err(error) => {
                database.fail(format!("a checkpoint: {error}"));
                Rewrite::Later
            }
        }
    }

    /// The caller has closed the checkpoint gate. `None` when a connection that does not know of Standfast is in the
    /// way.
    fn rewrite(
        &self,
        database: &Arc<Database>,
        guard: &Guard<'_>,
        prepared: Prepared,
        end: Instant,
    ) -> Result<Option<RewrittenLog>, RewriteError> {
        let (segment, id) = (self.shared.segment, database.id().0);
        if guard.hold_write_lock_within(WRITER_TIMEOUT).is_err() {
            return Ok(None);
        }
        segment.mark_dirty(id);
        segment.ring();
        let written = if wait_until(end, || all_is_in_redo(&self.shared, database)) {
            let timeout = end.saturating_duration_since(Instant::now());
            segment.begin_rewriting(id);
            database.set_begins_generation(true);
            let is_whole = || segment.end_rewriting(id);
            let written = database
                .with_wal(|wal| Ok(guard.rewrite_log(wal, prepared, timeout, is_whole)))
                .unwrap_or(Ok(None));
            // After an error sessions must still regard the WAL as being rewritten: it may be inconsistent.
            if matches!(written, Ok(None)) {
                segment.end_rewriting(id);
            }
            written
        } else {
            Ok(None)
        };
        if let Ok(Some(log)) = &written {
            // Before capture enters the new WAL.
            database.first_pages().put(log.raw_salts, log.page_nos.clone());
            database.announce(&segment, log.raw_salts);
            segment.mark_dirty(id);
        }
        database.set_begins_generation(false);
        guard.release_write_lock();
        written
    }
}

/// Completes and syncs what a passive checkpoint has backfilled. True: the database file alone is the state after some
/// commit.
fn complete_and_sync(connection: &Connection, database: &Database) -> Result<bool, rusqlite::Error> {
    let Ok(guard) = Guard::of(connection) else { return Ok(false) };
    let size = database.record().page_size;
    let completed = database.with_wal(|wal| Ok(guard.complete_backfill(wal, size))).unwrap_or(Ok(false))?;
    let _wait = waiting(Event::DbFileSync);
    guard.sync_backfilled()?;
    Ok(completed)
}
