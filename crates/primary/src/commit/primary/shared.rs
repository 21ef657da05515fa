//! State that the threads of a primary share: sessions, the log buffer, the databases, the destinations, and the
//! release of commits.

use super::Command;
use crate::commit::database::Database;
use crate::commit::release_queue::ReleaseQueue;
use standfast_environment::ship::retention::Known;
use standfast_instruments::{Cause, Instruments, RecentBatches};
use standfast_log::{LogBuffer, LogWriter, RedoChunk};
use standfast_session::{Segment, Waiters, monotonic_ns};
use standfast_types::{DatabaseId, Scn};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, RwLock};

/// Work on the log, in stream order.
pub(super) type LogWork = Box<dyn FnOnce(&mut LogWriter) + Send>;

/// Destinations of the redo besides the local log.
pub trait Shipping: Send + Sync {
    /// Called before the local write, with consecutive chunks; must not block.
    fn offer(&self, chunk: &Arc<RedoChunk>, durable: Scn);
    /// How far commits may be released when `local` is durable here.
    fn releasable(&self, local: Scn) -> Scn;
    /// Name of the wait of commits up to `local` for destinations that do not answer; `None` when all answer or have
    /// everything.
    fn unanswered(&self, _local: Scn) -> Option<String> {
        None
    }
    fn destinations(&self) -> Vec<Known> {
        Vec::new()
    }
}

/// Ships to no destination: commits wait for the local write only.
pub struct NoShipping;

impl Shipping for NoShipping {
    fn offer(&self, _: &Arc<RedoChunk>, _: Scn) {}
    fn releasable(&self, local: Scn) -> Scn {
        local
    }
}

/// Used while the destinations are still unknown. Applications that outlived the previous instance may wait for any
/// destination, so what opening writes releases no commit.
struct NotYetKnown;

impl Shipping for NotYetKnown {
    fn offer(&self, _: &Arc<RedoChunk>, _: Scn) {}
    fn releasable(&self, _: Scn) -> Scn {
        Scn::ZERO
    }
}

/// Commits awaiting release, and the batches of the log writer that captured them.
#[derive(Default)]
pub(super) struct Release {
    pub(super) queue: ReleaseQueue,
    pub(super) batches: RecentBatches,
}

/// State that the threads of a primary share.
pub struct PrimaryShared {
    pub segment: Segment,
    pub buffer: Arc<LogBuffer>,
    pub databases: RwLock<BTreeMap<DatabaseId, Arc<Database>>>,
    shipping: RwLock<Arc<dyn Shipping>>,
    release: Mutex<Release>,
    released: AtomicU64,
    pub instruments: Arc<Instruments>,
    /// Databases that wait for a full resync to begin, with their names; nothing of them is captured until then.
    copies_awaited: Mutex<BTreeMap<DatabaseId, String>>,
    /// Captured commits that cannot enter the log yet.
    pub(super) in_hand: AtomicUsize,
    /// The log writer waits for a free group: it captures nothing and nothing becomes durable.
    pub(super) switch_waits: AtomicBool,
    /// The log writer has ended: nothing becomes durable any more, and no command runs.
    ended: AtomicBool,
    unprotected: Mutex<Vec<PathBuf>>,
    commands: Mutex<Vec<Command>>,
    pub(super) commands_waiting: AtomicUsize,
    /// Work on the log, which also runs while a log switch waits.
    pub(super) log_work: Mutex<Vec<LogWork>>,
}

impl PrimaryShared {
    /// Starts with an empty queue. Nothing is released before [`PrimaryShared::ship_through`].
    pub fn new(segment: Segment, buffer: Arc<LogBuffer>, instruments: Arc<Instruments>) -> PrimaryShared {
        PrimaryShared {
            released: AtomicU64::new(0),
            segment,
            buffer,
            databases: RwLock::default(),
            shipping: RwLock::new(Arc::new(NotYetKnown)),
            release: Mutex::default(),
            instruments,
            copies_awaited: Mutex::default(),
            in_hand: AtomicUsize::new(0),
            switch_waits: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            unprotected: Mutex::default(),
            commands: Mutex::default(),
            commands_waiting: AtomicUsize::new(0),
            log_work: Mutex::default(),
        }
    }

    pub fn all_databases(&self) -> Vec<Arc<Database>> {
        self.databases.read().unwrap_or_else(|poisoned| poisoned.into_inner()).values().cloned().collect()
    }

    pub fn database(&self, id: DatabaseId) -> Option<Arc<Database>> {
        self.databases.read().unwrap_or_else(|poisoned| poisoned.into_inner()).get(&id).cloned()
    }

    /// Sets the destinations and releases the commits that do not wait for them.
    pub fn ship_through(&self, shipping: Arc<dyn Shipping>) {
        *self.shipping.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = shipping;
        self.release(Cause::Decision);
    }

    /// Lets go of the databases and the destinations of a primary that has ended, and returns the databases: the instance
    /// continues in another role, and opens their files again. Nothing is released any more.
    pub fn let_go(&self) -> Vec<Arc<Database>> {
        *self.shipping.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = Arc::new(NotYetKnown);
        let databases =
            std::mem::take(&mut *self.databases.write().unwrap_or_else(|poisoned| poisoned.into_inner()));
        databases.into_values().collect()
    }

    pub fn shipping(&self) -> Arc<dyn Shipping> {
        self.shipping.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    pub(super) fn releases(&self) -> MutexGuard<'_, Release> {
        self.release.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Releases the commits that are durable wherever required. Called after a local write and after every
    /// acknowledgement, from any thread; `cause` is what just happened.
    pub fn release(&self, cause: Cause) {
        let begun_ns = monotonic_ns();
        let mut waiters = Waiters::default();
        // Under the lock, so that two callers publish in order.
        let mut release = self.releases();
        let upto = self.shipping().releasable(self.buffer.durable());
        debug_assert!(upto <= self.buffer.durable(), "released up to {upto}, which is not durable here");
        self.released.fetch_max(upto.0, SeqCst);
        let Release { queue, batches } = &mut *release;
        let mut batch_before = None;
        queue.release(upto, |database, position, batch| {
            if batch_before.replace(batch).is_some_and(|before| before != batch) {
                waiters.next_batch();
            }
            self.segment.publish_durable(
                database.0,
                position.0,
                &mut waiters,
                &mut |noticed_ns, posted_ns| {
                    if let Some(parts) = batches.split(batch, noticed_ns, cause, begun_ns, posted_ns) {
                        self.instruments.record_commit(&parts);
                    }
                },
            );
        });
        // A woken session may preempt this thread: the log writer must not find the lock held then.
        drop(release);
        self.segment.wake(&mut waiters);
    }

    /// How far commits have been released.
    pub fn released(&self) -> Scn {
        // One that is being released counts: which destinations it needs was determined before.
        let _release = self.releases();
        Scn(self.released.load(SeqCst))
    }

    /// Returns the number of commits captured and not released.
    pub fn waiting_commits(&self) -> usize {
        self.releases().queue.len()
    }

    /// Commits held up: captured and not released, or not even captured, which only their waiting sessions show.
    pub fn held_up_commits(&self) -> usize {
        let captured = self.waiting_commits() + self.in_hand.load(SeqCst);
        let databases = self.databases.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        captured.max(databases.keys().map(|id| self.segment.commit_waiters(id.0)).sum())
    }

    /// Whether the log writer waits for a log group. A thread that has to free one must not wait for redo then.
    pub fn log_switch_waits(&self) -> bool {
        self.switch_waits.load(SeqCst)
    }

    /// Unprotected database files in protected directories, as of the last search.
    pub fn unprotected(&self) -> Vec<PathBuf> {
        self.unprotected.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Sets [`PrimaryShared::unprotected`]; returns the previous list.
    pub fn set_unprotected(&self, found: Vec<PathBuf>) -> Vec<PathBuf> {
        std::mem::replace(
            &mut *self.unprotected.lock().unwrap_or_else(|poisoned| poisoned.into_inner()),
            found,
        )
    }

    /// Marks the log writer as ended: nothing becomes durable any more, and no command runs.
    pub fn end(&self) {
        self.ended.store(true, SeqCst);
    }

    /// Whether the log writer has ended.
    pub fn ended(&self) -> bool {
        self.ended.load(SeqCst)
    }

    /// Name of what holds commits up: an event that the log writer waits for, or a destination that does not answer.
    /// Empty when nothing does. The ordinary round trip to a destination does not count.
    pub fn waiting_for(&self) -> String {
        if let Some(event) = self.instruments.held_up_by() {
            return event.name().to_owned();
        }
        if let Some(name) = self.copies_awaited().values().next() {
            return format!("full resync of database {name}");
        }
        if self.waiting_commits() == 0 {
            return String::new();
        }
        self.shipping().unanswered(self.buffer.durable()).unwrap_or_default()
    }

    fn copies_awaited(&self) -> MutexGuard<'_, BTreeMap<DatabaseId, String>> {
        self.copies_awaited.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Records that commits of the database wait until a full resync has begun, or no longer do.
    pub fn await_copy(&self, database: &Database, awaited: bool) {
        let (id, name) = (database.id(), database.record().name.clone());
        if awaited {
            self.copies_awaited().insert(id, name);
        } else {
            self.copies_awaited().remove(&id);
        }
    }

    /// Queues a command for the log writer thread.
    pub fn command(&self, command: Command) {
        self.commands.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(command);
        self.commands_waiting.fetch_add(1, SeqCst);
        self.segment.ring();
    }

    pub(super) fn take_commands(&self) -> Vec<Command> {
        if self.commands_waiting.load(SeqCst) == 0 {
            return Vec::new();
        }
        let taken =
            std::mem::take(&mut *self.commands.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        self.commands_waiting.fetch_sub(taken.len(), SeqCst);
        taken
    }
}
