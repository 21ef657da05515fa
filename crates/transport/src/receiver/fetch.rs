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
pub(super) struct Fetch {
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

impl Fetch {
    pub fn new(gap: Gap, source: PeerIdentity, opened: OpenedGap) -> Fetch {
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
        let (began, missing) = (Instant::now(), progress.bytes - progress.arrived);
        Fetch { gap, source, opened, began, missing, work: Mutex::new(work), changed: Condvar::new() }
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

    pub fn resolved(&self) -> ReceiverEvent {
        let gap = GapStatus { bytes_left: self.missing, ..self.status() };
        ReceiverEvent::GapResolved { gap, took: self.began.elapsed() }
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
    pub fn log_of(&self, unit: &Unit) -> &ArchivedLogInfo {
        &self.gap.logs[unit.log]
    }

    /// Whether a connection for archived logs of `source` up to `to` belongs to this gap.
    pub fn takes(&self, source: &PeerIdentity, to: Scn) -> bool {
        self.source == *source && self.gap.to == to
    }

    pub fn enter(&self, link: &LinkEnd) -> Option<u64> {
        let mut work = lock(&self.work);
        if work.closed || work.failed.is_some() {
            return None;
        }
        let id = work.next_link;
        work.next_link += 1;
        work.links.insert(id, link.clone());
        Some(id)
    }

    pub fn leave(&self, id: u64) {
        lock(&self.work).links.remove(&id);
        self.changed.notify_all();
    }

    /// Returns the next unit; waits if a unit in progress may still be lost.
    pub fn next(&self) -> Result<Task, TransportError> {
        let mut work = lock(&self.work);
        loop {
            if work.closed || work.failed.is_some() || work.units.is_done() {
                return Ok(Task::End);
            }
            if let Some(unit) = work.units.take() {
                return match self.part(&mut work, unit.log) {
                    Ok(part) => Ok(Task::Fetch(unit, part)),
                    Err(error) => {
                        work.units.lost(&unit);
                        Err(self.fail(&mut work, cannot_keep(&error)))
                    }
                };
            }
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

    /// Ends a unit that has arrived or not. The connection that brings the last unit of a log checks the log.
    pub fn end_of(&self, unit: &Unit, came: Result<(), TransportError>) -> Result<(), TransportError> {
        let mut work = lock(&self.work);
        if let Err(error) = came {
            work.units.lost(unit);
            self.changed.notify_all();
            return Err(match error {
                // The primary no longer has the log or cannot read it; another connection cannot either.
                TransportError::Refused(refusal) => self.fail(&mut work, refusal),
                other => other,
            });
        }
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
