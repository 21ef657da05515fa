//! The threads of a running primary: log writer, checkpointer, archiver, housekeeper.

use crate::baseline::BaselineJob;
use crate::checkpointer::{CheckpointCounts, Checkpointer};
use crate::database::Database;
use crate::environment::Environment;
use crate::error::InstanceError;
use crate::primary::{Primary, PrimaryShared, Step, SwitchHelper};
use crate::sessions::SessionWatch;
use standfast_log::{LogError, LogSwitch, RedoLog, SwitchBlocked, archive_group, remove_archived};
use standfast_session::DatabaseState;
use standfast_types::Scn;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// The log writer looks for writers that give no notice this often.
const LOOK_AROUND: Duration = Duration::from_millis(100);
const CHECKPOINT_ROUND: Duration = Duration::from_millis(2);
const QUIET_ROUND: Duration = Duration::from_millis(500);
/// Rounds without activity after which the checkpointer goes quiet.
const QUIET_AFTER: u32 = 25;
const ARCHIVE_RETRY: Duration = Duration::from_millis(500);

/// Orders for the checkpointer.
pub enum CheckpointOrder {
    /// The log was switched: recovery may start here once all databases are synced.
    Candidate(Scn),
    /// Move everything into the databases and the checkpoint position to the end; answered when done.
    Everything(Scn, Sender<Result<(), InstanceError>>),
    /// There is activity again.
    WakeUp,
    /// End.
    Stop,
}

/// Orders for the archiver.
enum ArchiveOrder {
    Archive,
    Stop,
}

/// What a thread runs.
type Work = Box<dyn FnOnce() + Send>;

/// How far archived logs are still needed by destinations.
pub type NeededFrom = Box<dyn Fn() -> Scn + Send>;

/// A running primary.
pub struct PrimaryThreads {
    shared: Arc<PrimaryShared>,
    stop: Arc<AtomicBool>,
    checkpoints: Sender<CheckpointOrder>,
    archives: Sender<ArchiveOrder>,
    lgwr: Option<JoinHandle<Option<Primary>>>,
    others: Vec<JoinHandle<()>>,
    failed: Arc<Mutex<Option<String>>>,
    counts: Arc<Mutex<CheckpointCounts>>,
    /// See [`Checkpointer::hurry`].
    hurry: Arc<AtomicBool>,
}

/// What connects the log writer to the other threads; made before the primary is opened.
pub struct Wiring {
    checkpoints: (Sender<CheckpointOrder>, Receiver<CheckpointOrder>),
    archives: (Sender<ArchiveOrder>, Receiver<ArchiveOrder>),
    stop: Arc<AtomicBool>,
}

impl Default for Wiring {
    fn default() -> Self {
        Wiring { checkpoints: channel(), archives: channel(), stop: Arc::default() }
    }
}

impl Wiring {
    /// The log writer's side.
    pub fn helper(&self, environment: &Arc<Environment>) -> Box<dyn SwitchHelper> {
        Box::new(Helper {
            environment: environment.clone(),
            checkpoints: self.checkpoints.0.clone(),
            archives: self.archives.0.clone(),
            stop: self.stop.clone(),
            shared: Arc::default(),
            said: false,
        })
    }
}

struct Helper {
    environment: Arc<Environment>,
    checkpoints: Sender<CheckpointOrder>,
    archives: Sender<ArchiveOrder>,
    stop: Arc<AtomicBool>,
    shared: Arc<Mutex<Option<Arc<PrimaryShared>>>>,
    said: bool,
}

impl SwitchHelper for Helper {
    fn blocked(&mut self, why: SwitchBlocked) -> Result<(), InstanceError> {
        if self.stop.load(SeqCst) {
            return Err(InstanceError::Failed("stopped while waiting for a log group".into()));
        }
        if !self.said {
            self.said = true;
            self.environment
                .alert
                .say(format!("log switch waits: {why:?}; commits are held up until it is done"));
        }
        let _ = self.archives.send(ArchiveOrder::Archive);
        let _ = self.checkpoints.send(CheckpointOrder::WakeUp);
        std::thread::park_timeout(Duration::from_millis(2));
        Ok(())
    }

    fn switched(&mut self, switch: &LogSwitch) {
        self.said = false;
        let _ = self.archives.send(ArchiveOrder::Archive);
        self.environment
            .alert
            .say(format!("log switch to sequence {} at SCN {}", switch.sequence, switch.first_scn));
    }

    fn checkpoint_candidate(&mut self, candidate: Scn) {
        let _ = self.checkpoints.send(CheckpointOrder::Candidate(candidate));
    }

    fn resynchronise(&mut self, database: Arc<Database>, why: String) {
        let name = database.record().name.clone();
        self.environment.alert.say(format!("database {name} will be copied afresh into the redo: {why}"));
        let shared = self.shared.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        let environment = self.environment.clone();
        let begin = move || match (BaselineJob::begin(&database), shared) {
            (Ok(job), Some(shared)) => shared.command(Box::new(move |primary| {
                primary.start_baseline(job);
                Ok(())
            })),
            (Err(error), _) => environment.alert.say(format!("database {name} cannot be copied: {error}")),
            (Ok(_), None) => {}
        };
        let _ = Builder::new().name("baseline".into()).spawn(begin);
    }

    fn resynchronised(&mut self, database: &Arc<Database>) {
        self.environment
            .alert
            .say(format!("database {}: the fresh copy is in the redo", database.record().name));
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
        // A helper that was made before the shared state existed cannot start baselines; give it a new one.
        primary.set_helper(Box::new(Helper {
            environment: environment.clone(),
            checkpoints: wiring.checkpoints.0.clone(),
            archives: wiring.archives.0.clone(),
            stop: wiring.stop.clone(),
            shared: Arc::new(Mutex::new(Some(shared.clone()))),
            said: false,
        }));
        let failed: Arc<Mutex<Option<String>>> = Arc::default();
        let checkpointer = Checkpointer::new(shared.clone(), environment.config.checkpoint.clone());
        let hurry = checkpointer.hurry();
        let quiet = Arc::new(AtomicBool::new(false));
        let counts: Arc<Mutex<CheckpointCounts>> = Arc::default();
        let mut others = Vec::new();
        let io = InstanceError::io(&environment.paths.directory);
        let spawn = |name: &str, run: Work| Builder::new().name(name.into()).spawn(run);

        let lgwr = {
            let (environment, stop, failed) = (environment.clone(), wiring.stop.clone(), failed.clone());
            let (quiet, wake) = (quiet.clone(), wiring.checkpoints.0.clone());
            let run = move || run_log_writer(&environment, primary, &stop, &failed, &quiet, &wake);
            Builder::new().name("lgwr".into()).spawn(run)
        };
        let (lgwr, io) = match lgwr {
            Ok(handle) => (handle, io),
            Err(error) => return Err(io(error)),
        };
        let threads: [(&str, Work); 3] = [
            ("ckpt", {
                let (environment, log, orders) = (environment.clone(), log.clone(), wiring.checkpoints.1);
                let counts = counts.clone();
                Box::new(move || run_checkpointer(&environment, checkpointer, &log, &orders, &quiet, &counts))
            }),
            ("arc0", {
                let (environment, log, orders) = (environment.clone(), log.clone(), wiring.archives.1);
                Box::new(move || run_archiver(&environment, &log, &orders, &needed_from))
            }),
            ("pmon", {
                let (segment, stop) = (shared.segment, wiring.stop.clone());
                Box::new(move || SessionWatch::new(segment).run(&stop))
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
            checkpoints: wiring.checkpoints.0,
            archives: wiring.archives.0,
            lgwr: Some(lgwr),
            others,
            failed,
            counts,
            hurry,
        })
    }

    /// What the stations share.
    pub fn shared(&self) -> &Arc<PrimaryShared> {
        &self.shared
    }

    /// Why the primary has failed, if it has.
    pub fn failure(&self) -> Option<String> {
        self.failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// What the checkpointer has done since the start.
    pub fn checkpoint_counts(&self) -> CheckpointCounts {
        *self.counts.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
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
        loop {
            match result.recv_timeout(Duration::from_millis(100)) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) if self.failure().is_none() => {}
                Err(_) => {
                    let why = self.failure().unwrap_or_else(|| "the log writer has ended".into());
                    return Err(InstanceError::Failed(why));
                }
            }
        }
    }

    /// Moves the checkpoint position to the end of the redo and everything into the databases.
    ///
    /// # Errors
    /// When a file cannot be synced.
    pub fn checkpoint(&self) -> Result<(), InstanceError> {
        let start = self.call(Primary::anchor_all)?;
        let (answer, result) = channel();
        let _ = self.checkpoints.send(CheckpointOrder::Everything(start, answer));
        result.recv().unwrap_or_else(|_| Err(InstanceError::Failed("the checkpointer has ended".into())))
    }

    /// Stops in good order: no commit is lost, recovery has nothing to do.
    ///
    /// # Errors
    /// When the last redo or checkpoint could not be written; the threads have ended all the same.
    pub fn stop(mut self, clean: bool) -> Result<(), InstanceError> {
        // First: the checkpointer takes no order before it is done with the pass under way.
        self.hurry.store(true, SeqCst);
        let mut result = Ok(());
        if clean && self.failure().is_none() {
            for database in self.shared.all_databases() {
                self.shared.segment.set_state(database.id().0, DatabaseState::Stopped);
            }
            result = self.call(|primary| {
                primary.look_for_unnoticed();
                while primary.step_once()? == Step::Wrote {}
                primary.end_of_redo()
            });
            result = result.and_then(|()| self.checkpoint());
        }
        self.stop.store(true, SeqCst);
        self.shared.segment.ring();
        if let Some(lgwr) = self.lgwr.take() {
            lgwr.thread().unpark();
            let _ = lgwr.join();
        }
        let _ = self.checkpoints.send(CheckpointOrder::Stop);
        let _ = self.archives.send(ArchiveOrder::Stop);
        for other in self.others.drain(..) {
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
    failed: &Mutex<Option<String>>,
    quiet: &AtomicBool,
    wake: &Sender<CheckpointOrder>,
) -> Option<Primary> {
    precise_sleeps();
    let segment = primary.shared().segment;
    let batch_time = Duration::from_micros(environment.config.commit.batch_us);
    while !stop.load(SeqCst) {
        match primary.step() {
            Ok(Step::Wrote) => {
                if quiet.load(SeqCst) && quiet.swap(false, SeqCst) {
                    let _ = wake.send(CheckpointOrder::WakeUp);
                }
            }
            Ok(Step::Blocked) => std::thread::park_timeout(Duration::from_millis(1)),
            Ok(Step::Idle) => {
                if !segment.sleep(LOOK_AROUND) {
                    primary.look_for_unnoticed();
                }
            }
            Err(error) => {
                fail(environment, primary.shared(), failed, &error);
                return None;
            }
        }
        if segment.take_batch() {
            segment.linger(batch_time);
        }
    }
    Some(primary)
}

/// The primary cannot go on. Nothing that waits is ever acknowledged by this run.
fn fail(
    environment: &Environment,
    shared: &PrimaryShared,
    failed: &Mutex<Option<String>>,
    error: &InstanceError,
) {
    let poisoned = matches!(error, InstanceError::Log(LogError::Poisoned { .. }));
    let what = if poisoned { "poisoned" } else { "failed" };
    environment.alert.say(format!("the primary has {what}; no further commit is accepted: {error}"));
    *failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(error.to_string());
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
    quiet: &AtomicBool,
    counts: &Mutex<CheckpointCounts>,
) {
    precise_sleeps();
    let mut calm_rounds = 0;
    loop {
        if calm_rounds >= QUIET_AFTER {
            quiet.store(true, SeqCst);
        }
        let pause = if calm_rounds < QUIET_AFTER { CHECKPOINT_ROUND } else { QUIET_ROUND };
        match orders.recv_timeout(pause) {
            Ok(CheckpointOrder::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(CheckpointOrder::Candidate(scn)) => {
                if let Err(error) = advance(environment, &mut checkpointer, log, scn) {
                    environment.alert.say(format!("checkpoint at SCN {scn} failed: {error}"));
                }
            }
            Ok(CheckpointOrder::Everything(scn, answer)) => {
                let result = advance(environment, &mut checkpointer, log, scn);
                checkpointer.checkpoint_all(Duration::from_millis(200));
                let _ = answer.send(result);
            }
            Ok(CheckpointOrder::WakeUp) => calm_rounds = 0,
            Err(RecvTimeoutError::Timeout) => {}
        }
        calm_rounds = if checkpointer.round() { 0 } else { calm_rounds.saturating_add(1) };
        *counts.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = checkpointer.counts();
    }
}

/// Recovery starts at `scn` from now on. First the databases, then the control file, then the log groups.
///
/// # Errors
/// When a database cannot be synced or the control file not be written: recovery starts where it did.
pub fn advance(
    environment: &Environment,
    checkpointer: &mut Checkpointer,
    log: &RedoLog,
    scn: Scn,
) -> Result<(), InstanceError> {
    checkpointer.sync_databases()?;
    environment.update_control(|control| control.checkpoint = control.checkpoint.max(scn))?;
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
    loop {
        let order = if retry {
            orders.recv_timeout(ARCHIVE_RETRY)
        } else {
            orders.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match order {
            Ok(ArchiveOrder::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            Ok(ArchiveOrder::Archive) | Err(RecvTimeoutError::Timeout) => {}
        }
        let keep = needed_from().min(environment.control().archives_needed_from());
        let failed = archive_all(log, environment.config.redo.archive_bytes_max, keep).err();
        if let (Some(error), false) = (&failed, retry) {
            environment.alert.say(format!("archiving failed and will be tried again: {error}"));
        } else if failed.is_none() && retry {
            environment.alert.say("archiving goes on");
        }
        retry = failed.is_some();
    }
}

/// Archives all full groups and removes what is beyond the volume of archives.
///
/// # Errors
/// When a copy cannot be written.
pub fn archive_all(log: &RedoLog, bytes_max: u64, needed_from: Scn) -> Result<(), LogError> {
    for (group, _) in log.to_archive() {
        // A pause between pieces leaves the device to the log writer.
        archive_group(log, group, &mut || std::thread::sleep(Duration::from_millis(2)))?;
    }
    remove_archived(log, bytes_max, needed_from)?;
    Ok(())
}

/// Sleeps of this thread end when they should, not up to 50 us later.
fn precise_sleeps() {
    // SAFETY: PR_SET_TIMERSLACK takes one integer and concerns this thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
}
