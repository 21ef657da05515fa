//! What commands and the thread of fast-start failover tell each other.

use standfast_arbitration::record::Incarnation;
use standfast_documents::status::FastStartFailover;
use standfast_environment::state::control::Control;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Why commits do not return of a primary that was opened again.
pub(crate) const UNCONFIRMED: &str = "the observer has not confirmed that this is still the primary";

/// What commands order, and what the thread shows them.
#[derive(Default)]
pub(crate) struct FastStart {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Commands during which no member may take over.
    suspended: usize,
    /// How many such commands there have been.
    suspensions: u64,
    /// An operator fails over to this standby.
    order: Option<u64>,
    /// How many such orders there have been.
    orders: u64,
    shown: Shown,
}

/// What the thread has found out.
#[derive(Clone, Default)]
pub(super) struct Shown {
    pub document: Option<FastStartFailover>,
    /// A primary: the observer has confirmed that no member may take over, in a look that began after this many suspensions.
    pub is_alone: bool,
    pub suspensions: u64,
    pub place: Option<Place>,
}

/// The observer has given this standby the primary's place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// It was the target: all that was acknowledged is here.
    pub has_all: bool,
}

/// While it exists no member may take over from this primary.
pub(crate) struct Suspended<'a> {
    fast_start: &'a FastStart,
    number: u64,
}

impl<'a> Suspended<'a> {
    /// Never lets a member take over again: this process ends.
    pub(super) fn for_good(self) {
        std::mem::forget(self);
    }

    pub(super) fn begin(fast_start: &'a FastStart) -> Suspended<'a> {
        let mut state = fast_start.state();
        state.suspended += 1;
        state.suspensions += 1;
        let number = state.suspensions;
        drop(state);
        Suspended { fast_start, number }
    }
}

impl Suspended<'_> {
    /// Waits until the observer has confirmed it. False: it has not in time.
    pub(super) fn is_confirmed(&self, limit: Duration) -> bool {
        let number = self.number;
        let is_it = |shown: &Shown| (shown.is_alone && shown.suspensions >= number).then_some(());
        self.fast_start.await_shown(limit, is_it).is_some()
    }
}

impl Drop for Suspended<'_> {
    fn drop(&mut self) {
        let mut state = self.fast_start.state();
        state.suspended -= 1;
        state.shown.is_alone = false;
    }
}

/// While it exists this standby asks for the primary's place.
pub(super) struct Ordered<'a>(&'a FastStart);

impl<'a> Ordered<'a> {
    pub fn begin(fast_start: &'a FastStart) -> Ordered<'a> {
        let mut state = fast_start.state();
        state.orders += 1;
        state.order = Some(state.orders);
        drop(state);
        Ordered(fast_start)
    }
}

impl Drop for Ordered<'_> {
    fn drop(&mut self) {
        self.0.state().order = None;
    }
}

/// What commands order at the moment.
pub(super) struct Orders {
    pub is_suspended: bool,
    pub suspensions: u64,
    /// Number of an operator's order to fail over to this standby.
    pub failover: Option<u64>,
}

impl FastStart {
    pub(super) fn orders(&self) -> Orders {
        let state = self.state();
        Orders { is_suspended: state.suspended > 0, suspensions: state.suspensions, failover: state.order }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn show(&self, shown: Shown) {
        self.state().shown = shown;
        self.changed.notify_all();
    }

    /// Waits until the thread shows what is wanted, and returns it. `None`: it does not in time.
    pub(super) fn await_shown<T>(&self, limit: Duration, wanted: impl Fn(&Shown) -> Option<T>) -> Option<T> {
        let until = Instant::now() + limit;
        let mut state = self.state();
        loop {
            let found = wanted(&state.shown);
            let left = until.saturating_duration_since(Instant::now());
            if found.is_some() || left.is_zero() {
                return found;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// As it is shown by the status; `None`: fast-start failover is disabled.
    pub(crate) fn document(&self) -> Option<FastStartFailover> {
        self.state().shown.document.clone()
    }
}

pub(super) fn incarnation_of(control: &Control) -> Incarnation {
    let incarnation = control.incarnation();
    Incarnation { number: incarnation.number, id: incarnation.id }
}
