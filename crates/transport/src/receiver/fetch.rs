//! Receives the archived logs of a gap: separate connections request units from the primary and write them into files.
//!
//! The primary connects, so that it needs no address of its own. The standby requests, because it knows which units it
//! lacks:
//!
//! ```text
//!  primary's archiver                       standby
//!    │ ── Hello {archives_to} ──────────────> │  the gap is open, and of the same primary: else Refuse
//!    │ <───────────────────────── Hello ───── │
//!    │ <── Fetch log, offset, bytes ───────── │ ┐
//!    │ ── Unit ... Unit, UnitEnd crc ───────> │ ┘ as long as something is missing
//!    │ <── Done ───────────────────────────── │
//! ```

use super::Shared;
use crate::error::{PROTOCOL_VERSION, Refusal, RefuseCode, StageError, TransportError};
use crate::event::ReceiverEvent;
use crate::framing::{FrameReader, FrameWriter};
use crate::gap::{ArchivedLogInfo, Gap, GapStatus, Unit, Units};
use crate::hello::{self, ReceiverHello};
use crate::identity::PeerIdentity;
use crate::link::LinkEnd;
use crate::lock;
use crate::standby::{ArchivePart, OpenedGap};
use standfast_format::{FrameHeader, FrameKind, StreamCrc};
use standfast_instruments::{Event, waiting};
use standfast_io::behind::run_behind;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A log that fails its check after this many fetches is damaged at its source.
const SPOILED_MAX: u32 = 3;

/// The gap that is being resolved. The stream's thread opens and closes it; the threads of the connections for archived
/// logs work on it.
pub(crate) struct Fetch {
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

enum Task {
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

    /// Whether a connection for archived logs of `source` up to `to` belongs to this gap.
    fn takes(&self, source: &PeerIdentity, to: standfast_types::Scn) -> bool {
        self.source == *source && self.gap.to == to
    }

    fn enter(&self, link: &LinkEnd) -> Option<u64> {
        let mut work = lock(&self.work);
        if work.closed || work.failed.is_some() {
            return None;
        }
        let id = work.next_link;
        work.next_link += 1;
        work.links.insert(id, link.clone());
        Some(id)
    }

    fn leave(&self, id: u64) {
        lock(&self.work).links.remove(&id);
        self.changed.notify_all();
    }

    /// Returns the next unit; waits if a unit in progress may still be lost.
    fn next(&self) -> Result<Task, TransportError> {
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
    fn end_of(&self, unit: &Unit, came: Result<(), TransportError>) -> Result<(), TransportError> {
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
                    let refusal = never_whole(&self.gap.logs[unit.log]);
                    return Err(self.fail(&mut work, refusal));
                }
            }
            Some(Err(error)) => return Err(self.fail(&mut work, cannot_keep(&error))),
        }
        self.changed.notify_all();
        Ok(())
    }
}

/// Serves a connection for archived logs until the gap is filled or the connection is lost.
pub(super) fn serve(
    shared: &Shared,
    link: &LinkEnd,
    reader: &mut FrameReader<LinkEnd>,
    writer: &mut FrameWriter<LinkEnd>,
    hello: &hello::SenderHello,
) -> Result<(), TransportError> {
    let fetch = lock(&shared.fetch).clone();
    let fetch = fetch.filter(|fetch| hello.archives_to.is_some_and(|to| fetch.takes(&hello.source, to)));
    let entered = fetch.and_then(|fetch| Some((fetch.enter(link)?, fetch)));
    let Some((id, fetch)) = entered else {
        // Not for the alert log: an archiver may connect before the gap is opened, or too late, and connects again.
        let text =
            "no such gap is open here: it is about to be, or what it held has come, or its stream has ended";
        let refusal = Refusal::new(RefuseCode::Busy, text);
        return writer
            .write_json(FrameKind::Refuse, 0, &refusal)
            .map_err(TransportError::io("refusing an archiver"));
    };
    // The stream has priority over this thread.
    run_behind();
    let answer = ReceiverHello {
        standby: shared.service.identity(),
        positions: None,
        sdu_bytes: shared.config.sdu_bytes,
        renews: false,
        lists: false,
    };
    let fetched = writer
        .write_json(FrameKind::Hello, PROTOCOL_VERSION, &answer)
        .map_err(TransportError::io("greeting the archiver"))
        .and_then(|()| {
            let silence = hello.net_timeout().max(Duration::from_millis(100));
            link.prepare(silence).map_err(TransportError::io("preparing the connection"))?;
            link.set_read_timeout(Some(silence)).map_err(TransportError::io("preparing the connection"))?;
            reader.allow_redo();
            fetch_units(&fetch, reader, writer)
        });
    fetch.leave(id);
    match fetched {
        // The stream's thread finds this refusal and ends the stream with it.
        Err(TransportError::Refused(_)) => Ok(()),
        other => other,
    }
}

fn fetch_units(
    fetch: &Fetch,
    reader: &mut FrameReader<LinkEnd>,
    writer: &mut FrameWriter<LinkEnd>,
) -> Result<(), TransportError> {
    loop {
        match fetch.next()? {
            Task::End => {
                let done = FrameHeader::new(FrameKind::Done, 0, 0, 0, 0);
                return writer.write(done, b"{}").map_err(TransportError::io("ending"));
            }
            Task::Fetch(unit, part) => {
                let came = fetch_unit(&fetch.gap.logs[unit.log], &unit, &*part, reader, writer);
                fetch.end_of(&unit, came)?;
            }
        }
    }
}

/// Requests a unit and writes it to its place in the file.
fn fetch_unit(
    log: &ArchivedLogInfo,
    unit: &Unit,
    part: &dyn ArchivePart,
    reader: &mut FrameReader<LinkEnd>,
    writer: &mut FrameWriter<LinkEnd>,
) -> Result<(), TransportError> {
    let id = u64::from_le_bytes(log.incarnation_id.0);
    let wanted = FrameHeader::new(FrameKind::Fetch, log.sequence, unit.offset, unit.bytes, id);
    writer.write(wanted, &[]).map_err(TransportError::io("asking for a unit"))?;
    let (mut at, end, mut crc) = (unit.offset, unit.offset + unit.bytes, StreamCrc::default());
    while at < end {
        let frame = reader.read()?;
        hello::expect(&frame, FrameKind::Unit)?;
        let bytes = frame.payload.len() as u64;
        if (frame.header.a, frame.header.b) != (log.sequence, at) || bytes == 0 || bytes > end - at {
            return Err(TransportError::Protocol("a unit in pieces that do not follow each other".into()));
        }
        crc = crc.after(frame.payload);
        let wait = waiting(Event::RfsSequentialIo);
        let written = part.write(at, frame.payload);
        drop(wait);
        written.map_err(|error| TransportError::Refused(cannot_keep(&error)))?;
        at += bytes;
    }
    let frame = reader.read()?;
    hello::expect(&frame, FrameKind::UnitEnd)?;
    let said = frame.header;
    if (said.a, said.b, said.c, said.d) != (log.sequence, unit.offset, unit.bytes, u64::from(crc.0)) {
        return Err(TransportError::Protocol("a unit with another sum than its sender has".into()));
    }
    Ok(())
}

fn cannot_keep(error: &StageError) -> Refusal {
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
