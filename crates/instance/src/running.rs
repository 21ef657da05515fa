//! A running instance in its role, and the requests it serves.

mod databases;
mod destinations;
mod lags;
mod late;
mod role_change;
mod service;
mod superseded;

pub use self::role_change::TakenOver;
use self::service::Service;
use crate::applier::Applier;
use crate::checkpointer::Remainder;
use crate::config::DestinationConfig;
use crate::control::{Control, FencedBy, FileStamp, Role, WholeFile};
use crate::create;
use crate::database::Database;
use crate::descriptors;
use crate::environment::Environment;
use crate::error::InstanceError;
use crate::failover;
use crate::far_sync::{self, FarSync};
use crate::foreign_watch;
use crate::forwarding::Forwarding;
use crate::history::SharedNotes;
use crate::lag::Marks;
use crate::live_watch::LiveWatch;
use crate::local_archive::LocalStatus;
use crate::open_primary::{OpenedPrimary, open_primary};
use crate::primary_threads::{PrimaryThreads, Wiring};
use crate::process;
use crate::protection::TransportMonitor;
use crate::refusals::Refusals;
use crate::shipping::{Destinations, PrimarySource};
use crate::snapshots::Snapshots;
use crate::standby::{LentLog, ReceivedLog, Standby};
use crate::verification::{Verification, Wanted};
use crate::watchers::Watchers;
use crate::watching;
use standfast_io::Disk;
use standfast_session::{DatabaseState, FileId, Segment};
use standfast_transport::{GapStatus, Receiver, ReceiverConfig, StandbyLog};
use standfast_types::Scn;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

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

pub struct Running {
    pub environment: Arc<Environment>,
    /// Held only briefly: a status request must not wait for a command.
    mode: Mutex<Mode>,
    /// Commands run one at a time.
    commands: Mutex<()>,
    receiver: Mutex<Option<Receiver>>,
    configured: Mutex<Vec<DestinationConfig>>,
    pub(crate) me: Weak<Running>,
    /// Why the instance stops by itself.
    stops_for: OnceLock<String>,
    monitor: Mutex<Option<TransportMonitor>>,
    local: Mutex<Vec<LocalStatus>>,
    notes: SharedNotes,
    marks: Mutex<Marks>,
    stopping: AtomicBool,
    pub(crate) snapshots: Snapshots,
    live: Mutex<Option<LiveWatch>>,
    watching: Mutex<Option<Watchers>>,
    /// Databases of a primary whose files are watched.
    pub(crate) watched: Mutex<Vec<Weak<Database>>>,
    verification: Verification,
}

impl Running {
    /// Opens the instance in the role in its control file and lets applications in.
    ///
    /// # Errors
    /// When it is fenced, or anything it needs cannot be opened.
    pub fn start(environment: Arc<Environment>) -> Result<Arc<Running>, InstanceError> {
        let control = environment.control();
        if let Some(why) = &control.fenced {
            return Err(fenced_error(why));
        }
        let configured = environment.config.destinations.clone();
        environment.update_control(|control| {
            control.synchronised.get_or_insert_with(|| {
                configured.iter().map(|destination| destination.name.clone()).collect()
            });
        })?;
        if let Err(error) = environment.keeper.refresh_members() {
            environment.alert.say(format!("the list of peers cannot be used: {error}"));
        }
        let running = Arc::new_cyclic(|me| Running {
            environment,
            mode: Mutex::new(Mode::Changing),
            commands: Mutex::default(),
            receiver: Mutex::default(),
            configured: Mutex::new(configured),
            me: me.clone(),
            stops_for: OnceLock::new(),
            monitor: Mutex::default(),
            local: Mutex::default(),
            notes: SharedNotes::default(),
            marks: Mutex::default(),
            stopping: AtomicBool::new(false),
            snapshots: Snapshots::default(),
            live: Mutex::default(),
            watching: Mutex::default(),
            watched: Mutex::default(),
            verification: Verification::default(),
        });
        running.listen()?;
        // First, so that an error in its configuration is reported before anything is opened.
        *running.live() = Some(LiveWatch::start(&running)?);
        let opened = match control.role {
            Role::Primary => running.open_as_primary(),
            Role::Standby => running.open_as_standby(),
            Role::FarSync => running.open_as_far_sync(),
        };
        match opened {
            // Handled like a later fence: the instance serves no session and shows the reason until it is stopped.
            Err(_) if matches!(*running.mode(), Mode::Fenced(_)) => {}
            opened => opened?,
        }
        let monitor = TransportMonitor::start(&Arc::downgrade(&running));
        let directory = &running.environment.paths.directory;
        let monitor =
            monitor.map_err(InstanceError::io("begin the thread that watches destinations in", directory))?;
        *running.monitor() = Some(monitor);
        *running.watching() = Some(watching::start(&running)?);
        Ok(running)
    }

    pub(crate) fn monitor(&self) -> MutexGuard<'_, Option<TransportMonitor>> {
        self.monitor.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn watching(&self) -> MutexGuard<'_, Option<Watchers>> {
        self.watching.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn live(&self) -> MutexGuard<'_, Option<LiveWatch>> {
        self.live.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The newest verification against standbys.
    pub(crate) fn verification(&self) -> &Verification {
        &self.verification
    }

    /// Returns a strong reference to this instance, for a thread that outlives the call; `None` while it is being
    /// dropped.
    pub(crate) fn me(&self) -> Option<Arc<Running>> {
        self.me.upgrade()
    }

    /// Begins a verification against the standbys; returns the number of the run.
    ///
    /// # Errors
    /// See [`Verification::begin`], and when this instance is not a primary.
    pub fn verify(&self, wanted: &Wanted) -> Result<u64, InstanceError> {
        // Releases the command lock immediately: a run takes long.
        self.with_primary(|_| Ok(()))?;
        match self.primary() {
            Some(primary) => self.verification.begin(self, primary, wanted),
            None => Err(InstanceError::refused("the instance is changing its role", "try again in a moment")),
        }
    }

    /// Whether a clean stop is in progress.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    /// Begins a clean stop of this process: in maximum protection no standby has protected commits for too long.
    /// Waiting commits get "outcome unknown".
    pub(crate) fn stop_for_protection(&self) {
        let why =
            "maximum protection: no standby with SYNC AFFIRM can be reached, and none could for too long";
        if self.stops_for.set(why.into()).is_ok() {
            self.environment.alert.say(format!("STOPPING for the safety of the data: {why}"));
            process::stop_this_process();
        }
    }

    /// Why this instance stops by itself, if it does.
    pub fn stops_for(&self) -> Option<&str> {
        self.stops_for.get().map(String::as_str)
    }

    pub fn mode(&self) -> MutexGuard<'_, Mode> {
        self.mode.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The running primary, if it is one.
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

    pub(crate) fn one_command(&self) -> MutexGuard<'_, ()> {
        self.commands.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn receiver(&self) -> MutexGuard<'_, Option<Receiver>> {
        self.receiver.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn configured(&self) -> Vec<DestinationConfig> {
        self.configured.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    fn listen(&self) -> Result<(), InstanceError> {
        let instance = &self.environment.config.instance;
        if instance.listen.is_empty() {
            return Ok(());
        }
        let config = ReceiverConfig {
            listen: instance.listen.clone(),
            security: self.environment.security(),
            ack_delay: standfast_io::fault::acknowledgement_delay(),
            sdu_bytes: self.environment.config.standby.sdu_bytes,
            ..ReceiverConfig::default()
        };
        let service = Arc::new(Service {
            running: self.me.clone(),
            environment: self.environment.clone(),
            refusals: Refusals::default(),
        });
        let receiver = Receiver::start(config, service, None).map_err(|error| {
            let text = error.to_string();
            let (what, hint) =
                text.split_once(" | hint: ").unwrap_or((&text, "check [instance] listen in standfast.toml"));
            InstanceError::refused(what, hint)
        })?;
        *self.receiver() = Some(receiver);
        Ok(())
    }

    /// The address on which it listens.
    pub fn listening(&self) -> Option<String> {
        self.receiver().as_ref().map(|receiver| receiver.local_addr().to_string())
    }

    /// The gap that is being resolved here.
    pub fn gap(&self) -> Option<GapStatus> {
        self.receiver().as_ref().and_then(Receiver::gap)
    }

    pub fn is_streaming(&self) -> bool {
        self.receiver().as_ref().is_some_and(Receiver::is_streaming)
    }

    fn open_as_standby(&self) -> Result<(), InstanceError> {
        let environment = &self.environment;
        let control = environment.control();
        let access = environment.access()?;
        let (segment, _) = access.segment(&environment.segment_path, control.instance.0)?;
        // Before apply begins, which also writes markers when the redo brings a new database: two concurrent writers
        // would lose each other's version of the file.
        environment.tell_standby_sessions(Some(segment));
        for record in &control.databases {
            segment.set_state(record.id.0, DatabaseState::Standby);
            if let Err(error) = environment.write_marker(record, FileId::of(&record.path)) {
                let name = &record.name;
                environment.alert.say(format!(
                    "database {name}: {error}; programs with the extension take its file here for an unprotected one until \
                     the next start"
                ));
            }
        }
        let (standby, log) = Standby::start(environment)?;
        let forwarding =
            Forwarding::start(environment, standby.shared(), &self.configured(), self.superseded_call())?;
        segment.set_running(true, &environment.segment_config());
        let log = Arc::new(Mutex::new(log));
        let lent: Box<dyn StandbyLog> = Box::new(LentLog(log.clone()));
        match self.receiver().as_ref() {
            Some(receiver) => receiver.attach(lent),
            None => environment.alert.say("this standby receives nothing: [instance] listen is empty"),
        }
        *self.mode() = Mode::Standby(Box::new(RunningStandby { standby, log, segment, forwarding }));
        if let Err(error) = descriptors::check_failover(control.databases.len()) {
            environment.alert.say(format!("A FAILOVER WILL BE REFUSED: {error}"));
        }
        environment.alert.say("standby opened");
        Ok(())
    }

    fn open_as_primary(&self) -> Result<(), InstanceError> {
        let environment = &self.environment;
        crate::protection::check(environment.control().protection_mode, &self.configured())?;
        environment.sign_missing_promotion();
        let wiring = Wiring::default();
        let OpenedPrimary { primary, shared, log, late } =
            open_primary(environment, wiring.helper(environment))?;
        // If the reuse of logs depends on destinations, no log is reused until their positions are known.
        let waits = environment.config.redo.archive_min_succeed > 1;
        if waits || self.configured().iter().any(|at| at.mandatory) {
            log.set_reuse_limit(Scn::ZERO);
        }
        let source = Arc::new(PrimarySource::new(environment.clone(), shared.clone(), log.clone()));
        let (held, me) = (source.clone(), self.me.clone());
        let needed_from = Box::new(move || {
            let running = me.upgrade();
            let destinations = running.as_ref().map_or(Scn(u64::MAX), |running| running.needed_from());
            held.held_from().min(destinations)
        });
        let destinations = self.start_destinations(&shared, &source, None)?;
        shared.ship_through(destinations.clone());
        let threads = PrimaryThreads::start(environment, wiring, primary, log, needed_from)?;
        for database in shared.all_databases() {
            match environment.write_marker(database.record(), database.file()) {
                Ok(()) => {
                    foreign_watch::let_sessions_in(environment, &shared.segment, &database);
                }
                // The checkpointer reports it to the sessions of the database. The other databases are served.
                Err(error) => database.fail(error.to_string().replace('\n', " | ")),
            }
        }
        shared.segment.set_running(true, &environment.segment_config());
        environment.update_control(|control| control.clean = false)?;
        let opened = RunningPrimary { threads, source, destinations: Mutex::new(destinations) };
        let mut mode = self.mode();
        // A destination may have reported meanwhile that another instance has taken over; the fence then found no
        // primary to end.
        if let Mode::Fenced(why) = &*mode {
            let error = fenced_error(why);
            drop(mode);
            opened.end_fenced();
            return Err(error);
        }
        *mode = Mode::Primary(Arc::new(opened));
        drop(mode);
        environment.alert.say(format!("primary opened at SCN {}", shared.buffer.captured()));
        late::open_in_turn(&self.me, late).map_err(InstanceError::io(
            "begin the thread that opens late databases in",
            &environment.paths.directory,
        ))?;
        Ok(())
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
            self.environment.alert.say(format!("the fence cannot be recorded: {error}"));
        }
        self.environment.alert.say(format!("FENCED: {why}"));
        if let Mode::Primary(primary) = before {
            primary.end_fenced();
        }
    }

    /// Runs `work` on the primary while it holds the command lock.
    pub(crate) fn with_primary<T>(
        &self,
        work: impl FnOnce(&RunningPrimary) -> Result<T, InstanceError>,
    ) -> Result<T, InstanceError> {
        let _one = self.one_command();
        if let Some(primary) = self.primary() {
            return work(&primary);
        }
        match &*self.mode() {
            Mode::Standby(_) => {
                let hint = "ask the primary, or make this instance primary with `standfast failover`";
                Err(InstanceError::refused("this instance is a standby", hint))
            }
            Mode::FarSync(_) => Err(far_sync::has_no_databases()),
            Mode::Fenced(why) => Err(fenced_error(why)),
            Mode::Changing | Mode::Primary(_) => {
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

    /// Stops the instance cleanly.
    ///
    /// # Errors
    /// When the last redo could not be written.
    pub fn stop(&self) -> Result<(), InstanceError> {
        // A command in progress may wait for a log switch, and this stop for the command.
        if let Some(primary) = self.primary() {
            primary.threads.announce_stop();
        }
        self.stopping.store(true, SeqCst);
        let (monitor, live) = (self.monitor().take(), self.live().take());
        drop((monitor, live, self.watching().take()));
        self.snapshots.close();
        self.verification.stop();
        let _one = self.one_command();
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
                let rested = standby.standby.stop().and_then(Applier::rest);
                if let Err(error) = &rested {
                    self.environment
                        .alert
                        .say(format!("the files of the databases cannot be noted: {error}"));
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
        "make it a standby of the new primary: move the directory away and run `standfast standby create --from HOST:PORT`; if the \
         other one became primary by mistake and has been stopped, `standfast fence lift`",
    )
}

pub use create::{create_standby, init};
