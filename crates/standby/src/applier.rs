//! Applies what the standby log holds, as far as the primary has confirmed it. No threads: the owner calls each step.

use crate::apply_delay::{ApplyDelay, Seen};
use crate::lost_redo;
use crate::standby_shared::StandbyShared;
use crate::stopped::ALL;
use standfast_apply::{
    Apply, ApplyConfig, ApplyError, ApplyEvent, ApplyReport, Condition, Limits, StartPoint,
};
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::context::kept;
use standfast_environment::context::places::{Moved, OpenFiles};
use standfast_environment::state::control::{DatabaseRecord, RestingFile};
use standfast_format::{Record, decode_record};
use standfast_instruments::{Event, Statistic, count, waiting};
use standfast_log::{RecordReader, RedoLog};
use standfast_session::{DatabaseState, FileId};
use standfast_sqlite_wal::pace::Pace;
use standfast_types::{APPLY_BEHIND_BYTES, DatabaseId, Hint, Scn, hint::Hinted};
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Name under which the open files of a standby's databases are watched (see `places`).
pub const STANDBY_DATABASES: &str = "standby databases";
/// Largest batch of redo given to apply at a time.
const STRETCH_BYTES: usize = 16 << 20;

/// Order of calls: `open`, `recover`, then `step` and now and then `sync`.
pub struct Applier {
    environment: Arc<Environment>,
    shared: Arc<StandbyShared>,
    apply: Apply,
    feed: Feed,
    limits: Limits,
    /// `Some` while an apply delay is in force.
    delay: Option<ApplyDelay>,
    /// Position up to which the last step was to apply redo.
    due: Scn,
    /// Files that are no longer what their paths say, by database, as reported by the watcher.
    moved: Arc<Mutex<Vec<(DatabaseId, String)>>>,
    watched: Vec<(DatabaseId, String)>,
}

impl Applier {
    /// Opens the apply journal and the databases.
    ///
    /// # Errors
    /// When the journal cannot be opened. An error of one database is reported, and that database is excluded.
    pub fn open(
        environment: &Arc<Environment>,
        shared: &Arc<StandbyShared>,
        limits: Limits,
    ) -> Result<Applier, InstanceError> {
        let apply = open_apply(environment, shared, limits)?;
        let feed = Feed::from(apply.applied());
        let (environment, shared) = (environment.clone(), shared.clone());
        let mut applier = Applier {
            environment,
            shared,
            apply,
            feed,
            limits,
            delay: None,
            due: Scn::ZERO,
            moved: Arc::default(),
            watched: Vec::new(),
        };
        applier.watch_places();
        Ok(applier)
    }

    /// Watches the files of all open databases from now on, if these are other databases than before.
    fn watch_places(&mut self) {
        // A database that is protected again keeps its name and has another number.
        let open: Vec<(DatabaseId, String)> =
            self.apply.databases().into_iter().map(|database| (database.database, database.name)).collect();
        if open == self.watched {
            return;
        }
        let (files, control) = (OpenFiles::now(), self.environment.control());
        let path = |id: DatabaseId| control.databases.iter().find(|record| record.id == id);
        let places = open.iter().filter_map(|(id, name)| Some(files.database(name, &path(*id)?.path)));
        let places = places.flatten().collect();
        let (moved, shared, ids) = (self.moved.clone(), self.shared.clone(), open.clone());
        let changed = move |changes: &[Moved]| {
            let certain = changes.iter().filter(|moved| moved.finding.is_certain());
            let mut moved = moved.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            let number = |name: &str| ids.iter().find(|(_, known)| known == name).map(|(id, _)| *id);
            moved.extend(certain.filter_map(|at| Some((number(&at.place.database)?, at.to_string()))));
            drop(moved);
            shared.wake();
        };
        self.environment.places.register(STANDBY_DATABASES, places, Arc::new(changed));
        self.watched = open;
    }

    /// Stops apply to databases whose files are no longer what their paths say: a process that opens the path would not
    /// see what is applied.
    ///
    /// # Errors
    /// When the journal cannot be written.
    pub fn leave_moved(&mut self) -> Result<(), InstanceError> {
        let moved = std::mem::take(&mut *self.moved.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        if moved.is_empty() {
            return Ok(());
        }
        let mut report = ApplyReport::default();
        for (database, why) in moved {
            self.apply.leave(database, &why, &mut report)?;
        }
        self.note(&report);
        Ok(())
    }

    /// Brings the databases to a known state with the redo in the log.
    ///
    /// # Errors
    /// An error that ends all apply.
    pub fn recover(&mut self) -> Result<(), InstanceError> {
        // A database may hold some of the redo that is missing; replay that ends before it would leave an inconsistent
        // state.
        lost_redo::check(&self.environment)?;
        let checkpoint = self.environment.control().checkpoint;
        let mut report = ApplyReport::default();
        // Only logs before the checkpoint are ever removed: a later log that is not there is missing, and waited for.
        self.apply.redo_begins_at(self.shared.log.oldest().min(checkpoint), &mut report);
        self.note(&report);
        self.forget_resting_files()?;
        // Starts at the checkpoint at the latest: the catalogue may not know an attach record there.
        let from = self.apply.resume_scn().map_or(checkpoint, |resume| resume.min(checkpoint));
        let report =
            self.apply.recover(from, self.shared.confirmed(), &mut FromLog { log: &self.shared.log })?;
        self.note(&report);
        self.start_over();
        self.watch_places();
        self.shared.stopped.are_known();
        Ok(())
    }

    /// Forgets the notes of the last clean shutdown, since the files change from here on. First writes to the journal
    /// what these notes have shown.
    fn forget_resting_files(&mut self) -> Result<(), InstanceError> {
        if self.environment.control().resting_files.is_empty() {
            return Ok(());
        }
        let mut report = ApplyReport::default();
        self.apply.note_found(&mut report)?;
        self.note(&report);
        let open: Vec<DatabaseId> =
            self.apply.databases().into_iter().map(|database| database.database).collect();
        // A database that could not be opened keeps its note and is compared once it opens.
        self.environment
            .update_control(|control| control.resting_files.retain(|rest| !open.contains(&rest.database)))
    }

    fn start_over(&mut self) {
        self.shared.note_applied(&self.apply);
        self.shared.publish_freshness(&self.environment);
        self.feed = Feed::from(self.apply.applied());
    }

    /// Applies what is confirmed and checkpoints databases whose WAL has grown; false when there was nothing to apply.
    ///
    /// # Errors
    /// An error that ends all apply.
    pub fn step(&mut self) -> Result<bool, InstanceError> {
        self.leave_moved()?;
        self.due = self.due_position()?;
        debug_assert!(self.due <= self.shared.confirmed(), "redo that is not confirmed is due");
        let progressed = self.apply_upto(self.due)?;
        if progressed {
            let pace = self.pace();
            let report = self.checkpoint_if_due(&pace)?;
            self.note(&report);
        }
        Ok(progressed)
    }

    fn pace(&self) -> Pace {
        if self.backlog() < APPLY_BEHIND_BYTES { self.shared.throttled() } else { Pace::AtOnce }
    }

    fn checkpoint_if_due(&mut self, pace: &Pace) -> Result<ApplyReport, InstanceError> {
        let mut report = ApplyReport::default();
        let wait = waiting(Event::DbFileParallelWrite);
        self.apply.checkpoint_if_due(pace, &mut report)?;
        drop(wait);
        Ok(report)
    }

    /// Hands some of what was written to the disk early; false when nothing is left that is worth writing.
    pub fn write_back(&mut self) -> bool {
        self.apply.write_back()
    }

    /// Redo that is due and not applied, bytes.
    pub fn backlog(&self) -> u64 {
        self.due.0.saturating_sub(self.shared.applied().0)
    }

    /// Time until the next held-back commit is due; `None` when none is held back.
    pub fn wait(&self) -> Option<Duration> {
        self.delay
            .as_ref()?
            .wait(standfast_environment::state::now::now_us(), self.shared.delay_us(&self.environment))
    }

    /// Returns how far redo is to be applied: up to confirmed, and no commit before its delay has passed.
    fn due_position(&mut self) -> Result<Scn, InstanceError> {
        let confirmed = self.shared.confirmed();
        let delay_us = self.shared.delay_us(&self.environment);
        // Recovery replays up to the horizon: with a delay the horizon must not pass the applied redo, or a restart
        // would apply what is held back.
        if self.delay.is_some() != (delay_us > 0) {
            self.apply.keep_to_horizon(delay_us > 0, self.limits.horizon_bytes)?;
            self.delay = (delay_us > 0).then(ApplyDelay::default);
            self.shared.set_next_due_us(None);
        }
        let Some(delay) = &mut self.delay else { return Ok(confirmed) };
        delay.applied(self.shared.applied());
        let log = &self.shared.log;
        let walk = |from, upto, show: &mut dyn FnMut(Seen) -> bool| walk(log, from, upto, show);
        let due = delay.limit(standfast_environment::state::now::now_us(), delay_us, confirmed, walk)?;
        self.shared.set_next_due_us(delay.next_due_us(delay_us));
        Ok(due)
    }

    /// Whether a later [`Applier::sync`] has something to do.
    pub fn is_unsynced(&self) -> bool {
        self.apply.is_unsynced()
    }

    /// Makes applied redo survive a power loss, deferring some WALs, and frees the standby logs before it.
    ///
    /// # Errors
    /// An error that ends all apply, or of writing the control file.
    pub fn sync(&mut self) -> Result<(), InstanceError> {
        let mut report = ApplyReport::default();
        let wait = waiting(Event::DbFileSync);
        let durable = self.apply.sync_lazily(&self.pace(), &mut report)?;
        drop(wait);
        let freed = freed(&self.shared, durable);
        if let Some(freed) = freed {
            let _wait = waiting(Event::DbFileParallelWrite);
            self.apply.backfill_before(freed, &self.pace(), &mut report)?;
        }
        self.note(&report);
        freed.map_or(Ok(()), |freed| self.free_logs_before(freed))
    }

    /// Lets the standby logs before `freed` be reused. The control file is written when a log becomes free, not every
    /// second.
    fn free_logs_before(&self, freed: Scn) -> Result<(), InstanceError> {
        self.environment.update_control(|control| control.checkpoint = control.checkpoint.max(freed))?;
        self.shared.log.set_checkpoint(freed);
        Ok(())
    }

    /// Retries databases that failed.
    ///
    /// # Errors
    /// An error that ends all apply.
    pub fn retry(&mut self) -> Result<(), InstanceError> {
        if let Some(from) = self.apply.retry_failed() {
            let upto = self.apply.applied();
            let report = self.apply.recover(from, upto, &mut FromLog { log: &self.shared.log })?;
            self.note(&report);
            self.start_over();
        }
        Ok(())
    }

    /// Whether a database stopped for a reason that may pass: its disk was full or failed once, or it could not be
    /// opened. A database with wrong pages does not count.
    pub fn may_resume(&self) -> bool {
        let databases = self.apply.databases();
        self.shared.stopped.all().iter().filter(|stopped| stopped.database != ALL).any(|stopped| {
            let known = databases.iter().find(|database| database.name == stopped.database);
            known.is_none_or(|database| database.condition == Condition::Failed)
        })
    }

    /// Opens all files again and recovers, as a start does: a database whose reason to stop has passed resumes.
    ///
    /// # Errors
    /// An error that ends all apply.
    pub fn opened_again(self) -> Result<Applier, InstanceError> {
        let Applier { environment, shared, apply, limits, .. } = self;
        drop(apply);
        let mut applier = Applier::open(&environment, &shared, limits)?;
        applier.recover()?;
        Ok(applier)
    }

    /// Returns, for each database that stopped for a reason that may pass, the SCN from which it needs redo, if that
    /// redo is still in the log.
    pub fn redo_still_here(&self) -> Vec<(DatabaseId, Scn)> {
        let (databases, oldest) = (self.apply.databases(), self.shared.log.oldest());
        let needs = |record: &DatabaseRecord| {
            let known = databases.iter().find(|database| database.database == record.id);
            let from = match known {
                Some(database) if database.condition == Condition::Failed => database.resume_scn,
                Some(_) => return None,
                None => self.apply.durable_scn_of(record.id)?.max(record.redo_from),
            };
            (self.shared.stopped.contains(&record.name) && from >= oldest).then_some((record.id, from))
        };
        self.environment.control().databases.iter().filter_map(needs).collect()
    }

    /// Applies all complete records of the log, confirmed or not: the last act of a standby before it becomes primary.
    /// Returns the end of the last complete record. Databases whose checkpoint failed have stopped then.
    ///
    /// # Errors
    /// When the log cannot be read, or apply ends.
    pub fn apply_everything(&mut self) -> Result<Scn, InstanceError> {
        self.start_over();
        self.leave_moved()?;
        while self.apply_upto(self.shared.hardened())? {
            // A WAL that grew as long as the backlog would be slow to read, and would be checkpointed at the end
            // anyway.
            let report = self.checkpoint_if_due(&Pace::AtOnce)?;
            self.note(&report);
        }
        Ok(self.apply.applied())
    }

    /// Ends at a clean shutdown and records the state of the database files: a difference at the next start means that
    /// another process wrote to them.
    ///
    /// # Errors
    /// When the journal or the control file cannot be written: the next start then learns the state from the redo.
    pub fn rest(self) -> Result<(), InstanceError> {
        let Applier { environment, apply, .. } = self;
        let mut report = ApplyReport::default();
        let rests = apply.rest(&mut report)?;
        for (id, error) in &report.errors {
            let name = environment.database_name(*id).unwrap_or_else(|| id.to_string());
            environment
                .alert
                .say(format!("database {name} as it is now cannot be noted: {}", error.in_one_line()));
        }
        environment.update_control(|control| {
            control.resting_files = rests.iter().map(|(id, rest)| RestingFile::new(*id, rest)).collect();
        })
    }

    /// Ends here and returns the [`Apply`]; the databases stay open.
    pub fn into_apply(self) -> Apply {
        self.apply
    }

    pub fn environment(&self) -> &Arc<Environment> {
        &self.environment
    }

    pub fn shared(&self) -> &Arc<StandbyShared> {
        &self.shared
    }

    fn apply_upto(&mut self, upto: Scn) -> Result<bool, InstanceError> {
        match self.feed.apply_more(&self.shared, &mut self.apply, upto)? {
            Some(report) => {
                self.note(&report);
                self.watch_places();
                let applied = self.apply.applied();
                count(Statistic::RedoApplied, applied.0.saturating_sub(self.shared.applied().0));
                // Last: a reader that sees the new position also sees which databases have stopped and are not covered
                // by it.
                self.shared.note_applied(&self.apply);
                self.shared.publish_freshness(&self.environment);
                Ok(true)
            }
            None => Ok(false),
        }
    }

    fn note(&self, report: &ApplyReport) {
        self.shared.transactions.fetch_add(report.transactions, SeqCst);
        self.shared.applied_commit_us.fetch_max(report.commit_us, SeqCst);
        count(Statistic::TransactionsApplied, report.transactions);
        for (id, error) in &report.errors {
            self.note_stopped(*id, error);
        }
        if !self.shared.stopped.is_empty() {
            self.note_going_on();
        }
        for (id, kept) in &report.kept {
            let name = self.environment.database_name(*id).unwrap_or_else(|| id.to_string());
            kept::note(&self.environment, &name, kept);
        }
        self.note_compared(report);
    }

    /// The receiver, and so the primary, learns of differing pages before it learns of the applied position at which
    /// they were found.
    fn note_compared(&self, report: &ApplyReport) {
        let mut keep = false;
        for (id, compared) in &report.compared {
            let changes = self.shared.verified.note(*id, compared);
            keep |= changes.keep;
            if let Some(text) = changes.alert {
                let name = self.environment.database_name(*id).unwrap_or_else(|| id.to_string());
                self.environment.alert.say(format!("verification: database {name}: {text}"));
            }
        }
        if keep {
            self.keep_differing();
        }
    }

    /// If the disk fails, the pages are still known in memory; the next comparison that changes them writes them again.
    fn keep_differing(&self) {
        let differing = self.shared.verified.differing();
        if let Err(error) = self.environment.update_control(|control| control.differing = differing) {
            self.environment
                .alert
                .say(format!("the pages that differ cannot be recorded: {}", error.in_one_line()));
        }
    }

    fn note_stopped(&self, id: DatabaseId, error: &ApplyError) {
        let control = self.environment.control();
        let record = control.databases.iter().find(|record| record.id == id);
        let name = record.map_or_else(|| id.to_string(), |record| record.name.clone());
        // Apply does not know a database that could not be opened, and reports that again and again.
        if matches!(error, ApplyError::UnknownDatabase { .. }) && self.shared.stopped.contains(&name) {
            return;
        }
        let databases = self.apply.databases();
        let applied = databases.iter().find(|database| database.database == id).map(|found| found.scn);
        if self.shared.stopped.add(&name, applied, error.for_terminal()) {
            self.environment.alert.say(format!("apply: {}", error.in_one_line()));
        }
    }

    fn note_going_on(&self) {
        let databases = self.apply.databases();
        let over = self.shared.stopped.remove(|name| {
            let mut named = databases.iter().filter(|database| database.name == name);
            named.any(|database| database.condition == Condition::Live && !database.replacing)
        });
        for name in over {
            self.environment.alert.say(format!("apply: redo is applied to database {name} again"));
        }
    }
}

fn open_apply(
    environment: &Arc<Environment>,
    shared: &Arc<StandbyShared>,
    limits: Limits,
) -> Result<Apply, InstanceError> {
    let limits = Limits {
        kept_free_bytes: environment.config.kept.free_bytes_min,
        rewrite_wals: environment.config.checkpoint.rewrite_wals,
        ..limits
    };
    let config = ApplyConfig {
        directory: environment.paths.databases.clone(),
        journal: environment.paths.apply_journal.clone(),
        disk: environment.disk.clone(),
        vfs_base: environment.vfs_base.clone(),
        workers: environment.config.standby.apply_workers,
        limits,
    };
    let (reported, known) = (environment.clone(), shared.clone());
    let observer = move |event: &ApplyEvent| {
        if let ApplyEvent::Detached { database, .. } = event {
            let control = reported.control();
            let gone = control.databases.iter().find(|record| record.id == *database);
            known.stopped.remove(|name| gone.is_some_and(|record| record.name == name));
            known.verified.retain(|id| id != *database);
        }
        remember(&reported, event)
    };
    let mut apply = Apply::open(config, Box::new(observer))?;
    for (id, scn) in environment.control().detached {
        apply.detached_before(id, scn);
    }
    let resting = environment.control().resting_files;
    for record in environment.control().databases {
        let start =
            StartPoint { scn: record.start_scn, redo_from: record.redo_from, empty: record.begun_empty };
        let rest = resting.iter().find(|resting| resting.database == record.id).map(RestingFile::at_rest);
        let at = (record.name.as_str(), record.path.as_path());
        let attached = apply.attach_at_rest(record.id, at, record.page_size, start, rest.as_ref());
        if let Err(error) = attached {
            // Apply may be opened repeatedly while it waits for redo.
            if shared.stopped.add(&record.name, None, error.for_terminal()) {
                let (name, error) = (&record.name, error.in_one_line());
                environment.alert.say(format!("standby database {name} cannot be opened: {error}"));
            }
        }
    }
    Ok(apply)
}

/// Makes the catalogue of databases follow the redo.
fn remember(environment: &Environment, event: &ApplyEvent) -> std::io::Result<()> {
    let changed = match event {
        ApplyEvent::Attached { database, name, page_size, scn } => environment.update_control(|control| {
            if control.databases.iter().all(|record| record.id != *database) {
                control.databases.push(DatabaseRecord {
                    id: *database,
                    name: name.clone(),
                    path: environment.paths.databases.join(name),
                    page_size: *page_size,
                    start_scn: *scn,
                    redo_from: *scn,
                    begun_empty: true,
                });
                control.next_database = control.next_database.max(database.0 + 1);
            }
        }),
        ApplyEvent::Detached { database, scn } => {
            environment.tell_standby_state(*database, DatabaseState::Absent);
            environment.update_control(|control| control.forget(*database, *scn))
        }
        ApplyEvent::EndOfRedo { .. } | ApplyEvent::Incarnation { .. } => Ok(()),
    };
    if let ApplyEvent::Attached { database, .. } = event {
        if let Some(segment) = environment.standby_segment() {
            // Of another database that had this number.
            segment.forget_current(database.0);
        }
        environment.tell_standby_state(*database, DatabaseState::Standby);
        for record in environment.control().databases {
            let _ = environment.write_marker(&record, FileId::of(&record.path));
        }
    }
    changed.map_err(|error| std::io::Error::other(Hinted::of(&error)))
}

/// Passes the complete records between two positions to `show` until `show` returns false.
fn walk(
    log: &Arc<RedoLog>,
    from: Scn,
    upto: Scn,
    show: &mut dyn FnMut(Seen) -> bool,
) -> Result<(), InstanceError> {
    let mut reader = RecordReader::new(log.clone(), from, upto);
    while let Some((record, end)) = reader.next_record()? {
        let commit_us = match decode_record(record) {
            Ok((Record::Commit { time_us, .. }, _)) => Some(time_us),
            _ => None,
        };
        if !show(Seen { end, commit_us }) {
            break;
        }
    }
    Ok(())
}

struct FromLog<'a> {
    log: &'a Arc<RedoLog>,
}

impl standfast_apply::RedoSource for FromLog<'_> {
    fn read(&mut self, from: Scn, upto: Scn, out: &mut Vec<u8>) -> std::io::Result<()> {
        let mut reader = RecordReader::new(self.log.clone(), from, upto);
        while out.len() < STRETCH_BYTES / 4 {
            match reader.next_record() {
                Ok(Some((record, _))) => out.extend_from_slice(record),
                Ok(None) => break,
                Err(error) => return Err(std::io::Error::other(Hinted::of(&error))),
            }
        }
        Ok(())
    }
}

/// Returns the first SCN of the oldest log to keep once the redo before `durable` is not needed any more; `None` when
/// no log becomes free.
fn freed(shared: &StandbyShared, durable: Scn) -> Option<Scn> {
    let checkpoint = shared.log.checkpoint();
    let freed = shared.log.switches(checkpoint, durable).last().map(|switch| switch.first_scn);
    freed.filter(|freed| *freed > checkpoint)
}

/// Received redo on its way to apply, which consumes complete records.
struct Feed {
    /// SCN of `bytes[0]`: everything before is consumed.
    first: Scn,
    bytes: Vec<u8>,
    /// SCN after `bytes`, where the next redo continues.
    next: Scn,
}

impl Feed {
    fn from(applied: Scn) -> Feed {
        Feed { first: applied, bytes: Vec::new(), next: applied }
    }

    /// Applies received redo up to `upto`; `None` when there was nothing to apply.
    fn apply_more(
        &mut self,
        shared: &StandbyShared,
        apply: &mut Apply,
        upto: Scn,
    ) -> Result<Option<ApplyReport>, InstanceError> {
        while self.next < upto && self.bytes.len() < STRETCH_BYTES {
            let before = self.next;
            self.take(shared, upto)?;
            if self.next == before {
                break;
            }
        }
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let wait = waiting(Event::RecoveryApply);
        let report = apply.apply(self.first, &self.bytes, upto)?;
        drop(wait);
        let done = apply.applied().bytes_since(self.first) as usize;
        if done == 0 {
            return Ok(None);
        }
        self.bytes.drain(..done.min(self.bytes.len()));
        self.first = apply.applied();
        Ok(Some(report))
    }

    /// Takes the next received bytes from memory, or from the log once they are no longer there.
    fn take(&mut self, shared: &StandbyShared, upto: Scn) -> Result<(), InstanceError> {
        let buffer = shared.buffer().clone();
        let chunks = buffer.chunk_start(self.next).and_then(|start| buffer.chunks(start, STRETCH_BYTES));
        match chunks {
            Some(chunks) => {
                for chunk in chunks {
                    let from = self.next.bytes_since(chunk.first) as usize;
                    let until = (upto.bytes_since(chunk.first) as usize).min(chunk.bytes.len());
                    if from < until {
                        self.bytes.extend_from_slice(&chunk.bytes[from..until]);
                        self.next = self.next + (until - from) as u64;
                    }
                }
            }
            None => {
                let before = self.bytes.len();
                shared.log.read(self.next, upto, STRETCH_BYTES, &mut self.bytes)?;
                self.next = self.next + (self.bytes.len() - before) as u64;
            }
        }
        Ok(())
    }
}
