//! Whether commits of a primary may return once everything has them that they wait for.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// While it is held no commit returns: it is not known whether another member has taken over.
#[derive(Default)]
pub struct CommitHold {
    /// For the log writer, which looks at it for every group of commits.
    is_held: AtomicBool,
    why: Mutex<String>,
}

impl CommitHold {
    pub fn is_held(&self) -> bool {
        self.is_held.load(SeqCst)
    }

    /// Why it is held; `None`: it is not.
    pub fn why(&self) -> Option<String> {
        let why = self.locked();
        self.is_held().then(|| why.clone())
    }

    /// Holds commits for this reason; `None`: lets them return. Returns whether they were let go by this.
    pub fn set(&self, why: Option<&str>) -> bool {
        let mut shown = self.locked();
        why.unwrap_or_default().clone_into(&mut shown);
        let was_held = self.is_held.swap(why.is_some(), SeqCst);
        was_held && why.is_none()
    }

    fn locked(&self) -> MutexGuard<'_, String> {
        self.why.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
