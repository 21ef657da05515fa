//! Checkpoints, syncs, and the end of apply.

use crate::apply::Apply;
use crate::database::{Condition, Database, Done};
use crate::history::Fact;
use crate::worker_pool::run_on_workers;
use crate::{ApplyError, ApplyReport};
use standfast_io::fault::{self, Fault};
use standfast_sqlite_wal::lifecycle::{Action, State};
use standfast_sqlite_wal::log_length::{is_long, share};
use standfast_sqlite_wal::pace::Pace;
use standfast_types::{DatabaseId, PageSize, Scn};
use std::cmp::Reverse;

/// Where the WALs of many databases wait to be handed to the disk, each call hands over this part of them (1/8).
const PART_OF_MANY: usize = 8;

/// State of a database, for callers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseStatus {
    pub database: DatabaseId,
    pub name: String,
    pub page_size: PageSize,
    pub pages: u32,
    /// Last commit that is in it.
    pub scn: Scn,
    /// Resume SCN: redo is needed from here on; all commits before are in the database.
    pub resume_scn: Scn,
    pub condition: Condition,
    /// A full resync is replacing the whole content; until it ends the database holds the earlier content.
    pub replacing: bool,
}

impl Apply {
    /// Returns the SCN before which everything is applied.
    pub fn applied(&self) -> Scn {
        self.applied
    }

    pub fn databases(&self) -> Vec<DatabaseStatus> {
        let status = |database: &Database| DatabaseStatus {
            database: database.id,
            name: database.name.clone(),
            page_size: database.file.page_size(),
            pages: database.file.pages(),
            scn: database.state,
            resume_scn: database.resume_scn,
            condition: database.condition,
            replacing: database.is_being_replaced(),
        };
        self.databases.values().map(status).collect()
    }

    /// Returns the SCN before which all commits are in the databases that take redo. Change records of open
    /// transactions from here on are not, although they are consumed when they lie before [`Apply::applied`].
    pub fn complete_upto(&self) -> Scn {
        let starts = self.databases.values().filter_map(Database::open_transaction_start);
        starts.min().map_or(self.applied, |oldest| oldest.min(self.applied))
    }

    /// Returns the databases whose whole content is being replaced; until that ends they hold the earlier content.
    pub fn being_replaced(&self) -> impl Iterator<Item = DatabaseId> {
        self.databases.values().filter(|database| database.is_being_replaced()).map(|database| database.id)
    }

    /// Returns where redo is needed from for a database that could not be opened, if it was ever synced here.
    pub fn durable_scn_of(&self, database: DatabaseId) -> Option<Scn> {
        self.journal.history().durable_scn(database)
    }

    /// Stops apply to `database` for a cause outside the redo, `why`. The stop lasts over restarts until a full resync.
    ///
    /// # Errors
    /// `Journal`.
    pub fn leave(
        &mut self,
        database: DatabaseId,
        why: &str,
        report: &mut ApplyReport,
    ) -> Result<(), ApplyError> {
        let found = self.databases.get_mut(&database);
        let Some(database) = found.filter(|database| database.condition != Condition::Stopped) else {
            return Ok(());
        };
        database.condition = Condition::Stopped;
        self.facts.push(Fact::Stopped { database: database.id, scn: database.state });
        let error = ApplyError::Moved { name: database.name.clone(), why: why.to_owned() };
        report.errors.push((database.id, error));
        self.write_facts()
    }

    /// Returns the SCN before which redo is not needed again, whatever this machine loses: the standby logs that hold
    /// it may be reused. [`Apply::sync`] advances it. A stopped database needs a full resync, hence no redo.
    pub fn durable_scn(&self) -> Scn {
        let floors = self.databases.values().filter(|database| database.condition != Condition::Stopped);
        floors.map(|database| database.durable_scn).min().unwrap_or(self.applied)
    }

    /// Makes everything applied survive a power loss, then returns [`Apply::durable_scn`].
    ///
    /// # Errors
    /// When the journal cannot be written; a WAL that cannot be synced makes its database fail.
    pub fn sync(&mut self, report: &mut ApplyReport) -> Result<Scn, ApplyError> {
        self.sync_where(report, &Pace::AtOnce, |_| true)
    }

    /// Syncs like [`Apply::sync`], but leaves deferred-sync WALs for a while, because less will be worth writing once
    /// they are rewritten: until no more redo comes, or for so many calls that the WAL evidently does not grow fast.
    ///
    /// # Errors
    /// As [`Apply::sync`].
    pub fn sync_lazily(&mut self, pace: &Pace, report: &mut ApplyReport) -> Result<Scn, ApplyError> {
        self.sync_where(report, pace, Database::is_to_be_synced)
    }

    /// Returns whether a later [`Apply::sync`] has work.
    pub fn is_unsynced(&self) -> bool {
        self.databases.values().any(|database| {
            database.condition == Condition::Live && database.resume_scn > database.durable_scn
        })
    }

    fn sync_where(
        &mut self,
        report: &mut ApplyReport,
        pace: &Pace,
        mut wanted: impl FnMut(&mut Database) -> bool,
    ) -> Result<Scn, ApplyError> {
        for database in self.databases.values_mut() {
            // A WAL that is synced is backfilled as it is from then on.
            if database.condition == Condition::Live
                && database.resume_scn > database.durable_scn
                && wanted(database)
            {
                database.file.lifecycle().end_deferral();
            }
        }
        let behind = |database: &&mut Database| {
            database.condition == Condition::Live && database.durable_after_sync() > database.durable_scn
        };
        run_on_workers(self.databases.values_mut().filter(behind), &mut self.dirty_pages, |database, _| {
            if database.unsynced && database.file.log() == State::Plain {
                let synced = database.file.sync_wal(pace);
                database.unsynced = synced.is_err();
                database.outcome = Some(synced.map(|()| Done::default()));
            }
        });
        self.collect(report);
        let mut facts = std::mem::take(&mut self.facts);
        for database in self.databases.values_mut().filter(behind) {
            facts.push(Fact::Durable { database: database.id, scn: database.durable_after_sync() });
        }
        let written = self.journal.append(&facts).and_then(|()| self.journal.sync());
        written.map_err(|source| self.journal_error(source))?;
        for database in self.databases.values_mut().filter(behind) {
            database.durable_scn = database.durable_after_sync();
        }
        Ok(self.durable_scn())
    }

    /// Checkpoints the databases whose WAL has grown enough. Apply waits for readers at most 20 ms a database.
    ///
    /// # Errors
    /// When the journal cannot be written; errors of one database are in the report.
    pub fn checkpoint_if_due(&mut self, pace: &Pace, report: &mut ApplyReport) -> Result<(), ApplyError> {
        let live = |database: &&Database| database.condition == Condition::Live;
        let long = self
            .databases
            .values()
            .filter(live)
            .filter(|database| is_long(database.file.wal_frames()))
            .count();
        let (every, reset_at) = (self.limits.checkpoint_frames, share(self.limits.reset_frames, long));
        let mut any_due = false;
        for database in self.databases.values_mut().filter(|database| database.condition == Condition::Live) {
            // A database without new frames gives back the length beyond its share.
            if !database.grown && database.file.wal_frames() < reset_at {
                continue;
            }
            let now = database.file.checkpointed()?;
            let what = database.what_is_due(now, every, reset_at);
            database.grown = false;
            if !matches!(database.file.log(), State::Deferred(_)) {
                let write_back = database.file.write_back();
                write_back.grew_to(now.frames);
                // A checkpoint syncs all of it immediately.
                if what != Action::Rest || matches!(pace, Pace::AtOnce) {
                    write_back.hand_all();
                }
            }
            database.due = what;
            any_due |= what != Action::Rest;
        }
        if any_due { self.do_what_is_due(pace, report) } else { Ok(()) }
    }

    fn do_what_is_due(&mut self, pace: &Pace, report: &mut ApplyReport) -> Result<(), ApplyError> {
        // Positions before pages, so that a restart finds the WAL positions of the content of the file.
        let synced = self.journal.sync();
        if let Err(source) = synced {
            return Err(ApplyError::Journal { path: self.journal.path().to_owned(), source });
        }
        let longest = 2 * self.limits.checkpoint_frames;
        let due = self.databases.values_mut().filter(|database| database.due != Action::Rest);
        run_on_workers(due, &mut self.dirty_pages, |database, _| {
            let may = match database.due {
                Action::Rewrite | Action::Reset => may_reset(database),
                _ => Ok(()),
            };
            let scn = database.resume_scn;
            let result = may.and_then(|()| database.file.carry_out(database.due, pace, scn, longest));
            database.outcome = Some(result.map(|()| Done::default()));
        });
        self.collect(report);
        self.note_floors()
    }

    /// Backfills, where readers allow it, what is before `scn` and not in the database files alone. Called before that
    /// redo is discarded: without the redo, a WAL that is removed after a crash would take this content away. What
    /// readers hold back is backfilled later.
    ///
    /// # Errors
    /// When the journal cannot be written; errors of one database are in the report.
    pub fn backfill_before(
        &mut self,
        scn: Scn,
        pace: &Pace,
        report: &mut ApplyReport,
    ) -> Result<(), ApplyError> {
        let behind =
            |database: &&mut Database| database.condition == Condition::Live && database.file_scn < scn;
        let mut behind = self.databases.values_mut().filter(behind).peekable();
        if behind.peek().is_none() {
            return Ok(());
        }
        for database in behind {
            database.due = database.file.lifecycle().backfill_now();
        }
        self.do_what_is_due(pace, report)?;
        self.journal.sync().map_err(|source| self.journal_error(source))
    }

    /// Hands some newly written WAL frames to the disk, early and in small chunks; false when nothing worth handing
    /// over is left. [`Apply::checkpoint_if_due`] leaves nothing to it at [`Pace::AtOnce`], nor of a database that is
    /// due.
    pub fn write_back(&mut self) -> bool {
        let logs =
            self.databases.values_mut().filter(|database| !matches!(database.file.log(), State::Deferred(_)));
        let logs = logs.map(|database| database.file.write_back());
        let mut ready: Vec<_> = logs.filter_map(|log| Some((log.left()?, log))).collect();
        ready.sort_unstable_by_key(|(left, _)| Reverse(*left));
        let some = ready.len().div_ceil(PART_OF_MANY);
        ready.iter_mut().take(some).for_each(|(_, log)| _ = log.hand_chunk());
        ready.iter().any(|(_, log)| log.left().is_some())
    }

    /// Journals durable SCNs after checkpoints. A database whose WAL is all backfilled was synced by its checkpoint;
    /// and a position in a WAL that is about to be restarted will prove nothing.
    fn note_floors(&mut self) -> Result<(), ApplyError> {
        let mut facts = std::mem::take(&mut self.facts);
        for database in self.databases.values_mut() {
            let due = std::mem::replace(&mut database.due, Action::Rest);
            if due == Action::Rest || database.condition != Condition::Live {
                continue;
            }
            let now = database.file.checkpointed()?;
            match database.file.log() {
                // The end of its first transaction is a new WAL position of the existing state.
                State::Rewritten { .. } => {
                    let (at, checksum) = database.file.wal_state()?;
                    facts.push(Fact::Position {
                        database: database.id,
                        at,
                        checksum,
                        scn: database.resume_scn,
                    });
                }
                State::Deferred(suffix) => facts.extend(database.file_holds_upto(suffix.scn())),
                State::Plain if now.backfilled == now.frames => {
                    database.unsynced = false;
                    facts.extend(database.file_holds_upto(database.resume_scn));
                }
                State::Plain => {}
            }
        }
        let written = self.journal.append(&facts);
        written.map_err(|source| self.journal_error(source))
    }

    /// Ends apply before this instance becomes primary: drops transactions without a commit record, backfills all WALs,
    /// syncs everything and lets other processes write.
    ///
    /// # Errors
    /// The first error; the databases are released all the same.
    pub fn release_for_failover(mut self) -> Result<Scn, ApplyError> {
        let mut report = ApplyReport::default();
        for database in self.databases.values_mut() {
            database.drop_open_transaction();
            database.advance(Scn::ZERO);
            // Otherwise the suffix would have to be synced as it is, which is many times as much.
            if database.condition == Condition::Live && matches!(database.file.log(), State::Deferred(_)) {
                database.file.lifecycle().synced_upto(database.durable_scn);
                database.due = database.file.lifecycle().shorten_now();
            }
        }
        let rewritten = self.do_what_is_due(&Pace::AtOnce, &mut report);
        let synced = rewritten.and_then(|()| self.sync(&mut report));
        for database in self.databases.values_mut().filter(|database| database.condition == Condition::Live) {
            if let Err(error) = reset(database) {
                report.errors.push((database.id, error));
            }
        }
        self.databases.values().for_each(|database| database.file.release_locks());
        match report.errors.into_iter().next() {
            Some((_, error)) => Err(error),
            None => synced.map(|_| self.applied),
        }
    }
}

fn reset(database: &mut Database) -> Result<(), ApplyError> {
    may_reset(database)?;
    database.file.reset_wal()
}

fn may_reset(database: &Database) -> Result<(), ApplyError> {
    fault::check(Fault::CheckpointReset).map_err(|source| ApplyError::Io {
        name: database.name.clone(),
        doing: "checkpointing",
        source,
    })
}
