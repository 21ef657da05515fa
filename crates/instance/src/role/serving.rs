//! What an instance serves at this moment, for load balancers and supervisors: known without waiting for a command that
//! has the role locked.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What applications can do with an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// They write and read: it is the open primary.
    Primary,
    /// They read: it is an open standby.
    Standby,
    /// It is open and has no databases.
    FarSync,
    /// Nothing yet: it starts, stops, or changes its role.
    NotYet,
    /// Nothing, for this reason.
    Nothing(&'static str),
}

impl Serving {
    /// Returns the role, or the reason.
    pub fn text(self) -> &'static str {
        match self {
            Serving::Primary => "primary",
            Serving::Standby => "standby",
            Serving::FarSync => "far sync",
            Serving::NotYet => "starting, stopping, or changing its role",
            Serving::Nothing(why) => why,
        }
    }
}

/// Whether a primary has failed, which is no change of its role.
pub type HasFailed = Box<dyn Fn() -> bool + Send>;

/// What is served since the last change of the role.
pub struct Announced {
    latest: Mutex<(Serving, HasFailed)>,
    changed: Condvar,
}

impl Default for Announced {
    fn default() -> Self {
        Announced { latest: Mutex::new((Serving::NotYet, Box::new(|| false))), changed: Condvar::new() }
    }
}

fn now((serving, has_failed): &(Serving, HasFailed)) -> Serving {
    if has_failed() { Serving::Nothing("a primary that has failed") } else { *serving }
}

impl Announced {
    fn latest(&self) -> MutexGuard<'_, (Serving, HasFailed)> {
        self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn announce(&self, serving: Serving, has_failed: HasFailed) {
        *self.latest() = (serving, has_failed);
        self.changed.notify_all();
    }

    pub fn serving(&self) -> Serving {
        now(&self.latest())
    }

    /// Waits until something else is served than `known`, at most for `limit`. Returns what is served.
    pub fn await_other(&self, known: &str, limit: Duration) -> Serving {
        let until = Instant::now() + limit;
        let mut latest = self.latest();
        loop {
            let (serving, left) = (now(&latest), until.saturating_duration_since(Instant::now()));
            if serving.text() != known || left.is_zero() {
                return serving;
            }
            let waited = self.changed.wait_timeout(latest, left);
            latest = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    #[test]
    fn failure_of_a_primary_is_seen_without_a_change_of_its_role() {
        let (announced, failed) = (Announced::default(), Arc::new(AtomicBool::new(false)));
        assert_eq!(announced.serving(), Serving::NotYet);
        let seen = failed.clone();
        announced.announce(Serving::Primary, Box::new(move || seen.load(SeqCst)));
        assert_eq!(announced.serving(), Serving::Primary);
        failed.store(true, SeqCst);
        assert_eq!(announced.serving(), Serving::Nothing("a primary that has failed"));
    }

    #[test]
    fn change_is_waited_for_and_no_change_ends_the_wait() {
        let announced = Announced::default();
        let known = Serving::NotYet.text();
        assert_eq!(announced.await_other(known, Duration::from_millis(5)), Serving::NotYet);
        assert_eq!(
            announced.await_other("primary", Duration::from_secs(60)),
            Serving::NotYet,
            "it is that already"
        );
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| announced.await_other(known, Duration::from_secs(60)));
            announced.announce(Serving::Standby, Box::new(|| false));
            assert_eq!(waits.join().unwrap(), Serving::Standby);
        });
    }
}
