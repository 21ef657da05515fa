//! A standby: the receiver's log, and the threads that apply and archive its redo.

use crate::applier::Applier;
use crate::apply_thread::run_apply;
use crate::control::{Role, Upstream};
use crate::drain::Told;
use crate::environment::Environment;
use crate::error::InstanceError;
use crate::forwarding::Forwarding;
use crate::known_complete::Completeness;
use crate::received_log::archive_confirmed;
use crate::stopped::Stopped;
use crate::verified::Verified;
use standfast_apply::{Apply, Limits};
use standfast_instruments::{Event, waiting};
use standfast_log::{LogBuffer, RedoLog};
use standfast_sqlite_wal::pace::Pace;
use standfast_transport::{StoppedDatabase, StoppedDatabases};
use standfast_types::{DatabaseId, Scn};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

pub use crate::received_log::{LentLog, ReceivedLog};

/// Redo kept in memory between receiver and apply; older redo is read from the log.
pub(crate) const BUFFER_BYTES: usize = 32 << 20;

/// Positions and wake-ups between receiver and apply.
pub struct StandbyShared {
    pub buffer: Mutex<Arc<LogBuffer>>,
    pub log: Arc<RedoLog>,
    pub(crate) hardened: AtomicU64,
    pub(crate) confirmed: AtomicU64,
    /// Confirmed by the primary beyond a gap: may be archived, but not applied.
    pub(crate) confirmed_beyond: AtomicU64,
    pub(crate) applied: AtomicU64,
    copyable: Mutex<Copyable>,
    pub(crate) transactions: AtomicU64,
    /// Time of the newest applied commit, microseconds since the Unix epoch; 0: none since the start.
    pub(crate) applied_commit_us: AtomicU64,
    stop: Arc<AtomicBool>,
    news: Mutex<bool>,
    news_came: Condvar,
    pub(crate) stopped: Stopped,
    pub(crate) verified: Verified,
    pub(crate) last_heard_us: AtomicU64,
    /// What the source reported about itself.
    pub(crate) told: Mutex<Told>,
    completeness: Mutex<Completeness>,
    epoch: AtomicU64,
    forwarding: Mutex<Weak<Forwarding>>,
    /// Redo that was damaged in the log has not arrived again yet, see [`crate::lost_redo`].
    pub(crate) lacks_redo: AtomicBool,
    /// Warning about the sizes of its logs.
    unwise: Mutex<Option<String>>,
    apply_on: AtomicBool,
    /// Ignore the delay until apply is started again.
    no_delay: AtomicBool,
    /// The delay set by the source, milliseconds; `UNSAID` if it has set none.
    said_delay_ms: AtomicU64,
    /// When the next delayed commit becomes due, microseconds since the Unix epoch; 0: none.
    next_due_us: AtomicU64,
}

/// Content of a copy of a database that begins now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copyable {
    /// All commits before this SCN. Apply may be ahead of it, inside a partly received transaction.
    pub upto: Scn,
    /// Databases that a full resync image is about to replace: redo since the begin of the image does not fit their
    /// present content.
    pub replaced: Vec<DatabaseId>,
}

const UNSAID: u64 = u64::MAX;

impl StandbyShared {
    pub(crate) fn new(log: Arc<RedoLog>, end: Scn, confirmed: Scn, verified: Verified) -> StandbyShared {
        StandbyShared {
            buffer: Mutex::new(Arc::new(LogBuffer::new(end, BUFFER_BYTES))),
            log,
            hardened: AtomicU64::new(end.0),
            confirmed: AtomicU64::new(confirmed.0),
            confirmed_beyond: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            copyable: Mutex::default(),
            transactions: AtomicU64::new(0),
            applied_commit_us: AtomicU64::new(0),
            stop: Arc::default(),
            news: Mutex::new(false),
            news_came: Condvar::new(),
            stopped: Stopped::default(),
            verified,
            last_heard_us: AtomicU64::new(0),
            told: Mutex::default(),
            completeness: Mutex::default(),
            epoch: AtomicU64::new(0),
            forwarding: Mutex::default(),
            unwise: Mutex::default(),
            lacks_redo: AtomicBool::new(false),
            apply_on: AtomicBool::new(true),
            no_delay: AtomicBool::new(false),
            said_delay_ms: AtomicU64::new(UNSAID),
            next_due_us: AtomicU64::new(0),
        }
    }

    /// End of the redo in the standby log.
    pub fn hardened(&self) -> Scn {
        Scn(self.hardened.load(SeqCst))
    }
    /// What the primary has confirmed as durable and is hardened here.
    pub fn confirmed(&self) -> Scn {
        Scn(self.confirmed.load(SeqCst))
    }
    /// With a gap open: an archived log has arrived, so the redo before the gap may reach further. Redo in archived
    /// logs is confirmed.
    pub(crate) fn note_contiguous(&self) {
        if let Some(end) = self.log.end_before_hole() {
            self.hardened.fetch_max(end.0, SeqCst);
            self.confirmed.fetch_max(end.0, SeqCst);
            self.wake();
            self.wake_senders();
        }
    }

    /// Redo up to here may be archived: it is never withdrawn.
    pub(crate) fn archivable(&self) -> Scn {
        self.confirmed().max(Scn(self.confirmed_beyond.load(SeqCst)))
    }

    /// How far redo is applied, in the databases that are not stopped.
    pub fn applied(&self) -> Scn {
        Scn(self.applied.load(SeqCst))
    }
    /// Content of a copy that begins now.
    pub fn copyable(&self) -> Copyable {
        self.copyable.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
    pub(crate) fn note_applied(&self, apply: &Apply) {
        let copyable = Copyable { upto: apply.complete_upto(), replaced: apply.being_replaced().collect() };
        *self.copyable.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = copyable;
        self.applied.store(apply.applied().0, SeqCst);
    }
    /// Transactions applied since the start.
    pub fn transactions(&self) -> u64 {
        self.transactions.load(SeqCst)
    }
    /// Time of the newest commit applied since the start, microseconds since the Unix epoch.
    pub fn applied_commit_us(&self) -> Option<u64> {
        Some(self.applied_commit_us.load(SeqCst)).filter(|us| *us > 0)
    }
    /// When the primary last sent something, microseconds since the Unix epoch; 0: never.
    pub fn last_heard_us(&self) -> u64 {
        self.last_heard_us.load(SeqCst)
    }
    /// Databases to which redo is not applied, with the reasons.
    pub fn stopped(&self) -> StoppedDatabases {
        let databases = self.stopped.all();
        StoppedDatabases { total: databases.len() as u64, databases }
    }

    pub(crate) fn buffer(&self) -> MutexGuard<'_, Arc<LogBuffer>> {
        self.buffer.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn wake(&self) {
        let mut news = self.news.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !*news {
            *news = true;
            self.news_came.notify_one();
        }
    }

    /// See [`standfast_transport::RedoSource::epoch`].
    pub fn epoch(&self) -> u64 {
        self.epoch.load(SeqCst)
    }

    /// Begins a change of the received redo other than an append; it lasts until the guard is dropped. Streams to
    /// destinations begin again then.
    pub(crate) fn begin_epoch(&self) -> NewEpoch<'_> {
        self.epoch.fetch_add(1, SeqCst);
        NewEpoch(self)
    }

    /// Makes streams to destinations begin again and check for objections. The received redo is unchanged.
    pub(crate) fn next_epoch(&self) {
        // By two: the epoch stays odd while a change is in progress.
        self.epoch.fetch_add(2, SeqCst);
        self.wake_senders();
    }

    /// The forwarder of this redo, if there is one.
    pub fn forwarding(&self) -> Option<Arc<Forwarding>> {
        self.forwarding.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).upgrade()
    }

    /// Sets the forwarder: it is woken whenever redo is hardened, and asked before archived logs are removed.
    pub(crate) fn forward_through(&self, forwarding: &Arc<Forwarding>) {
        let mut through = self.forwarding.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *through = Arc::downgrade(forwarding);
    }

    /// Wakes the senders after redo was hardened or withdrawn.
    pub(crate) fn wake_senders(&self) {
        if let Some(forwarding) = self.forwarding() {
            forwarding.wake();
        }
    }

    /// Warning about the sizes of the standby redo logs, from when the source last connected.
    pub fn unwise(&self) -> Option<String> {
        self.unwise.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Records the warning; returns whether it is new.
    pub(crate) fn note_unwise(&self, unwise: Option<String>) -> bool {
        let mut known = self.unwise.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let news = unwise.is_some() && *known != unwise;
        *known = unwise;
        news
    }

    /// Starts or stops apply; `no_delay`: apply delayed redo immediately.
    pub fn control_apply(&self, on: bool, no_delay: bool) {
        self.no_delay.store(no_delay, SeqCst);
        self.apply_on.store(on, SeqCst);
        self.stopped.hold((!on).then(|| {
            StoppedDatabase {
                database: "(all)".into(),
                applied: Some(self.applied()).filter(|applied| *applied > Scn::ZERO),
                reason:
                    "apply is stopped by command, or as configured; `standfast apply start` there starts it"
                        .into(),
            }
        }));
        self.wake();
    }

    pub fn apply_is_on(&self) -> bool {
        self.apply_on.load(SeqCst)
    }

    /// When the next delayed commit becomes due, microseconds since the Unix epoch.
    pub fn next_due_us(&self) -> Option<u64> {
        Some(self.next_due_us.load(SeqCst)).filter(|due| *due > 0)
    }

    pub(crate) fn set_next_due_us(&self, due: Option<u64>) {
        self.next_due_us.store(due.unwrap_or(0), SeqCst);
    }

    /// Apply delay, microseconds: as the primary sets it for this destination, else as configured.
    pub fn delay_us(&self, environment: &Environment) -> u64 {
        if self.no_delay.load(SeqCst) {
            return 0;
        }
        match self.said_delay_ms.load(SeqCst) {
            UNSAID => environment.config.standby.apply_delay_s.saturating_mul(1_000_000),
            said => said.saturating_mul(1_000),
        }
    }

    /// Whether all acknowledged redo is here.
    pub(crate) fn completeness(&self) -> MutexGuard<'_, Completeness> {
        self.completeness.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Records the delay that the source sets.
    pub(crate) fn note_upstream(&self, upstream: Option<&Upstream>) {
        let said = upstream.and_then(|upstream| upstream.delay_ms);
        self.said_delay_ms.store(said.unwrap_or(UNSAID), SeqCst);
    }

    /// Ends waits for room in the standby log, and throttled checkpoints.
    pub fn stop(&self) {
        self.stop.store(true, SeqCst);
        *self.news.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = true;
        self.news_came.notify_one();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.load(SeqCst)
    }

    /// Pace of checkpoints while nothing is urgent.
    pub(crate) fn throttled(&self) -> Pace {
        Pace::ThrottledUntil(self.stop.clone())
    }

    /// Waits for `time` so that more redo arrives; ends early only at a stop. Meanwhile threads with news need not wake
    /// this one.
    pub(crate) fn let_more_come(&self, time: Duration) {
        let mut news = self.news.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *news = true;
        drop(self.news_came.wait_timeout_while(news, time, |_| !self.is_stopping()));
    }

    pub(crate) fn wait_for_changes(&self, timeout: Duration) {
        let mut news = self.news.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !*news {
            news = match self.news_came.wait_timeout(news, timeout) {
                Ok((news, _)) => news,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        *news = false;
    }
}

/// See [`StandbyShared::begin_epoch`].
pub(crate) struct NewEpoch<'a>(&'a StandbyShared);

impl Drop for NewEpoch<'_> {
    fn drop(&mut self) {
        self.0.epoch.fetch_add(1, SeqCst);
        self.0.wake_senders();
    }
}

pub struct Standby {
    shared: Arc<StandbyShared>,
    apply: Option<JoinHandle<Result<Applier, InstanceError>>>,
    archiver: Option<JoinHandle<()>>,
    archive: std::sync::mpsc::Sender<bool>,
}

impl Standby {
    /// Opens the standby log and the databases and starts apply. Returns the log for the receiver.
    ///
    /// # Errors
    /// When the log or the apply journal cannot be opened.
    pub fn start(environment: &Arc<Environment>) -> Result<(Standby, ReceivedLog), InstanceError> {
        let mut received = ReceivedLog::open(environment)?;
        let shared = received.shared().clone();
        let (archive, orders) = std::sync::mpsc::channel();
        let archiver = {
            let (environment, shared) = (environment.clone(), shared.clone());
            let run = move || {
                environment.instruments.enter_thread("arc0");
                run_archiver(&environment, &shared, &orders);
            };
            Builder::new().name("arc0".into()).spawn(run)
        };
        let archiver = archiver
            .map_err(InstanceError::io("begin the thread that archives in", &environment.paths.directory))?;
        let apply = {
            let (environment, shared) = (environment.clone(), shared.clone());
            let applier = Applier::open(&environment, &shared, Limits::default())?;
            let run = move || {
                environment.instruments.enter_thread("mrp0");
                run_apply(&environment, &shared, applier)
            };
            Builder::new().name("mrp0".into()).spawn(run)
        };
        let apply = apply.map_err(InstanceError::io(
            "begin the thread that applies redo in",
            &environment.paths.directory,
        ))?;
        let order = archive.clone();
        let _ = archive.send(true);
        received.when_full(Arc::new(move || {
            let _ = order.send(true);
        }));
        Ok((Standby { shared, apply: Some(apply), archiver: Some(archiver), archive }, received))
    }

    pub fn shared(&self) -> &Arc<StandbyShared> {
        &self.shared
    }

    /// Ends apply and archiving; returns the applier, for a failover.
    ///
    /// # Errors
    /// The error that ended apply.
    pub fn stop(mut self) -> Result<Applier, InstanceError> {
        self.shared.stop();
        let _ = self.archive.send(false);
        if let Some(archiver) = self.archiver.take() {
            let _ = archiver.join();
        }
        match self.apply.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            _ => Err(InstanceError::Failed("the apply thread has ended abnormally".into())),
        }
    }
}

pub(crate) fn run_archiver(
    environment: &Environment,
    shared: &StandbyShared,
    orders: &std::sync::mpsc::Receiver<bool>,
) {
    let mut said = false;
    // A log that became full before its last redo was confirmed is archived a little later.
    let mut unconfirmed = false;
    loop {
        let idle = waiting(Event::RdbmsIpcMessage);
        let order = orders.recv_timeout(Duration::from_millis(500));
        drop(idle);
        match order {
            Ok(false) | Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
            Ok(true) => {}
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) if !said && !unconfirmed => continue,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
        }
        if environment.control().role == Role::FarSync {
            // Nothing is applied here that would need the redo: only the size limit decides about archived logs.
            shared.log.set_checkpoint(shared.confirmed());
        }
        match archive_confirmed(environment, shared) {
            Ok(()) => said = false,
            Err(error) if !said => {
                said = true;
                environment.alert.say(format!("archiving failed and will be tried again: {error}"));
            }
            Err(_) => {}
        }
        unconfirmed = !shared.log.to_archive().is_empty();
    }
}
