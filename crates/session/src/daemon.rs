//! The instance's side: collects notifications, publishes what is durable, opens and closes the checkpoint gate, reaps
//! dead sessions.

use crate::bits::set_bits;
use crate::freshness::clock;
use crate::futex;
use crate::layout::{
    DATABASE_WORDS, DaemonLine, DatabaseState, GATE_CLOSED, INSTANCE_WRITES, OtherWriters, Published, Slot,
    WORD_WAITING,
};
use crate::segment::{Segment, SegmentConfig};
use crate::spin;
use crate::waiters::Waiters;
use std::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use std::time::Duration;

/// Longest poll for a notification before the log writer sleeps: what a busy client needs for a transaction.
const LOOK_MAX_US: u64 = 200;

/// Most slots that one call of [`Segment::reap_dead`] frees.
const REAPED_MAX: usize = 128;

/// Databases whose sessions have notified of new frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirtySet {
    words: [u64; DATABASE_WORDS],
}

impl DirtySet {
    pub fn iter(&self) -> impl Iterator<Item = u16> {
        set_bits(self.words).map(|database| database as u16)
    }

    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    pub fn insert(&mut self, database: u16) {
        let index = usize::from(database) % crate::layout::DATABASES;
        self.words[index / 64] |= 1 << (index % 64);
    }

    pub fn merge(&mut self, other: &DirtySet) {
        for (mine, theirs) in self.words.iter_mut().zip(other.words) {
            *mine |= theirs;
        }
    }
}

fn daemon_rung(daemon: &DaemonLine) -> bool {
    daemon.rung.swap(0, SeqCst) != 0
}

/// Counts of the sessions' side since the segment was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SessionCounts {
    /// Commit waits that ended without sleep.
    pub commit_polls: u64,
    /// Commit waits that went to sleep.
    pub commit_sleeps: u64,
    /// Wakes of the instance by a notification.
    pub daemon_wakes: u64,
    /// Tickets taken in a write lock queue.
    pub lock_waits: u64,
    /// Sleeps in a write lock queue.
    pub lock_sleeps: u64,
    /// Times the lock was reserved for the first in line.
    pub reservations: u64,
}

impl Segment {
    pub fn take_dirty(&self) -> DirtySet {
        let requests = self.requests;
        requests.daemon.urgent.store(0, SeqCst);
        let mut set = DirtySet::default();
        let mut summary = requests.daemon.summary.swap(0, SeqCst);
        while summary != 0 {
            let word = summary.trailing_zeros() as usize % DATABASE_WORDS;
            summary &= summary - 1;
            set.words[word] = requests.dirty.words[word].swap(0, SeqCst);
        }
        set
    }

    /// Sleeps until there is a notification or [`Segment::ring`] is called, at most `timeout`. False when the time ran
    /// out.
    pub fn sleep(&self, timeout: Duration) -> bool {
        let daemon = &self.requests.daemon;
        if spin::look(&daemon.look, LOOK_MAX_US, || daemon.summary.load(SeqCst) != 0) {
            return true;
        }
        daemon.word.store(1, SeqCst);
        let mut timed_out = false;
        if daemon.summary.load(SeqCst) == 0 && !daemon_rung(daemon) {
            timed_out = futex::wait(&daemon.word, 1, timeout);
        }
        daemon.word.store(0, SeqCst);
        !timed_out
    }

    /// The batch delay, in which BATCH commits gather: sleeps for `time` unless a session asks for IMMEDIATE.
    pub fn linger(&self, time: Duration) {
        let daemon = &self.requests.daemon;
        daemon.word.store(1, SeqCst);
        if daemon.urgent.swap(0, SeqCst) == 0 {
            futex::wait(&daemon.word, 1, time);
        }
        daemon.word.store(0, SeqCst);
    }

    /// Wakes the thread in [`Segment::sleep`] without a notification, or keeps it from falling asleep. May be called
    /// from any thread.
    pub fn ring(&self) {
        let daemon = &self.requests.daemon;
        daemon.rung.store(1, SeqCst);
        if daemon.word.swap(0, SeqCst) == 1 {
            futex::wake_one(&daemon.word);
        }
    }

    /// Whether a BATCH notification came since the last call.
    pub fn take_batch(&self) -> bool {
        let batch = &self.requests.daemon.batch;
        batch.load(SeqCst) != 0 && batch.swap(0, SeqCst) != 0
    }

    /// Marks a database dirty on the instance's own behalf, without a wake.
    pub fn mark_dirty(&self, database: u16) {
        let index = usize::from(database) % crate::layout::DATABASES;
        let requests = self.requests;
        requests.dirty.words[index / 64].fetch_or(1 << (index % 64), SeqCst);
        requests.daemon.summary.fetch_or(1 << (index / 64), SeqCst);
    }

    /// Moves the durable position of a database forwards and lets the commits that waited for it continue, in their
    /// order: the first to run is ahead at the write lock, and in the order of slots that would always be the same
    /// sessions. Those that sleep join `waiters`, to be woken with those of other databases. Calls `posted` once for
    /// each of them, with the time of its notification and the time when it could continue.
    pub fn publish_durable(
        &self,
        database: u16,
        position: u64,
        waiters: &mut Waiters,
        posted: &mut dyn FnMut(u64, u64),
    ) {
        // Sessions that do not sleep see the new position immediately and may be gone when the code below reaches them.
        for (_, slot) in self.waiting(database).filter(|(_, slot)| slot.waits_for(position)) {
            if slot.commit_word.load(SeqCst) == WORD_WAITING {
                slot.post(posted);
            }
        }
        if let Some(own) = &self.mapping.own {
            // Callers publish one after the other, never concurrently.
            let position = own.move_durable(database, position);
            self.published.of(database).durable.store(position, SeqCst);
        }
        let waiting = self.waiting(database).filter(|(_, slot)| slot.waits_for(position));
        let mut in_order: Vec<_> = waiting.map(|at| (at.1.target.load(SeqCst), at)).collect();
        in_order.sort_unstable_by_key(|(target, _)| *target);
        // A session that polls may have seen the position, and may wait for a later commit by now.
        let called = in_order.into_iter().map(|(_, at)| at).filter(|(_, slot)| slot.waits_for(position));
        waiters.call(called.inspect(|(_, slot)| slot.post(posted)));
    }

    /// Wakes `waiters` and empties it. One system call wakes the waiters of many databases: a thread that wakes them
    /// one by one is interrupted by each of them, while the rest sleep on.
    pub fn wake(&self, waiters: &mut Waiters) {
        for (bucket, bits) in waiters.take() {
            let wakes = &self.published.buckets[bucket].wakes;
            wakes.fetch_add(1, SeqCst);
            futex::wake_those(wakes, bits);
        }
    }

    /// The slots of sessions that wait for a commit of the database to be durable, ascending.
    fn waiting(&self, database: u16) -> impl Iterator<Item = (usize, &'static Slot)> {
        let segment = *self;
        let waiters = &self.database(database).commit_waiters;
        set_bits(waiters.iter().map(|word| word.load(SeqCst))).map(move |index| (index, segment.slot(index)))
    }

    /// Wakes every commit that waits on the database, so that it checks again (failure, shutdown).
    pub fn wake_all(&self, database: u16) {
        let mut waiters = Waiters::default();
        waiters.call(self.waiting(database));
        self.wake(&mut waiters);
    }

    pub fn set_state(&self, database: u16, state: DatabaseState) {
        self.publish(|published| published.of(database).state.store(state as u32, SeqCst));
    }

    /// Publishes what happens to processes without the VFS that write to a database. Any order of this and of what
    /// sessions do is correct: a writer excludes all others in either form.
    pub fn set_other_writers(&self, database: u16, writers: OtherWriters) {
        self.publish(|published| published.of(database).other_writers.store(writers as u32, SeqCst));
    }

    /// Publishes the SCN of the last captured commit.
    pub fn set_scn(&self, database: u16, scn: u64) {
        self.publish(|published| published.of(database).scn.store(scn, SeqCst));
    }

    /// Publishes the settings, and whether the instance runs.
    pub fn set_running(&self, running: bool, config: &SegmentConfig) {
        self.publish(|Published { settings, .. }| {
            settings.commit_mode.store(config.commit_mode, SeqCst);
            settings.durable_visibility.store(u32::from(config.durable_visibility), SeqCst);
            settings.write_wait_ms.store(config.write_wait_ms, SeqCst);
            settings.commit_wait_ms.store(config.commit_wait_ms, SeqCst);
            settings.running.store(u32::from(running), SeqCst);
            settings.clock.store(clock(), SeqCst);
        });
    }

    /// Whether the generation with `salts` is one that a session or the instance has begun, and every session that took
    /// the write lock since found the generation that the session before it had left. What sessions report is a hint:
    /// the pages decide what the files hold.
    pub fn sessions_saw(&self, database: u16, salts: [u32; 2]) -> bool {
        let line = &self.database(database).lock;
        let of_sessions = [line.salts[0].load(SeqCst), line.salts[1].load(SeqCst)];
        (of_sessions == salts || self.epoch(database).1 == salts) && line.foreign.load(SeqCst) == 0
    }

    /// Number of commits of the database that sessions have announced since the segment was created; all of them are
    /// published. Only differences mean something.
    pub fn announced(&self, database: u16) -> u64 {
        self.database(database).lock.announced.load(Acquire)
    }

    /// Number of sessions of the database that died under the write lock since the last call: each may have left one
    /// commit that was not announced.
    pub fn take_orphans(&self, database: u16) -> u32 {
        let orphans = &self.database(database).lock.orphans;
        if orphans.load(Relaxed) == 0 { 0 } else { orphans.swap(0, SeqCst) }
    }

    /// Clears stale hints of an earlier run when a database starts to be served.
    pub fn reset_hints(&self, database: u16) {
        let line = &self.database(database).lock;
        line.owner.store(0, SeqCst);
        line.reserved.store(0, SeqCst);
        self.note_write_lock(database, false);
        self.open_gate(database);
    }

    /// From now on until [`Segment::end_rewriting`] only the existing wal-index knows the WAL: sessions must not make
    /// another one.
    pub fn begin_rewriting(&self, database: u16) {
        self.set_rewriting(database, 1);
    }

    /// Called when a starting instance is about to open the database. If the last one died while it rewrote the WAL,
    /// the existing wal-index may have been made from what is left, so it is suspect: no session reads by it until
    /// [`Segment::end_rewriting`].
    pub fn suspect_rewriting(&self, database: u16) {
        if self.is_rewriting(database) {
            self.set_rewriting(database, 2);
        }
    }

    /// Marks the WAL as suspect: the wal-index shows an earlier state, and no session reads by it until
    /// [`Segment::end_rewriting`].
    pub fn suspect_wal(&self, database: u16) {
        self.set_rewriting(database, 2);
    }

    /// Called when the WAL is complete again.
    pub fn end_rewriting(&self, database: u16) {
        self.set_rewriting(database, 0);
    }

    fn set_rewriting(&self, database: u16, value: u32) {
        self.publish(|published| published.of(database).rewriting.store(value, SeqCst));
    }

    /// Closes the checkpoint gate: new transactions wait at their start from now on.
    pub fn close_gate(&self, database: u16) {
        self.publish(|published| _ = published.of(database).gate.fetch_or(GATE_CLOSED, SeqCst));
    }

    /// Opens the checkpoint gate: new transactions start again.
    pub fn open_gate(&self, database: u16) {
        if self.published_of(database).gate.load(SeqCst) & GATE_CLOSED != 0 {
            self.publish(|published| _ = published.of(database).gate.fetch_and(!GATE_CLOSED, SeqCst));
            futex::wake_all(&self.published.of(database).gate);
        }
        self.wake_first(database);
    }

    /// Publishes that the instance is about to take SQLite's write lock of the database, or has released it. A session
    /// that finds the lock taken waits for that instead of failing: without a busy handler it would get SQLITE_BUSY
    /// although no other writer is the cause.
    pub fn note_write_lock(&self, database: u16, held: bool) {
        if held {
            self.publish(|published| _ = published.of(database).gate.fetch_or(INSTANCE_WRITES, SeqCst));
        } else if self.published_of(database).gate.load(SeqCst) & INSTANCE_WRITES != 0 {
            self.publish(|published| _ = published.of(database).gate.fetch_and(!INSTANCE_WRITES, SeqCst));
            futex::wake_all(&self.published.of(database).gate);
        }
    }

    /// Whether a session holds or is about to take the write lock (a hint).
    pub fn owned(&self, database: u16) -> bool {
        self.database(database).lock.owner.load(SeqCst) != 0
    }

    /// Whether commits of the database wait.
    pub fn has_commit_waiters(&self, database: u16) -> bool {
        self.commit_waiters(database) != 0
    }

    /// Number of its commits that wait, and of readers that wait for what they see to be durable.
    pub fn commit_waiters(&self, database: u16) -> usize {
        self.waiting(database).filter(|(_, slot)| slot.waits_for(u64::MAX)).count()
    }

    /// Living sessions: (slot, process, start time of the process in clock ticks). The process is what the session
    /// reports, by its number in its own PID namespace. Makes a system call for each slot that was ever taken.
    pub fn sessions(&self) -> impl Iterator<Item = (usize, u32, u64)> + '_ {
        let slots = self.slots_used().iter().enumerate();
        slots
            .filter(|(index, _)| self.mapping.locks.is_held(*index))
            .map(|(index, slot)| (index, slot.pid.load(SeqCst), slot.started.load(SeqCst)))
    }

    /// Database and process of each session.
    pub fn sessions_of_databases(&self) -> impl Iterator<Item = (u16, u32)> + '_ {
        self.sessions().map(|(slot, pid, _)| (self.slot(slot).database.load(SeqCst) as u16, pid))
    }

    /// Frees the slots of sessions whose process has died, and releases whatever they held. Returns their number, at
    /// most [`REAPED_MAX`]: slots may hold garbage, and others wait meanwhile.
    pub fn reap_dead(&self) -> usize {
        let slots = self.slots_used().iter().enumerate();
        // The holder of the lock has the slot: no session gets it meanwhile, and no living session loses it.
        let dead = slots.filter(|(index, slot)| {
            slot.pid.load(SeqCst) != 0 && matches!(self.mapping.locks.take(*index), Ok(true))
        });
        dead.take(REAPED_MAX)
            .map(|(index, _)| {
                self.clear_slot(index);
                self.mapping.locks.give(index);
            })
            .count()
    }

    /// Frees a slot whose session has died. The caller holds its lock.
    pub(crate) fn clear_slot(&self, slot: usize) {
        let database = self.slot(slot).database.load(SeqCst) as u16;
        if self.slot(slot).lock.writing.swap(0, SeqCst) != 0 {
            self.database(database).lock.orphans.fetch_add(1, SeqCst);
        }
        self.forget_slot(slot);
        self.mark_dirty(database);
        self.ring();
        self.wake_first(database);
    }

    /// Frees a slot, whose lock the caller holds, and everything that could still point to it.
    pub(crate) fn forget_slot(&self, index: usize) {
        let slot = self.slot(index);
        let database = slot.database.load(SeqCst) as u16;
        let entry = self.database(database);
        let keep = !(1u64 << (index % 64));
        entry.lock_waiters[index / 64].fetch_and(keep, SeqCst);
        entry.commit_waiters[index / 64].fetch_and(keep, SeqCst);
        let me = index as u32 + 1;
        let _ = entry.lock.reserved.compare_exchange(me, 0, SeqCst, SeqCst);
        let _ = entry.lock.owner.compare_exchange(me, 0, SeqCst, SeqCst);
        slot.pid.store(0, SeqCst);
    }

    pub fn counts(&self) -> SessionCounts {
        let counters = &self.requests.counters;
        SessionCounts {
            commit_polls: counters.commit_polls.load(Relaxed),
            commit_sleeps: counters.commit_sleeps.load(Relaxed),
            daemon_wakes: counters.daemon_wakes.load(Relaxed),
            lock_waits: counters.lock_waits.load(Relaxed),
            lock_sleeps: counters.lock_sleeps.load(Relaxed),
            reservations: counters.reservations.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::layout::{BUCKET_SESSIONS, WORD_ASLEEP};
    use crate::monotonic_ns;
    use crate::session::Session;
    use std::path::PathBuf;

    fn segment(name: &str) -> (Segment, PathBuf) {
        let path = PathBuf::from(format!("/dev/shm/standfast-test-{name}-{}", std::process::id()));
        Segment::remove(&path);
        (Segment::create(&path, [7; 16], 0o600).unwrap().0, path)
    }

    /// A session of the database that sleeps until `frame` is durable: its wait bucket with its bit there, and its
    /// target.
    fn asleep(segment: Segment, database: u16, frame: u32) -> ((usize, u32), u64) {
        let session = Session::attach(segment, database, 1, 1).unwrap();
        segment.announce_generation(database, [1, 2]);
        let target = session.position_under_write_lock([1, 2], frame).unwrap();
        session.notice_commit(false, 0, Some(target));
        segment.slot(session.slot).commit_word.store(WORD_ASLEEP, SeqCst);
        ((session.slot / BUCKET_SESSIONS, 1 << (session.slot % BUCKET_SESSIONS)), target.position())
    }

    #[test]
    fn waiters_of_a_database_wake_in_commit_order() {
        let (segment, path) = segment("order");
        // Slots ascend, commits do not.
        let sessions = [30, 10, 40, 20].map(|frame| asleep(segment, 3, frame));
        let other = asleep(segment, 700, 1);
        let (mut waiters, mut posted) = (Waiters::default(), 0);
        segment.publish_durable(3, sessions[0].1, &mut waiters, &mut |_, _| posted += 1);
        segment.publish_durable(700, other.1, &mut waiters, &mut |_, _| posted += 1);
        assert_eq!((waiters.len(), posted), (4, 4));
        let bits = |of: &[usize]| of.iter().map(|at| sessions[*at].0.1).sum::<u32>();
        let expected = [bits(&[1]) | other.0.1, bits(&[3]), bits(&[0])];
        assert_eq!(waiters.take(), expected.map(|bits| (0, bits)));
        let sleeps_on = |(_, slot): &(usize, &Slot)| slot.commit_word.load(SeqCst) == WORD_ASLEEP;
        assert_eq!(segment.waiting(3).filter(sleeps_on).count(), 1, "the later one");
        Segment::remove(&path);
    }

    /// Sessions whose slots are in different wait buckets, and whose bits differ.
    #[test]
    fn waiters_wake_in_their_own_buckets() {
        let (segment, path) = segment("buckets");
        let sessions: Vec<Session> =
            (0..BUCKET_SESSIONS + 2).map(|_| Session::attach(segment, 3, 1, 1).unwrap()).collect();
        let chosen = [sessions[3], sessions[BUCKET_SESSIONS + 1]];
        let (tell, reported) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let waiters = chosen.map(|session| {
                let tell = tell.clone();
                segment.announce_generation(3, [1, 2]);
                let target = session.position_under_write_lock([1, 2], 10).unwrap();
                session.notice_commit(false, 0, Some(target));
                segment.slot(session.slot).commit_word.store(WORD_ASLEEP, SeqCst);
                scope.spawn(move || {
                    // SAFETY: takes nothing and cannot fail.
                    tell.send(unsafe { libc::gettid() }).unwrap();
                    let (wakes, own) = session.bucket();
                    futex::wait_as(wakes, wakes.load(SeqCst), own, monotonic_ns() + 20_000_000_000)
                })
            });
            reported.iter().take(2).for_each(await_sleep);
            let mut called = Waiters::default();
            segment.publish_durable(3, 1 << 32 | 10, &mut called, &mut |_, _| {});
            segment.wake(&mut called);
            assert_eq!(waiters.map(|waiter| waiter.join().unwrap()), [false, false], "timed out");
        });
        Segment::remove(&path);
    }

    /// Waits until the thread sleeps; it has nothing else to sleep for.
    fn await_sleep(thread: libc::pid_t) {
        let state = || std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        while !state().rsplit_once(')').unwrap().1.starts_with(" S") {
            std::thread::yield_now();
        }
    }

    #[test]
    fn commits_of_a_later_batch_are_woken_after_earlier_ones() {
        let (segment, path) = segment("batches");
        let sessions = [10, 20, 30, 40].map(|frame| asleep(segment, 3, frame));
        let other = asleep(segment, 700, 1);
        let mut waiters = Waiters::default();
        segment.publish_durable(3, sessions[1].1, &mut waiters, &mut |_, _| {});
        waiters.next_batch();
        segment.publish_durable(3, sessions[3].1, &mut waiters, &mut |_, _| {});
        segment.publish_durable(700, other.1, &mut waiters, &mut |_, _| {});
        let bits = |at: usize| sessions[at].0.1;
        let expected = [bits(0), bits(1), bits(2) | other.0.1, bits(3)];
        assert_eq!(waiters.take(), expected.map(|bits| (0, bits)));
        Segment::remove(&path);
    }

    /// The wake comes between the last check of the durable position and the sleep.
    #[test]
    fn session_about_to_sleep_misses_no_wake() {
        let (segment, path) = segment("about");
        let wakes = &segment.published.buckets[0].wakes;
        let seen = wakes.load(SeqCst);
        let ((bucket, bit), target) = asleep(segment, 3, 10);
        assert_eq!(bucket, 0);
        let mut waiters = Waiters::default();
        segment.publish_durable(3, target, &mut waiters, &mut |_, _| {});
        segment.wake(&mut waiters);
        let timed_out = futex::wait_as(wakes, seen, bit, monotonic_ns() + 20_000_000_000);
        assert!(!timed_out, "it would have slept on");
        Segment::remove(&path);
    }
}
