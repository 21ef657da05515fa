//! All standby databases of an instance, and their common position in the redo.

use crate::compare::Compared;
use crate::database::{Condition, Database, Done, Mode, Redo};
use crate::dirty_pages::DirtyPages;
use crate::history::Fact;
use crate::journal::Journal;
use crate::keep::Kept;
use crate::worker_pool::{WORTH_A_THREAD, run_on_workers};
use crate::{ApplyConfig, ApplyError, ApplyEvent, Limits, Observer};
use standfast_format::{Attach, Record, decode_record};
use standfast_io::Disk;
use standfast_sqlite_wal::guard::register_guard_vfs;
use standfast_types::{DatabaseId, Scn};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes of page images that stay allocated between calls.
const IMAGE_BYTES_KEPT: usize = 4 << 20;

/// Applies redo to the standby databases of one instance.
pub struct Apply {
    pub(crate) databases: BTreeMap<DatabaseId, Database>,
    pub(crate) journal: Journal,
    pub(crate) dirty_pages: Vec<DirtyPages>,
    pub(crate) applied: Scn,
    pub(crate) limits: Limits,
    pub(crate) directory: PathBuf,
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) vfs_base: Option<String>,
    pub(crate) guard_vfs: String,
    pub(crate) observer: Observer,
    /// SCNs at which databases were detached: earlier redo about their numbers is void.
    pub(crate) detached: BTreeMap<DatabaseId, Scn>,
    /// Facts to be journalled with the next ones: databases that stopped.
    pub(crate) facts: Vec<Fact>,
}

#[derive(Debug, Default)]
pub struct ApplyReport {
    /// Everything before is applied, except to databases that are stopped or failed.
    pub applied: Scn,
    pub transactions: u64,
    pub pages: u64,
    /// Databases that stopped or failed during this call, with the error. The others continued.
    pub errors: Vec<(DatabaseId, ApplyError)>,
    /// Time of the newest applied commit, microseconds since the Unix epoch; 0 when none was applied since the start.
    pub commit_us: u64,
    /// Results of verification records, in the order of the redo of each database.
    pub compared: Vec<(DatabaseId, Compared)>,
    /// Kept content of databases that a full resync image replaced and may lack.
    pub kept: Vec<(DatabaseId, Kept)>,
}

/// How a range of records ends.
enum Stretch {
    /// At the end of the given records.
    End,
    /// At an event, with the start of its record.
    Event(ApplyEvent, Scn),
}

impl Apply {
    /// Reads the journal. Databases are attached next, then [`Apply::recover`] brings them to a known state.
    ///
    /// # Errors
    /// When the journal cannot be read or the guard VFS cannot be registered.
    pub fn open(config: ApplyConfig, observer: Observer) -> Result<Apply, ApplyError> {
        let journal = Journal::open(config.disk.clone(), &config.journal, config.limits.journal_bytes)
            .map_err(|source| match source.kind() {
                std::io::ErrorKind::InvalidData => ApplyError::ForeignJournal {
                    path: config.journal.clone(),
                    why: "not readable as a journal",
                },
                _ => ApplyError::Journal { path: config.journal.clone(), source },
            })?;
        let guard_vfs = register_guard_vfs(config.vfs_base.as_deref())
            .map_err(|source| ApplyError::Guard { name: "(all)".to_owned(), source })?;
        Ok(Apply {
            databases: BTreeMap::new(),
            journal,
            dirty_pages: (0..=config.workers).map(|_| DirtyPages::default()).collect(),
            applied: Scn::ZERO,
            limits: config.limits,
            directory: config.directory,
            disk: config.disk,
            vfs_base: config.vfs_base,
            guard_vfs,
            observer,
            detached: BTreeMap::new(),
            facts: Vec::new(),
        })
    }

    /// Makes redo about this number void before `scn`, where it was detached: a replay may begin before that. Called
    /// before [`Apply::recover`].
    pub fn detached_before(&mut self, id: DatabaseId, scn: Scn) {
        let known = self.detached.entry(id).or_insert(scn);
        *known = scn.max(*known);
    }

    /// Returns whether a record at `start` is about a database that is detached later.
    fn is_void(&self, id: DatabaseId, start: Scn) -> bool {
        self.detached.get(&id).is_some_and(|scn| start < *scn)
    }

    /// Applies complete records that start at `first`, up to `upto`, which the primary has confirmed durable and the
    /// standby log has hardened. Records given again are skipped.
    ///
    /// # Errors
    /// Errors that end all apply, such as `Journal` and `Redo`. Errors of one database are in the report.
    pub fn apply(&mut self, first: Scn, records: &[u8], upto: Scn) -> Result<ApplyReport, ApplyError> {
        self.raise_horizon(upto)?;
        let mut report = ApplyReport::default();
        self.check_for_gaps(first, &mut report);
        let end = self.run(Redo { first, bytes: records }, upto, Mode::Live, &mut report)?;
        self.applied = self.applied.max(end);
        report.applied = self.applied;
        Ok(report)
    }

    /// Makes a further horizon durable before anything beyond the current one is applied.
    pub(crate) fn raise_horizon(&mut self, upto: Scn) -> Result<(), ApplyError> {
        if self.journal.history().horizon().is_some_and(|horizon| upto <= horizon) {
            return Ok(());
        }
        let horizon = Fact::Horizon { scn: upto + self.limits.horizon_bytes };
        let raised = self.journal.append(&[horizon]).and_then(|()| self.journal.sync());
        raised.map_err(|source| self.journal_error(source))
    }

    /// With `exactly`, after [`Apply::recover`], a restart replays nothing that was not given to [`Apply::apply`]
    /// before: every call makes its end durable first. Otherwise the horizon moves by `bytes` at a time.
    ///
    /// # Errors
    /// `Journal`.
    pub fn keep_to_horizon(&mut self, exactly: bool, bytes: u64) -> Result<(), ApplyError> {
        self.limits.horizon_bytes = if exactly { 0 } else { bytes };
        if !exactly {
            return Ok(());
        }
        let lowered = self.journal.lower_horizon(self.applied);
        lowered.map_err(|source| self.journal_error(source))
    }

    fn check_for_gaps(&mut self, first: Scn, report: &mut ApplyReport) {
        for database in self.databases.values_mut() {
            if database.condition == Condition::Live && database.read < first {
                database.condition = Condition::Failed;
                let gap =
                    ApplyError::Gap { name: database.name.clone(), needed: database.read, given: first };
                report.errors.push((database.id, gap));
            }
        }
    }

    /// Takes all complete records that end at or before `upto`; returns where the last one ends.
    pub(crate) fn run(
        &mut self,
        redo: Redo<'_>,
        upto: Scn,
        mode: Mode,
        report: &mut ApplyReport,
    ) -> Result<Scn, ApplyError> {
        let mut at = 0;
        loop {
            let stretch = self.dispatch(redo, &mut at, upto, mode, report)?;
            // Facts about a database before an event must not lie beyond the event, which is not recorded yet.
            let end = match &stretch {
                Stretch::End => redo.first + at as u64,
                Stretch::Event(_, start) => *start,
            };
            self.take_inboxes(redo, mode, report);
            self.advance(end, mode);
            self.write_facts()?;
            match stretch {
                Stretch::End => return Ok(end),
                Stretch::Event(event, start) => self.happen(event, start, mode, report)?,
            }
        }
    }

    /// Dispatches records to the work queues of their databases, up to the next event.
    fn dispatch(
        &mut self,
        redo: Redo<'_>,
        at: &mut usize,
        upto: Scn,
        mode: Mode,
        report: &mut ApplyReport,
    ) -> Result<Stretch, ApplyError> {
        while *at < redo.bytes.len() {
            let start = redo.first + *at as u64;
            let damaged = |source| ApplyError::Redo { scn: start, source };
            let length = match standfast_format::peek_length(&redo.bytes[*at..]) {
                Ok(length) if start + length as u64 <= upto && *at + length <= redo.bytes.len() => length,
                Ok(_) | Err(standfast_format::DecodeError::Incomplete { .. }) => break,
                Err(source) => return Err(damaged(source)),
            };
            let (record, _) = decode_record(&redo.bytes[*at..]).map_err(damaged)?;
            let offset = *at as u32;
            *at += length;
            let end = start + length as u64;
            if record.database().is_some_and(|id| self.is_void(id, start)) {
                continue;
            }
            match record {
                Record::Change { database, .. }
                | Record::Commit { database, .. }
                | Record::WalGeneration { database, .. }
                | Record::Verification { database, .. } => self.post(database, start, offset, mode, report),
                Record::Baseline { database, .. } => {
                    if let Some(found) = self.databases.get_mut(&database)
                        && matches!(found.condition, Condition::Stopped | Condition::Failed)
                    {
                        match found.file.make_sure_of_log() {
                            Ok(()) => found.revive(start, mode),
                            Err(error) => report.errors.push((database, error)),
                        }
                    }
                    self.post(database, start, offset, mode, report);
                }
                Record::Attach(attach) => return Ok(Stretch::Event(attached(&attach, start), start)),
                Record::Detach { database } => {
                    return Ok(Stretch::Event(ApplyEvent::Detached { database, scn: end }, start));
                }
                Record::Incarnation { number, id, branch, time_us } => {
                    let event = ApplyEvent::Incarnation { number, id, branch, time_us, scn: end };
                    return Ok(Stretch::Event(event, start));
                }
                Record::EndOfRedo { time_us } => {
                    return Ok(Stretch::Event(ApplyEvent::EndOfRedo { time_us, scn: end }, start));
                }
            }
        }
        Ok(Stretch::End)
    }

    fn post(&mut self, id: DatabaseId, start: Scn, offset: u32, mode: Mode, report: &mut ApplyReport) {
        match self.databases.get_mut(&id) {
            Some(database) => {
                if database.condition == mode.takes() && start >= database.read {
                    database.work_queue.push(offset);
                }
            }
            None if report.errors.iter().any(|(known, _)| *known == id) => {}
            None => report.errors.push((id, ApplyError::UnknownDatabase { database: id, scn: start })),
        }
    }

    /// Takes the records of all work queues. In a replay only recovering databases have any.
    fn take_inboxes(&mut self, redo: Redo<'_>, mode: Mode, report: &mut ApplyReport) {
        let mut busy: Vec<_> =
            self.databases.values_mut().filter(|database| !database.work_queue.is_empty()).collect();
        if busy.is_empty() {
            return;
        }
        busy.sort_unstable_by_key(|database| std::cmp::Reverse(database.work_queue.len()));
        let threads =
            if redo.bytes.len() < WORTH_A_THREAD { 1 } else { self.dirty_pages.len().min(busy.len()) };
        run_on_workers(busy, &mut self.dirty_pages[..threads], |database, dirty_pages| {
            database.outcome = Some(database.take_work_queue(redo, mode, dirty_pages));
        });
        self.dirty_pages.iter_mut().for_each(|dirty_pages| dirty_pages.shrink(IMAGE_BYTES_KEPT));
        self.collect(report);
    }

    /// Adds up what the databases did, and stops those that failed.
    pub(crate) fn collect(&mut self, report: &mut ApplyReport) {
        for database in self.databases.values_mut() {
            report.commit_us = report.commit_us.max(database.commit_us);
            report.compared.extend(database.compared.drain(..).map(|compared| (database.id, compared)));
            report.kept.extend(database.kept.drain(..).map(|kept| (database.id, kept)));
            match database.outcome.take() {
                Some(Ok(Done { transactions, pages })) => {
                    report.transactions += transactions;
                    report.pages += pages;
                }
                Some(Err(error)) => {
                    database.condition = match &error {
                        ApplyError::Diverged { .. }
                        | ApplyError::NoImage { .. }
                        | ApplyError::WrittenTo { .. }
                        | ApplyError::SyncFailed { .. } => {
                            self.facts.push(Fact::Stopped { database: database.id, scn: database.state });
                            Condition::Stopped
                        }
                        ApplyError::Stopped { .. } => Condition::Stopped,
                        _ => Condition::Failed,
                    };
                    report.errors.push((database.id, error));
                }
                None => {}
            }
        }
    }

    fn advance(&mut self, end: Scn, mode: Mode) {
        for database in self.databases.values_mut().filter(|database| database.condition == mode.takes()) {
            database.advance(end);
        }
    }

    /// Journals what the live databases have committed, and which databases have stopped.
    pub(crate) fn write_facts(&mut self) -> Result<(), ApplyError> {
        let mut facts = std::mem::take(&mut self.facts);
        let mut sync = !facts.is_empty();
        for database in self.databases.values_mut() {
            if std::mem::take(&mut database.revived) {
                let forgotten = self.journal.forget(database.id);
                let path = self.journal.path();
                forgotten.map_err(|source| ApplyError::Journal { path: path.to_owned(), source })?;
                facts.push(Fact::Durable { database: database.id, scn: database.durable_scn });
                sync = true;
            }
            if database.condition == Condition::Live && std::mem::take(&mut database.unnoted) {
                let (at, checksum) = database.file.wal_state()?;
                facts.push(Fact::Position { database: database.id, at, checksum, scn: database.resume_scn });
            }
        }
        let written =
            self.journal.append(&facts).and_then(|()| if sync { self.journal.sync() } else { Ok(()) });
        facts.clear();
        self.facts = facts;
        written.map_err(|source| self.journal_error(source))
    }

    pub(crate) fn journal_error(&self, source: std::io::Error) -> ApplyError {
        ApplyError::Journal { path: self.journal.path().to_owned(), source }
    }
}

fn attached(attach: &Attach<'_>, scn: Scn) -> ApplyEvent {
    ApplyEvent::Attached {
        database: attach.database,
        name: attach.name.to_owned(),
        page_size: attach.page_size,
        scn,
    }
}
