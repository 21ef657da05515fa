//! The queue for the write lock of a database.
//!
//! SQLite hands its write lock over by polling with growing sleeps, which lets one connection starve all others. Here a
//! session that does not get the lock takes a ticket, returns SQLITE_BUSY (so that SQLite drops its read snapshot,
//! which would become stale) and sleeps in xSleep until it is woken. Overtaking is allowed: a session that comes while
//! the lock is free takes it, because handing it to a sleeping session costs a context switch with the lock idle. But
//! after [`BYPASSES_MAX`](crate::first_in_line::BYPASSES_MAX) times the lock is reserved for the first in line.

use crate::durations::SessionWait;
use crate::futex;
use crate::layout::{
    GATE_CLOSED, INSTANCE_WRITES, RequestedDatabase, SESSIONS_MAX, Slot, WORD_ASLEEP, WORD_IDLE, WORD_WAITING,
};
use crate::monotonic_ns;
use crate::segment::Segment;
use crate::session::Session;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::Duration;

/// A reservation that is not used for this long is void: its holder may have died or given up.
const RESERVATION_NS: u64 = 2_000_000;

/// A ticket in the queue, which outlives the call that took it: xSleep finds in it what to wait for.
#[derive(Clone, Copy)]
pub struct TurnTicket {
    segment: Segment,
    slot: usize,
}

/// A session, as the hint about the write lock names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(u32);

impl Session {
    fn me(&self) -> u32 {
        self.slot as u32 + 1
    }

    /// Asks for the lock grant. True: the session takes the fcntl lock next, and then calls [`Session::lock_taken`] or
    /// [`Session::lock_race_lost`].
    pub fn try_turn(&self) -> bool {
        let line = &self.segment.database(self.database).lock;
        let reserved = line.reserved.load(SeqCst);
        if reserved != 0 && reserved != self.me() {
            let since_ns = line.reserved_at_ns.load(SeqCst);
            // A time in the future is garbage, and would keep every session out.
            if monotonic_ns().checked_sub(since_ns).is_some_and(|age| age < RESERVATION_NS) {
                return false;
            }
            let _ = line.reserved.compare_exchange(reserved, 0, SeqCst, SeqCst);
        }
        if line.owner.compare_exchange(0, self.me(), SeqCst, SeqCst).is_err() {
            return false;
        }
        if reserved == self.me() {
            let _ = line.reserved.compare_exchange(self.me(), 0, SeqCst, SeqCst);
        }
        true
    }

    /// The session that holds or is about to take the write lock, by the hint; `None` when the lock is free.
    pub fn owner(&self) -> Option<Owner> {
        let owner = self.segment.database(self.database).lock.owner.load(SeqCst);
        (owner != 0).then_some(Owner(owner))
    }

    /// Whether there is no such session, or its process has ended: then it holds nothing any more, and the hint is
    /// removed.
    pub fn has_owner_ended(&self, owner: Owner) -> bool {
        let slot = owner.0 as usize - 1;
        if slot < SESSIONS_MAX && self.segment.mapping.locks.is_held(slot) {
            return false;
        }
        let hint = &self.segment.database(self.database).lock.owner;
        if hint.compare_exchange(owner.0, 0, SeqCst, SeqCst).is_ok() {
            self.segment.requests.counters.stale_heals.fetch_add(1, Relaxed);
        }
        true
    }

    /// For a waiter that was not woken: the owner hint may be stale, so the session has tried the fcntl lock itself,
    /// and got it.
    pub fn force_turn(&self) {
        self.segment.requests.counters.stale_heals.fetch_add(1, Relaxed);
        self.lock_taken();
    }

    /// Called when the fcntl lock was taken.
    pub fn lock_taken(&self) {
        let slot = self.segment.slot(self.slot);
        if slot.lock.queued.load(Relaxed) != 0 {
            slot.lock.queued.store(0, SeqCst);
            let entry = self.segment.database(self.database);
            entry.lock_waiters[self.slot / 64].fetch_and(!(1u64 << (self.slot % 64)), SeqCst);
        }
        slot.lock.bypassed.store(0, Relaxed);
        slot.lock.word.store(WORD_IDLE, Relaxed);
        // Another session may have taken the lock without a grant while this session had it, and have released it
        // since.
        let owner = &self.segment.database(self.database).lock.owner;
        if owner.load(SeqCst) != self.me() {
            owner.store(self.me(), SeqCst);
        }
    }

    /// Called when the session lost the race: it has the grant, but a process that does not queue holds the fcntl lock.
    pub fn lock_race_lost(&self) {
        let line = &self.segment.database(self.database).lock;
        let _ = line.owner.compare_exchange(self.me(), 0, SeqCst, SeqCst);
    }

    /// Takes a ticket in the queue. The caller returns SQLITE_BUSY and sleeps with the ticket.
    pub fn enqueue(&self) -> TurnTicket {
        let entry = self.segment.database(self.database);
        let slot = self.segment.slot(self.slot);
        if slot.lock.queued.load(Relaxed) == 0 {
            slot.lock.ticket.store(entry.lock.next_ticket.fetch_add(1, SeqCst), SeqCst);
            slot.lock.bypassed.store(0, SeqCst);
            slot.lock.queued.store(1, SeqCst);
            self.segment.requests.counters.lock_waits.fetch_add(1, Relaxed);
        }
        slot.lock.word.store(WORD_WAITING, SeqCst);
        entry.lock_waiters[self.slot / 64].fetch_or(1 << (self.slot % 64), SeqCst);
        // The lock may have been released between the refused grant and the bit: then nothing would wake this session.
        let ticket = TurnTicket { segment: self.segment, slot: self.slot };
        if ticket.may_try(entry) {
            slot.lock.word.store(WORD_IDLE, SeqCst);
        }
        ticket
    }

    /// Called when the fcntl lock was released: wakes the first in line, once. A session that has taken the lock in
    /// between, without a grant, owns it now and wakes the next one.
    pub fn release_turn(&self) {
        let owner = &self.segment.database(self.database).lock.owner;
        if let Ok(_) | Err(0) = owner.compare_exchange(self.me(), 0, SeqCst, SeqCst) {
            self.segment.wake_first(self.database);
        }
    }

    /// Waits at the start of a transaction while the checkpoint gate is closed for a reset of the database's WAL, at
    /// most `limit`. Returns whether the gate is open.
    pub fn pass_gate(&self, limit: Duration) -> bool {
        self.await_clear(GATE_CLOSED, SessionWait::WalReset, limit)
    }

    /// Waits while the instance has SQLite's write lock of the database, at most `limit`. `None` immediately when the
    /// instance does not have it, and when the lock must not be waited for here: behind the checkpoint gate the
    /// instance may be waiting until read locks are dropped, that of this session included, so only a session without
    /// others on the database waits for it. `Some(true)`: the instance has released the lock.
    pub fn await_instance(&self, limit: Duration) -> Option<bool> {
        match self.segment.published.of(self.database).gate.load(SeqCst) {
            bits if bits & INSTANCE_WRITES == 0 => None,
            bits if bits & GATE_CLOSED != 0 && !self.is_alone() => None,
            _ => Some(self.await_clear(INSTANCE_WRITES, SessionWait::WriteLock, limit)),
        }
    }

    /// Whether no other session of the database is known.
    pub fn is_alone(&self) -> bool {
        let is_of_this = |slot: &&Slot| {
            slot.pid.load(SeqCst) != 0 && slot.database.load(SeqCst) == u32::from(self.database)
        };
        self.segment.slots_used().iter().filter(is_of_this).nth(1).is_none()
    }

    /// Waits until `bit` of the gate is clear, at most `limit`; returns whether it is.
    fn await_clear(&self, bit: u32, reason: SessionWait, limit: Duration) -> bool {
        let gate = &self.segment.published.of(self.database).gate;
        if gate.load(SeqCst) & bit == 0 {
            return true;
        }
        let start = monotonic_ns();
        let outer = self.begin_wait(reason, start);
        let is_clear = loop {
            let bits = gate.load(SeqCst);
            if bits & bit == 0 {
                break true;
            }
            let waited = Duration::from_nanos(monotonic_ns() - start);
            let Some(left) = limit.checked_sub(waited) else { break false };
            futex::wait(gate, bits, left);
        };
        self.end_wait(reason, start, outer);
        is_clear
    }
}

impl TurnTicket {
    /// Sleeps until woken, at most `limit`. True when woken or when the lock is free, false when the time ran out.
    pub fn sleep(&self, limit: Duration) -> bool {
        let slot = self.segment.slot(self.slot);
        let word = &slot.lock.word;
        if word.compare_exchange(WORD_WAITING, WORD_ASLEEP, SeqCst, SeqCst).is_err() {
            return true;
        }
        self.segment.requests.counters.lock_sleeps.fetch_add(1, Relaxed);
        let end = monotonic_ns() + limit.as_nanos() as u64;
        while word.load(SeqCst) == WORD_ASLEEP {
            let now = monotonic_ns();
            if now >= end {
                // A release of the lock from here on wakes the next one in line instead.
                return word.compare_exchange(WORD_ASLEEP, WORD_IDLE, SeqCst, SeqCst).is_err();
            }
            futex::wait(word, WORD_ASLEEP, Duration::from_nanos(end - now));
        }
        true
    }

    /// Whether the lock is free, and not reserved for another session.
    fn may_try(&self, entry: &RequestedDatabase) -> bool {
        let reserved = entry.lock.reserved.load(SeqCst);
        entry.lock.owner.load(SeqCst) == 0 && (reserved == 0 || reserved == self.slot as u32 + 1)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::first_in_line::BYPASSES_MAX;

    fn sessions<const N: usize>(name: &str) -> [Session; N] {
        let path = std::path::PathBuf::from(format!("/dev/shm/standfast-test-{name}-{}", std::process::id()));
        let segment = Segment::create(&path, [7; 16], 0o600).unwrap().0;
        Segment::remove(&path);
        [(); N].map(|()| Session::attach(segment, 3, 1, 1).unwrap())
    }

    /// Takes the lock and releases it until it is reserved for `other`, which waits. Returns how often.
    fn pass(session: Session, other: Session) -> u32 {
        let reserved = &session.segment.database(session.database).lock.reserved;
        let mut times = 0;
        while reserved.load(SeqCst) == 0 {
            assert!(session.try_turn());
            session.lock_taken();
            other.enqueue();
            session.release_turn();
            times += 1;
        }
        times
    }

    fn turn(session: Session) {
        assert!(session.try_turn());
        session.lock_taken();
        session.release_turn();
    }

    #[test]
    fn waiter_bypassed_too_often_gets_the_next_grant() {
        let [quick, slow] = sessions("passed");
        assert_eq!(pass(quick, slow), BYPASSES_MAX + 1);
        turn(slow);
        assert_eq!(pass(quick, slow), BYPASSES_MAX + 1, "the count begins again");
    }

    #[test]
    fn release_skips_waiters_whose_sleep_has_ended() {
        let [owner, gone, next] = sessions("gone");
        turn(owner);
        assert!(owner.try_turn());
        owner.lock_taken();
        assert!(!gone.enqueue().sleep(Duration::from_millis(1)), "its time is over");
        let slept = std::thread::scope(|scope| {
            let ticket = next.enqueue();
            let waiter = scope.spawn(move || ticket.sleep(Duration::from_secs(60)));
            let word = &next.segment.slot(next.slot).lock.word;
            while word.load(SeqCst) != WORD_ASLEEP {
                std::thread::yield_now();
            }
            owner.release_turn();
            waiter.join().unwrap()
        });
        assert!(slept, "woken");
        assert_eq!(gone.segment.slot(gone.slot).lock.bypassed.load(SeqCst), 0);
    }
}
