//! The standby's end: what the thread of a connection does, in one step after the other.

use super::pipe::{PipeEnd, Plain, Time};
use super::sender_end::{Progress, fill, only_a_new_copy_helps};
use crate::standby::StandbyHost;
use crate::{Outcome, lock, trace};
use standfast_environment::context::environment::Environment;
use standfast_environment::ship::identity::{knowing_identity, peer_identity};
use standfast_format::FrameKind;
use standfast_standby::upstream::upstream;
use standfast_transport::framing::{FrameReader, FrameWriter, FramingError};
use standfast_transport::hello::{self, SenderHello};
use standfast_transport::machine::{
    Agreement, Clock, Fetch, GapBefore, Outgoing, ReceiverStream, StreamSite, may_take, meets,
};
use standfast_transport::{
    Incarnation, PROTOCOL_VERSION, PeerIdentity, ReceiverCounts, ReceiverEvent, ReceiverService, RedoSource,
    Refusal, StandbyLog, StreamStart, TransportError,
};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub(super) struct ReceiverEnd {
    service: Arc<dyn ReceiverService>,
    environment: Arc<Environment>,
    counts: Arc<ReceiverCounts>,
    time: Time,
    end: PipeEnd,
    reader: FrameReader<PipeEnd>,
    /// The gap before the stream.
    fetch: Arc<Mutex<Option<Arc<Fetch>>>>,
    state: State,
}

/// The gap before a stream, filled by the connections for archived logs.
struct Filling {
    fetch: Arc<Fetch>,
    /// Where the connections find it.
    found: Arc<Mutex<Option<Arc<Fetch>>>>,
    time: Time,
}

impl GapBefore for Filling {
    fn failure(&self) -> Option<Refusal> {
        self.fetch.failure()
    }

    fn is_filled(&self) -> bool {
        self.fetch.is_filled()
    }

    fn close(&self) -> ReceiverEvent {
        let resolved = self.fetch.resolved(self.time.now());
        *lock(&self.found) = None;
        self.fetch.close();
        resolved
    }
}

enum State {
    /// Waits for the greeting.
    Accepted,
    /// Waits for the sender's decision.
    Agreeing(Box<(SenderHello, Agreement)>),
    /// With the time since which it waits for bytes.
    Streaming(Box<ReceiverStream<'static>>, Instant),
}

/// The instance behind the port of the standby.
struct Service(Arc<Environment>);

impl ReceiverService for Service {
    fn identity(&self) -> PeerIdentity {
        knowing_identity(&self.0, self.0.control().role.of_peer())
    }

    fn followed(&self) -> PeerIdentity {
        peer_identity(&self.0, self.0.control().role.of_peer())
    }

    fn may_claim(&self, peer: &PeerIdentity, newer: &Incarnation, proven: bool) -> Result<(), Refusal> {
        self.0.may_claim(peer, newer, proven)
    }

    fn admit(&self, hello: &SenderHello) -> Result<(), Refusal> {
        upstream(&self.0.control(), hello).map(drop)
    }

    fn source(&self) -> Option<Arc<dyn RedoSource>> {
        None
    }

    fn status(&self, _: bool) -> String {
        "{}".into()
    }

    fn event(&self, event: &ReceiverEvent) {
        trace::say(|| format!("receiver: {event}"));
    }
}

impl ReceiverEnd {
    /// Accepts the connection `end` at the instance of `host`.
    pub fn accept(host: &StandbyHost, end: PipeEnd, time: &Time) -> ReceiverEnd {
        ReceiverEnd {
            service: Arc::new(Service(host.environment.clone())),
            environment: host.environment.clone(),
            counts: Arc::default(),
            time: time.clone(),
            reader: FrameReader::new(end.clone()),
            end,
            fetch: Arc::default(),
            state: State::Accepted,
        }
    }

    /// Whether it belongs to the present boot of the standby.
    pub fn is_of(&self, host: &StandbyHost) -> bool {
        Arc::ptr_eq(&self.environment, &host.environment)
    }

    /// Takes what has arrived.
    ///
    /// # Errors
    /// Why the connection ended, unless it was lost.
    pub fn step(&mut self, log: &mut dyn StandbyLog) -> Outcome<Progress> {
        match self.take(log) {
            Ok(progress) => Ok(progress),
            Err(
                TransportError::Framing(FramingError::Io(_) | FramingError::Closed)
                | TransportError::Silent(_),
            ) => Ok(Progress::Down),
            Err(TransportError::Io { .. }) => Ok(Progress::Down),
            // The primary has refused, and its end reports it.
            Err(TransportError::Refused(refusal)) if only_a_new_copy_helps(&refusal) => Ok(Progress::Down),
            // The refusal is not sent: a machine that has lost power sends nothing, and with power it ends the history.
            Err(error) => Err(format!("receiver: {error}")),
        }
    }

    fn take(&mut self, log: &mut dyn StandbyLog) -> Result<Progress, TransportError> {
        let came = fill(&mut self.reader)?;
        if let State::Streaming(stream, since) = &mut self.state {
            let now = self.time.now();
            if came {
                stream.bytes_came();
            } else if now.saturating_duration_since(*since) >= stream.wait(log) {
                stream.nothing_came()?;
            } else {
                return Ok(Progress::Idle(stream.wait(log)));
            }
            *since = now;
            stream.take(&mut self.reader, log)?;
            return Ok(if came { Progress::Something } else { Progress::Idle(stream.wait(log)) });
        }
        let Some((frame, length)) = self.reader.peek(0)? else {
            return Ok(if came { Progress::Something } else { Progress::Idle(Duration::from_secs(1)) });
        };
        match std::mem::replace(&mut self.state, State::Accepted) {
            State::Agreeing(agreeing) => {
                let (hello, agreement) = *agreeing;
                let start = agreement.start(&frame, log)?;
                let gap = self.open_gap(&start, log)?;
                let site = StreamSite {
                    service: self.service.clone(),
                    counts: self.counts.clone(),
                    clock: Arc::new(self.time.clone()),
                    acks: Outgoing::new(self.end.clone(), log.cascade_limit()),
                    channel: None,
                    from: None,
                    gap,
                };
                let mut stream = Box::new(ReceiverStream::new(site, &hello, &start));
                self.reader.consume(length);
                stream.take(&mut self.reader, log)?;
                self.state = State::Streaming(stream, self.time.now());
            }
            _ => {
                hello::expect(&frame, FrameKind::Hello)?;
                let hello: SenderHello = hello::decode(&frame)?;
                self.reader.consume(length);
                self.greeted(hello, log)?;
            }
        }
        Ok(Progress::Something)
    }

    /// Opens the gap before a stream.
    fn open_gap(
        &mut self,
        start: &StreamStart,
        log: &mut dyn StandbyLog,
    ) -> Result<Option<Box<dyn GapBefore>>, TransportError> {
        let Some(gap) = &start.gap else { return Ok(None) };
        let opened = log.open_gap(gap, &start.log).map_err(|error| {
            TransportError::Protocol(format!("the gap {}..{} is not opened: {error}", gap.from, gap.to))
        })?;
        let fetch = Arc::new(Fetch::new(gap.clone(), start.source.clone(), opened, self.time.now()));
        self.service.event(&fetch.found());
        *lock(&self.fetch) = Some(fetch.clone());
        let (found, time) = (self.fetch.clone(), self.time.clone());
        Ok(Some(Box::new(Filling { fetch, found, time })))
    }

    pub fn service(&self) -> &dyn ReceiverService {
        &*self.service
    }

    /// The gap that is open.
    pub fn fetch(&self) -> Option<Arc<Fetch>> {
        lock(&self.fetch).clone()
    }

    /// The stream has ended: a gap that is still open is given up.
    pub fn end(self, log: &mut dyn StandbyLog) {
        if let Some(fetch) = lock(&self.fetch).take() {
            fetch.close();
        }
        match log.give_up_gap() {
            Ok(Some(given_up)) => self.service.event(&ReceiverEvent::GapGivenUp(given_up)),
            Ok(None) => {}
            // If the log can no longer be written, the next handshake or start does this.
            Err(error) => trace::say(|| format!("receiver: {error}")),
        }
    }

    fn greeted(&mut self, hello: SenderHello, log: &mut dyn StandbyLog) -> Result<(), TransportError> {
        meets(&*self.service, &Plain, &hello)?;
        let identity = self.service.identity();
        if !may_take(&identity, &hello.source) {
            let what = format!("`{}` takes no redo from `{}`", identity.name, hello.source.name);
            return Err(TransportError::Protocol(what));
        }
        self.service.admit(&hello)?;
        let agreement = Agreement::open(&self.service, &hello, log)?;
        let answer = agreement.answer(0, false);
        FrameWriter::new(self.end.clone())
            .write_json(FrameKind::Hello, PROTOCOL_VERSION, &answer)
            .map_err(TransportError::io("greeting the primary"))?;
        self.reader.allow_redo();
        self.state = State::Agreeing(Box::new((hello, agreement)));
        Ok(())
    }
}
