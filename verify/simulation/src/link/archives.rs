//! Connections for the archived logs of a gap, beside a stream: at the primary's end an archiver, at the standby's end
//! one that requests units, each in one step after the other.

use super::pipe::{self, PipeEnd, Plain};
use super::sender_end::{Progress, fill};
use crate::Outcome;
use standfast_format::FrameKind;
use standfast_testkit::{MemoryLink, Rng};
use standfast_transport::framing::{FrameReader, FrameWriter, FramingError};
use standfast_transport::hello::{self, SenderHello};
use standfast_transport::machine::{
    ArchiverStep, ArchiverStream, Fetch, FetchStep, FetchStream, OpenGap, SenderCore, archiver_answer,
    archiver_hello, may_take, meets,
};
use standfast_transport::{PROTOCOL_VERSION, ReceiverService, TransportError};
use std::sync::Arc;
use std::time::Duration;

/// One connection, both ends.
pub(super) struct ArchiveConnection {
    pipe: MemoryLink,
    near: Near,
    far: Far,
}

struct Near {
    reader: FrameReader<PipeEnd>,
    writer: FrameWriter<PipeEnd>,
    /// `None` until the standby has answered.
    stream: Option<ArchiverStream>,
}

struct Far {
    reader: FrameReader<PipeEnd>,
    writer: FrameWriter<PipeEnd>,
    /// `None` until the archiver has greeted.
    stream: Option<(Arc<Fetch>, FetchStream)>,
}

/// How the standby's end sees the gap.
pub(super) struct FarSite<'a> {
    pub service: &'a dyn ReceiverService,
    pub fetch: Option<Arc<Fetch>>,
}

impl ArchiveConnection {
    /// Connects an archiver for `open`.
    pub fn open(core: &SenderCore, open: &OpenGap, rng: &mut Rng) -> Option<ArchiveConnection> {
        let (pipe, near, far) = pipe::connection(rng);
        let (mut near, far) = (Near::new(near), Far::new(far));
        let hello = archiver_hello(core, open);
        let greeted = near.writer.write_json(FrameKind::Hello, PROTOCOL_VERSION, &hello);
        greeted.ok().map(|()| ArchiveConnection { pipe, near, far })
    }

    /// Breaks the connection: each direction still delivers a part of what was sent.
    pub fn cut(&self) {
        self.pipe.cut();
    }

    /// Lets both ends and the pipe do a step. `site`: the standby, if it is there. `Down`: the connection is over.
    ///
    /// # Errors
    /// Why the connection ended, unless it was lost.
    pub fn step(&mut self, core: &SenderCore, open: &OpenGap, site: &FarSite<'_>) -> Outcome<Progress> {
        self.pipe.step();
        let near = self.near.step(core, open);
        let far = self.far.step(site);
        match (ended(near)?, ended(far)?) {
            (Progress::Down, _) | (_, Progress::Down) => {
                self.end();
                Ok(Progress::Down)
            }
            (Progress::Something, _) | (_, Progress::Something) => Ok(Progress::Something),
            _ if self.pipe.in_flight() > 0 => Ok(Progress::Something),
            (idle, _) => Ok(idle),
        }
    }

    /// The connection is over: another one fetches the unit that was in flight.
    pub fn end(&mut self) {
        if let Some((fetch, mut stream)) = self.far.stream.take() {
            stream.lost(&fetch, TransportError::Framing(FramingError::Closed));
        }
    }
}

/// What a step has led to; a lost connection is no error.
fn ended(stepped: Result<Progress, TransportError>) -> Outcome<Progress> {
    match stepped {
        Ok(progress) => Ok(progress),
        Err(TransportError::Framing(FramingError::Io(_) | FramingError::Closed)) => Ok(Progress::Down),
        // The stream finds the refusal of a log, or there is no such gap any more.
        Err(TransportError::Io { .. } | TransportError::Refused(_)) => Ok(Progress::Down),
        Err(error) => Err(format!("archived logs: {error}")),
    }
}

const SOON: Duration = Duration::from_millis(5);

impl Near {
    fn new(end: PipeEnd) -> Near {
        Near { reader: FrameReader::new(end.clone()), writer: FrameWriter::new(end), stream: None }
    }

    fn step(&mut self, core: &SenderCore, open: &OpenGap) -> Result<Progress, TransportError> {
        let came = fill(&mut self.reader)?;
        let Some(stream) = &mut self.stream else {
            let (stream, length) = match self.reader.peek(0)? {
                Some((frame, length)) => (ArchiverStream::greeted(&frame)?, length),
                None if came => return Ok(Progress::Something),
                None => return Ok(Progress::Idle(SOON)),
            };
            self.reader.consume(length);
            self.stream = Some(stream);
            return Ok(Progress::Something);
        };
        Ok(match stream.step(core, open, &mut self.reader, &mut self.writer)? {
            ArchiverStep::Sent => Progress::Something,
            ArchiverStep::Done => Progress::Down,
            ArchiverStep::Pause(_) | ArchiverStep::Awaits if !came => Progress::Idle(SOON),
            ArchiverStep::Pause(_) | ArchiverStep::Awaits => Progress::Something,
        })
    }
}

impl Far {
    fn new(end: PipeEnd) -> Far {
        Far { reader: FrameReader::new(end.clone()), writer: FrameWriter::new(end), stream: None }
    }

    fn step(&mut self, site: &FarSite<'_>) -> Result<Progress, TransportError> {
        let came = fill(&mut self.reader)?;
        let Some((fetch, stream)) = &mut self.stream else {
            let (hello, length): (SenderHello, usize) = match self.reader.peek(0)? {
                Some((frame, length)) => {
                    hello::expect(&frame, FrameKind::Hello)?;
                    (hello::decode(&frame)?, length)
                }
                None if came => return Ok(Progress::Something),
                None => return Ok(Progress::Idle(SOON)),
            };
            self.reader.consume(length);
            return self.greeted(&hello, site);
        };
        Ok(match stream.step(fetch, &mut self.reader, &mut self.writer)? {
            FetchStep::Taken => Progress::Something,
            FetchStep::Done => Progress::Idle(SOON),
            FetchStep::AwaitsBytes | FetchStep::AwaitsWork if came => Progress::Something,
            FetchStep::AwaitsBytes | FetchStep::AwaitsWork => Progress::Idle(SOON),
        })
    }

    fn greeted(&mut self, hello: &SenderHello, site: &FarSite<'_>) -> Result<Progress, TransportError> {
        meets(site.service, &Plain, hello)?;
        site.service.admit(hello)?;
        let takes = |fetch: &&Arc<Fetch>| {
            !fetch.is_over() && hello.archives_to.is_some_and(|to| fetch.takes(&hello.source, to))
        };
        let fetch =
            site.fetch.as_ref().filter(takes).filter(|_| may_take(&site.service.identity(), &hello.source));
        // The gap is about to be opened, or filled.
        let Some(fetch) = fetch else { return Ok(Progress::Down) };
        self.writer
            .write_json(FrameKind::Hello, PROTOCOL_VERSION, &archiver_answer(site.service, 0))
            .map_err(TransportError::io("greeting the archiver"))?;
        self.reader.allow_redo();
        self.stream = Some((fetch.clone(), FetchStream::default()));
        Ok(Progress::Something)
    }
}
