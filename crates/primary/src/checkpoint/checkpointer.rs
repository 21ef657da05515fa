//! Checkpoints: the only code that backfills frames of protected databases into their files, resets their WALs, and
//! advances the position from which recovery starts. One thread runs [`Checkpointer::pass`].
//!
//! Only frames that are durable in the local redo log are backfilled (redo before data), and the WAL is synced before
//! any backfill, so that a power loss never leaves a database file that is ahead of its WAL.
//!
//! [`standfast_sqlite_wal::lifecycle`] decides when; this carries out its actions.

mod length;
mod log_rewriter;
mod snapshot;

use crate::commit::database::Database;
use crate::commit::primary::PrimaryShared;
use length::Length;
use rusqlite::Connection;
use serde::Serialize;
use snapshot::snapshot_of;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::CheckpointConfig;
use standfast_instruments::{Event, waiting};
use standfast_io::fault::{self, Fault};
use standfast_session::Segment;
use standfast_sqlite_wal::WalIndexHeader;
use standfast_sqlite_wal::guard::{Guard, GuardError};
use standfast_sqlite_wal::lifecycle::{Action, Look, Rewrite, Rhythm, WalLifecycle};
use standfast_sqlite_wal::log_length::{is_long, share};
use standfast_sqlite_wal::pace::Pace;
use standfast_types::{DatabaseId, Hint, Scn};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Shortest time to the next checkpoint gate after one that did not lead to a reset.
const GATE_BACK_OFF: Duration = Duration::from_millis(200);

/// How long a reset waits for a writer, or readers, that do not know of the checkpoint gate.
const WRITER_TIMEOUT: Duration = Duration::from_millis(20);

/// How long a checkpoint waits for a writer before it completes frames that lack checksums.
const FRAMES_TIMEOUT: Duration = Duration::from_secs(5);

/// Passive checkpoints right before a checkpoint gate.
const PASSES_BEFORE_GATE: u64 = 4;

/// State of the checkpoints of one database.
struct Progress {
    lifecycle: WalLifecycle,
    frames_seen: u32,
    length: Length,
}

/// Frames that a full checkpoint left in the WAL of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remainder {
    pub name: String,
    /// Frames that are not in the database file.
    pub frames: u32,
    /// Why; `None`: because of open transactions.
    pub error: Option<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckpointCounts {
    pub passive: u64,
    pub resets: u64,
    /// WALs rewritten with the newest version of each page.
    pub rewrites: u64,
    pub gates: u64,
    /// Longest checkpoint gate, microseconds.
    pub gate_us_max: u64,
    /// Frames that were handed to the disk before a checkpoint asked for it, see
    /// [`DatabaseWriter`](crate::checkpoint::database_writer::DatabaseWriter).
    pub early_frames: u64,
}

pub struct Checkpointer {
    shared: Arc<PrimaryShared>,
    config: CheckpointConfig,
    progress: HashMap<DatabaseId, Progress>,
    counts: CheckpointCounts,
    gate_back_off: Duration,
    begun: Instant,
    hurry: Arc<AtomicBool>,
    /// Reported errors that prevent a checkpoint of a database and pass by themselves.
    errors: BTreeMap<DatabaseId, String>,
    changes: Vec<String>,
}

impl Checkpointer {
    /// Creates it for the databases of `shared`.
    pub fn new(shared: Arc<PrimaryShared>, config: CheckpointConfig) -> Checkpointer {
        Checkpointer {
            shared,
            config,
            progress: HashMap::new(),
            counts: CheckpointCounts::default(),
            gate_back_off: GATE_BACK_OFF,
            begun: Instant::now(),
            hurry: Arc::default(),
            errors: BTreeMap::new(),
            changes: Vec::new(),
        }
    }

    /// Returns a flag. Once it is set, no pass is throttled any more, not even the pass in progress.
    pub fn hurry(&self) -> Arc<AtomicBool> {
        self.hurry.clone()
    }

    /// For simulations without time, before the first pass: the next pass tries again after a checkpoint gate that did
    /// not lead to a reset.
    pub fn gate_at_once(&mut self) {
        self.gate_back_off = Duration::ZERO;
    }

    /// What it shares with the other stages.
    pub fn shared(&self) -> &PrimaryShared {
        &self.shared
    }

    /// Checks that no database has failed.
    ///
    /// # Errors
    /// `DatabaseFailed` of the first database that has.
    pub fn all_trusted(&self) -> Result<(), InstanceError> {
        self.shared.all_databases().iter().try_for_each(|database| database.trusted())
    }

    /// Counts since the start.
    pub fn counts(&self) -> CheckpointCounts {
        self.counts
    }

    /// Returns what an operator should know of checkpoints since the last call. Failed databases are not in it.
    pub fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.changes)
    }

    /// Databases that failed, see [`Database::fail`].
    pub fn failed(&self) -> Vec<DatabaseId> {
        let failed = |database: &Arc<Database>| database.failure().is_some().then(|| database.id());
        self.shared.all_databases().iter().filter_map(failed).collect()
    }

    /// Returns whether a checkpoint was done. A database fails if SQLite could not write or sync it; a transient error
    /// is reported to the operator once.
    fn judge(&mut self, database: &Database, checkpoint: Result<bool, rusqlite::Error>) -> bool {
        let (id, name) = (database.id(), &database.record().name);
        match checkpoint {
            Ok(done) => {
                if done && self.errors.remove(&id).is_some() {
                    self.changes.push(format!("checkpoints of database {name} continue"));
                }
                done
            }
            Err(error) if makes_suspect(&error) => {
                database.fail(format!("a checkpoint: {error}"));
                false
            }
            Err(error) => {
                let text = error.to_string();
                if self.errors.get(&id) != Some(&text) {
                    self.changes.push(format!(
                        "a checkpoint of database {name} failed and will be tried again: {text}"
                    ));
                    self.errors.insert(id, text);
                }
                false
            }
        }
    }

    /// Visits all databases once. Returns whether any of them was written to since the last pass.
    pub fn pass(&mut self) -> bool {
        let databases = self.shared.all_databases();
        self.progress.retain(|id, _| databases.iter().any(|database| database.id() == *id));
        let long = self.progress.values().filter(|progress| is_long(progress.frames_seen)).count();
        let mut active = false;
        for database in &databases {
            active |= self.visit(database, long);
        }
        active
    }

    /// `long` WALs share the length that one may have.
    fn visit(&mut self, database: &Arc<Database>, long: usize) -> bool {
        if database.failure().is_some() {
            self.progress.remove(&database.id());
            return false;
        }
        if database.is_index_lost() {
            database.fail("its wal-index: another process has made the -shm file shorter".into());
            return false;
        }
        self.complete_frames(database, Duration::ZERO);
        let Some(header) = database.header() else { return false };
        let frames = header.frames();
        let alone = self.config.reset_frames;
        let progress = self.progress_of(database);
        let reset_frames = progress.length.limit(database, share(alone, long));
        let grows = progress.frames_seen != frames;
        progress.frames_seen = frames;
        let look = Look {
            raw_salts: header.raw_salts(),
            frames,
            backfilled: database.backfilled(),
            database_pages: header.database_pages(),
            grows,
            backfill_frames: share(self.config.passive_frames, long),
            reset_frames,
            reset_frames_alone: alone,
        };
        let mut action = self.tell(database, |lifecycle| lifecycle.look(look));
        while action != Action::Rest && database.failure().is_none() {
            action = self.carry_out(database, action);
        }
        if let Some(progress) = self.progress.get_mut(&database.id()) {
            progress.length.cut_if_due(database, alone);
        }
        grows
    }

    /// Carries out what is due for the WAL of a database. Returns what is due next.
    fn carry_out(&mut self, database: &Arc<Database>, action: Action) -> Action {
        match action {
            Action::Rest => Action::Rest,
            Action::TakeSnapshot => {
                let snapshot = snapshot_of(database);
                self.tell(database, |lifecycle| lifecycle.snapshot(snapshot))
            }
            Action::Backfill { may_pause, defers } => self.backfill_prefix(database, may_pause, defers),
            Action::CountPages { after } => {
                let connection = database.connection();
                let pages = Guard::of(&connection).map_or(0, |guard| guard.pages_behind(after));
                self.tell(database, |lifecycle| lifecycle.counted(pages))
            }
            Action::Rewrite => {
                let outcome = self.rewrite_behind_gate(database);
                self.tell(database, |lifecycle| lifecycle.rewritten(outcome))
            }
            Action::Reset => match self.reset_behind_gate(database) {
                Some(done) => self.tell(database, |lifecycle| lifecycle.reset(done)),
                None => Action::Rest,
            },
        }
    }

    fn progress_of(&mut self, database: &Database) -> &mut Progress {
        let (rewrites, back_off) = (self.config.rewrite_wals, self.gate_back_off);
        self.progress.entry(database.id()).or_insert_with(|| Progress {
            lifecycle: WalLifecycle::new(
                rewrites,
                database.record().page_size,
                Rhythm::BehindGate { back_off },
            ),
            frames_seen: database.captured_frames(),
            length: Length::default(),
        })
    }

    /// Reports an event in the life of a WAL, and publishes whether its suffix is deferred from now on.
    fn tell<T>(&mut self, database: &Database, event: impl FnOnce(&mut WalLifecycle) -> T) -> T {
        let now = self.begun.elapsed();
        let lifecycle = &mut self.progress_of(database).lifecycle;
        lifecycle.tick(now);
        let next = event(lifecycle);
        database.set_deferred(lifecycle.deferred());
        next
    }

    /// Adds the checksums of frames that were committed without them, unless a writer is in the way for longer than
    /// `limit`. Returns false when some are left.
    fn complete_frames(&mut self, database: &Database, limit: Duration) -> bool {
        match database.complete_frames(limit) {
            Ok(None) => true,
            Ok(Some(frame)) => {
                self.changes.push(format!(
                    "database {}: frames from {frame} on were committed without checksums, by SQLite before 3.50.2 in a \
                     process without Standfast; they are captured, and have their checksums now",
                    database.record().name
                ));
                true
            }
            Err(InstanceError::Guard(GuardError::Busy { .. })) => false,
            Err(error) => {
                database.fail(format!("its write-ahead log: {error}"));
                false
            }
        }
    }

    fn count_gate(&mut self, start: Instant) {
        self.counts.gates += 1;
        self.counts.gate_us_max = self.counts.gate_us_max.max(start.elapsed().as_micros() as u64);
    }

    /// Resets the WAL while new transactions wait at their start. Lets commits in flight finish first. Returns whether it
    /// was reset; `None` when the database fails before the gate closes.
    fn reset_behind_gate(&mut self, database: &Arc<Database>) -> Option<bool> {
        let connection = database.connection();
        // A pass leaves the frames that arrive during it to the next one, and each is shorter: the gate gets the last
        // of them.
        for _ in 0..PASSES_BEFORE_GATE {
            let backfilled = passive_and_synced(&connection, &Pace::PacedUntil(self.hurry.clone()));
            self.judge(database, backfilled);
            if database.failure().is_some() {
                return None;
            }
        }
        self.counts.passive += PASSES_BEFORE_GATE;
        let segment = self.shared.segment;
        let id = database.id().0;
        let start = Instant::now();
        let limit = Duration::from_millis(self.config.gate_ms);
        segment.close_gate(id);
        // No session begins to write any more: backfill while the last commits wait for their redo.
        if wait_until(start + limit, || !segment.owned(id)) {
            let backfilled = passive(&connection, &Pace::AtOnce);
            self.judge(database, backfilled);
        }
        let is_quiescent =
            wait_until(start + limit, || !segment.owned(id) && !segment.has_commit_waiters(id));
        let may =
            is_quiescent && database.failure().is_none() && fault::check(Fault::CheckpointReset).is_ok();
        let done = if may { reset(&connection, database, &segment) } else { Ok(false) };
        segment.open_gate(id);
        let done = self.judge(database, done);
        self.count_gate(start);
        self.counts.resets += u64::from(done);
        Some(done)
    }

    /// Backfills every database completely and resets its WAL, waiting for readers up to `limit` each. For a clean
    /// shutdown and for `standfast checkpoint`. Returns what stays in WALs.
    pub fn checkpoint_all(&mut self, limit: Duration) -> Vec<Remainder> {
        let mut remainders = Vec::new();
        for database in self.shared.all_databases() {
            // Otherwise the suffix would have to be synced as it is, which is many times as much.
            if self.may_rewrite(&database)
                && let done @ Rewrite::Done { .. } = self.rewrite_behind_gate(&database)
            {
                self.tell(&database, |lifecycle| lifecycle.rewritten(done));
            }
            self.tell(&database, WalLifecycle::end_deferral);
            let connection = database.connection();
            let segment = self.shared.segment;
            let end = Instant::now() + limit;
            let mut is_reset = false;
            // The slow part comes before the gate.
            let backfilled = passive_and_synced(&connection, &Pace::AtOnce);
            self.judge(&database, backfilled);
            while database.failure().is_none() {
                // Overlapping readers have to be gone all at the same time.
                segment.close_gate(database.id().0);
                let opens = Instant::now() + Duration::from_millis(self.config.gate_ms);
                let done = loop {
                    let done = reset(&connection, &database, &segment);
                    if !matches!(done, Ok(false)) || Instant::now() >= opens {
                        break done;
                    }
                };
                segment.open_gate(database.id().0);
                is_reset = self.judge(&database, done);
                if is_reset || Instant::now() >= end {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            if is_reset || database.failure().is_some() {
                continue;
            }
            let frames = database.header().map_or(0, |header| header.frames());
            let frames = frames.saturating_sub(database.backfilled());
            let error = self.errors.get(&database.id()).cloned();
            // The next writer restarts a WAL that is completely in the file.
            if frames > 0 || error.is_some() {
                remainders.push(Remainder { name: database.record().name.clone(), frames, error });
            }
        }
        remainders
    }

    fn may_rewrite(&mut self, database: &Database) -> bool {
        let Some(header) = database.header() else { return false };
        self.tell(database, |lifecycle| {
            lifecycle.forget_other_wals(header.raw_salts());
            lifecycle.may_rewrite()
        })
    }

    /// Whether [`Checkpointer::sync_databases`] has nothing to do for `scn`.
    pub fn databases_hold(&self, scn: Scn) -> bool {
        self.shared.all_databases().iter().filter(|database| database.failure().is_none()).all(|database| {
            self.progress.get(&database.id()).is_some_and(|progress| progress.holds(database, scn))
        })
    }

    /// Makes everything before `scn` that was captured before this call survive in the databases themselves, except in
    /// those that [`Checkpointer::failed`] then returns. Syncs a WAL where the database file does not hold that much.
    ///
    /// # Errors
    /// When the process has no descriptors or memory to open a WAL: recovery must then start where it would have
    /// started before. A WAL that cannot be opened for a reason of its own makes its database fail.
    pub fn sync_databases(&mut self, scn: Scn) -> Result<(), InstanceError> {
        for database in self.shared.all_databases() {
            let in_redo = database.in_redo();
            if !self.complete_frames(&database, FRAMES_TIMEOUT) && database.failure().is_none() {
                // Recovery of the other databases must not wait for a writer of this one.
                database.fail(format!(
                    "frames of its write-ahead log have no checksums, and a writer has kept them from being completed for {} s",
                    FRAMES_TIMEOUT.as_secs()
                ));
            }
            if self.progress_of(&database).holds(&database, scn) {
                continue;
            }
            let pace = match self.shared.log_switch_waits() {
                true => Pace::AtOnce,
                false => Pace::ThrottledUntil(self.hurry.clone()),
            };
            let wait = waiting(Event::DbFileSync);
            let synced = database.sync_wal(&pace);
            drop(wait);
            match synced {
                Ok(()) => self.tell(&database, |lifecycle| lifecycle.synced_upto(in_redo)),
                // Recovery of the other databases does not wait for this one.
                Err(InstanceError::DatabaseFailed { .. }) => {}
                Err(error) if is_of_the_process(&error) => return Err(error),
                Err(error) => database.fail(error.as_a_reason()),
            }
        }
        Ok(())
    }
}

impl Progress {
    /// Whether everything before `scn` survives in the database itself.
    fn holds(&self, database: &Database, scn: Scn) -> bool {
        holds(scn, database.in_redo(), self.lifecycle.synced_scn(), database.synced())
    }
}

/// Returns the hook that keeps a checkpoint from backfilling what is not durable in the redo. The hook waits up to
/// `limit` for that, but not while the log writer waits for a log group, which its caller may have to free first.
pub fn redo_before_data(
    shared: &Arc<PrimaryShared>,
    database: &Arc<Database>,
    limit: Duration,
) -> Box<dyn Fn() -> bool + Send + Sync> {
    // Weak references: the hook lives in the connection, which lives in the database.
    let (shared, database) = (Arc::downgrade(shared), Arc::downgrade(database));
    Box::new(move || {
        let (Some(shared), Some(database)) = (shared.upgrade(), database.upgrade()) else { return false };
        let Some(header) = database.header() else { return false };
        if database.failure().is_some() || standfast_sqlite_wal::is_any_index_lost() && header.frames() == 0 {
            return false;
        }
        let id = database.id().0;
        let durable = || is_in_redo(&shared, &database, &header);
        if durable() {
            return true;
        }
        shared.segment.mark_dirty(id);
        shared.segment.ring();
        let end = Instant::now() + limit;
        loop {
            let position = shared.buffer.durable();
            if durable() {
                return true;
            }
            if Instant::now() >= end || shared.ended() || shared.log_switch_waits() {
                return false;
            }
            shared.buffer.wait(Scn(u64::MAX), position, Duration::from_millis(5));
        }
    })
}

/// Whether everything before `scn` survives in a database that is captured up to `in_redo`. Its WAL was synced when it
/// was captured up to `log_synced`, and the database file alone holds everything before `in_file`. What was synced
/// before holds no chunk of a transaction that is captured in part.
fn holds(scn: Scn, in_redo: Scn, log_synced: Scn, in_file: Scn) -> bool {
    in_redo == log_synced || in_file >= scn.min(in_redo)
}

/// Whether the frames that `header` shows are durable in the redo.
fn is_in_redo(shared: &PrimaryShared, database: &Database, header: &WalIndexHeader) -> bool {
    let (epoch, salts) = shared.segment.epoch(database.id().0);
    let local = database.local();
    header.frames() == 0
        || (salts == header.raw_salts() && local.epoch() == epoch && local.frame() >= header.frames())
}

/// Whether all committed frames are durable in the redo.
fn all_is_in_redo(shared: &PrimaryShared, database: &Database) -> bool {
    database.header().is_some_and(|header| is_in_redo(shared, database, &header))
}

/// Runs a checkpoint; false when SQLite found it blocked.
fn checkpoint(connection: &Connection, mode: &str) -> Result<bool, rusqlite::Error> {
    let _wait = waiting(Event::DbFileParallelWrite);
    connection
        .query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| row.get::<_, i64>(0))
        .map(|busy| busy == 0)
}

/// Whether a later success proves nothing after this error of a checkpoint: pages that could not be written or synced
/// may be taken for written from then on. A full volume refuses a write before it takes anything, and the pages are
/// backfilled again.
fn makes_suspect(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi;
    error.sqlite_error().is_some_and(|error| {
        matches!(
            error.extended_code,
            ffi::SQLITE_IOERR
                | ffi::SQLITE_IOERR_WRITE
                | ffi::SQLITE_IOERR_FSYNC
                | ffi::SQLITE_IOERR_DIR_FSYNC
                | ffi::SQLITE_IOERR_TRUNCATE
        )
    })
}

/// Whether a file could not be opened for a lack of resources that concerns all files.
fn is_of_the_process(error: &InstanceError) -> bool {
    let InstanceError::Io { source, .. } = error else { return false };
    matches!(source.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM))
        || source.kind() == std::io::ErrorKind::OutOfMemory
}

fn passive(connection: &Connection, pace: &Pace) -> Result<bool, rusqlite::Error> {
    // Without the guard nothing would keep a checkpoint from backfilling frames that are not in the redo.
    match Guard::of(connection) {
        Ok(guard) => guard.at_pace(pace, || checkpoint(connection, "PASSIVE")),
        Err(_) => Ok(false),
    }
}

/// Backfills what readers allow and syncs all that was backfilled, so that it is not left to the sync behind the gate.
fn passive_and_synced(connection: &Connection, pace: &Pace) -> Result<bool, rusqlite::Error> {
    let backfilled = passive(connection, pace)?;
    if let Ok(guard) = Guard::of(connection) {
        let _wait = waiting(Event::DbFileSync);
        guard.sync_backfilled()?;
    }
    Ok(backfilled)
}

/// Runs a TRUNCATE checkpoint, whose truncation the guard suppresses: the WAL restarts. Announces the new generation
/// immediately, so that sessions can tell this reset from one by another process.
fn reset(connection: &Connection, database: &Database, segment: &Segment) -> Result<bool, rusqlite::Error> {
    if !checkpoint(connection, "TRUNCATE")? {
        return Ok(false);
    }
    if let Ok(guard) = Guard::of(connection)
        && guard.hold_write_lock_within(WRITER_TIMEOUT).is_ok()
    {
        if let Ok(header) = guard.wal_header() {
            database.announce(segment, header.raw_salts());
        }
        guard.release_write_lock();
    }
    Ok(true)
}

fn wait_until(end: Instant, condition: impl Fn() -> bool) -> bool {
    while !condition() {
        if Instant::now() >= end {
            return false;
        }
        // Sessions do not signal the end of a transaction, so poll; the gate lasts a few milliseconds.
        std::thread::sleep(Duration::from_micros(50));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    #[test]
    fn database_holds_only_commits_in_its_file_or_synced_wal() {
        let [none, c, x, record] = [0, 100, 120, 150].map(Scn);
        assert!(holds(x, c, none, c), "nothing came since");
        assert!(holds(x, c, c, none) && holds(c, record, none, c));
        assert!(!holds(x, record, none, c) && !holds(x, record, c, c), "a transaction began before x");
        assert!(holds(x, record, record, none) && holds(x, record, none, x));
        assert!(!holds(x, c, none, none));
    }

    #[test]
    fn only_write_and_fsync_errors_make_the_database_suspect() {
        let failed = |code| makes_suspect(&rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        for code in [ffi::SQLITE_IOERR_FSYNC, ffi::SQLITE_IOERR_WRITE, ffi::SQLITE_IOERR] {
            assert!(failed(code), "{code}");
        }
        for code in [ffi::SQLITE_BUSY, ffi::SQLITE_FULL, ffi::SQLITE_IOERR_READ, ffi::SQLITE_NOMEM] {
            assert!(!failed(code), "{code}");
        }
    }
}
