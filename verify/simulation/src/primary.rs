//! The stages of a primary on a simulated machine, stepped by one thread.

use crate::site::{BATCH_BYTES, Geometry, SegmentFile};
use crate::{Outcome, lock, trace};
use rusqlite::Connection;
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::ship::archiving::archive_all;
use standfast_environment::state::control::{DatabaseRecord, WholeFile};
use standfast_log::{LogSwitch, RedoChunk, RedoLog, SwitchBlocked};
use standfast_primary::checkpoint::checkpointer::Checkpointer;
use standfast_primary::commit::baseline::{BaselineJob, note_owed_image};
use standfast_primary::commit::database::{Database, committed_pages};
use standfast_primary::commit::primary::{Entry, Primary, PrimaryShared, Shipping, Step, SwitchHelper};
use standfast_primary::commit::whole_file::stamp_without_wal;
use standfast_primary::open::open_primary::{OpenedPrimary, install_hooks, open_primary};
use standfast_primary::open::primary_threads::advance;
use standfast_primary::ship::redo_source::PrimarySource;
use standfast_session::DatabaseState;
use standfast_testkit::SimMachine;
use standfast_types::{DatabaseId, PageSize, Scn};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Attempts after which a switch is blocked for good, because the helpers have done what they can.
const ATTEMPTS_MAX: u32 = 4;

pub struct PrimaryHost {
    pub machine: Arc<SimMachine>,
    pub environment: Arc<Environment>,
    pub primary: Primary,
    pub shared: Arc<PrimaryShared>,
    pub source: Arc<PrimarySource>,
    works: Arc<Mutex<Works>>,
}

/// Checkpoints and archiving, which other threads do in a real instance.
struct Works {
    environment: Arc<Environment>,
    log: Arc<RedoLog>,
    checkpointer: Checkpointer,
    candidates: VecDeque<Scn>,
    resynchronise: Vec<Arc<Database>>,
    resynchronisations: u64,
    /// First SCN of the archived logs that are kept for the standby.
    needed_from: Scn,
    attempts: u32,
}

impl Works {
    fn archive(&self) -> Result<(), InstanceError> {
        let limit = self.environment.config.redo.archive_bytes_max;
        let keep = self.needed_from.min(self.environment.control().archives_needed_from());
        Ok(archive_all(&self.log, limit, keep)?)
    }

    /// One iteration of the checkpointer: takes a checkpoint candidate if there is one, then checkpoints the databases.
    fn checkpoint(&mut self) -> Result<(), InstanceError> {
        if let Some(candidate) = self.candidates.pop_front() {
            advance(&self.environment, &mut self.checkpointer, &self.log, candidate)?;
        }
        self.checkpointer.pass();
        Ok(())
    }
}

/// Does immediately what a real log writer waits for other threads to do. Before the primary is open there are no
/// works; checkpoint candidates are kept until then.
struct Helper {
    works: Arc<Mutex<Option<Arc<Mutex<Works>>>>>,
    early: Arc<Mutex<VecDeque<Scn>>>,
}

impl Helper {
    fn works(&self) -> Option<Arc<Mutex<Works>>> {
        lock(&self.works).clone()
    }
}

impl SwitchHelper for Helper {
    fn blocked(&mut self, why: SwitchBlocked) -> Result<(), InstanceError> {
        let Some(works) = self.works() else {
            return Err(InstanceError::Failed(format!("opening waits for a log switch: {why:?}")));
        };
        let mut works = lock(&works);
        works.attempts += 1;
        if works.attempts > ATTEMPTS_MAX {
            return Err(InstanceError::Failed(format!("the log cannot be switched any more: {why:?}")));
        }
        match why {
            SwitchBlocked::ArchivingNeeded => works.archive(),
            SwitchBlocked::CheckpointIncomplete => works.checkpoint(),
        }
    }

    fn switched(&mut self, _: &LogSwitch) {
        if let Some(works) = self.works() {
            lock(&works).attempts = 0;
        }
    }

    fn checkpoint_candidate(&mut self, candidate: Scn) {
        match self.works() {
            Some(works) => lock(&works).candidates.push_back(candidate),
            None => lock(&self.early).push_back(candidate),
        }
    }

    fn resynchronise(&mut self, database: Arc<Database>, why: String) {
        trace::say(|| format!("database {} needs a full image: {why}", database.record().name));
        if let Some(works) = self.works() {
            let mut works = lock(&works);
            works.resynchronise.push(database);
            works.resynchronisations += 1;
        }
    }

    fn resynchronised(&mut self, _: &Arc<Database>) {}
}

/// Replaces the destinations of an instance that has died.
struct Nowhere;

impl Shipping for Nowhere {
    fn offer(&self, _: &Arc<RedoChunk>, _: Scn) {}
    fn releasable(&self, _: Scn) -> Scn {
        Scn::ZERO
    }
}

impl PrimaryHost {
    /// Recovers and opens the primary on `machine`.
    pub fn open(
        machine: &Arc<SimMachine>,
        geometry: &Geometry,
        segment: &SegmentFile,
    ) -> Outcome<PrimaryHost> {
        let environment = geometry.environment(machine, segment)?;
        PrimaryHost::open_in(machine, environment)
    }

    /// Recovers and opens the primary in an existing environment.
    pub fn open_in(machine: &Arc<SimMachine>, environment: Arc<Environment>) -> Outcome<PrimaryHost> {
        PrimaryHost::open_without(machine, environment, 0)
    }

    /// Like [`PrimaryHost::open_in`]; exactly `offline` databases must be excluded.
    pub fn open_without(
        machine: &Arc<SimMachine>,
        environment: Arc<Environment>,
        offline: usize,
    ) -> Outcome<PrimaryHost> {
        let late: Arc<Mutex<Option<Arc<Mutex<Works>>>>> = Arc::default();
        let early: Arc<Mutex<VecDeque<Scn>>> = Arc::default();
        let helper = Box::new(Helper { works: late.clone(), early: early.clone() });
        let OpenedPrimary { mut primary, shared, log, .. } =
            open_primary(&environment, helper).map_err(text)?;
        primary.heal_at_once();
        primary.limit_batch(BATCH_BYTES);
        let databases = shared.all_databases();
        if databases.len() + offline != environment.control().databases.len() {
            return Err(format!("opening: {}", environment.alert.last().join("; ")));
        }
        for database in &databases {
            install_hooks(&environment, &shared, database, database.last_change(), Duration::ZERO)
                .map_err(text)?;
            shared.segment.set_state(database.id().0, DatabaseState::Open);
        }
        let mut checkpointer = Checkpointer::new(shared.clone(), environment.config.checkpoint.clone());
        checkpointer.gate_at_once();
        let resyncs = environment.alert.last().iter().filter(|line| line.contains("full image")).count();
        let works = Arc::new(Mutex::new(Works {
            environment: environment.clone(),
            log: log.clone(),
            checkpointer,
            candidates: std::mem::take(&mut lock(&early)),
            resynchronise: Vec::new(),
            resynchronisations: resyncs as u64,
            needed_from: Scn::ZERO,
            attempts: 0,
        }));
        *lock(&late) = Some(works.clone());
        let source = Arc::new(PrimarySource::new(environment.clone(), shared.clone(), log.clone()));
        let host = PrimaryHost { machine: machine.clone(), environment, primary, shared, source, works };
        host.archive()?;
        Ok(host)
    }

    /// Full resyncs since it was opened.
    pub fn resynchronisations(&self) -> u64 {
        lock(&self.works).resynchronisations
    }

    /// Keeps the archived logs from `scn` on.
    pub fn keep_archives_from(&self, scn: Scn) {
        lock(&self.works).needed_from = scn;
    }

    /// Lets the instance die: it releases no more commits.
    pub fn leave(self) {
        // The link and the stages hold references to each other.
        self.shared.ship_through(Arc::new(Nowhere));
    }

    /// The last lines of the alert log.
    pub fn alerts(&self) -> String {
        self.environment.alert.last().join("\n    ")
    }

    /// Runs one iteration of the log writer.
    pub fn step(&mut self) -> Outcome<Step> {
        self.primary.step().map_err(text)
    }

    /// Captures and writes everything that is committed.
    pub fn drain(&mut self) -> Outcome<()> {
        for _ in 0..10_000 {
            self.primary.poll();
            if self.step()? == Step::Idle {
                return Ok(());
            }
        }
        Err(format!("capture does not come to an end: {}", self.alerts()))
    }

    /// Runs one iteration of the checkpointer.
    pub fn checkpoint(&mut self) -> Outcome<()> {
        lock(&self.works).checkpoint().map_err(text)
    }

    pub fn checkpoint_everything(&mut self) -> Outcome<()> {
        let start = self.primary.anchor_all().map_err(text)?;
        let mut works = lock(&self.works);
        let works = &mut *works;
        advance(&works.environment, &mut works.checkpointer, &works.log, start).map_err(text)?;
        works.checkpointer.checkpoint_all(Duration::ZERO);
        Ok(())
    }

    /// Runs one iteration of the archiver.
    pub fn archive(&self) -> Outcome<()> {
        lock(&self.works).archive().map_err(text)
    }

    pub fn switch_log(&mut self) -> Outcome<()> {
        self.primary.switch_log().map_err(text)
    }

    /// Begins the full resyncs that are due.
    pub fn begin_copies(&mut self) -> Outcome<()> {
        let due = std::mem::take(&mut lock(&self.works).resynchronise);
        for database in due {
            let job = self.image_of(&database)?;
            self.primary.start_baseline(job);
        }
        Ok(())
    }

    fn image_of(&self, database: &Database) -> Outcome<BaselineJob> {
        let job = BaselineJob::begin(database).map_err(text)?;
        let captured = self.shared.buffer.captured();
        note_owed_image(&self.environment, database, job.position(), captured).map_err(text)?;
        Ok(job)
    }

    /// Protects a database, as `standfast protect` does.
    pub fn protect(
        &mut self,
        name: &str,
        path: PathBuf,
        page_size: PageSize,
        copy: bool,
    ) -> Outcome<DatabaseId> {
        let id = DatabaseId(self.environment.control().next_database);
        let record = DatabaseRecord {
            id,
            name: name.to_owned(),
            path,
            page_size,
            start_scn: self.shared.buffer.durable(),
            redo_from: Scn::ZERO,
            begun_empty: false,
        };
        let database = Database::open(record.clone(), self.environment.vfs_base.as_deref()).map_err(text)?;
        let database = Arc::new(database);
        self.shared.segment.set_state(id.0, DatabaseState::Recovering);
        self.shared.segment.reset_hints(id.0);
        install_hooks(&self.environment, &self.shared, &database, record.start_scn, Duration::ZERO)
            .map_err(text)?;
        let state = |connection: &Connection, header: &standfast_sqlite_wal::WalIndexHeader| {
            let stamp = stamp_without_wal(&self.environment, &record, header);
            Ok((header.position(), committed_pages(connection, header)?, stamp))
        };
        let (_, (position, pages, stamp)) = database.snapshot_and(state).map_err(text)?;
        if stamp.is_some() {
            database.sync_file().map_err(text)?;
        }
        let remembered = self.environment.update_control(|control| {
            control.next_database = id.0 + 1;
            control.databases.push(record.clone());
            if let Some(stamp) = stamp {
                control.note_whole(WholeFile { database: id, scn: record.start_scn, stamp });
            }
        });
        remembered.map_err(text)?;
        let capture = database.capture_from(position, pages).map_err(text)?;
        let entry = if copy { Entry::NewWithCopy } else { Entry::New };
        self.primary.serve(database.clone(), capture, entry).map_err(text)?;
        if copy {
            self.primary.start_baseline(self.image_of(&database)?);
        }
        self.shared.segment.set_state(id.0, DatabaseState::Open);
        Ok(id)
    }
}

fn text(error: InstanceError) -> String {
    error.to_string()
}
