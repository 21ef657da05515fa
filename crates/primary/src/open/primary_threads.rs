//! The threads of a running primary: log writer, checkpointer, database writer, archiver, session reaper, and watch for
//! commits without the VFS.

mod wiring;

pub use wiring::{CheckpointOrder, Wiring};

use crate::checkpoint::candidates::Candidates;
use crate::checkpoint::checkpointer::{CheckpointCounts, Checkpointer, Remainder};
use crate::checkpoint::database_writer::DatabaseWriter;
use crate::checkpoint::failed_files::FailedFiles;
use crate::commit::archive_lag::ArchiveLag;
use crate::commit::primary::{Primary, PrimaryShared, Step};
use crate::open::foreign_watch::{self, ForeignWatch};
use crate::open::sessions::reap_until;
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::ship::archiving::archive_all;
use standfast_environment::state::control::{FileStamp, WholeFile};
use standfast_format::StreamCrc;
use standfast_instruments::{Event, waiting};
use standfast_log::{LogError, LogIdentity, LogWriter, RedoLog};
use standfast_session::DatabaseState;
use standfast_types::{DatabaseId, Hint, Scn};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{Builder, JoinHandle, Thread};
use std::time::{Duration, Instant};
use wiring::ArchiveOrder;

/// How long a stop waits for published commits that cannot be captured immediately.
const LAST_CAPTURE: Duration = Duration::from_secs(2);
/// Yield threshold: after a batch with this many commits the log writer yields the CPU, so that sessions that
/// commit meanwhile share its next write. With fewer commits a yield would only delay that write. See
/// `docs/decisions/0025-yield-between-batches.md`.
const YIELD_THRESHOLD: usize = 6;
const CHECKPOINT_INTERVAL: Duration = Duration::from_millis(2);
const QUIET_INTERVAL: Duration = Duration::from_millis(500);
/// Interval at which the database writer checks what to write to disk.
const WRITE_BACK_INTERVAL: Duration = Duration::from_millis(2);
/// Number of passes without activity after which the checkpointer becomes quiescent.
const QUIET_AFTER: u32 = 25;
const ARCHIVE_RETRY: Duration = Duration::from_millis(500);

/// The function that a thread runs.
type Work = Box<dyn FnOnce() + Send>;

/// Returns the SCN from which destinations still need archived logs.
pub type NeededFrom = Box<dyn Fn() -> Scn + Send>;

/// Where the redo of a primary ended that gives up its role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RedoEnd {
    pub scn: Scn,
    /// Running checksum of the stream there.
    pub crc: StreamCrc,
    /// Identity of the log that would continue there, and its sequence.
    pub identity: LogIdentity,
    pub sequence: u64,
}

pub struct PrimaryThreads {
    shared: Arc<PrimaryShared>,
    stop: Arc<AtomicBool>,
    stop_begun: Arc<OnceLock<Instant>>,
    checkpoints: Sender<CheckpointOrder>,
    archives: Sender<ArchiveOrder>,
    lgwr: Mutex<Option<JoinHandle<Option<Primary>>>>,
    others: Mutex<Vec<JoinHandle<()>>>,
    failed: Arc<Mutex<Option<PrimaryFailure>>>,
    counts: Arc<Mutex<CheckpointCounts>>,
    early_frames: Arc<AtomicU64>,
    hurry: Arc<AtomicBool>,
}

/// Why a primary accepts no more commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryFailure {
    /// A write of the redo log failed: what of it is on disk is not known.
    pub is_poisoned: bool,
    /// The error with its hint.
    pub why: String,
}

impl PrimaryFailure {
    fn of(error: &InstanceError) -> PrimaryFailure {
        let is_poisoned = matches!(error, InstanceError::Log(LogError::Poisoned { .. }));
        PrimaryFailure { is_poisoned, why: error.for_terminal() }
    }
}

impl PrimaryThreads {
    /// Starts the threads.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(
        environment: &Arc<Environment>,
        wiring: Wiring,
        mut primary: Primary,
        log: Arc<RedoLog>,
        needed_from: NeededFrom,
    ) -> Result<PrimaryThreads, InstanceError> {
        let shared = primary.shared().clone();
        // A helper made before the shared state existed cannot start full resyncs; replace it.
        primary.set_helper(wiring.helper_of(environment, Some(shared.clone())));
        let failed: Arc<Mutex<Option<PrimaryFailure>>> = Arc::default();
        let checkpointer = Checkpointer::new(shared.clone(), environment.config.checkpoint.clone());
        let hurry = checkpointer.hurry();
        let quiet = Arc::new(AtomicBool::new(false));
        let counts: Arc<Mutex<CheckpointCounts>> = Arc::default();
        let early_frames: Arc<AtomicU64> = Arc::default();
        let mut others = Vec::new();
        let io = InstanceError::io("begin the threads of the instance in", &environment.paths.directory);
        let spawn = |name: &'static str, run: Work| {
            let instruments = environment.instruments.clone();
            Builder::new().name(name.into()).spawn(move || {
                instruments.enter_thread(name);
                run();
            })
        };

        let lgwr = {
            let (environment, stop, failed) = (environment.clone(), wiring.stop.clone(), failed.clone());
            let (quiet, wake) = (quiet.clone(), wiring.checkpoints.0.clone());
            let shared = shared.clone();
            let run = move || {
                environment.instruments.enter_thread("lgwr");
                let primary = run_log_writer(&environment, primary, &stop, &failed, &quiet, &wake);
                shared.end();
                primary
            };
            Builder::new().name("lgwr".into()).spawn(run)
        };
        let (lgwr, io) = match lgwr {
            Ok(handle) => (handle, io),
            Err(error) => return Err(io(error)),
        };
        let database_writer = spawn("dbw0", {
            let writer = DatabaseWriter::new(shared.clone(), early_frames.clone());
            let (stop, quiet) = (wiring.stop.clone(), quiet.clone());
            Box::new(move || run_database_writer(writer, &stop, &quiet))
        });
        let database_writer = match database_writer {
            Ok(handle) => handle,
            Err(error) => return Err(io(error)),
        };
        let wakes = database_writer.thread().clone();
        others.push(database_writer);
        let threads: [(&str, Work); 4] = [
            ("ckpt", {
                let (environment, log, orders) = (environment.clone(), log.clone(), wiring.checkpoints.1);
                let counts = counts.clone();
                Box::new(move || {
                    run_checkpointer(&environment, checkpointer, &log, &orders, (&quiet, &wakes), &counts)
                })
            }),
            ("arc0", {
                let (environment, log, orders) = (environment.clone(), log.clone(), wiring.archives.1);
                Box::new(move || run_archiver(&environment, &log, &orders, &needed_from))
            }),
            ("pmon", {
                let (segment, stop) = (shared.segment, wiring.stop.clone());
                Box::new(move || reap_until(&stop, segment))
            }),
            ("fmon", {
                let (environment, shared, stop) = (environment.clone(), shared.clone(), wiring.stop.clone());
                Box::new(move || run_foreign_watch(ForeignWatch::new(environment, shared), &stop))
            }),
        ];
        for (name, run) in threads {
            match spawn(name, run) {
                Ok(handle) => others.push(handle),
                Err(error) => return Err(io(error)),
            }
        }
        let _ = wiring.archives.0.send(ArchiveOrder::Archive);
        Ok(PrimaryThreads {
            shared,
            stop: wiring.stop,
            stop_begun: wiring.stop_begun,
            checkpoints: wiring.checkpoints.0,
            archives: wiring.archives.0,
            lgwr: Mutex::new(Some(lgwr)),
            others: Mutex::new(others),
            failed,
            counts,
            early_frames,
            hurry,
        })
    }

    /// State shared between the threads of the primary.
    pub fn shared(&self) -> &Arc<PrimaryShared> {
        &self.shared
    }

    /// Why the primary has failed; `None` if it has not.
    pub fn failure(&self) -> Option<PrimaryFailure> {
        self.failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Work of the checkpointer since the start.
    pub fn checkpoint_counts(&self) -> CheckpointCounts {
        let counts = *self.counts.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        CheckpointCounts { early_frames: self.early_frames.load(Relaxed), ..counts }
    }

    /// Runs `work` on the log and waits for it, even while a log switch waits.
    ///
    /// # Errors
    /// The work's, or that the primary has failed.
    pub fn call_writer<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut LogWriter) -> Result<T, InstanceError> + Send + 'static,
    ) -> Result<T, InstanceError> {
        let (answer, result) = channel();
        self.shared.work_on_log(move |writer| _ = answer.send(work(writer)));
        self.await_answer(&result)
    }

    /// Runs `work` on the log writer thread and waits for it.
    ///
    /// # Errors
    /// The work's, or that the primary has failed.
    pub fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Primary) -> Result<T, InstanceError> + Send + 'static,
    ) -> Result<T, InstanceError> {
        let (answer, result) = channel();
        self.shared.command(Box::new(move |primary| {
            let _ = answer.send(work(primary));
            Ok(())
        }));
        self.await_answer(&result)
    }

    fn await_answer<T>(&self, result: &Receiver<Result<T, InstanceError>>) -> Result<T, InstanceError> {
        loop {
            match result.recv_timeout(Duration::from_millis(100)) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) if self.failure().is_none() && !self.shared.ended() => {}
                Err(_) => {
                    let failure = self.failure();
                    let why =
                        failure.map_or_else(|| "the log writer has ended".into(), |failure| failure.why);
                    return Err(InstanceError::of_text(&why));
                }
            }
        }
    }

    /// Backfills everything into the databases and advances the checkpoint position to the end of the redo. Returns
    /// what stays in the WALs; recovery reads it from there.
    ///
    /// # Errors
    /// When a file cannot be synced.
    pub fn checkpoint(&self) -> Result<Vec<Remainder>, InstanceError> {
        let start = self.call(Primary::anchor_all)?;
        let (answer, result) = channel();
        let _ = self.checkpoints.send(CheckpointOrder::Everything(start, answer));
        result.recv().unwrap_or_else(|_| Err(InstanceError::Failed("the checkpointer has ended".into())))
    }

    /// Lets sessions begin no more write transactions: they wait. Commits to a failed database continue to get its error.
    fn hold_writers(&self) {
        let databases = self.shared.all_databases();
        for database in databases.iter().filter(|database| database.failure().is_none()) {
            self.shared.segment.set_state(database.id().0, DatabaseState::Stopped);
        }
    }

    /// Ends the redo for a role change: sessions begin no more write transactions, running ones end within `drain`, and
    /// the redo ends with a record that says so, in a log that is complete. The threads continue, so that senders get
    /// the end of the redo. The databases may lack some of it: a session that waits keeps its snapshot, and with it the
    /// frames of its WAL. The inner error is that of a later step: the primary has to be stopped and opened again.
    ///
    /// # Errors
    /// When a transaction is still running after `drain`: the primary serves as before.
    pub fn end_redo(&self, drain: Duration) -> Result<Result<RedoEnd, InstanceError>, InstanceError> {
        self.hold_writers();
        let until = Instant::now() + drain;
        let databases = self.shared.all_databases();
        let mut ended = databases
            .iter()
            .map(|database| database.await_writers(until.saturating_duration_since(Instant::now())));
        if let Some(error) = ended.find_map(Result::err) {
            self.let_writers_in();
            return Err(error);
        }
        Ok(self.call(|primary| {
            primary.capture_published(LAST_CAPTURE)?;
            primary.end_of_redo()?;
            primary.switch_log()?;
            let writer = primary.writer();
            Ok(RedoEnd {
                scn: writer.position(),
                crc: writer.stream_crc(),
                identity: writer.identity(),
                sequence: writer.sequence(),
            })
        }))
    }

    /// Ends what [`PrimaryThreads::hold_writers`] began.
    fn let_writers_in(&self) {
        let databases = self.shared.all_databases();
        for database in databases.iter().filter(|database| database.failure().is_none()) {
            self.shared.segment.set_state(database.id().0, DatabaseState::Open);
        }
    }

    /// Announces a stop: a waiting log switch is waited for only a little longer.
    pub fn announce_stop(&self) {
        let _ = self.stop_begun.set(Instant::now());
    }

    /// Stops the threads. After a clean stop no commit is lost and recovery has nothing to do.
    ///
    /// # Errors
    /// When the last redo or checkpoint could not be written; the threads have ended nevertheless.
    pub fn stop(&self, clean: bool) -> Result<(), InstanceError> {
        self.announce_stop();
        // First: the checkpointer takes no order before its current pass is done.
        self.hurry.store(true, SeqCst);
        let mut result = match self.failure() {
            Some(failure) if clean => Err(InstanceError::of_text(&failure.why)),
            _ => Ok(()),
        };
        if clean && result.is_ok() {
            self.hold_writers();
            result = self.call(|primary| {
                primary.capture_published(LAST_CAPTURE)?;
                primary.end_of_redo()
            });
            result = result.and_then(|()| self.checkpoint().map(drop));
        }
        self.stop.store(true, SeqCst);
        self.shared.segment.ring();
        let lgwr = self.lgwr.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).take();
        if let Some(lgwr) = lgwr {
            lgwr.thread().unpark();
            let _ = lgwr.join();
        }
        let _ = self.checkpoints.send(CheckpointOrder::Stop);
        let _ = self.archives.send(ArchiveOrder::Stop);
        let others =
            std::mem::take(&mut *self.others.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        for other in others {
            other.thread().unpark();
            let _ = other.join();
        }
        result
    }
}

fn run_log_writer(
    environment: &Environment,
    mut primary: Primary,
    stop: &AtomicBool,
    failed: &Mutex<Option<PrimaryFailure>>,
    quiet: &AtomicBool,
    wake: &Sender<CheckpointOrder>,
) -> Option<Primary> {
    precise_sleeps();
    let segment = primary.shared().segment;
    let batch_time = Duration::from_micros(environment.config.commit.batch_us);
    let (mut lag, began) = (ArchiveLag::new(environment.config.redo.archive_lag_target_s), Instant::now());
    while !stop.load(SeqCst) {
        match primary.step().and_then(|step| {
            switch_log_past_lag_target(&mut primary, &mut lag, began)?;
            Ok(step)
        }) {
            Ok(Step::Wrote { commits }) => {
                if quiet.load(SeqCst) && quiet.swap(false, SeqCst) {
                    let _ = wake.send(CheckpointOrder::WakeUp);
                }
                if commits >= YIELD_THRESHOLD {
                    std::thread::yield_now();
                }
            }
            Ok(Step::Blocked) => std::thread::park_timeout(Duration::from_millis(1)),
            Ok(Step::Idle) => {
                let idle = waiting(Event::RdbmsIpcMessage);
                segment.sleep(primary.until_poll());
                drop(idle);
            }
            Err(error @ InstanceError::StoppedWaiting { .. }) => {
                give_up(environment, primary.shared(), failed, &error);
                return None;
            }
            Err(error) => {
                fail(environment, primary.shared(), failed, &error);
                return None;
            }
        }
        // Whatever else is captured: on a machine that is never idle, nothing else finds commits without a
        // notification.
        if primary.poll_is_due() {
            primary.poll();
        }
        if segment.take_batch() {
            segment.linger(batch_time);
        }
    }
    Some(primary)
}

/// Switches a log that has reached its target age, if that need not wait: no client asked for it.
fn switch_log_past_lag_target(
    primary: &mut Primary,
    lag: &mut ArchiveLag,
    began: Instant,
) -> Result<(), InstanceError> {
    if lag.is_on() {
        let (sequence, holds_redo) = (primary.writer().sequence(), primary.log_holds_redo());
        if lag.is_due(began.elapsed(), sequence, holds_redo) {
            primary.try_switch_log()?;
        }
    }
    Ok(())
}

/// Stops with commits that could not enter the log. Their sessions see a stopped instance, and the next start captures
/// the commits: the databases have not failed.
fn give_up(
    environment: &Environment,
    shared: &PrimaryShared,
    failed: &Mutex<Option<PrimaryFailure>>,
    error: &InstanceError,
) {
    environment.alert.say(error.in_one_line());
    *failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(PrimaryFailure::of(error));
    for database in shared.all_databases().iter().filter(|database| database.failure().is_none()) {
        shared.segment.set_state(database.id().0, DatabaseState::Stopped);
    }
}

/// Ends the primary after a failure. Nothing that waits is ever acknowledged by this run.
fn fail(
    environment: &Environment,
    shared: &PrimaryShared,
    failed: &Mutex<Option<PrimaryFailure>>,
    error: &InstanceError,
) {
    let failure = PrimaryFailure::of(error);
    let what = if failure.is_poisoned { "poisoned" } else { "failed" };
    environment
        .alert
        .say(format!("the primary has {what}; no further commit is accepted: {}", error.in_one_line()));
    *failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(failure);
    for database in shared.all_databases() {
        shared.segment.set_state(database.id().0, DatabaseState::Failed);
        shared.segment.wake_all(database.id().0);
    }
}

fn run_checkpointer(
    environment: &Environment,
    mut checkpointer: Checkpointer,
    log: &RedoLog,
    orders: &Receiver<CheckpointOrder>,
    (quiet, wakes): (&AtomicBool, &Thread),
    counts: &Mutex<CheckpointCounts>,
) {
    precise_sleeps();
    let mut quiet_passes = 0;
    let mut failed = FailedFiles::default();
    let mut candidates = Candidates::default();
    loop {
        if quiet_passes >= QUIET_AFTER {
            quiet.store(true, SeqCst);
        }
        let pause = if quiet_passes < QUIET_AFTER { CHECKPOINT_INTERVAL } else { QUIET_INTERVAL };
        let idle = waiting(Event::RdbmsIpcMessage);
        let order = orders.recv_timeout(pause);
        drop(idle);
        match order {
            Ok(CheckpointOrder::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(CheckpointOrder::Candidate(scn)) => candidates.add(scn, Instant::now()),
            Ok(CheckpointOrder::Everything(scn, answer)) => {
                let result = advance(environment, &mut checkpointer, log, scn);
                if result.is_ok() {
                    candidates.reached(scn);
                }
                let remainders = checkpointer.checkpoint_all(Duration::from_millis(200));
                failed.look(environment, checkpointer.shared());
                let trusted = result.and_then(|()| checkpointer.all_trusted());
                let _ = answer.send(trusted.map(|()| remainders));
            }
            Ok(CheckpointOrder::WakeUp) => {
                quiet_passes = 0;
                wakes.unpark();
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        // A candidate is not sent again: while it is not reached the log may be full, and no switch brings another one.
        let now = Instant::now();
        let due = candidates.due(now).filter(|scn| {
            let shared = checkpointer.shared();
            let hurry = shared.log_switch_waits() || candidates.is_overdue(now);
            hurry || checkpointer.databases_hold(*scn)
        });
        if let Some(scn) = due {
            let result =
                advance(environment, &mut checkpointer, log, scn).map_err(|error| error.in_one_line());
            if let Some(changes) = candidates.tried(scn, result, Instant::now()) {
                environment.alert.say(changes);
            }
        }
        quiet_passes = if checkpointer.pass() { 0 } else { quiet_passes.saturating_add(1) };
        failed.look(environment, checkpointer.shared());
        for changes in checkpointer.take_events() {
            environment.alert.say(changes);
        }
        *counts.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = checkpointer.counts();
    }
}

fn run_foreign_watch(mut watch: ForeignWatch, stop: &AtomicBool) {
    while !stop.load(SeqCst) {
        watch.pass();
        let idle = waiting(Event::RdbmsIpcMessage);
        std::thread::park_timeout(foreign_watch::EVERY);
        drop(idle);
    }
}

/// Runs the database writer. While the checkpointer is quiescent the thread sleeps; both are woken together.
fn run_database_writer(mut writer: DatabaseWriter, stop: &AtomicBool, quiet: &AtomicBool) {
    precise_sleeps();
    while !stop.load(SeqCst) {
        let idle = waiting(Event::RdbmsIpcMessage);
        match quiet.load(SeqCst) {
            true => {
                writer.rest();
                std::thread::park();
            }
            false => std::thread::park_timeout(WRITE_BACK_INTERVAL),
        }
        drop(idle);
        writer.pass();
    }
}

/// Moves the start of recovery to `scn`: syncs the databases first, then updates the control file, then the log groups.
/// Recovery of a failed database still starts where it did, and its redo is kept in archived logs.
///
/// # Errors
/// When a database cannot be opened or the control file cannot be written; then recovery starts where it did.
pub fn advance(
    environment: &Environment,
    checkpointer: &mut Checkpointer,
    log: &RedoLog,
    scn: Scn,
) -> Result<(), InstanceError> {
    checkpointer.sync_databases(scn)?;
    let failed = checkpointer.failed();
    // Candidates may come out of order.
    let scn = scn.max(environment.control().checkpoint);
    // Only this thread backfills.
    let shared = checkpointer.shared();
    let databases = shared.all_databases();
    // Read before the log's durable position, so that the end of every image no longer owed is durable.
    let owing: Vec<DatabaseId> =
        databases.iter().filter(|database| database.owes_image()).map(|database| database.id()).collect();
    let is_durable = shared.buffer.durable() >= shared.buffer.captured();
    let is_owed = |id: DatabaseId| {
        !is_durable || owing.contains(&id) || databases.iter().all(|database| database.id() != id)
    };
    let whole: Vec<WholeFile> = databases
        .iter()
        .filter(|database| database.is_whole_without_wal(&shared.segment, scn))
        .filter_map(|database| {
            let stamp = FileStamp::of(environment.disk.as_ref(), &database.record().path)?;
            Some(WholeFile { database: database.id(), scn, stamp })
        })
        .collect();
    // A file SCN that no captured change follows is advanced to `scn`.
    let control = environment.control();
    let carried: Vec<WholeFile> = databases
        .iter()
        .filter_map(|database| {
            Some(control.whole_file(database.id())?.carried_to(scn, database.last_change()))
        })
        .collect();
    environment.update_control(|control| {
        for id in failed {
            control.take_offline(id, control.checkpoint);
        }
        control.checkpoint = control.checkpoint.max(scn);
        carried.into_iter().chain(whole).for_each(|whole| control.note_whole(whole));
        control.owed_images.retain(|owed| is_owed(owed.database));
        for owed in &mut control.owed_images {
            owed.scn = owed.scn.max(scn);
        }
    })?;
    log.set_checkpoint(scn);
    Ok(())
}

fn run_archiver(
    environment: &Environment,
    log: &RedoLog,
    orders: &Receiver<ArchiveOrder>,
    needed_from: &NeededFrom,
) {
    let mut retry = false;
    let mut failed_at = Instant::now();
    loop {
        // A waiting log writer repeats its order; that is no reason to retry sooner.
        let idle = waiting(Event::RdbmsIpcMessage);
        let order = if retry {
            orders.recv_timeout(ARCHIVE_RETRY.saturating_sub(failed_at.elapsed()))
        } else {
            orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        drop(idle);
        match order {
            Ok(ArchiveOrder::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(ArchiveOrder::Archive) if retry => continue,
            Ok(ArchiveOrder::Archive) | Err(RecvTimeoutError::Timeout) => {}
        }
        let keep = needed_from().min(environment.control().archives_needed_from()).min(log.reuse_limit());
        let failed = archive_all(log, environment.config.redo.archive_bytes_max, keep).err();
        // Names a destination that needs what was just removed now, not at the next log switch.
        needed_from();
        if let (Some(error), false) = (&failed, retry) {
            environment
                .alert
                .say(format!("archiving failed and will be tried again: {}", error.in_one_line()));
        } else if failed.is_none() && retry {
            environment.alert.say("archiving continues");
        }
        retry = failed.is_some();
        failed_at = Instant::now();
    }
}

/// Sets the timer slack of this thread to 1 ns; by default sleeps may end up to 50 us late.
fn precise_sleeps() {
    // SAFETY: PR_SET_TIMERSLACK takes one integer and concerns this thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}
