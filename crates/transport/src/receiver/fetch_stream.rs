//! One connection that receives archived logs of a gap, as a machine: requests units from the primary and writes them into
//! files.

use super::fetch::{Fetch, Task, cannot_keep};
use crate::error::TransportError;
use crate::framing::{FrameReader, FrameWriter};
use crate::gap::{ArchivedLogInfo, Unit};
use crate::hello::{self, ReceiverHello};
use crate::standby::{ArchivePart, ReceiverService};
use standfast_format::{FrameHeader, FrameKind, StreamCrc};
use standfast_instruments::{Event, waiting};
use std::io::{Read, Write};
use std::sync::Arc;

/// A connection whose greeting was answered.
#[derive(Default)]
pub struct FetchStream {
    fetching: Option<Fetching>,
}

/// What the connection does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchStep {
    /// Something was requested or taken; there may be more.
    Taken,
    AwaitsBytes,
    /// Other connections work on all that is missing, and may fail.
    AwaitsWork,
    /// The other end knows that nothing is missing any more.
    Done,
}

/// A unit that was requested.
struct Fetching {
    unit: Unit,
    part: Arc<dyn ArchivePart>,
    /// Where the next chunk belongs.
    at: u64,
    crc: StreamCrc,
}

/// The answer to an archiver of a gap that is open here.
pub fn archiver_answer(service: &dyn ReceiverService, sdu_bytes: u32) -> ReceiverHello {
    ReceiverHello::new(service.identity(), None, sdu_bytes)
}

impl FetchStream {
    /// Requests the next unit, or takes the next frame of the one that was requested.
    ///
    /// # Errors
    /// Why the connection must end.
    pub fn step<R: Read, W: Write>(
        &mut self,
        fetch: &Fetch,
        reader: &mut FrameReader<R>,
        writer: &mut FrameWriter<W>,
    ) -> Result<FetchStep, TransportError> {
        let Some(fetching) = &mut self.fetching else { return self.request(fetch, writer) };
        let log = fetch.log_of(&fetching.unit);
        match fetching.take(log, reader) {
            Ok(None) => Ok(FetchStep::AwaitsBytes),
            Ok(Some(false)) => Ok(FetchStep::Taken),
            Ok(Some(true)) => {
                let unit = fetching.unit;
                self.fetching = None;
                fetch.arrived(&unit).map(|()| FetchStep::Taken)
            }
            Err(error) => Err(self.lost(fetch, error)),
        }
    }

    fn request<W: Write>(
        &mut self,
        fetch: &Fetch,
        writer: &mut FrameWriter<W>,
    ) -> Result<FetchStep, TransportError> {
        let (unit, part) = match fetch.next()? {
            None => return Ok(FetchStep::AwaitsWork),
            Some(Task::Fetch(unit, part)) => (unit, part),
            Some(Task::End) => {
                let done = FrameHeader::new(FrameKind::Done, 0, 0, 0, 0);
                writer.write(done, b"{}").map_err(TransportError::io("ending"))?;
                return Ok(FetchStep::Done);
            }
        };
        let log = fetch.log_of(&unit);
        let id = u64::from_le_bytes(log.incarnation_id.0);
        let wanted = FrameHeader::new(FrameKind::Fetch, log.sequence, unit.offset, unit.bytes, id);
        self.fetching = Some(Fetching { unit, part, at: unit.offset, crc: StreamCrc::default() });
        match writer.write(wanted, &[]) {
            Ok(()) => Ok(FetchStep::Taken),
            Err(error) => Err(self.lost(fetch, TransportError::io("asking for a unit")(error))),
        }
    }

    /// The connection is lost: another one fetches its unit. Returns why it ends.
    pub fn lost(&mut self, fetch: &Fetch, error: TransportError) -> TransportError {
        match self.fetching.take() {
            Some(fetching) => fetch.lost(&fetching.unit, error),
            None => error,
        }
    }
}

impl Fetching {
    /// Takes the next frame and writes it to its place in the file. True: the unit has arrived; `None`: no frame has.
    fn take<R: Read>(
        &mut self,
        log: &ArchivedLogInfo,
        reader: &mut FrameReader<R>,
    ) -> Result<Option<bool>, TransportError> {
        let Some((frame, length)) = reader.peek(0)? else { return Ok(None) };
        let (unit, end) = (&self.unit, self.unit.offset + self.unit.bytes);
        if self.at < end {
            hello::expect(&frame, FrameKind::Unit)?;
            let bytes = frame.payload.len() as u64;
            if (frame.header.a, frame.header.b) != (log.sequence, self.at)
                || bytes == 0
                || bytes > end - self.at
            {
                return Err(TransportError::Protocol(
                    "a unit in chunks that do not follow each other".into(),
                ));
            }
            self.crc = self.crc.after(frame.payload);
            let wait = waiting(Event::RfsSequentialIo);
            let written = self.part.write(self.at, frame.payload);
            drop(wait);
            written.map_err(|error| TransportError::Refused(cannot_keep(&error)))?;
            self.at += bytes;
            reader.consume(length);
            return Ok(Some(false));
        }
        hello::expect(&frame, FrameKind::UnitEnd)?;
        let reported = frame.header;
        if (reported.a, reported.b, reported.c, reported.d)
            != (log.sequence, unit.offset, unit.bytes, u64::from(self.crc.0))
        {
            return Err(TransportError::Protocol("a unit with another sum than its sender has".into()));
        }
        reader.consume(length);
        Ok(Some(true))
    }
}
