//! Who has the standby log: it lies in the slot, or one connection's thread has it.

use crate::identity::PeerIdentity;
use crate::link::LinkEnd;
use crate::lock;
use crate::standby::StandbyLog;
use standfast_types::IncarnationNo;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

pub(crate) struct Slot {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    log: Option<Box<dyn StandbyLog>>,
    live: Option<Live>,
    /// The instance stops in good order: streams end with that as their reason.
    leaving: bool,
}

struct Live {
    source: PeerIdentity,
    stream: LinkEnd,
}

/// Why the log cannot be had.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// There is none: this instance takes no redo.
    None,
    /// The stream of another source of the same incarnation is live.
    Taken(String),
    /// The connection before did not let go in time: it is writing.
    Slow,
}

impl Slot {
    pub fn new(log: Option<Box<dyn StandbyLog>>) -> Slot {
        Slot { state: Mutex::new(State { log, ..State::default() }), changed: Condvar::new() }
    }

    pub fn put(&self, log: Box<dyn StandbyLog>) {
        lock(&self.state).log = Some(log);
        self.changed.notify_all();
    }

    pub fn is_live(&self) -> bool {
        lock(&self.state).live.is_some()
    }

    /// Takes the log for good, ending the stream that has it.
    pub fn take_away(&self) -> Option<Box<dyn StandbyLog>> {
        let mut state = lock(&self.state);
        while let Some(live) = &state.live {
            live.stream.shutdown();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.log.take()
    }

    /// Ends the live stream when its source knows no incarnation as new as `number`.
    pub fn end_older(&self, number: IncarnationNo) {
        let state = lock(&self.state);
        let is_older = |live: &&Live| live.source.current().is_none_or(|current| current.number < number);
        if let Some(live) = state.live.as_ref().filter(is_older) {
            live.stream.shutdown();
        }
    }

    /// The same because the instance stops in good order, which the source is told, unless that takes until `deadline`.
    pub fn leave(&self, deadline: Instant) -> Option<Box<dyn StandbyLog>> {
        let mut state = lock(&self.state);
        state.leaving = true;
        while let Some(live) = &state.live {
            live.stream.shutdown_read();
            let Some(next) = self.wait_until(state, deadline) else { return self.take_away() };
            state = next;
        }
        state.log.take()
    }

    /// Whether the instance stops in good order.
    pub fn is_leaving(&self) -> bool {
        lock(&self.state).leaving
    }

    /// Lends the log to a stream for the length of `work`. An older stream of the same primary, which may be
    /// half-open, or of an older incarnation, makes room first.
    pub fn lend<R>(
        &self,
        source: &PeerIdentity,
        stream: &LinkEnd,
        deadline: Instant,
        work: impl FnOnce(&mut dyn StandbyLog) -> R,
    ) -> Result<R, Unavailable> {
        let mut log = self.take_for(source, stream, deadline)?;
        let occupied = Occupied(self);
        let result = work(&mut *log);
        lock(&self.state).log = Some(log);
        drop(occupied);
        Ok(result)
    }

    fn take_for(
        &self,
        source: &PeerIdentity,
        stream: &LinkEnd,
        deadline: Instant,
    ) -> Result<Box<dyn StandbyLog>, Unavailable> {
        let mut state = lock(&self.state);
        while let Some(live) = &state.live {
            if !gives_way(&live.source, source) {
                return Err(Unavailable::Taken(live.source.name.clone()));
            }
            live.stream.shutdown();
            state = self.wait_until(state, deadline).ok_or(Unavailable::Slow)?;
        }
        let log = state.log.take().ok_or(Unavailable::None)?;
        state.live = Some(Live { source: source.clone(), stream: stream.clone() });
        Ok(log)
    }

    fn wait_until<'a>(
        &self,
        state: MutexGuard<'a, State>,
        deadline: Instant,
    ) -> Option<MutexGuard<'a, State>> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        Some(self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0)
    }
}

fn gives_way(old: &PeerIdentity, new: &PeerIdentity) -> bool {
    let number = |peer: &PeerIdentity| peer.current().map(|incarnation| incarnation.number);
    old.instance == new.instance || number(new) > number(old)
}

/// While it lives a stream has the log. Dropped also when that stream's thread panics: the log is lost then, but
/// nobody waits for it.
struct Occupied<'a>(&'a Slot);

impl Drop for Occupied<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).live = None;
        self.0.changed.notify_all();
    }
}
