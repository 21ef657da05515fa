//! A running instance in its role, and the requests it serves.

mod changeable;
mod databases;
mod destinations;
mod lags;
mod late;
mod open;
mod protection_mode;
pub mod role_change;
mod service;
mod shared_configuration;
mod superseded;

use self::changeable::Changeable;
use crate::role::create;
use crate::role::failover;
use crate::role::far_sync::{self, FarSync};
use crate::role::fast_start::state::FastStart;
use crate::role::history::SharedNotes;
use crate::role::lag::EndSamples;
use crate::role::serving::{Announced, HasFailed, Serving};
use crate::role::verification::Verification;
use standfast_documents::status::LocalDestination;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::DestinationConfig;
use standfast_environment::context::environment::Environment;
use standfast_environment::state::control::{Control, FencedBy, FileStamp, WholeFile};
use standfast_environment::state::process;
use standfast_io::Disk;
use standfast_primary::checkpoint::checkpointer::Remainder;
use standfast_primary::commit::database::Database;
use standfast_primary::open::primary_threads::PrimaryThreads;
use standfast_primary::ship::destinations::Destinations;
use standfast_primary::ship::redo_source::PrimarySource;
use standfast_session::{DatabaseState, FileId, Segment};
use standfast_standby::applier::Applier;
use standfast_standby::forwarding::Forwarding;
use standfast_standby::received_log::ReceivedLog;
use standfast_standby::standby::Standby;
use standfast_transport::{GapStatus, Receiver};
use standfast_types::{Hint, Scn};
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, TryLockError, Weak};
use std::time::{Duration, Instant};

/// Returns an observation of the instance for a peer, as JSON; `true`: with its history.
pub type ObserveForOthers = fn(&Running, bool) -> String;

/// How long databases may take to close.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A running primary with its threads, redo source and destinations.
pub struct RunningPrimary {
    pub threads: PrimaryThreads,
    pub source: Arc<PrimarySource>,
    destinations: Mutex<Arc<Destinations>>,
}

impl RunningPrimary {
    pub fn destinations(&self) -> Arc<Destinations> {
        self.destinations.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Refuses all commits from now on, including waiting ones.
    fn refuse_commits(&self) {
        let shared = self.threads.shared();
        for database in shared.all_databases() {
            shared.segment.set_state(database.id().0, DatabaseState::Fenced);
            shared.segment.wake_all(database.id().0);
        }
    }

    /// Waits until nothing in this process has the databases open any more; the threads have ended.
    ///
    /// # Errors
    /// When one is still in use after ten seconds.
    pub(crate) fn close_databases(&self) -> Result<(), InstanceError> {
        let open: Vec<Weak<_>> = self.threads.shared().let_go().iter().map(Arc::downgrade).collect();
        let until = Instant::now() + CLOSE_TIMEOUT;
        while let Some(database) = open.iter().find_map(Weak::upgrade) {
            if Instant::now() >= until {
                let name = &database.record().name;
                return Err(InstanceError::Failed(format!(
                    "database {name} is still in use by this process"
                )));
            }
            drop(database);
            std::thread::park_timeout(LOOK_EVERY);
        }
        Ok(())
    }

    /// Ends this primary because another instance has taken over.
    fn end_fenced(&self) {
        self.refuse_commits();
        self.destinations().stop();
        let _ = self.threads.stop(false);
        // Threads that end with an error may have set another state.
        self.refuse_commits();
    }
}

/// A running standby with its log, sessions and destinations.
pub struct RunningStandby {
    pub standby: Standby,
    log: Arc<Mutex<ReceivedLog>>,
    /// Shared memory; keeps sessions from writing.
    pub segment: Segment,
    pub forwarding: Arc<Forwarding>,
}

impl RunningStandby {
    /// The log that the receiver fills.
    pub(crate) fn received(&self) -> &Arc<Mutex<ReceivedLog>> {
        &self.log
    }
}

pub enum Mode {
    Primary(Arc<RunningPrimary>),
    Standby(Box<RunningStandby>),
    FarSync(Box<FarSync>),
    /// Another instance has taken over; the reason.
    Fenced(String),
    Changing,
    /// Failed between two roles, with the reason: only a restart helps.
    Stuck(String),
}

impl Mode {
    fn serving(&self) -> (Serving, HasFailed) {
        let serving = match self {
            Mode::Primary(primary) => {
                let primary = Arc::downgrade(primary);
                let has_failed =
                    move || primary.upgrade().is_some_and(|primary| primary.threads.failure().is_some());
                return (Serving::Primary, Box::new(has_failed));
            }
            Mode::Standby(_) => Serving::Standby,
            Mode::FarSync(_) => Serving::FarSync,
            Mode::Fenced(_) => Serving::Nothing("fenced: another instance is the primary"),
            Mode::Changing => Serving::NotYet,
            Mode::Stuck(_) => Serving::Nothing("between two roles: restart it"),
        };
        (serving, Box::new(|| false))
    }
}

/// The locked mode. A change of it is announced when the lock is released.
pub struct ModeGuard<'a> {
    mode: MutexGuard<'a, Mode>,
    announced: &'a Announced,
    is_changed: bool,
}

impl Deref for ModeGuard<'_> {
    type Target = Mode;

    fn deref(&self) -> &Mode {
        &self.mode
    }
}

impl DerefMut for ModeGuard<'_> {
    fn deref_mut(&mut self) -> &mut Mode {
        self.is_changed = true;
        &mut self.mode
    }
}

impl Drop for ModeGuard<'_> {
    fn drop(&mut self) {
        if self.is_changed {
            let (serving, has_failed) = self.mode.serving();
            self.announced.announce(serving, has_failed);
        }
    }
}

pub struct Running {
    pub environment: Arc<Environment>,
    /// Held only briefly: a status request must not wait for a command.
    mode: Mutex<Mode>,
    announced: Announced,
    /// Commands run one at a time.
    commands: Mutex<()>,
    receiver: Mutex<Option<Receiver>>,
    /// Settings that commands change while the instance runs.
    configured: Mutex<Changeable>,
    pub(crate) me: Weak<Running>,
    /// Why the instance stops by itself.
    stops_for: OnceLock<String>,
    local: Mutex<Vec<LocalDestination>>,
    notes: SharedNotes,
    samples: Mutex<EndSamples>,
    stopping: AtomicBool,
    starts_again: AtomicBool,
    /// Held while this instance is being fenced: a stop waits until the fence is recorded.
    fencing: Mutex<()>,
    /// Names of local destinations to be retried immediately.
    local_retries: Mutex<Vec<String>>,
    /// Databases of a primary whose files are watched.
    pub(crate) watched: Mutex<Vec<Weak<Database>>>,
    verification: Verification,
    fast_start: FastStart,
    observe: ObserveForOthers,
}

impl Running {
    /// Makes the instance known to its peers: it listens, and has no role yet. `observe` answers their requests for an
    /// observation.
    ///
    /// # Errors
    /// When it is fenced, or cannot listen.
    pub fn new(
        environment: Arc<Environment>,
        observe: ObserveForOthers,
    ) -> Result<Arc<Running>, InstanceError> {
        let control = environment.control();
        if let Some(reinstating) = &control.reinstating {
            return Err(reinstating.unfinished(&environment.paths.directory));
        }
        if let Some(why) = &control.fenced {
            return Err(fenced_error(why));
        }
        let configured = Changeable {
            destinations: environment.config.destinations.clone(),
            role_change: environment.config.role_change.clone(),
        };
        environment.update_control(|control| {
            control.synchronised.get_or_insert_with(|| {
                configured.destinations.iter().map(|destination| destination.name.clone()).collect()
            });
        })?;
        if let Err(error) = environment.keeper.refresh_members() {
            environment.alert.say(format!("the list of peers cannot be used: {}", error.in_one_line()));
        }
        let running = Arc::new_cyclic(|me| Running {
            environment,
            mode: Mutex::new(Mode::Changing),
            announced: Announced::default(),
            commands: Mutex::default(),
            receiver: Mutex::default(),
            configured: Mutex::new(configured),
            me: me.clone(),
            stops_for: OnceLock::new(),
            local: Mutex::default(),
            notes: SharedNotes::default(),
            samples: Mutex::default(),
            stopping: AtomicBool::new(false),
            starts_again: AtomicBool::new(false),
            fencing: Mutex::default(),
            local_retries: Mutex::default(),
            watched: Mutex::default(),
            verification: Verification::default(),
            fast_start: FastStart::default(),
            observe,
        });
        running.listen()?;
        Ok(running)
    }

    /// Makes the next check retry a local destination immediately, even if it was abandoned.
    pub(crate) fn retry_local(&self, name: &str) {
        self.local_retries.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(name.into());
    }

    /// Takes the names of the local destinations to be retried.
    pub(crate) fn take_local_retries(&self) -> Vec<String> {
        std::mem::take(&mut *self.local_retries.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    pub(crate) fn verification(&self) -> &Verification {
        &self.verification
    }

    pub(crate) fn fast_start(&self) -> &FastStart {
        &self.fast_start
    }

    /// Returns a strong reference to this instance, for a thread that outlives the call; `None` while it is being
    /// dropped.
    pub(crate) fn me(&self) -> Option<Arc<Running>> {
        self.me.upgrade()
    }

    /// Whether a clean stop is in progress.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// Begins a clean stop of this process: in maximum protection no standby has protected commits for too long.
    /// Waiting commits get "outcome unknown".
    pub(crate) fn stop_for_protection(&self) {
        self.stop_for(
            "maximum protection: no standby with SYNC AFFIRM can be reached, and none could for too long",
        );
    }

    /// Begins a clean stop of this process: fast-start failover has neither target nor observer, and the target may have
    /// taken over.
    pub(crate) fn stop_isolated(&self) {
        self.stop_for("fast-start failover: neither target nor observer can be reached, and neither could for the threshold");
    }

    fn stop_for(&self, why: &str) {
        if self.stops_for.set(why.into()).is_ok() {
            self.environment.alert.say(format!("STOPPING for the safety of the data: {why}"));
            process::stop_this_process();
        }
    }

    /// Why this instance stops by itself, if it does.
    pub fn stops_for(&self) -> Option<&str> {
        self.stops_for.get().map(String::as_str)
    }

    pub fn mode(&self) -> ModeGuard<'_> {
        let mode = self.mode.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        ModeGuard { mode, announced: &self.announced, is_changed: false }
    }

    /// Never waits for a command that has the mode locked.
    pub fn serving(&self) -> Serving {
        self.announced.serving()
    }

    /// Waits until something else is served than `known`, at most for `limit`. Returns what is served.
    pub fn await_serving(&self, known: &str, limit: Duration) -> Serving {
        self.announced.await_other(known, limit)
    }

    /// Returns the running primary; `None` in any other role.
    pub fn primary(&self) -> Option<Arc<RunningPrimary>> {
        match &*self.mode() {
            Mode::Primary(primary) => Some(primary.clone()),
            _ => None,
        }
    }

    /// The senders of a standby or far sync.
    fn forwarding(&self) -> Option<Arc<Forwarding>> {
        match &*self.mode() {
            Mode::Standby(standby) => Some(standby.forwarding.clone()),
            Mode::FarSync(far_sync) => Some(far_sync.forwarding.clone()),
            _ => None,
        }
    }

    fn fencing(&self) -> MutexGuard<'_, ()> {
        self.fencing.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn one_command(&self) -> MutexGuard<'_, ()> {
        self.commands.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// `None`: a command is being carried out.
    pub(crate) fn try_one_command(&self) -> Option<MutexGuard<'_, ()>> {
        match self.commands.try_lock() {
            Ok(lock) => Some(lock),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn receiver(&self) -> MutexGuard<'_, Option<Receiver>> {
        self.receiver.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn configured(&self) -> Vec<DestinationConfig> {
        self.changeable().destinations
    }

    fn changeable(&self) -> Changeable {
        self.configured.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// The address on which it listens.
    pub fn listening(&self) -> Option<String> {
        self.receiver().as_ref().map(|receiver| receiver.local_addr().to_string())
    }

    /// Returns the gap that this standby is resolving; `None` without one.
    pub fn gap(&self) -> Option<GapStatus> {
        self.receiver().as_ref().and_then(Receiver::gap)
    }

    pub fn is_streaming(&self) -> bool {
        self.receiver().as_ref().is_some_and(Receiver::is_streaming)
    }

    fn needed_from(&self) -> Scn {
        match self.mode.try_lock().as_deref() {
            Ok(Mode::Primary(primary)) => primary.destinations().needed_from(),
            // The mode is locked for a change; nothing is removed meanwhile.
            _ => Scn::ZERO,
        }
    }

    /// Fences this instance because another one is primary: it accepts nothing any more, now or after a restart.
    fn fence(&self, why: &str, by: FencedBy) {
        let _fencing = self.fencing();
        let before = {
            let mut mode = self.mode();
            if let Mode::Fenced(_) = &*mode {
                return;
            }
            std::mem::replace(&mut *mode, Mode::Fenced(why.to_owned()))
        };
        if let Mode::Primary(primary) = &before {
            primary.refuse_commits();
        }
        let stored = self.environment.update_control(|control| {
            control.fenced = Some(why.to_owned());
            control.trust.fenced_by = Some(by);
        });
        if let Err(error) = stored {
            self.environment.alert.say(format!("the fence cannot be recorded: {}", error.in_one_line()));
        }
        self.environment.alert.say(format!("FENCED: {why}"));
        if let Mode::Primary(primary) = before {
            self.end_replaced(&primary);
        }
    }

    /// Ends a primary that is fenced. Where that is configured the instance starts again, as a standby.
    fn end_replaced(&self, primary: &RunningPrimary) {
        primary.end_fenced();
        if self.environment.config.instance.auto_reinstate {
            if let Err(error) = primary.close_databases() {
                self.environment.alert.say(error.in_one_line());
            }
            self.starts_again.store(true, SeqCst);
            process::stop_this_process();
        }
    }

    /// Whether this process stops serving in order to be reinstated.
    pub fn starts_again(&self) -> bool {
        self.starts_again.load(SeqCst)
    }

    /// Runs `work` on the primary while it holds the command lock.
    pub(crate) fn with_primary<T>(
        &self,
        work: impl FnOnce(&RunningPrimary) -> Result<T, InstanceError>,
    ) -> Result<T, InstanceError> {
        let _one = self.one_command();
        work(&*self.open_primary()?)
    }

    /// Returns the primary that this instance is.
    ///
    /// # Errors
    /// `Refused` in any other role.
    pub(crate) fn open_primary(&self) -> Result<Arc<RunningPrimary>, InstanceError> {
        match &*self.mode() {
            Mode::Primary(primary) => Ok(primary.clone()),
            Mode::Standby(_) => {
                let hint = "ask the primary, or make this instance primary with `standfast failover`";
                Err(InstanceError::refused("this instance is a standby", hint))
            }
            Mode::FarSync(_) => Err(far_sync::has_no_databases()),
            Mode::Fenced(why) => Err(fenced_error(why)),
            Mode::Changing => {
                Err(InstanceError::refused("the instance is changing its role", "try again in a moment"))
            }
            Mode::Stuck(why) => Err(failover::stuck(why)),
        }
    }

    /// Begins a new log sequence; returns its number.
    ///
    /// # Errors
    /// When the log cannot be written.
    pub fn switch_logfile(&self) -> Result<u64, InstanceError> {
        self.with_primary(|primary| {
            primary.threads.call(|primary| {
                primary.switch_log()?;
                Ok(primary.writer().sequence())
            })
        })
    }

    /// Backfills everything into the databases and moves the start of recovery to the end of the redo. Returns, as
    /// text, what stays in WALs because transactions are open.
    ///
    /// # Errors
    /// When a file cannot be written or synced; the error names the affected databases.
    pub fn checkpoint(&self) -> Result<Vec<String>, InstanceError> {
        let remainders = self.with_primary(|primary| primary.threads.checkpoint())?;
        let failed: Vec<String> = remainders
            .iter()
            .filter_map(|left| Some(format!("database {}: {}", left.name, left.error.as_ref()?)))
            .collect();
        if !failed.is_empty() {
            let what = format!("the checkpoint is not complete: {}", failed.join("; "));
            let hint = "make room on the volume of the database; the checkpoint is tried again by itself";
            return Err(InstanceError::refused(what, hint));
        }
        let words = |left: Remainder| {
            format!("{}: {} frames stay in its WAL, a transaction is open", left.name, left.frames)
        };
        Ok(remainders.into_iter().map(words).collect())
    }

    /// Announces a stop, so that long work ends early. To be called before the threads that observe the instance are
    /// ended, which may be doing such work.
    pub fn announce_stop(&self) {
        // A command in progress may wait for a log switch, and the stop for the command.
        if let Some(primary) = self.primary() {
            primary.threads.announce_stop();
        }
        self.stopping.store(true, SeqCst);
    }

    /// Stops the instance cleanly.
    ///
    /// # Errors
    /// When the last redo could not be written.
    pub fn stop(&self) -> Result<(), InstanceError> {
        self.announce_stop();
        self.verification.stop();
        let _one = self.one_command();
        let _fencing = self.fencing();
        let mode = std::mem::replace(&mut *self.mode(), Mode::Changing);
        let result = match mode {
            Mode::Primary(primary) => {
                let shared = primary.threads.shared().clone();
                // Senders see the end of the redo before they end.
                let result = primary.threads.stop(true);
                primary.destinations().stop();
                shared.segment.set_running(false, &self.environment.segment_config());
                for database in shared.all_databases() {
                    shared.segment.wake_all(database.id().0);
                }
                result.and_then(|()| {
                    self.environment.update_control(|control| {
                        control.clean = true;
                        let disk = self.environment.disk.as_ref();
                        note_files_at_rest(control, disk, &shared.all_databases(), shared.buffer.durable());
                    })
                })
            }
            Mode::Standby(standby) => {
                if let Some(receiver) = self.receiver().as_ref() {
                    receiver.leave();
                }
                standby.forwarding.stop();
                standby.segment.set_running(false, &self.environment.segment_config());
                let rested = standby.standby.stop().and_then(|applier| applier.map_or(Ok(()), Applier::rest));
                if let Err(error) = &rested {
                    self.environment
                        .alert
                        .say(format!("the files of the databases cannot be noted: {}", error.in_one_line()));
                }
                rested
            }
            Mode::FarSync(far_sync) => {
                if let Some(receiver) = self.receiver().as_ref() {
                    receiver.leave();
                }
                far_sync.stop();
                Ok(())
            }
            Mode::Fenced(_) | Mode::Changing | Mode::Stuck(_) => Ok(()),
        };
        // Released before waiting: threads of connections may lock the receiver.
        let receiver = self.receiver().take();
        if let Some(receiver) = receiver {
            receiver.stop();
        }
        self.environment.alert.say("stopped");
        result
    }
}

/// Records, after a clean stop, the file SCN of each database whose file alone holds everything. Truncates their WALs
/// to zero bytes, as SQLite's own TRUNCATE checkpoint does, so that a plain reader that recovers the WAL and closes
/// last has no reason to write to the file.
fn note_files_at_rest(control: &mut Control, disk: &dyn Disk, databases: &[Arc<Database>], scn: Scn) {
    for database in databases.iter().filter(|database| database.failure().is_none()) {
        let path = &database.record().path;
        if database.cut_empty_wal()
            && let Some(stamp) = FileStamp::of(disk, path)
            && FileId::of(path) == database.file()
        {
            control.note_whole(WholeFile { database: database.id(), scn, stamp });
        }
    }
}

fn fenced_error(why: &str) -> InstanceError {
    InstanceError::refused(
        format!("this instance may not open: another one has taken over ({why})"),
        "stop it and run `standfast reinstate`, which makes it a standby of the new primary; if the other one became primary by \
         mistake and has been stopped, `standfast fence lift`",
    )
}

pub use create::{create_standby, init};
