//! State that the protected files of one connection share. A transaction over several databases commits them one after
//! the other, and only the last commit may wait, because the others' write locks would be held meanwhile.
//!
//! Nothing here is per thread: a transaction may begin on one thread and commit on another.

use crate::database::Database;
use standfast_session::{Session, Target};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// A commit that has released its write lock and must be waited for.
#[derive(Clone, Copy)]
pub(crate) enum Pending {
    /// Durable once the instance has released the position.
    At { session: Session, target: Target },
    /// The session was lost during the transaction: the instance will never report the outcome.
    Lost,
}

/// A commit whose wait is deferred until the connection's last write lock is released.
pub(crate) struct Deferred {
    pub database: Arc<Database>,
    pub pending: Pending,
}

/// A connection with at least one protected file.
pub(crate) struct Connection {
    /// Address of the `sqlite3` of the host.
    handle: usize,
    write_locks: AtomicU32,
    deferred: Mutex<Vec<Deferred>>,
    deferred_count: AtomicU32,
}

static CONNECTIONS: Mutex<Vec<Weak<Connection>>> = Mutex::new(Vec::new());

impl Connection {
    /// Returns the connection at `handle`. Its files keep it alive, so a reused address is a new connection.
    pub fn of(handle: usize) -> Arc<Connection> {
        let mut known = CONNECTIONS.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|connection| connection.strong_count() > 0);
        if let Some(found) = known.iter().filter_map(Weak::upgrade).find(|found| found.handle == handle) {
            return found;
        }
        let new = Arc::new(Connection {
            handle,
            write_locks: AtomicU32::new(0),
            deferred: Mutex::new(Vec::new()),
            deferred_count: AtomicU32::new(0),
        });
        known.push(Arc::downgrade(&new));
        new
    }

    /// Returns whether this is the connection at `handle`.
    pub fn is(&self, handle: usize) -> bool {
        self.handle == handle
    }

    /// Records that a protected file of the connection took its write lock. The first one begins a transaction: a wait
    /// that is still deferred belongs to a COMMIT that has returned an error.
    pub fn write_locked(&self) {
        if self.write_locks.fetch_add(1, SeqCst) == 0 {
            drop(self.take_deferred());
        }
    }

    /// Records that a protected file of the connection released its write lock.
    pub fn write_unlocked(&self) {
        self.write_locks.fetch_sub(1, SeqCst);
    }

    /// Returns whether a protected file of the connection still holds its write lock.
    pub fn holds_write_locks(&self) -> bool {
        self.write_locks.load(SeqCst) != 0
    }

    pub fn defer(&self, wait: Deferred) {
        let mut deferred = self.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        deferred.push(wait);
        self.deferred_count.store(deferred.len() as u32, SeqCst);
    }

    /// Takes all deferred waits; costs one load when there are none.
    pub fn take_deferred(&self) -> Vec<Deferred> {
        if self.deferred_count.load(SeqCst) == 0 {
            return Vec::new();
        }
        let mut deferred = self.deferred.lock().unwrap_or_else(PoisonError::into_inner);
        self.deferred_count.store(0, SeqCst);
        std::mem::take(&mut *deferred)
    }
}
