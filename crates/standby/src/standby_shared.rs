//! Positions and wake-ups between the receiver, apply, the archiver and the senders of a standby.

use crate::freshness::Freshness;
use crate::known_complete::Completeness;
use crate::source_report::SourceReport;
use crate::stopped::{ALL, Stopped};
use crate::verified::Verified;
use standfast_apply::Apply;
use standfast_environment::context::environment::Environment;
use standfast_environment::state::control::{SnapshotStandby, Upstream};
use standfast_log::{LogBuffer, RedoLog};
use standfast_session::boot_ns;
use standfast_sqlite_wal::pace::Pace;
use standfast_transport::{CascadeLimit, PositionCall, PositionRequests, StoppedDatabase, StoppedDatabases};
use standfast_types::{DatabaseId, Scn};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, Weak};
use std::time::Duration;

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
    changes: Mutex<bool>,
    changed: Condvar,
    pub(crate) stopped: Stopped,
    pub verified: Verified,
    pub(crate) last_heard_us: AtomicU64,
    /// What the source reported about itself.
    pub(crate) report: Mutex<SourceReport>,
    completeness: Mutex<Completeness>,
    questions: Mutex<Questions>,
    epoch: AtomicU64,
    downstream: Mutex<Option<Weak<dyn Downstream>>>,
    /// Redo that was damaged in the log has not arrived again yet, see [`crate::lost_redo`].
    pub(crate) lacks_redo: AtomicBool,
    /// Warning about the sizes of its logs.
    sizing_warning: Mutex<Option<String>>,
    apply_on: AtomicBool,
    /// Ignore the delay until apply is started again.
    no_delay: AtomicBool,
    /// The delay set by the source, milliseconds; `UNSET` if it has set none.
    source_delay_ms: AtomicU64,
    /// When the next delayed commit becomes due, microseconds since the Unix epoch; 0: none.
    next_due_us: AtomicU64,
}

/// Sends the redo of a standby on to its own destinations.
pub(crate) trait Downstream: CascadeLimit {
    /// There is more to send, or redo was withdrawn.
    fn wake(&self);

    /// Position from which archived logs are needed.
    fn needed_from(&self) -> Scn;
}

/// How current the data are, and the way to find that out.
#[derive(Default)]
struct Questions {
    freshness: Freshness,
    /// The open stream, if requests can be sent over it.
    requests: Option<Arc<PositionRequests>>,
    /// Calls of standbys that this one forwards to, for the open request and for the next.
    open: Vec<PositionCall>,
    next: Vec<PositionCall>,
}

/// Calls that wait for an answer; of more, the oldest are dropped.
const CALLS_MAX: usize = 256;

/// Content of a copy of a database that begins now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copyable {
    /// All commits before this SCN. Apply may be ahead of it, inside a partly received transaction.
    pub upto: Scn,
    /// Databases that a full resync image is about to replace: redo since the begin of the image does not fit their
    /// present content.
    pub replaced: Vec<DatabaseId>,
}

const UNSET: u64 = u64::MAX;

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
            changes: Mutex::new(false),
            changed: Condvar::new(),
            stopped: Stopped::default(),
            verified,
            last_heard_us: AtomicU64::new(0),
            report: Mutex::default(),
            completeness: Mutex::default(),
            questions: Mutex::default(),
            epoch: AtomicU64::new(0),
            downstream: Mutex::default(),
            sizing_warning: Mutex::default(),
            lacks_redo: AtomicBool::new(false),
            apply_on: AtomicBool::new(true),
            no_delay: AtomicBool::new(false),
            source_delay_ms: AtomicU64::new(UNSET),
            next_due_us: AtomicU64::new(0),
        }
    }

    /// End of the redo in the standby log.
    pub fn hardened(&self) -> Scn {
        Scn(self.hardened.load(SeqCst))
    }

    /// Sets the end of the redo. It does not pass the begin of a gap, and falls only in a change of epoch: then streams
    /// to destinations begin again.
    pub(crate) fn set_hardened(&self, end: Scn) {
        debug_assert!(self.log.end_before_hole().is_none_or(|begin| end <= begin), "{end} is beyond a gap");
        let before = Scn(self.hardened.swap(end.0, SeqCst));
        debug_assert!(before <= end || !self.epoch().is_multiple_of(2), "{end} after {before} in one epoch");
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
    /// Returns the number of transactions applied since the start.
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
        let mut changes = self.changes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !*changes {
            *changes = true;
            self.changed.notify_one();
        }
    }

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
    pub fn next_epoch(&self) {
        // By two: the epoch stays odd while a change is in progress.
        self.epoch.fetch_add(2, SeqCst);
        self.wake_senders();
    }

    /// What forwards this redo, if something does.
    pub(crate) fn downstream(&self) -> Option<Arc<dyn Downstream>> {
        self.downstream
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .as_ref()
            .and_then(Weak::upgrade)
    }

    /// Sets what forwards this redo: it is woken whenever redo is hardened, and asked before archived logs are removed.
    pub(crate) fn forward_through(&self, downstream: Weak<dyn Downstream>) {
        *self.downstream.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(downstream);
    }

    /// Wakes the senders after redo was hardened or withdrawn.
    pub(crate) fn wake_senders(&self) {
        if let Some(downstream) = self.downstream() {
            downstream.wake();
        }
    }

    /// What the source has reported on the newest stream.
    pub fn report(&self) -> MutexGuard<'_, SourceReport> {
        self.report.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// End of the source's redo, as last reported.
    pub fn source_end(&self) -> Option<Scn> {
        self.report().source_end
    }

    /// Warning about the sizes of the standby redo logs, from when the source last connected.
    pub fn sizing_warning(&self) -> Option<String> {
        self.sizing_warning.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Records the warning; returns whether it is new.
    pub(crate) fn note_sizing_warning(&self, warning: Option<String>) -> bool {
        let mut known = self.sizing_warning.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let changes = warning.is_some() && *known != warning;
        *known = warning;
        changes
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

    /// Shows the source, and operators, that no redo is applied because this is a snapshot standby.
    pub(crate) fn rest_as_snapshot(&self, snapshot: &SnapshotStandby) {
        self.applied.store(snapshot.applied.0, SeqCst);
        let reason = "it is a snapshot standby; `standfast convert physical-standby` there makes it apply the redo again";
        self.stopped.add(ALL, Some(snapshot.applied), reason.into());
        self.stopped.are_known();
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
        match self.source_delay_ms.load(SeqCst) {
            UNSET => environment.config.standby.apply_delay_s.saturating_mul(1_000_000),
            reported => reported.saturating_mul(1_000),
        }
    }

    fn questions(&self) -> MutexGuard<'_, Questions> {
        self.questions.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// A stream has begun over which positions can be requested; `None`: it has ended.
    pub(crate) fn may_request_positions(&self, requests: Option<PositionRequests>) {
        let mut at = self.questions();
        // Calls that wait get no answer: the standbys ask again.
        (at.open, at.next) = (Vec::new(), Vec::new());
        match requests {
            Some(requests) => {
                at.freshness.begin();
                at.requests = Some(Arc::new(requests));
            }
            None => {
                at.freshness.end();
                at.requests = None;
            }
        }
    }

    /// Asks the source how current the data here are. `call` receives the answer, for a standby that this one forwards to.
    pub(crate) fn ask_how_current(&self, call: Option<PositionCall>) {
        let (request, requests) = {
            let mut at = self.questions();
            if at.requests.is_none() {
                return;
            }
            // A call may only get an answer to a request that is sent after it came.
            at.next.extend(call);
            let Some(request) = at.freshness.want(boot_ns()) else { return };
            let calls = std::mem::take(&mut at.next);
            at.open.extend(calls);
            let too_many = at.open.len().saturating_sub(CALLS_MAX);
            at.open.drain(..too_many);
            (request, at.requests.clone())
        };
        // Outside the lock, which the thread of the stream needs.
        if let Some(requests) = requests {
            let _ = requests.send(request);
        }
    }

    /// The source has answered a request for its position.
    pub(crate) fn position_came(&self, request: u64, position: Scn) {
        let (calls, next, requests) = {
            let mut at = self.questions();
            let Some(next) = at.freshness.answered(request, position, boot_ns()) else { return };
            let calls = std::mem::take(&mut at.open);
            if next.is_some() {
                at.open = std::mem::take(&mut at.next);
            }
            (calls, next, at.requests.clone())
        };
        calls.into_iter().for_each(|call| call(position));
        if let (Some(next), Some(requests)) = (next, requests) {
            let _ = requests.send(next);
        }
    }

    /// Publishes how current the databases are, if that has changed: those to which redo is applied.
    pub(crate) fn publish_freshness(&self, environment: &Environment) {
        // In this order: a database that lacks redo before `applied` is in the list of stopped ones.
        let applied = self.applied();
        let Some((_, stopped)) = self.stopped.since(0) else { return };
        let replaced = self.copyable().replaced;
        let Some(as_of_ns) = self.questions().freshness.reach(applied) else { return };
        environment.tell_standby_current(as_of_ns, |record| {
            !replaced.contains(&record.id) && stopped.iter().all(|at| at.database != record.name)
        });
    }

    /// Whether all acknowledged redo is here.
    pub fn completeness(&self) -> MutexGuard<'_, Completeness> {
        self.completeness.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Records the delay that the source sets.
    pub(crate) fn note_upstream(&self, upstream: Option<&Upstream>) {
        let reported = upstream.and_then(|upstream| upstream.delay_ms);
        self.source_delay_ms.store(reported.unwrap_or(UNSET), SeqCst);
    }

    /// Ends waits for room in the standby log, and throttled checkpoints.
    pub fn stop(&self) {
        self.stop.store(true, SeqCst);
        *self.changes.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = true;
        self.changed.notify_one();
    }

    pub fn is_stopping(&self) -> bool {
        self.stop.load(SeqCst)
    }

    /// Pace of checkpoints while nothing is urgent.
    pub(crate) fn throttled(&self) -> Pace {
        Pace::ThrottledUntil(self.stop.clone())
    }

    /// Waits for `time` so that more redo arrives; ends early only at a stop. Meanwhile threads with events need not
    /// wake this one.
    pub(crate) fn let_more_come(&self, time: Duration) {
        let mut changes = self.changes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        *changes = true;
        drop(self.changed.wait_timeout_while(changes, time, |_| !self.is_stopping()));
    }

    pub(crate) fn wait_for_changes(&self, timeout: Duration) {
        let mut changes = self.changes.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !*changes {
            changes = match self.changed.wait_timeout(changes, timeout) {
                Ok((changes, _)) => changes,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        *changes = false;
    }
}

/// Guard whose drop begins the next epoch; see [`StandbyShared::begin_epoch`].
pub(crate) struct NewEpoch<'a>(&'a StandbyShared);

impl Drop for NewEpoch<'_> {
    fn drop(&mut self) {
        self.0.epoch.fetch_add(1, SeqCst);
        self.0.wake_senders();
    }
}
