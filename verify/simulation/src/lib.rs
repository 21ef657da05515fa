//! The stages of a primary and a standby on simulated machines, stepped by one thread, so that a seed always gives the
//! same history. The tests of `primary` and `standby` and the power campaign use them.

pub mod databases;
pub mod link;
pub mod primary;
pub mod rig;
pub mod site;
pub mod standby;
pub mod trace;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Errors are only text: the caller only checks whether the machines had power.
pub type Outcome<T> = std::result::Result<T, String>;

/// A stage that may be absent.
pub type Held<T> = Arc<Mutex<Option<T>>>;

/// Locks a mutex, also one whose holder has panicked.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
