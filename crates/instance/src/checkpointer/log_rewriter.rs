//! The life of a log of a primary while it can be written anew: its beginning is moved, its tail is left where it is
//! ([`standfast_sqlite_wal::tail`]), and behind the gate the newest version of each page of the tail becomes the next log.
//! [`Checkpointer`] says when.

use super::{Checkpointer, WRITER_TIMEOUT, all_is_in_redo, passive, wait_until};
use crate::database::Database;
use rusqlite::Connection;
use standfast_instruments::{Event, waiting};
use standfast_io::fault::{self, Fault};
use standfast_sqlite_wal::guard::Guard;
use standfast_sqlite_wal::pace::Pace;
use standfast_sqlite_wal::rewrite::{Prepared, RewriteError, RewrittenLog};
use standfast_sqlite_wal::tail::{Mark, Tail};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A log that was not handed to the disk as it grew is, in the time of so many back-offs: 512 MB/s at most.
const HAND_OVER_BACK_OFFS: u32 = 3;

/// How often the next log is put together before it is given up.
const PREPARED_AT_MOST: u32 = 3;

/// How it went to write a log anew.
pub(super) enum Rewrite {
    Done,
    /// Somebody is in the way.
    Later,
    Impossible,
}

impl Checkpointer {
    /// A passive checkpoint. If it moves all before one of `marks`, and that is not much of a log, the rest of the log may stay
    /// where it is.
    pub(super) fn move_beginning(&mut self, database: &Arc<Database>, marks: &[Mark], at_leisure: bool) {
        let connection = database.connection();
        // A log that is long already must not grow while pages are moved at leisure.
        let pace = if at_leisure {
            Pace::LeisurelyUntil(self.hurry.clone())
        } else {
            Pace::SteadilyUntil(self.hurry.clone())
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

    /// The log is synced and moved as it is: what of it is not on disk goes there little by little first.
    pub(super) fn forget_tail(&mut self, database: &Database, frames: u32) {
        self.set_tail(database, None);
        if let Some(progress) = self.progress.get_mut(&database.id()) {
            progress.passive_at = frames;
            progress.gate_again = Instant::now() + self.gate_back_off * HAND_OVER_BACK_OFFS;
        }
    }

    pub(super) fn set_tail(&mut self, database: &Database, tail: Option<Tail>) {
        database.set_lazy(tail.as_ref().map(Tail::raw_salts));
        if let Some(progress) = self.progress.get_mut(&database.id()) {
            progress.tail = tail;
        }
    }

    /// Writes the log anew while new transactions wait at their start, if its moved beginning has the room. If not the log
    /// gets shorter in another way.
    pub(super) fn rewrite_behind_gate(&mut self, database: &Arc<Database>) -> Rewrite {
        let Some(progress) = self.progress.get(&database.id()) else { return Rewrite::Impossible };
        let Some(tail) = progress.tail else { return Rewrite::Impossible };
        // Recovery begins behind what the database file alone holds: the log is needed as it is.
        if progress.last_synced > tail.scn() {
            return Rewrite::Impossible;
        }
        let connection = database.connection();
        let Ok(guard) = Guard::of(&connection) else { return Rewrite::Impossible };
        // Of what others than [`Checkpointer::move_beginning`] have moved.
        let synced = guard.sync_moved().map(|()| true);
        if !self.judge(database, synced) {
            return Rewrite::Later;
        }
        let (segment, id, size) = (self.shared.segment, database.id().0, database.record().page_size);
        let prepare = || database.with_wal(|wal| Ok(guard.prepare_rewrite(wal, size))).ok()?.ok()?;
        // Who is kept waiting meanwhile may find more changed than there is room for.
        let Some(prepared) = (0..PREPARED_AT_MOST).find_map(|_| prepare()) else {
            return Rewrite::Impossible;
        };
        let start = Instant::now();
        let limit = Duration::from_millis(self.config.gate_ms);
        segment.close_gate(id);
        let calm = wait_until(start + limit, || !segment.owned(id) && !segment.has_commit_waiters(id));
        let written = if calm && fault::check(Fault::CheckpointReset).is_ok() {
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

    /// Nobody begins a transaction. `None` when somebody who does not know of Standfast is in the way.
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
            // After an error the log stays as torn as it may be.
            if matches!(written, Ok(None)) {
                segment.end_rewriting(id);
            }
            written
        } else {
            Ok(None)
        };
        if let Ok(Some(log)) = &written {
            // Before capture enters the log.
            database.first_pages().put(log.raw_salts, log.page_nos.clone());
            database.announce(&segment, log.raw_salts);
            segment.mark_dirty(id);
        }
        database.set_begins_generation(false);
        guard.release_write_lock();
        written
    }
}

/// What is captured, and a log that holds at least that.
pub(super) fn mark_of(database: &Database) -> Option<Mark> {
    let scn = database.last_commit();
    // Read after the other: the log only grows.
    database.settled_header().map(|header| Mark { header, scn })
}

/// What a passive checkpoint has moved is synced, and the state after some commit if this returns true.
fn complete_and_sync(connection: &Connection, database: &Database) -> Result<bool, rusqlite::Error> {
    let Ok(guard) = Guard::of(connection) else { return Ok(false) };
    let size = database.record().page_size;
    let completed = database.with_wal(|wal| Ok(guard.complete_moved(wal, size))).unwrap_or(Ok(false))?;
    let _wait = waiting(Event::DbFileSync);
    guard.sync_moved()?;
    Ok(completed)
}
