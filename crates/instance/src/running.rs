//! A running instance in its role, and what can be asked of it.

use crate::config::{CONFIG_FILE, DestinationConfig};
use crate::control::Role;
use crate::create;
use crate::database::committed_pages;
use crate::environment::Environment;
use crate::error::InstanceError;
use crate::failover;
use crate::far_sync::{self, FarSync};
use crate::forwarding::{self, Forwarding};
use crate::local_archive::LocalStatus;
use crate::open_primary::{OpenedPrimary, install_hook, open_primary};
use crate::primary::Entry;
use crate::primary_threads::{PrimaryThreads, Wiring};
use crate::protect;
use crate::protection::TransportMonitor;
use crate::refusals::Refusals;
use crate::server;
use crate::shipping::{Destinations, FencedCall, PrimarySource, peer_identity};
use crate::standby::{LentLog, ReceivedLog, Standby};
use standfast_session::{DatabaseState, FileId, Segment};
use standfast_transport as transport;
use standfast_transport::{
    CertificateGrant, CertificateRequest, CertificateRight, Receiver, ReceiverConfig, ReceiverEvent,
    ReceiverService, RedoSource, Refusal, StandbyLog, Wish,
};
use standfast_types::Scn;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

/// A primary with everything around it.
pub struct RunningPrimary {
    /// Its threads.
    pub threads: PrimaryThreads,
    /// Its redo for senders.
    pub source: Arc<PrimarySource>,
    destinations: Mutex<Arc<Destinations>>,
}

impl RunningPrimary {
    /// Its senders.
    pub fn destinations(&self) -> Arc<Destinations> {
        self.destinations.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Nothing is acknowledged any more, also of what waits.
    fn refuse_commits(&self) {
        let shared = self.threads.shared();
        for database in shared.all_databases() {
            shared.segment.set_state(database.id().0, DatabaseState::Failed);
            shared.segment.wake_all(database.id().0);
        }
    }

    /// Another instance is primary now.
    fn end_fenced(&self) {
        self.refuse_commits();
        self.destinations().stop();
        let _ = self.threads.stop(false);
    }
}

/// A standby with everything around it.
pub struct RunningStandby {
    /// Apply.
    pub standby: Standby,
    log: Arc<Mutex<ReceivedLog>>,
    /// Keeps sessions from writing.
    pub segment: Segment,
    /// Its own destinations.
    pub forwarding: Arc<Forwarding>,
}

impl RunningStandby {
    pub(crate) fn received_log(&self) -> Arc<Mutex<ReceivedLog>> {
        self.log.clone()
    }

    /// The log that the receiver fills.
    pub(crate) fn received(&self) -> &Arc<Mutex<ReceivedLog>> {
        &self.log
    }
}

/// What the instance is at the moment.
pub enum Mode {
    /// Applications write here.
    Primary(Arc<RunningPrimary>),
    /// Redo is received and applied.
    Standby(Box<RunningStandby>),
    /// Redo is received and forwarded.
    FarSync(Box<FarSync>),
    /// Another instance has taken over.
    Fenced(String),
    /// Between two roles.
    Changing,
    /// Failed between two roles, and why: only a restart helps.
    Stuck(String),
}

/// See the module.
pub struct Running {
    /// What every part is given.
    pub environment: Arc<Environment>,
    /// Held for moments only: who asks for the state must not wait for a command.
    mode: Mutex<Mode>,
    /// Commands are carried out one at a time.
    commands: Mutex<()>,
    receiver: Mutex<Option<Receiver>>,
    configured: Mutex<Vec<DestinationConfig>>,
    me: Weak<Running>,
    /// Why it stops by itself.
    stops_for: OnceLock<String>,
    monitor: Mutex<Option<TransportMonitor>>,
    local: Mutex<Vec<LocalStatus>>,
    stopping: AtomicBool,
}

impl Running {
    /// Opens the instance in the role that its control file says and lets applications in.
    ///
    /// # Errors
    /// When it is fenced, or anything it needs cannot be opened.
    pub fn start(environment: Arc<Environment>) -> Result<Arc<Running>, InstanceError> {
        let control = environment.control();
        if let Some(why) = &control.fenced {
            return Err(fenced_error(why));
        }
        let configured = environment.config.destinations.clone();
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
            stopping: AtomicBool::new(false),
        });
        running.listen()?;
        let opened = match control.role {
            Role::Primary => running.open_as_primary(),
            Role::Standby => running.open_as_standby(),
            Role::FarSync => running.open_as_far_sync(),
        };
        match opened {
            // As when it happens later: the instance serves nobody and says why, until it is stopped.
            Err(_) if matches!(*running.mode(), Mode::Fenced(_)) => {}
            opened => opened?,
        }
        let monitor = TransportMonitor::start(&Arc::downgrade(&running));
        let directory = &running.environment.paths.directory;
        let monitor =
            monitor.map_err(InstanceError::io("begin the thread that watches destinations in", directory))?;
        *running.monitor() = Some(monitor);
        Ok(running)
    }

    pub(crate) fn monitor(&self) -> MutexGuard<'_, Option<TransportMonitor>> {
        self.monitor.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether it is being stopped in good order.
    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    pub(crate) fn note_local(&self, local: Vec<LocalStatus>) {
        *self.local.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = local;
    }

    /// State of the local destinations.
    pub fn local_destinations(&self) -> Vec<LocalStatus> {
        self.local.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// How far destinations of this primary have redo on disk, by name.
    pub(crate) fn hardened_at_destinations(&self) -> Vec<(String, Scn)> {
        let Some(primary) = self.primary() else { return Vec::new() };
        let status = primary.destinations().status();
        status.into_iter().map(|(status, _)| (status.name, status.hardened)).collect()
    }

    /// In maximum protection nobody has been able to protect commits for too long: ends this process in good order.
    /// Commits that wait get "outcome unknown".
    pub(crate) fn stop_for_protection(&self) {
        let why =
            "maximum protection: no standby with SYNC AFFIRM can be reached, and none could for too long";
        if self.stops_for.set(why.into()).is_ok() {
            self.environment.alert.say(format!("STOPPING for the safety of the data: {why}"));
            server::stop_this_process();
        }
    }

    /// Why this instance stops by itself, if it does.
    pub fn stops_for(&self) -> Option<&str> {
        self.stops_for.get().map(String::as_str)
    }

    /// The mode, locked.
    pub fn mode(&self) -> MutexGuard<'_, Mode> {
        self.mode.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The primary that it is.
    pub fn primary(&self) -> Option<Arc<RunningPrimary>> {
        match &*self.mode() {
            Mode::Primary(primary) => Some(primary.clone()),
            _ => None,
        }
    }

    /// The senders of the standby that it is.
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

    /// The configured destinations.
    pub fn configured(&self) -> Vec<DestinationConfig> {
        self.configured.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    fn listen(&self) -> Result<(), InstanceError> {
        let instance = &self.environment.config.instance;
        if instance.listen.is_empty() {
            return Ok(());
        }
        let delay =
            std::env::var("STANDFAST_ACK_DELAY_US").ok().and_then(|text| text.parse().ok()).unwrap_or(0);
        let config = ReceiverConfig {
            listen: instance.listen.clone(),
            security: self.environment.security(),
            ack_delay: Duration::from_micros(delay),
            sdu_bytes: self.environment.config.standby.sdu_bytes,
            ..ReceiverConfig::default()
        };
        let service = Arc::new(Service {
            running: self.me.clone(),
            environment: self.environment.clone(),
            refusals: Refusals::default(),
        });
        let receiver = Receiver::start(config, service, None).map_err(|error| {
            InstanceError::refused(error.to_string(), "check [instance] listen in standfast.toml")
        })?;
        *self.receiver() = Some(receiver);
        Ok(())
    }

    /// The address on which it listens.
    pub fn listening(&self) -> Option<String> {
        self.receiver().as_ref().map(|receiver| receiver.local_addr().to_string())
    }

    /// The gap that is being resolved here.
    pub fn gap(&self) -> Option<transport::GapStatus> {
        self.receiver().as_ref().and_then(Receiver::gap)
    }

    /// Whether redo is arriving.
    pub fn is_streaming(&self) -> bool {
        self.receiver().as_ref().is_some_and(Receiver::is_streaming)
    }

    fn open_as_standby(&self) -> Result<(), InstanceError> {
        let environment = &self.environment;
        let control = environment.control();
        let mode = environment.config.mode_bits().unwrap_or(0o600);
        let (segment, _) = Segment::create(&environment.segment_path, control.instance.0, mode)?;
        // Before apply begins, which writes markers too when the redo brings a new database: two writers of one file
        // take its new version away from each other.
        for record in &control.databases {
            segment.set_state(record.id.0, DatabaseState::Standby);
            environment.write_marker(record, FileId::of(&record.path))?;
        }
        let (standby, log) = Standby::start(environment)?;
        let forwarding = Forwarding::start(environment, standby.shared(), &self.configured())?;
        segment.set_running(true, &environment.segment_config());
        let log = Arc::new(Mutex::new(log));
        let lent: Box<dyn StandbyLog> = Box::new(LentLog(log.clone()));
        match self.receiver().as_ref() {
            Some(receiver) => receiver.attach(lent),
            None => environment.alert.say("this standby receives nothing: [instance] listen is empty"),
        }
        *self.mode() = Mode::Standby(Box::new(RunningStandby { standby, log, segment, forwarding }));
        environment.alert.say("standby opened");
        Ok(())
    }

    fn open_as_primary(&self) -> Result<(), InstanceError> {
        let environment = &self.environment;
        crate::protection::check(environment.control().protection_mode, &self.configured())?;
        let wiring = Wiring::default();
        let OpenedPrimary { primary, shared, log } = open_primary(environment, wiring.helper(environment))?;
        // Until it is known what the others have, if logs wait for others.
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
            environment.write_marker(database.record(), database.file())?;
            shared.segment.set_state(database.id().0, DatabaseState::Open);
        }
        shared.segment.set_running(true, &environment.segment_config());
        environment.update_control(|control| control.clean = false)?;
        let opened = RunningPrimary { threads, source, destinations: Mutex::new(destinations) };
        let mut mode = self.mode();
        // A destination may have said meanwhile that another instance has taken over: the fence found no primary to end.
        if let Mode::Fenced(why) = &*mode {
            let error = fenced_error(why);
            drop(mode);
            opened.end_fenced();
            return Err(error);
        }
        *mode = Mode::Primary(Arc::new(opened));
        drop(mode);
        environment.alert.say(format!("primary opened at SCN {}", shared.buffer.captured()));
        Ok(())
    }

    fn start_destinations(
        &self,
        shared: &Arc<crate::primary::PrimaryShared>,
        source: &Arc<PrimarySource>,
        before: Option<&Destinations>,
    ) -> Result<Arc<Destinations>, InstanceError> {
        let me = self.me.clone();
        let fenced: FencedCall = Arc::new(move |why: String| {
            let me = me.clone();
            // Not on the sender's own thread, which the change of role ends.
            let _ = std::thread::Builder::new().name("fence".into()).spawn(move || {
                if let Some(running) = me.upgrade() {
                    running.fence(&why);
                }
            });
        });
        Destinations::start(&self.environment, shared, source, &self.configured(), before, &fenced)
    }

    fn needed_from(&self) -> Scn {
        match self.mode.try_lock().as_deref() {
            Ok(Mode::Primary(primary)) => primary.destinations().needed_from(),
            // Busy with a change: nothing is removed meanwhile.
            _ => Scn::ZERO,
        }
    }

    /// Another instance is primary now: nothing is accepted any more, now or after a restart.
    fn fence(&self, why: &str) {
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
        let stored = self.environment.update_control(|control| control.fenced = Some(why.to_owned()));
        if let Err(error) = stored {
            self.environment.alert.say(format!("the fence cannot be recorded: {error}"));
        }
        self.environment.alert.say(format!("FENCED: {why}"));
        if let Mode::Primary(primary) = before {
            primary.end_fenced();
        }
    }

    /// Runs `work` on the primary.
    fn with_primary<T>(
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

    /// Protects a database, or all databases in a directory; returns their names.
    ///
    /// # Errors
    /// `Refused` with cause and remedy. Databases of a directory that come before are protected then.
    pub fn protect(&self, path: &Path, name: Option<&str>) -> Result<Vec<String>, InstanceError> {
        let protected = self.environment.control().databases;
        let mut paths = protect::databases_at(path, &protected)?;
        let beside_new = |path: &PathBuf| !protect::is_protected(&protected, path);
        if paths.iter().any(beside_new) {
            paths.retain(beside_new);
        }
        if paths.len() > 1 && name.is_some() {
            return Err(InstanceError::refused(
                "one name for several databases",
                "leave --name away for a directory",
            ));
        }
        self.with_primary(|primary| {
            let mut names = Vec::new();
            for path in &paths {
                names.push(self.protect_one(primary, path, name)?);
            }
            Ok(names)
        })
    }

    fn protect_one(
        &self,
        primary: &RunningPrimary,
        path: &Path,
        name: Option<&str>,
    ) -> Result<String, InstanceError> {
        let environment = &self.environment;
        let shared = primary.threads.shared();
        let _no_copy_begins = primary.source.hold_copies();
        if let Some(known) = protect::renew_marker(environment, shared, path)? {
            return Ok(known);
        }
        let database = Arc::new(protect::open_for_protection(environment, path, name)?);
        let record = database.record().clone();
        shared.segment.set_state(record.id.0, DatabaseState::Recovering);
        shared.segment.reset_hints(record.id.0);
        install_hook(shared, &database, Duration::from_secs(10))?;
        environment.update_control(|control| {
            control.next_database = record.id.0 + 1;
            control.databases.push(record.clone());
        })?;
        environment.write_marker(&record, database.file())?;
        let copy_now = environment.control().copied || !self.configured().is_empty();
        let served = database.clone();
        primary.threads.call(move |primary| {
            let (_, (position, pages)) = served.snapshot_and(|connection, header| {
                Ok((header.position(), committed_pages(connection, header)?))
            })?;
            let capture = served.capture_from(position, pages)?;
            let entry = if copy_now { Entry::NewWithCopy } else { Entry::New };
            primary.serve(served.clone(), capture, entry)?;
            if copy_now {
                primary.start_baseline(crate::baseline::BaselineJob::begin(&served)?);
            }
            Ok(())
        })?;
        shared.segment.set_state(record.id.0, DatabaseState::Open);
        environment.alert.say(format!("database {} protected: {}", record.name, record.path.display()));
        Ok(record.name)
    }

    /// Ends the protection of a database, by path or name.
    ///
    /// # Errors
    /// When it is not protected here.
    pub fn unprotect(&self, name: &str) -> Result<String, InstanceError> {
        let control = self.environment.control();
        let canonical = Path::new(name).canonicalize().ok();
        let by_path = canonical.as_ref().and_then(|path| path.to_str());
        let found =
            control.database_named(name).or_else(|| by_path.and_then(|path| control.database_named(path)));
        let Some(record) = found.cloned() else {
            let what = format!("{name} is not protected by this instance");
            return Err(InstanceError::refused(what, "`standfast status` lists the protected databases"));
        };
        self.with_primary(|primary| {
            let segment = primary.threads.shared().segment;
            segment.set_state(record.id.0, DatabaseState::Stopped);
            primary.threads.call(|primary| {
                primary.look_for_unnoticed();
                primary.step_once()
            })?;
            let id = record.id;
            primary.threads.call(move |primary| primary.release_database(id))?;
            self.environment.update_control(|control| control.forget(id))?;
            self.environment.remove_marker(&record)?;
            segment.set_state(id.0, DatabaseState::Absent);
            segment.wake_all(id.0);
            self.environment.alert.say(format!("database {} is no longer protected", record.name));
            Ok(record.name.clone())
        })
    }

    /// Begins a new log sequence.
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

    /// Moves everything into the databases and the start of recovery to the end of the redo.
    ///
    /// # Errors
    /// When a file cannot be synced.
    pub fn checkpoint(&self) -> Result<(), InstanceError> {
        self.with_primary(|primary| primary.threads.checkpoint())
    }

    /// Takes `configured` for the destinations, durably and at once: the file first, then the senders.
    ///
    /// # Errors
    /// When the configuration is not valid with them, or cannot be written. Nothing is changed then.
    pub(crate) fn change_destinations(
        &self,
        change: impl FnOnce(&mut Vec<DestinationConfig>) -> Result<(), InstanceError>,
    ) -> Result<(), InstanceError> {
        let _one = self.one_command();
        let mut configured = self.configured();
        change(&mut configured)?;
        crate::protection::check(self.environment.control().protection_mode, &configured)?;
        let mut config = self.environment.config.clone();
        config.destinations = configured;
        let path = self.environment.paths.directory.join(CONFIG_FILE);
        let config = crate::config::Config::parse(&config.to_toml(), &path)?;
        self.environment
            .disk
            .replace(&path, config.to_toml().as_bytes())
            .map_err(InstanceError::io("write the configuration", &path))?;
        *self.configured.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = config.destinations;
        if let Some(primary) = self.primary() {
            self.restart_destinations(&primary)?;
        }
        self.forwarding().map_or(Ok(()), |forwarding| forwarding.configure(&self.configured()))
    }

    /// Chooses among the destinations again.
    pub(crate) fn use_destinations_anew(&self) -> Result<(), InstanceError> {
        let _one = self.one_command();
        self.primary().map_or(Ok(()), |primary| self.restart_destinations(&primary))
    }

    fn restart_destinations(&self, primary: &RunningPrimary) -> Result<(), InstanceError> {
        let shared = primary.threads.shared().clone();
        let before = primary.destinations();
        // The new senders are in force before the old ones end, so that no commit slips between them.
        let fresh = self.start_destinations(&shared, &primary.source, Some(&*before))?;
        shared.ship_through(fresh.clone());
        let mut destinations = primary.destinations.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *destinations = fresh.clone();
        drop(destinations);
        fresh.let_others_go(&before);
        before.stop_without(&fresh);
        Ok(())
    }

    /// Makes this standby the primary, with what its source still has if that comes within `patience`; returns where
    /// the new incarnation begins, and how that went.
    ///
    /// # Errors
    /// When this is no standby, or it cannot be completed; see [`failover`].
    pub fn failover(&self, patience: Duration) -> Result<(Scn, Option<(bool, String)>), InstanceError> {
        let drained = self.drain(patience);
        let mut mode = self.mode();
        match &*mode {
            Mode::Standby(_) => {}
            Mode::Primary(_) => {
                return Err(InstanceError::refused(
                    "this instance is the primary already",
                    "nothing is to be done",
                ));
            }
            Mode::Stuck(why) => return Err(failover::stuck(why)),
            Mode::FarSync(_) => return Err(far_sync::has_no_databases()),
            _ => return Err(InstanceError::refused("this instance is no standby", "fail over another one")),
        }
        let Mode::Standby(standby) = std::mem::replace(&mut *mode, Mode::Changing) else {
            return Err(InstanceError::Failed("the role changed meanwhile".into()));
        };
        drop(mode);
        self.environment.alert.say("failover begins");
        if let Some(receiver) = self.receiver().as_ref() {
            receiver.detach();
        }
        let RunningStandby { standby, log, segment: _segment, forwarding } = *standby;
        // Before everything counts as confirmed: destinations must not be told that of redo without an end.
        forwarding.stop();
        let done = failover::become_primary(&self.environment, standby, &log);
        drop(log);
        let done = done.map_err(|error| self.standby_again(&error))?;
        if let Err(error) = self.open_as_primary() {
            let fenced = matches!(&*self.mode(), Mode::Fenced(_));
            return Err(if fenced { error } else { self.stuck(&error) });
        }
        drop(done.keepers);
        self.environment.alert.say(format!(
            "failover complete: primary of incarnation {} from SCN {}",
            self.environment.control().incarnation().number,
            done.branch
        ));
        Ok((done.branch, drained))
    }

    /// After a failover that failed: goes on as the standby that the control file says this still is, as after a
    /// restart. Returns what the operator is told.
    fn standby_again(&self, error: &InstanceError) -> InstanceError {
        match failover::is_still_standby(&self.environment).and_then(|()| self.open_as_standby()) {
            Ok(()) => {
                let told = failover::failed(error);
                self.environment.alert.say(told.to_string().replace("\nhint: ", " | hint: "));
                told
            }
            Err(second) => self.stuck(&InstanceError::Failed(format!("{error}; and as a standby: {second}"))),
        }
    }

    fn stuck(&self, error: &InstanceError) -> InstanceError {
        let told = failover::stuck(&error.to_string().replace('\n', "; "));
        self.environment.alert.say(told.to_string().replace("\nhint: ", " | hint: "));
        *self.mode() = Mode::Stuck(error.to_string());
        told
    }

    /// Stops in good order.
    ///
    /// # Errors
    /// When the last redo could not be written.
    pub fn stop(&self) -> Result<(), InstanceError> {
        // A command under way may wait for a log switch, and the stop for the command.
        if let Some(primary) = self.primary() {
            primary.threads.announce_stop();
        }
        self.stopping.store(true, SeqCst);
        let monitor = self.monitor().take();
        drop(monitor);
        let _one = self.one_command();
        let mode = std::mem::replace(&mut *self.mode(), Mode::Changing);
        let result = match mode {
            Mode::Primary(primary) => {
                let shared = primary.threads.shared().clone();
                // Senders first see the end of the redo, then end.
                let result = primary.threads.stop(true);
                primary.destinations().stop();
                shared.segment.set_running(false, &self.environment.segment_config());
                for database in shared.all_databases() {
                    shared.segment.wake_all(database.id().0);
                }
                result.and_then(|()| self.environment.update_control(|control| control.clean = true))
            }
            Mode::Standby(standby) => {
                if let Some(receiver) = self.receiver().as_ref() {
                    receiver.detach();
                }
                standby.forwarding.stop();
                standby.segment.set_running(false, &self.environment.segment_config());
                standby.standby.stop().map(|_| ())
            }
            Mode::FarSync(far_sync) => {
                if let Some(receiver) = self.receiver().as_ref() {
                    receiver.detach();
                }
                far_sync.stop();
                Ok(())
            }
            Mode::Fenced(_) | Mode::Changing | Mode::Stuck(_) => Ok(()),
        };
        if let Some(receiver) = self.receiver().take() {
            receiver.stop();
        }
        self.environment.alert.say("stopped");
        result
    }
}

fn fenced_error(why: &str) -> InstanceError {
    InstanceError::refused(
        format!("this instance may not open: another one has taken over ({why})"),
        "make it a standby of the new primary: move the directory away and run `standfast standby create --from HOST:PORT`",
    )
}

/// The instance as the receiver sees it.
struct Service {
    running: Weak<Running>,
    environment: Arc<Environment>,
    refusals: Refusals,
}

impl ReceiverService for Service {
    fn identity(&self) -> transport::PeerIdentity {
        peer_identity(&self.environment, self.environment.control().role.of_peer())
    }

    fn admit(&self, hello: &transport::SenderHello) -> Result<(), transport::Refusal> {
        forwarding::upstream(&self.environment.control(), hello).map(drop)
    }

    fn source(&self) -> Option<Arc<dyn RedoSource>> {
        let running = self.running.upgrade()?;
        match &*running.mode() {
            Mode::Primary(primary) => Some(primary.source.clone()),
            _ => None,
        }
    }

    fn status(&self) -> String {
        self.running
            .upgrade()
            .map_or_else(|| "{}".into(), |running| crate::status::status(&running).to_string())
    }

    fn event(&self, event: &ReceiverEvent) {
        if self.refusals.is_news(event) {
            self.environment.alert.say(format!("receiver: {event}"));
        }
    }

    fn authorise(&self, peer: &str, wish: Wish) -> Result<(), Refusal> {
        self.environment.authorise(peer, wish)
    }

    fn vouched(&self, source: &str, peers: &[String]) {
        self.environment.note_vouched(source, peers);
    }

    fn certify(
        &self,
        wish: &CertificateRequest,
        right: &CertificateRight,
    ) -> Result<CertificateGrant, Refusal> {
        self.environment.certify(wish, right)
    }
}

/// Makes a directory for tests and the command line alike.
pub use create::{create_standby, init};
