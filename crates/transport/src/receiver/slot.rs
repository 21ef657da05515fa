//! Holds the standby log, or lends it to the thread of one connection.

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
    /// The instance shuts down cleanly: streams end with that as their reason.
    leaving: bool,
}

struct Live {
    source: PeerIdentity,
    stream: LinkEnd,
}

/// Why the log is not available.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unavailable {
    /// There is none: this instance takes no redo.
    None,
    /// The stream of another source is open, whose incarnation is not older.
    Taken(String),
    /// The previous connection did not release it in time: it is writing.
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

    /// Takes the log permanently, ending the stream that has it.
    pub fn take_away(&self) -> Option<Box<dyn StandbyLog>> {
        let mut state = lock(&self.state);
        while let Some(live) = &state.live {
            live.stream.shutdown();
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.log.take()
    }

    /// Ends the open stream if its source knows no incarnation as new as `number`.
    pub fn end_older(&self, number: IncarnationNo) {
        let state = lock(&self.state);
        let is_older = |live: &&Live| live.source.current().is_none_or(|current| current.number < number);
        if let Some(live) = state.live.as_ref().filter(is_older) {
            live.stream.shutdown();
        }
    }

    /// Takes the log permanently for a clean shutdown. Reports it to the source of the stream, unless that takes until
    /// `deadline`.
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

    /// Whether the instance shuts down cleanly.
    pub fn is_leaving(&self) -> bool {
        lock(&self.state).leaving
    }

    /// Lends the log to a stream for the duration of `work`. First ends an older stream of the same primary, which may
    /// be half-open, or a stream of an older incarnation.
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

/// A stream has the log while this lives. It is also dropped when the stream's thread panics: the log is lost then, but
/// no thread waits for it.
struct Occupied<'a>(&'a Slot);

impl Drop for Occupied<'_> {
    fn drop(&mut self) {
        lock(&self.0.state).live = None;
        self.0.changed.notify_all();
    }
}
