//! Carries out [`standfast_sqlite_wal::rewriting`] at a primary: the prefix of a WAL is backfilled so that its suffix may
//! stay deferred-sync, and behind the checkpoint gate the newest version of each page of the suffix becomes the next WAL.

use super::{Checkpointer, WRITER_TIMEOUT, all_is_in_redo, passive, wait_until};
use crate::commit::database::Database;
use rusqlite::Connection;
use standfast_instruments::{Event, waiting};
use standfast_io::fault::{self, Fault};
use standfast_sqlite_wal::guard::Guard;
use standfast_sqlite_wal::lifecycle::{Action, Rewrite, WalLifecycle};
use standfast_sqlite_wal::pace::Pace;
use standfast_sqlite_wal::rewriting::{Prepared, RewriteError, RewrittenLog, Suffix};
use standfast_types::Hint;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the next WAL is prepared before the rewrite is abandoned.
const PREPARED_AT_MOST: u32 = 3;

impl Checkpointer {
    /// Runs a passive checkpoint. With `defers`, if it backfills everything up to one of the snapshots, and that prefix is
    /// not longer than twice `passive_frames`, the rest of the WAL may stay deferred-sync.
    pub(super) fn backfill_prefix(
        &mut self,
        database: &Arc<Database>,
        may_pause: bool,
        defers: bool,
    ) -> Action {
        let snapshots = self.tell(database, WalLifecycle::take_snapshots);
        let connection = database.connection();
        // A WAL that is already long must not grow during a throttled backfill.
        let pace = if may_pause {
            Pace::ThrottledUntil(self.hurry.clone())
        } else {
            Pace::PacedUntil(self.hurry.clone())
        };
        let mut is_state = false;
        let backfilled = passive(&connection, &pace).and_then(|done| {
            is_state = complete_and_sync(&connection, database, defers)?;
            Ok(done)
        });
        self.counts.passive += 1;
        let is_state = self.judge(database, backfilled) && is_state;
        let guard = Guard::of(&connection).ok();
        let positions = guard.as_ref().and_then(Guard::positions);
        let longest = 2 * self.config.passive_frames;
        let suffix = guard.filter(|_| is_state).and_then(|guard| Suffix::behind(&guard, &snapshots, longest));
        if let Some(suffix) = &suffix {
            database.set_synced(suffix.scn());
        }
        self.tell(database, |lifecycle| lifecycle.backfilled(positions, suffix))
    }

    /// Rewrites the WAL while new transactions wait at their start, if its backfilled prefix has the space. If not, the
    /// WAL is shortened in another way.
    pub(super) fn rewrite_behind_gate(&mut self, database: &Arc<Database>) -> Rewrite {
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
                Rewrite::Done { raw_salts: log.raw_salts, frames: log.frames() }
            }
            Ok(None) => Rewrite::Later,
            Err(error) => {
                database.fail(format!("a checkpoint: {}", error.as_a_reason()));
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

/// Syncs what a passive checkpoint has backfilled, after completing it if the rest `defers`. True: the database file alone
/// is the state after some commit.
fn complete_and_sync(
    connection: &Connection,
    database: &Database,
    defers: bool,
) -> Result<bool, rusqlite::Error> {
    let Ok(guard) = Guard::of(connection) else { return Ok(false) };
    let size = database.record().page_size;
    let complete = || database.with_wal(|wal| Ok(guard.complete_backfill(wal, size))).unwrap_or(Ok(false));
    let completed = defers && complete()?;
    let _wait = waiting(Event::DbFileSync);
    guard.sync_backfilled()?;
    Ok(completed)
}
