//! The state of a gap that is being resolved, at the standby: which units of its archived logs are missing.

use crate::error::{Refusal, RefuseCode, StageError, TransportError};
use crate::event::ReceiverEvent;
use crate::gap::{ArchivedLogInfo, Gap, GapStatus, Unit, Units};
use crate::identity::PeerIdentity;
use crate::link::LinkEnd;
use crate::lock;
use crate::standby::{ArchivePart, OpenedGap};
use standfast_types::Scn;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

/// A log that fails its check after this many fetches is damaged at its source.
const SPOILED_MAX: u32 = 3;

/// The gap that is being resolved. The stream's thread opens and closes it; the threads of the connections for archived
/// logs work on it.
pub struct Fetch {
    gap: Gap,
    source: PeerIdentity,
    opened: OpenedGap,
    began: Instant,
    /// Bytes that had to be fetched.
    missing: u64,
    work: Mutex<Work>,
    changed: Condvar,
}

struct Work {
    units: Units,
    parts: HashMap<usize, Arc<dyn ArchivePart>>,
    links: HashMap<u64, LinkEnd>,
    next_link: u64,
    /// Why the gap cannot be resolved.
    failed: Option<Refusal>,
    closed: bool,
}

/// What a connection does next.
pub(super) enum Task {
    Fetch(Unit, Arc<dyn ArchivePart>),
    End,
}

impl Work {
    fn is_over(&self) -> bool {
        self.closed || self.failed.is_some() || self.units.is_done()
    }
}

impl Fetch {
    /// `now`: on the clock that [`Fetch::resolved`] gets, too.
    pub fn new(gap: Gap, source: PeerIdentity, opened: OpenedGap, now: Instant) -> Fetch {
        let held = opened.held.iter().copied().chain(std::iter::repeat(false));
        let units = Units::new(gap.logs.iter().map(|log| log.bytes).zip(held), gap.unit_bytes, gap.per_log);
        let progress = units.progress();
        let work = Work {
            units,
            parts: HashMap::new(),
            links: HashMap::new(),
            next_link: 0,
            failed: None,
            closed: false,
        };
        let missing = progress.bytes - progress.arrived;
        Fetch { gap, source, opened, began: now, missing, work: Mutex::new(work), changed: Condvar::new() }
    }

    pub fn is_filled(&self) -> bool {
        lock(&self.work).units.is_done()
    }

    /// Why the gap cannot be resolved.
    pub fn failure(&self) -> Option<Refusal> {
        lock(&self.work).failed.clone()
    }

    pub fn status(&self) -> GapStatus {
        let work = lock(&self.work);
        let progress = work.units.progress();
        GapStatus {
            low_sequence: self.gap.low_sequence(),
            high_sequence: self.gap.high_sequence(),
            from: self.gap.from,
            to: self.gap.to,
            bytes: progress.bytes,
            bytes_left: progress.bytes - progress.arrived,
            connections: work.links.len() as u32,
        }
    }

    pub fn found(&self) -> ReceiverEvent {
        ReceiverEvent::GapFound(GapStatus { connections: self.gap.connections, ..self.status() })
    }

    pub fn resolved(&self, now: Instant) -> ReceiverEvent {
        let gap = GapStatus { bytes_left: self.missing, ..self.status() };
        ReceiverEvent::GapResolved { gap, took: now.saturating_duration_since(self.began) }
    }

    /// Ends the connections, because the stream is over or the gap is filled; returns when no thread works on it any
    /// more.
    pub fn close(&self) {
        let mut work = lock(&self.work);
        work.closed = true;
        self.changed.notify_all();
        if !work.units.is_done() {
            work.links.values().for_each(|link| link.shutdown());
        }
        while !work.links.is_empty() {
            work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The log that a unit is a part of.
    pub(super) fn log_of(&self, unit: &Unit) -> &ArchivedLogInfo {
        &self.gap.logs[unit.log]
    }

    /// Whether a connection for archived logs of `source` up to `to` belongs to this gap.
    pub fn takes(&self, source: &PeerIdentity, to: Scn) -> bool {
        self.source == *source && self.gap.to == to
    }

    pub(super) fn enter(&self, link: &LinkEnd) -> Option<u64> {
        let mut work = lock(&self.work);
        if work.closed || work.failed.is_some() {
            return None;
        }
        let id = work.next_link;
        work.next_link += 1;
        work.links.insert(id, link.clone());
        Some(id)
    }

    pub(super) fn leave(&self, id: u64) {
        lock(&self.work).links.remove(&id);
        self.changed.notify_all();
    }

    /// Whether connections for archived logs have no more to do here.
    pub fn is_over(&self) -> bool {
        lock(&self.work).is_over()
    }

    /// Returns the next unit; `None` while all are in progress, of which some may still be lost.
    pub(super) fn next(&self) -> Result<Option<Task>, TransportError> {
        let mut work = lock(&self.work);
        if work.is_over() {
            return Ok(Some(Task::End));
        }
        let Some(unit) = work.units.take() else { return Ok(None) };
        match self.part(&mut work, unit.log) {
            Ok(part) => Ok(Some(Task::Fetch(unit, part))),
            Err(error) => {
                work.units.lost(&unit);
                Err(self.fail(&mut work, cannot_keep(&error)))
            }
        }
    }

    /// Returns when [`Fetch::next`] has something.
    pub(super) fn wait_for_work(&self) {
        let mut work = lock(&self.work);
        while !work.is_over() && !work.units.has_free() {
            work = self.changed.wait(work).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn part(&self, work: &mut Work, log: usize) -> Result<Arc<dyn ArchivePart>, StageError> {
        if let Some(part) = work.parts.get(&log) {
            return Ok(part.clone());
        }
        let part = self.opened.store.create(&self.gap.logs[log])?;
        work.parts.insert(log, part.clone());
        Ok(part)
    }

    fn fail(&self, work: &mut Work, refusal: Refusal) -> TransportError {
        work.failed.get_or_insert(refusal.clone());
        self.changed.notify_all();
        TransportError::Refused(refusal)
    }

    /// Ends a unit that has not arrived. Returns why its connection ends.
    pub(super) fn lost(&self, unit: &Unit, error: TransportError) -> TransportError {
        let mut work = lock(&self.work);
        work.units.lost(unit);
        self.changed.notify_all();
        match error {
            // The primary no longer has the log or cannot read it; another connection cannot either.
            TransportError::Refused(refusal) => self.fail(&mut work, refusal),
            other => other,
        }
    }

    /// Ends a unit that has arrived. The connection that brings the last unit of a log checks the log.
    pub(super) fn arrived(&self, unit: &Unit) -> Result<(), TransportError> {
        let mut work = lock(&self.work);
        let complete = work.units.arrived(unit);
        let part = work.parts.get(&unit.log).cloned().filter(|_| complete);
        drop(work);
        let outcome = part.map(|part| part.complete());
        let mut work = lock(&self.work);
        match outcome {
            None => {}
            Some(Ok(true)) => {
                work.parts.remove(&unit.log);
                work.units.whole(unit.log);
            }
            Some(Ok(false)) => {
                work.parts.remove(&unit.log);
                if work.units.spoiled(unit.log) >= SPOILED_MAX {
                    let refusal = never_whole(self.log_of(unit));
                    return Err(self.fail(&mut work, refusal));
                }
            }
            Some(Err(error)) => return Err(self.fail(&mut work, cannot_keep(&error))),
        }
        self.changed.notify_all();
        Ok(())
    }
}

pub(super) fn cannot_keep(error: &StageError) -> Refusal {
    Refusal::new(RefuseCode::StandbyLog, format!("an archived log cannot be kept: {error}"))
}

fn never_whole(log: &ArchivedLogInfo) -> Refusal {
    let text = format!(
        "the archived log {} was fetched {SPOILED_MAX} times and is not whole or not of this stream; it is damaged where \
         it comes from",
        log.sequence
    );
    Refusal::new(RefuseCode::Source, text)
}
