//! The application's side: a slot, the commit notification and the wait for durability.

use crate::durations::SessionWait;
use crate::futex;
use crate::layout::{
    BUCKET_SESSIONS, DatabaseState, NO_WAITERS, PublishedDatabase, RELEASE_STALL_MS, SESSIONS_MAX,
    WORD_ASLEEP, WORD_IDLE, WORD_WAITING,
};
use crate::monotonic_ns;
use crate::published::{Reached, Target};
use crate::segment::Segment;
use crate::slot::OuterWait;
use crate::spin;
use std::sync::atomic::Ordering::{Relaxed, Release, SeqCst};
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Longest poll for durability before a commit sleeps: the time of a write here and of one on a near standby.
const LOOK_MAX_US: u64 = 400;

/// COMMIT WAIT | NOWAIT and IMMEDIATE | BATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitMode {
    /// Return before the commit is durable.
    pub nowait: bool,
    /// Let the log writer gather for a while instead of waking it.
    pub batch: bool,
}

impl CommitMode {
    pub fn bits(self) -> u32 {
        u32::from(self.nowait) | u32::from(self.batch) << 1
    }
    pub fn from_bits(bits: u32) -> CommitMode {
        CommitMode { nowait: bits & 1 != 0, batch: bits & 2 != 0 }
    }
}

/// How a wait for durability ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitOutcome {
    /// The position is durable wherever the protection mode requires it.
    Durable,
    /// The instance failed (poisoned redo log); this run will never acknowledge the commit.
    Failed,
    /// The instance has made new shared memory: nothing releases commits that wait in the old one.
    Replaced,
    /// The instance does not publish the WAL generation of the commit: it has other files open under the path of the
    /// database, or many generations have begun while this process was stopped.
    NotReported,
    /// It was not released in time: committed and visible here, durability unknown.
    Unknown,
}

#[derive(Debug)]
pub enum AttachError {
    Full,
    /// The lock of a slot cannot be taken.
    Io(std::io::Error),
}

impl std::fmt::Display for AttachError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AttachError::Full => write!(f, "all {SESSIONS_MAX} sessions of the instance are taken"),
            AttachError::Io(error) => write!(f, "cannot lock a slot in the shared memory: {error}"),
        }
    }
}

impl std::error::Error for AttachError {}

/// One connection to one protected database.
#[derive(Clone, Copy)]
pub struct Session {
    pub(crate) segment: Segment,
    pub(crate) slot: usize,
    pub(crate) database: u16,
    /// How often this process had lost its slots when this one was taken.
    losses: u32,
}

impl Session {
    /// Takes a free slot. `pid` and `started` are number and start time of this process, for observers.
    ///
    /// # Errors
    /// When all are taken, or their locks cannot be taken.
    pub fn attach(segment: Segment, database: u16, pid: u32, started: u64) -> Result<Session, AttachError> {
        let spread = (monotonic_ns() >> 8) as usize;
        let locks = segment.mapping.locks;
        let losses = locks.losses();
        // The lowest slots that seem free come first: that keeps the bitmaps short and tries few locks. What is written
        // there is a hint; the second pass tries all of them, from anywhere.
        for pass in 0..2 {
            for step in 0..SESSIONS_MAX {
                let index = if pass == 0 { step } else { (spread + step) % SESSIONS_MAX };
                let slot = segment.slot(index);
                if (pass == 0 && slot.pid.load(Relaxed) != 0)
                    || !locks.take(index).map_err(AttachError::Io)?
                {
                    continue;
                }
                // Its session has died, and the instance has not seen that yet.
                if slot.pid.load(SeqCst) != 0 {
                    segment.clear_slot(index);
                }
                slot.database.store(u32::from(database), SeqCst);
                slot.started.store(started, SeqCst);
                slot.commit_word.store(WORD_IDLE, SeqCst);
                slot.target.store(0, SeqCst);
                slot.noticed_ns.store(0, SeqCst);
                slot.posted_ns.store(NO_WAITERS, SeqCst);
                slot.wait.forget();
                slot.lock.word.store(WORD_IDLE, SeqCst);
                slot.lock.queued.store(0, SeqCst);
                slot.lock.bypassed.store(0, SeqCst);
                slot.lock.writing.store(0, SeqCst);
                segment.requests.slots_used.fetch_max(index as u32 + 1, SeqCst);
                slot.pid.store(pid, SeqCst);
                return Ok(Session { segment, slot: index, database, losses });
            }
        }
        Err(AttachError::Full)
    }

    /// Releases the slot. The session must not be used afterwards.
    pub fn detach(self) {
        if self.has_slot() {
            self.segment.forget_slot(self.slot);
            self.segment.mapping.locks.give(self.slot);
        }
    }

    /// False when the slots were lost since, because their file was truncated, or because the descriptor was closed by
    /// which this process holds its own: another session may have this one by now. A commit that waits continues, and
    /// checks by itself instead of being woken.
    pub fn has_slot(&self) -> bool {
        self.segment.mapping.locks.losses() == self.losses && !self.segment.is_request_lost()
    }

    pub fn database(&self) -> u16 {
        self.database
    }

    pub fn segment(&self) -> Segment {
        self.segment
    }

    pub fn state(&self) -> DatabaseState {
        DatabaseState::from_u32(self.published().state.load(SeqCst))
    }

    /// Counts a wait that has ended, or the time of a transaction.
    pub fn record(&self, what: SessionWait, ns: u64) {
        self.segment.slot(self.slot).record(what, ns);
    }

    /// Adds `ns` to the time of what was counted last.
    pub fn lengthen(&self, what: SessionWait, ns: u64) {
        self.segment.slot(self.slot).lengthen(what, ns);
    }

    /// Begins a wait that others can see, perhaps within another one, which continues when this one has ended.
    pub fn begin_wait(&self, what: SessionWait, since_ns: u64) -> OuterWait {
        self.segment.slot(self.slot).wait.begin(what, since_ns)
    }

    /// Ends a wait and counts it, unless it is within another one, of which it was a part.
    pub fn end_wait(&self, what: SessionWait, since_ns: u64, outer: OuterWait) {
        self.segment.slot(self.slot).end_wait(what, since_ns, outer);
    }

    fn published(&self) -> &PublishedDatabase {
        self.segment.published.of(self.database)
    }

    /// Where `frame` of the WAL generation with `salts` stands. The caller has just committed it and holds the WAL
    /// write lock. `None` where what is published makes no sense.
    pub fn position_under_write_lock(&self, salts: [u32; 2], frame: u32) -> Option<Target> {
        let line = &self.segment.database(self.database).lock;
        if [line.salts[0].load(SeqCst), line.salts[1].load(SeqCst)] != salts {
            line.salts[0].store(salts[0], SeqCst);
            line.salts[1].store(salts[1], SeqCst);
        }
        self.published().target(salts, frame)
    }

    /// Called when the fcntl write lock was taken. Until [`Session::end_write`] a death of this process may leave a
    /// commit that is published and not announced.
    pub fn begin_write(&self) {
        self.segment.slot(self.slot).lock.writing.store(1, Relaxed);
    }

    /// Called under the write lock, before it is released. `committed`: whether a commit was published under it. The
    /// instance compares the number of commits that it captures with the number that sessions announce here: the
    /// difference was committed without Standfast.
    pub fn end_write(&self, committed: bool) {
        if committed {
            // Only the holder of the write lock writes it, so no exchange is needed. Release: a reader of the count
            // finds the commits that it stands for published.
            let announced = &self.segment.database(self.database).lock.announced;
            announced.store(announced.load(Relaxed).wrapping_add(1), Release);
        }
        self.segment.slot(self.slot).lock.writing.store(0, Release);
    }

    /// Called right after the write lock was taken, with the salts and frames of the wal-index header.
    pub fn inspect_generation(&self, salts: [u32; 2], frames: u32) {
        let line = &self.segment.database(self.database).lock;
        let known = [line.salts[0].load(SeqCst), line.salts[1].load(SeqCst)];
        if known != salts && frames != 0 {
            line.foreign.store(1, SeqCst);
        }
    }

    /// Notifies the instance that the database has new frames.
    pub fn notice(&self, batch: bool) {
        self.segment.notice(self.database, batch);
    }

    /// Notifies like [`Session::notice`], of a commit whose transaction began at `began_ns`. With a `target` to wait
    /// for, the session counts as a waiter from here on: the answer may be there before it comes to ask.
    pub fn notice_commit(&self, batch: bool, began_ns: u64, target: Option<Target>) {
        let now = monotonic_ns();
        let slot = self.segment.slot(self.slot);
        slot.noticed_ns.store(now, SeqCst);
        if let Some(target) = target {
            slot.posted_ns.store(0, SeqCst);
            self.begin_to_wait(target);
        }
        self.segment.notice(self.database, batch);
        slot.record(SessionWait::Transaction, now.saturating_sub(began_ns));
    }

    /// Waits for the commit of which [`Session::notice_commit`] notified: `log file sync`. `alive` as in
    /// [`Session::wait_durable`].
    pub fn wait_commit(&self, target: Target, alive: &dyn Fn() -> bool) -> WaitOutcome {
        let slot = self.segment.slot(self.slot);
        let noticed = slot.noticed_ns.load(Relaxed);
        let outer = slot.wait.begin(SessionWait::LogFileSync, noticed);
        let (bits, own) = self.own_waiter_bits();
        if bits.load(SeqCst) & own == 0 || slot.target.load(SeqCst) != target.position() {
            // The session notified without a target, and waits after all.
            slot.posted_ns.store(0, SeqCst);
            self.begin_to_wait(target);
        }
        let outcome = self.wait_on(target, alive);
        let now = monotonic_ns();
        slot.wait.end(outer);
        // Durable and never posted: it was durable before its notification, because another session's notification had
        // preceded it, and nothing was waited for.
        let posted = slot.posted_ns.swap(NO_WAITERS, SeqCst);
        if posted != 0 || outcome != WaitOutcome::Durable {
            slot.record(SessionWait::LogFileSync, now.saturating_sub(noticed));
        }
        if posted != 0 {
            slot.record(SessionWait::Scheduling, now.saturating_sub(posted));
        }
        outcome
    }

    /// Waits until `target` is durable. `alive` returns whether the instance process lives; it is called only when
    /// nothing happened for a while, and is the place to call [`Segment::check_path`].
    pub fn wait_durable(&self, target: Target, alive: &dyn Fn() -> bool) -> WaitOutcome {
        if self.published().reached(target) == Reached::Yes {
            return WaitOutcome::Durable;
        }
        self.begin_to_wait(target);
        self.wait_on(target, alive)
    }

    /// From here on the instance sees this session as a waiter.
    fn begin_to_wait(&self, target: Target) {
        let slot = self.segment.slot(self.slot);
        slot.target.store(target.position(), SeqCst);
        slot.commit_word.store(WORD_WAITING, SeqCst);
        let (bits, own) = self.own_waiter_bits();
        bits.fetch_or(own, SeqCst);
    }

    fn wait_on(&self, target: Target, alive: &dyn Fn() -> bool) -> WaitOutcome {
        let reached = || self.published().reached(target) != Reached::No;
        let outcome = if reached() {
            WaitOutcome::Durable
        } else {
            let (outcome, slept) = self.sleep_until(&reached, &|| self.published().can_reach(target), alive);
            let counters = &self.segment.requests.counters;
            let counted = if slept { &counters.commit_sleeps } else { &counters.commit_polls };
            counted.fetch_add(1, Relaxed);
            outcome
        };
        let (bits, own) = self.own_waiter_bits();
        self.segment.slot(self.slot).commit_word.store(WORD_IDLE, SeqCst);
        bits.fetch_and(!own, SeqCst);
        match outcome {
            WaitOutcome::Durable if self.published().reached(target) != Reached::Yes => {
                WaitOutcome::NotReported
            }
            outcome => outcome,
        }
    }

    /// The word of the waiters of the database in which this session has its bit, and that bit.
    fn own_waiter_bits(&self) -> (&AtomicU64, u64) {
        let waiters = &self.segment.database(self.database).commit_waiters;
        (&waiters[self.slot / 64], 1 << (self.slot % 64))
    }

    /// The wait bucket of this session, and the bit by which it is woken there.
    pub(crate) fn bucket(&self) -> (&AtomicU32, u32) {
        let bucket = &self.segment.published.buckets[self.slot / BUCKET_SESSIONS];
        (&bucket.wakes, 1 << (self.slot % BUCKET_SESSIONS))
    }

    /// Returns the outcome, and whether the session slept.
    fn sleep_until(
        &self,
        reached: &dyn Fn() -> bool,
        can_reach: &dyn Fn() -> bool,
        alive: &dyn Fn() -> bool,
    ) -> (WaitOutcome, bool) {
        let slot = self.segment.slot(self.slot);
        let (wakes, own) = self.bucket();
        let (mut stalled_since, mut slept) = (None, false);
        // When its sleep ends, however often something other than its wake interrupts that.
        let mut look_at = None;
        if self.waits_alone() && spin::look(&slot.look, LOOK_MAX_US, reached) {
            return (WaitOutcome::Durable, slept);
        }
        loop {
            if reached() {
                return (WaitOutcome::Durable, slept);
            }
            // 1 -> 2 announces the sleep; the releaser exchanges to 0, counts a wake and wakes only those that were 2.
            let missed_none = wakes.load(SeqCst);
            let _ = slot.commit_word.compare_exchange(WORD_WAITING, WORD_ASLEEP, SeqCst, SeqCst);
            let asleep = slot.commit_word.load(SeqCst) == WORD_ASLEEP;
            let end = *look_at.get_or_insert_with(|| monotonic_ns() + RELEASE_STALL_MS * 1_000_000);
            if asleep {
                if reached() {
                    return (WaitOutcome::Durable, slept);
                }
                slept = true;
                futex::wait_as(wakes, missed_none, own, end);
                // Usually it is, and a commit needs no clock then.
                if reached() {
                    return (WaitOutcome::Durable, slept);
                }
            }
            // By the clock, whatever others write into the word and however often they wake the session.
            let now = monotonic_ns();
            if now >= end {
                look_at = None;
                if !can_reach() {
                    return (WaitOutcome::NotReported, slept);
                }
                if !reached() {
                    let since = *stalled_since.get_or_insert(now);
                    if let Some(outcome) = self.look_around(now.saturating_sub(since) / 1_000_000, alive) {
                        return (outcome, slept);
                    }
                    self.notice(false);
                }
            }
            if !matches!(slot.commit_word.load(SeqCst), WORD_WAITING | WORD_ASLEEP) {
                slot.commit_word.store(WORD_WAITING, SeqCst);
            }
        }
    }

    /// Whether no other commit of the database waits: several that poll would keep the processors from the work that
    /// they wait for.
    fn waits_alone(&self) -> bool {
        let own = |word: usize| if word == self.slot / 64 { 1 << (self.slot % 64) } else { 0 };
        let waiters = &self.segment.database(self.database).commit_waiters;
        waiters.iter().enumerate().all(|(word, bits)| bits.load(Relaxed) & !own(word) == 0)
    }

    /// Checks after a timeout whether the instance has failed or is gone. `None`: continue to wait.
    fn look_around(&self, stalled_ms: u64, alive: &dyn Fn() -> bool) -> Option<WaitOutcome> {
        let alive = alive();
        if self.segment.retired() {
            return Some(WaitOutcome::Replaced);
        }
        if self.state().is_refused() {
            return Some(WaitOutcome::Failed);
        }
        // A running instance that holds commits back does so by configuration (a stalled standby, a full disk): the
        // commit waits as long as the instance says. Only a missing instance ends the wait.
        let settings = &self.segment.published.settings;
        let gone = !alive || settings.running.load(SeqCst) == 0;
        let given_up = gone && stalled_ms >= u64::from(settings.commit_wait_ms.load(SeqCst));
        given_up.then_some(WaitOutcome::Unknown)
    }
}

impl Segment {
    /// The position of `frame` when `salts` is the last published generation, else `None`. For readers, which hold no
    /// write lock.
    pub fn position_for_reader(&self, database: u16, salts: [u32; 2], frame: u32) -> Option<Target> {
        self.published.of(database).target_of_reader(salts, frame)
    }

    pub fn is_durable(&self, database: u16, target: Target) -> bool {
        self.published.of(database).reached(target) == Reached::Yes
    }

    pub(crate) fn notice(&self, database: u16, batch: bool) {
        let header = self.requests;
        self.mark_dirty(database);
        if !batch {
            header.daemon.urgent.store(1, SeqCst);
        } else if header.daemon.batch.swap(1, SeqCst) == 1 {
            return;
        }
        if header.daemon.word.load(SeqCst) != 0 && header.daemon.word.swap(0, SeqCst) == 1 {
            futex::wake_one(&header.daemon.word);
            header.counters.daemon_wakes.fetch_add(1, Relaxed);
        }
    }
}
