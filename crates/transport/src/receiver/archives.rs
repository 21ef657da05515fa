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

use super::fetch::{Fetch, Task, cannot_keep};
use super::shared::Shared;
use crate::error::{PROTOCOL_VERSION, Refusal, RefuseCode, TransportError};
use crate::framing::{FrameReader, FrameWriter};
use crate::gap::{ArchivedLogInfo, Unit};
use crate::hello::{self, ReceiverHello, SenderHello};
use crate::link::LinkEnd;
use crate::lock;
use crate::standby::ArchivePart;
use standfast_format::{FrameHeader, FrameKind, StreamCrc};
use standfast_instruments::{Event, waiting};
use standfast_io::behind::run_behind;
use std::time::Duration;

/// Serves a connection for archived logs until the gap is filled or the connection is lost.
pub(super) fn serve(
    shared: &Shared,
    link: &LinkEnd,
    reader: &mut FrameReader<LinkEnd>,
    writer: &mut FrameWriter<LinkEnd>,
    hello: &SenderHello,
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
                let came = fetch_unit(fetch.log_of(&unit), &unit, &*part, reader, writer);
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
    let reported = frame.header;
    if (reported.a, reported.b, reported.c, reported.d)
        != (log.sequence, unit.offset, unit.bytes, u64::from(crc.0))
    {
        return Err(TransportError::Protocol("a unit with another sum than its sender has".into()));
    }
    Ok(())
}
