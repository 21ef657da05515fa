//! One connection of an archiver, as a machine: answers the standby, which requests units of archived logs.

use super::open_gap::OpenGap;
use super::sender_core::SenderCore;
use crate::error::{Refusal, RefuseCode, TransportError};
use crate::event::SenderEvent;
use crate::framing::{FrameReader, FrameWriter};
use crate::gap::ArchivedLogInfo;
use crate::hello::{self, SenderHello};
use crate::lock;
use crate::packing::Compression;
use crate::source::ArchivedFile;
use standfast_format::{Frame, FrameHeader, FrameKind, StreamCrc};
use standfast_instruments::{Event, Statistic, count, waiting};
use standfast_io::fault::{self, Fault};
use std::io::{Read, Write};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// Payload bytes of one frame of a unit.
const CHUNK_BYTES: u64 = 1 << 20;

/// A connection whose greeting the standby has answered.
#[derive(Default)]
pub struct ArchiverStream {
    file: Opened,
    sending: Option<Sending>,
    /// The newest chunk; kept for its memory.
    chunk: Vec<u8>,
}

/// What the archiver does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiverStep {
    /// Something was taken or sent; there may be more.
    Sent,
    /// Nothing before more bytes arrive.
    Awaits,
    /// Nothing for this long, so that answers to commits are not delayed.
    Pause(Duration),
    /// The standby has everything.
    Done,
}

/// The log that an archiver has open.
type Opened = Option<(ArchivedLogInfo, Box<dyn ArchivedFile>)>;

/// A unit that was requested.
struct Sending {
    log: ArchivedLogInfo,
    offset: u64,
    bytes: u64,
    /// Where the next chunk begins.
    at: u64,
    crc: StreamCrc,
    /// The next chunk has waited for its time.
    has_waited: bool,
}

/// The first message of an archiver's connection.
pub fn archiver_hello(core: &SenderCore, open: &OpenGap) -> SenderHello {
    let destination = &core.config.destination;
    SenderHello {
        source: core.source.identity(),
        mode: destination.mode,
        compression: Compression::None,
        net_timeout_ms: u64::try_from(destination.net_timeout.as_millis()).unwrap_or(u64::MAX),
        archives_to: Some(open.to()),
        peers: Vec::new(),
        members: Vec::new(),
        issuer: None,
        renews: false,
        reports_position: false,
        via: core.source.via(),
        delay_ms: None,
        logs: None,
        receive_buffer_bytes: core.config.shape.receive_buffer_bytes,
    }
}

impl ArchiverStream {
    /// Takes the answer to the greeting.
    ///
    /// # Errors
    /// `Refused`, `Protocol`.
    pub fn greeted(answer: &Frame<'_>) -> Result<ArchiverStream, TransportError> {
        hello::expect(answer, FrameKind::Hello)?;
        Ok(ArchiverStream::default())
    }

    /// Sends the next chunk of the requested unit, or takes the next request.
    ///
    /// # Errors
    /// Why the connection must end.
    pub fn step<R: Read, W: Write>(
        &mut self,
        core: &SenderCore,
        open: &OpenGap,
        reader: &mut FrameReader<R>,
        writer: &mut FrameWriter<W>,
    ) -> Result<ArchiverStep, TransportError> {
        if self.sending.is_some() {
            return self.send(core, open, writer);
        }
        let (wanted, length) = match reader.peek(0)? {
            None => return Ok(ArchiverStep::Awaits),
            Some((frame, _)) if frame.header.kind == FrameKind::Done => return Ok(ArchiverStep::Done),
            Some((frame, length)) => {
                hello::expect(&frame, FrameKind::Fetch)?;
                (frame.header, length)
            }
        };
        reader.consume(length);
        let Some(log) = open.log(wanted.a, wanted.d) else {
            return Err(TransportError::Protocol(format!("log {} is not one that is missing", wanted.a)));
        };
        let (offset, bytes) = (wanted.b, wanted.c);
        if offset.checked_add(bytes).is_none_or(|end| end > log.bytes) || !offset.is_multiple_of(4096) {
            return Err(TransportError::Protocol("a unit beyond the end of its log".into()));
        }
        if self.file.as_ref().is_none_or(|(opened, _)| opened != log) {
            self.file = match core.source.open_archived(log) {
                Ok(opened) => Some((*log, opened)),
                Err(error) => return Err(unusable(core, log, error.to_string(), writer)),
            };
        }
        let crc = StreamCrc::default();
        self.sending = Some(Sending { log: *log, offset, bytes, at: offset, crc, has_waited: false });
        Ok(ArchiverStep::Sent)
    }

    /// Sends the next chunk of the unit, or its end.
    fn send<W: Write>(
        &mut self,
        core: &SenderCore,
        open: &OpenGap,
        writer: &mut FrameWriter<W>,
    ) -> Result<ArchiverStep, TransportError> {
        let sending = TransportError::io("sending an archived log");
        let (Some(unit), Some((_, file))) = (&mut self.sending, &mut self.file) else {
            return Ok(ArchiverStep::Awaits);
        };
        let Sending { log, offset, bytes, .. } = *unit;
        if unit.at == offset + bytes {
            let end =
                FrameHeader::new(FrameKind::UnitEnd, log.sequence, offset, bytes, u64::from(unit.crc.0));
            self.sending = None;
            return writer.write(end, &[]).map_err(sending).map(|()| ArchiverStep::Sent);
        }
        let length = (offset + bytes - unit.at).min(CHUNK_BYTES);
        if !std::mem::replace(&mut unit.has_waited, true) {
            let held_back = core.config.archive.archivers.holds_back(core.clock.monotonic_ns(), length);
            if !held_back.is_zero() {
                return Ok(ArchiverStep::Pause(held_back));
            }
        }
        let wait = waiting(Event::ArchRemoteWrite);
        fault::check(Fault::ArchiveSend).map_err(&sending)?;
        self.chunk.resize(length as usize, 0);
        if let Err(error) = file.read(unit.at, &mut self.chunk) {
            return Err(unusable(core, &log, error.to_string(), writer));
        }
        unit.crc = unit.crc.after(&self.chunk);
        let header = FrameHeader::new(FrameKind::Unit, log.sequence, unit.at, 0, 0);
        writer.write(header, &self.chunk).map_err(&sending)?;
        drop(wait);
        unit.at += length;
        unit.has_waited = false;
        open.add_sent(length);
        core.stats.archived_bytes.fetch_add(length, Relaxed);
        count(Statistic::RedoReadForTransport, length);
        Ok(ArchiverStep::Sent)
    }
}

/// Reports to both ends that a log cannot be sent, and excludes it from later gaps.
fn unusable<W: Write>(
    core: &SenderCore,
    log: &ArchivedLogInfo,
    reason: String,
    writer: &mut FrameWriter<W>,
) -> TransportError {
    let sequence = log.sequence;
    let text = format!("the archived log {sequence} cannot be sent: {reason}");
    if lock(&core.unusable).insert((log.incarnation_id, sequence)) {
        core.report(&SenderEvent::ArchiveUnusable { sequence, reason });
    }
    let refusal = Refusal::new(RefuseCode::Source, text);
    // A peer that this does not reach sees the end of the connection.
    let _ = writer.write_json(FrameKind::Refuse, 0, &refusal);
    TransportError::Refused(refusal)
}
