//! The queue for the write lock, between SQLITE_BUSY and the next attempt.
//!
//! A connection that does not get the write lock must return SQLITE_BUSY, so that SQLite drops its read snapshot (which
//! would turn stale) and calls the busy handler. The default handler calls `xSleep`, in which the session queues for a
//! lock grant. One sleep of the handler lasts until the lock is free or the requested time is over: the handler counts
//! sleeps and not time, so with shorter sleeps it would give up early.
//!
//! Three steps on one thread, each checked by the next:
//! 1. the write lock is busy: [`missed`];
//! 2. the same file drops its read lock: [`snapshot_dropped`] (SQLite is about to call the busy handler);
//! 3. `xSleep`: [`sleep`] queues, and leaves the grant it got for the next attempt ([`take`]).
//!
//! All of these are hints. An unused grant is given back at the next occasion, or other sessions pass it when their
//! sleep times out.

use standfast_session::{Session, SessionWait, monotonic_ns};
use std::cell::Cell;
use std::time::Duration;

/// The busy handler follows immediately; a later `xSleep` has another reason.
const HANDLER_FOLLOWS_NS: u64 = 5_000_000;
/// Interval at which a waiter that is not woken polls the queue: the session that was woken instead of it, or that
/// holds the reservation, may have given up.
const LOOK: Duration = Duration::from_millis(10);
/// Minimum of the first sleeps in the queue. The default handler asks for 1 ms first, then for 2 and 5; but an attempt
/// without a grant costs as much as one with a grant, and the wait for a grant is often longer.
const LEAST: Duration = Duration::from_millis(5);
/// Number of sleeps extended to [`LEAST`]: a handler may count sleeps of 1 ms, and a busy timeout that is used up must
/// not end much later because of the extension.
const LEAST_SLEEPS: u32 = 2;
/// The next attempt of the same statement follows immediately; on a busy machine possibly this late.
const ATTEMPT_FOLLOWS_NS: u64 = 50_000_000;

#[derive(Clone, Copy)]
struct Missed {
    file: u64,
    session: Session,
    /// Start of the transaction that lost the race, by [`monotonic_ns`].
    began_ns: u64,
    /// When the read lock was dropped; 0 while it is still held.
    dropped_ns: u64,
    /// The holder of the write lock queues, so its release wakes the next waiter.
    wakes: bool,
}

/// How the last sleep of a file ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Turn {
    /// The file has a lock grant.
    Granted,
    /// The time ran out: the hints may be stale, so the file may try the lock itself.
    TimedOut,
    /// The file did not sleep in the queue.
    None,
}

#[derive(Clone, Copy)]
enum Slept {
    Nothing,
    Granted {
        file: u64,
        session: Session,
        at_ns: u64,
    },
    TimedOut {
        file: u64,
        at_ns: u64,
    },
    /// Slept as SQLite does without a queue.
    Alone {
        file: u64,
        at_ns: u64,
    },
}

thread_local! {
    static MISSED: Cell<Option<Missed>> = const { Cell::new(None) };
    static SLEPT: Cell<Slept> = const { Cell::new(Slept::Nothing) };
    /// Consecutive sleeps that have ended without a taken lock.
    static UNSUCCESSFUL: Cell<u32> = const { Cell::new(0) };
}

/// Records that the write lock of `file` is busy, in a transaction that began at `began_ns`.
pub(crate) fn missed(file: u64, session: Session, began_ns: u64) {
    MISSED.set(Some(Missed { file, session, began_ns, dropped_ns: 0, wakes: true }));
}

/// Records that `file` is held out by a process that does not queue.
pub(crate) fn held_out(file: u64, session: Session, began_ns: u64) {
    MISSED.set(Some(Missed { file, session, began_ns, dropped_ns: 0, wakes: false }));
}

/// Records that `file` dropped its last read lock.
pub(crate) fn snapshot_dropped(file: u64) {
    if let Some(missed) = MISSED.get() {
        let follows = (missed.file == file).then(|| Missed { dropped_ns: monotonic_ns(), ..missed });
        MISSED.set(follows);
    }
}

/// Sleeps in the queue, or by `alone` where no release would wake the session; false when this sleep is not about a
/// write lock.
pub(crate) fn sleep(limit: Duration, alone: &mut dyn FnMut()) -> bool {
    give_back();
    let Some(missed) = MISSED.take() else { return false };
    let start = monotonic_ns();
    if missed.dropped_ns == 0 || start.saturating_sub(missed.dropped_ns) > HANDLER_FOLLOWS_NS {
        return false;
    }
    let Missed { file, session, began_ns, wakes, .. } = missed;
    let unsuccessful = UNSUCCESSFUL.get();
    let limit = if unsuccessful < LEAST_SLEEPS { limit.max(LEAST) } else { limit };
    UNSUCCESSFUL.set(unsuccessful.saturating_add(1));
    let outer = session.begin_wait(SessionWait::WriteLock, began_ns);
    if !wakes {
        alone();
        SLEPT.set(Slept::Alone { file, at_ns: monotonic_ns() });
        session.end_wait(SessionWait::WriteLock, began_ns, outer);
        return true;
    }
    let left = || limit.checked_sub(Duration::from_nanos(monotonic_ns().saturating_sub(start)));
    SLEPT.set(loop {
        let Some(time) = left() else { break Slept::TimedOut { file, at_ns: monotonic_ns() } };
        session.enqueue().sleep(time.min(LOOK));
        // Before a grant is taken: the instance, which closed the checkpoint gate, waits until no session holds a
        // grant.
        session.pass_gate(left().unwrap_or_default());
        if session.try_turn() {
            break Slept::Granted { file, session, at_ns: monotonic_ns() };
        }
    });
    session.end_wait(SessionWait::WriteLock, began_ns, outer);
    true
}

/// Returns how the last sleep of `file` ended, once.
pub(crate) fn take(file: u64) -> Turn {
    match SLEPT.get() {
        Slept::Granted { file: slept, .. } if slept == file => {
            SLEPT.set(Slept::Nothing);
            Turn::Granted
        }
        Slept::TimedOut { file: slept, .. } if slept == file => {
            SLEPT.set(Slept::Nothing);
            Turn::TimedOut
        }
        _ => {
            give_back();
            Turn::None
        }
    }
}

/// Records that the write lock is taken: the next wait is another one.
pub(crate) fn taken() {
    UNSUCCESSFUL.set(0);
}

/// Returns when the sleep of `file` ended whose next attempt is in progress.
pub(crate) fn slept_until(file: u64) -> Option<u64> {
    let until = match SLEPT.get() {
        Slept::Granted { file: slept, at_ns, .. }
        | Slept::TimedOut { file: slept, at_ns }
        | Slept::Alone { file: slept, at_ns }
            if slept == file =>
        {
            Some(at_ns)
        }
        _ => None,
    };
    // The busy handler may have given up: then this is a later statement.
    until.filter(|at_ns| monotonic_ns().saturating_sub(*at_ns) < ATTEMPT_FOLLOWS_NS)
}

/// Returns whether `file` has a grant that it has not used yet.
pub(crate) fn holds(file: u64) -> bool {
    matches!(SLEPT.get(), Slept::Granted { file: slept, .. } if slept == file)
}

fn give_back() {
    if let Slept::Granted { session, .. } = SLEPT.replace(Slept::Nothing) {
        session.lock_race_lost();
    }
}

/// Clears the state of `file`, which is being closed, and gives back its unused grant.
pub(crate) fn forget(file: u64) {
    if MISSED.get().is_some_and(|missed| missed.file == file) {
        MISSED.set(None);
    }
    if holds(file) {
        give_back();
    }
}
