//! The stages of a primary on a simulated machine, stepped by one thread.

use super::site::{Geometry, ROUND_BYTES, SegmentFile};
use super::{Outcome, trace};
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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        self.checkpointer.round();
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

    /// Like [`PrimaryHost::open_in`]; exactly `left_out` databases must be excluded.
    pub fn open_without(
        machine: &Arc<SimMachine>,
        environment: Arc<Environment>,
        left_out: usize,
    ) -> Outcome<PrimaryHost> {
        let late: Arc<Mutex<Option<Arc<Mutex<Works>>>>> = Arc::default();
        let early: Arc<Mutex<VecDeque<Scn>>> = Arc::default();
        let helper = Box::new(Helper { works: late.clone(), early: early.clone() });
        let OpenedPrimary { mut primary, shared, log, .. } =
            open_primary(&environment, helper).map_err(text)?;
        primary.heal_at_once();
        primary.limit_round(ROUND_BYTES);
        let databases = shared.all_databases();
        if databases.len() + left_out != environment.control().databases.len() {
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

#[cfg(test)]
pub mod tests {
    use super::super::application::create_database;
    use super::super::site::paths;
    use super::super::truth::open_plain;
    use super::*;
    use standfast_io::Disk;
    use standfast_primary::commit::primary::NoShipping;
    use standfast_testkit::{CrashPlace, Loss, Rng};
    use standfast_types::ReleasePosition;
    use std::path::Path;

    /// Creates a primary with one database and two log groups, on a machine of its own.
    pub fn small_primary() -> (Arc<SimMachine>, Geometry, SegmentFile, PrimaryHost) {
        let mut rng = Rng::new(5);
        let (machine, geometry, segment) = (SimMachine::new(1), Geometry::smallest(), SegmentFile::new());
        geometry.init(&machine).unwrap();
        let path = PathBuf::from("/app/d1.db");
        let page_size = create_database(&machine, &path, &mut rng).unwrap();
        let mut host = PrimaryHost::open(&machine, &geometry, &segment).unwrap();
        host.protect("d1.db", path, page_size, false).unwrap();
        (machine, geometry, segment, host)
    }

    #[test]
    fn recovery_releases_no_commit_that_waited_for_a_standby() {
        let (machine, geometry, segment, mut host) = small_primary();
        let id = DatabaseId(1);
        let application = open_plain(&machine, Path::new("/app/d1.db")).unwrap();
        application.execute_batch("INSERT INTO ledger VALUES(1, 1)").unwrap();
        let header = host.shared.database(id).unwrap().header().unwrap();
        let epoch = host.shared.segment.announce_generation(id.0, header.raw_salts());
        let commit = ReleasePosition::new(epoch, header.frames());
        let released = |host: &PrimaryHost| ReleasePosition(host.shared.segment.durable(id.0)) >= commit;
        host.drain().unwrap();
        assert!(!released(&host), "no destination has it");
        host.leave();
        let host = PrimaryHost::open(&machine, &geometry, &segment).unwrap();
        assert!(!released(&host), "the destinations are not known yet");
        host.shared.ship_through(Arc::new(NoShipping));
        assert!(released(&host), "there is none to wait for");
    }

    #[test]
    fn log_switch_works_after_power_loss_at_any_point_of_a_switch() {
        let mut boundary = 0;
        loop {
            boundary += 1;
            let (machine, geometry, segment, mut host) = small_primary();
            host.switch_log().unwrap();
            machine.crash_at(boundary, CrashPlace::After);
            let switched = host.switch_log();
            drop(host);
            if switched.is_ok() && machine.is_powered() {
                break;
            }
            machine.power_loss(Loss::DropUnsynced, &mut Rng::new(1));
            segment.lose();
            let mut host = PrimaryHost::open(&machine, &geometry, &segment).unwrap();
            for _ in 0..3 {
                host.switch_log().unwrap_or_else(|error| panic!("boundary {boundary}: {error}"));
                host.checkpoint().unwrap();
            }
        }
        assert!(boundary > 2, "a switch passes more than {boundary} boundaries");
    }

    /// Commits one row and announces its WAL generation; returns its release position.
    pub fn commit(machine: &Arc<SimMachine>, host: &PrimaryHost, id: DatabaseId) -> ReleasePosition {
        let database = host.shared.database(id).unwrap();
        let application = open_plain(machine, &database.record().path).unwrap();
        application
            .execute_batch("INSERT INTO ledger SELECT 1, coalesce(max(seq), 0) + 1 FROM ledger")
            .unwrap();
        let header = database.header().unwrap();
        let epoch = host.shared.segment.announce_generation(id.0, header.raw_salts());
        ReleasePosition::new(epoch, header.frames())
    }

    pub fn rows(machine: &Arc<SimMachine>, path: &Path) -> u32 {
        let connection = open_plain(machine, path).unwrap();
        connection.query_row("SELECT count(*) FROM ledger", [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn wal_with_only_a_durable_header_needs_no_full_resync() {
        let (machine, geometry, segment, mut host) = small_primary();
        let path = Path::new("/app/d1.db");
        // Keeps the wal-index alive.
        let application = open_plain(&machine, path).unwrap();
        // An empty WAL was reset: after a restart of the instance, recovery begins in a WAL generation that is in no
        // file.
        host.checkpoint_everything().unwrap();
        host.leave();
        let mut host = PrimaryHost::open(&machine, &geometry, &segment).unwrap();
        host.shared.ship_through(Arc::new(NoShipping));
        for _ in 0..3 {
            commit(&machine, &host, DatabaseId(1));
        }
        host.drain().unwrap();
        machine.power_loss(Loss::DropUnsynced, &mut Rng::new(1));
        drop((host, application));
        segment.lose();
        let wal = machine.contents("/app/d1.db-wal").unwrap();
        assert_eq!(wal.len(), 32, "SQLite takes it for no log");
        let host = PrimaryHost::open(&machine, &geometry, &segment).unwrap();
        assert!(!host.alerts().contains("full image"), "{}", host.alerts());
        drop(host);
        assert_eq!(rows(&machine, path), 3);
    }

    #[test]
    fn full_resync_releases_no_commit_before_it_is_complete() {
        let (machine, _, _segment, mut host) = small_primary();
        host.shared.ship_through(Arc::new(NoShipping));
        let path = PathBuf::from("/app/d2.db");
        let page_size = create_database(&machine, &path, &mut Rng::new(6)).unwrap();
        // Two transactions in the WAL before the copy begins: capture starts after them, and they count as captured
        // only with the copy.
        open_plain(&machine, &path).unwrap().execute_batch("INSERT INTO ledger VALUES(1, 1)").unwrap();
        let application = open_plain(&machine, &path).unwrap();
        application.execute_batch("INSERT INTO ledger VALUES(1, 2)").unwrap();
        let id = host.protect("d2.db", path, page_size, true).unwrap();
        let header = host.shared.database(id).unwrap().header().unwrap();
        let commit = ReleasePosition::new(host.shared.segment.epoch(id.0).0, header.frames());
        let released = |host: &PrimaryHost| ReleasePosition(host.shared.segment.durable(id.0)) >= commit;
        assert!(header.frames() > 0);
        assert!(!released(&host), "the copy is not in the redo yet");
        host.drain().unwrap();
        assert!(released(&host));
    }

    /// Returns a primary after a power loss that has run without its first database, which lacks an acknowledged
    /// commit. The second database has had commits since, so the redo of the first one is only in archived logs.
    fn lived_on_without_the_first() -> (Arc<SimMachine>, Geometry, SegmentFile) {
        let (machine, geometry, segment, mut host) = small_primary();
        host.shared.ship_through(Arc::new(NoShipping));
        let path = PathBuf::from("/app/d2.db");
        let page_size = create_database(&machine, &path, &mut Rng::new(6)).unwrap();
        let second = host.protect("d2.db", path, page_size, false).unwrap();
        // Recovery begins where the database has a WAL.
        commit(&machine, &host, DatabaseId(1));
        host.drain().unwrap();
        host.switch_log().unwrap();
        host.checkpoint().unwrap();
        let before = rows(&machine, Path::new(FIRST));
        let acknowledged = commit(&machine, &host, DatabaseId(1));
        host.drain().unwrap();
        assert!(ReleasePosition(host.shared.segment.durable(1)) >= acknowledged);
        host.leave();
        machine.power_loss(Loss::DropUnsynced, &mut Rng::new(1));
        segment.lose();
        assert_eq!(rows(&machine.copy(1), Path::new(FIRST)), before, "its log has lost the commit");
        machine.disk().rename(Path::new(FIRST), Path::new(AWAY)).unwrap();
        for start in 0..2 {
            let environment = geometry.environment(&machine, &segment).unwrap();
            let mut host = PrimaryHost::open_without(&machine, environment, 1).unwrap();
            host.shared.ship_through(Arc::new(NoShipping));
            host.keep_archives_from(Scn(u64::MAX));
            for _ in 0..4 {
                commit(&machine, &host, second);
                host.drain().unwrap();
                host.switch_log().unwrap();
                host.checkpoint().unwrap();
                host.archive().unwrap();
            }
            let control = host.environment.control();
            let from = control.left_out_from(DatabaseId(1)).unwrap();
            assert!(control.checkpoint > from, "start {start}: recovery of the others has moved on");
            assert!(host.source.redo_log().archived()[0].header.first_scn <= from, "start {start}");
            host.leave();
        }
        machine.disk().rename(Path::new(AWAY), Path::new(FIRST)).unwrap();
        (machine, geometry, segment)
    }

    const FIRST: &str = "/app/d1.db";
    const AWAY: &str = "/app/d1.away";

    #[test]
    fn database_absent_at_start_catches_up_from_archived_logs() {
        let (machine, geometry, segment) = lived_on_without_the_first();
        let host = PrimaryHost::open(&machine, &geometry, &segment).unwrap();
        assert_eq!(rows(&machine, Path::new(FIRST)), 2);
        assert_eq!(host.environment.control().left_out, []);
        assert_eq!(host.resynchronisations(), 0);
        host.keep_archives_from(Scn(u64::MAX));
        host.archive().unwrap();
        assert_eq!(host.source.redo_log().archived(), [], "no destination needs them any more");
    }

    #[test]
    fn database_whose_redo_is_gone_is_refused_and_not_resynced() {
        let (machine, geometry, segment) = lived_on_without_the_first();
        for archived in machine.disk().list(&paths().archive).unwrap() {
            machine.disk().remove(&archived).unwrap();
        }
        let environment = geometry.environment(&machine, &segment).unwrap();
        let mut host = PrimaryHost::open_without(&machine, environment, 1).unwrap();
        for words in ["needs the redo from SCN", "put the archived logs", "standfast database resolve d1.db"]
        {
            assert!(host.alerts().contains(words), "no `{words}` in {}", host.alerts());
        }
        assert_eq!(host.resynchronisations(), 0);
        host.drain().unwrap();
        assert_eq!(rows(&machine, Path::new(FIRST)), 1, "nothing was applied");
        assert!(host.environment.control().left_out_from(DatabaseId(1)).is_some());
    }

    #[test]
    fn database_that_returns_with_other_content_is_refused() {
        let (machine, geometry, segment) = lived_on_without_the_first();
        let file = open_plain(&machine, Path::new(FIRST)).unwrap();
        file.execute_batch(
            "PRAGMA wal_checkpoint(TRUNCATE); DELETE FROM data; INSERT INTO ledger VALUES(9, 9)",
        )
        .unwrap();
        drop(file);
        let environment = geometry.environment(&machine, &segment).unwrap();
        let host = PrimaryHost::open_without(&machine, environment, 1).unwrap();
        for words in ["does not stand where the redo says", "fail over", "standfast database resolve d1.db"] {
            assert!(host.alerts().contains(words), "no `{words}` in {}", host.alerts());
        }
    }
}
