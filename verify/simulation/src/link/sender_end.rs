//! The primary's end: what the two threads of a sender do, in one step after the other.

use super::pipe::{PipeEnd, Time};
use crate::{Outcome, lock, trace};
use standfast_environment::context::environment::Environment;
use standfast_environment::ship::sender_settings::note_synchronised;
use standfast_format::FrameKind;
use standfast_instruments::RemoteAnswer;
use standfast_transport::framing::{FrameReader, FrameWriter, FramingError};
use standfast_transport::machine::{AckStream, Ended, Failure, Greeting, SenderCore, Step, Wire, answer_in};
use standfast_transport::{
    Batch, PROTOCOL_VERSION, RedoSource, Refusal, RefuseCode, SenderConfig, SenderEvent, SenderObserver,
};
use std::io::Error;
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub(super) struct SenderEnd {
    core: Arc<SenderCore>,
    events: Arc<Events>,
    state: State,
    /// Gaps that archived logs have filled.
    gaps: u64,
    /// See [`only_a_new_copy_helps`].
    refusal: Option<RefuseCode>,
}

enum State {
    Down,
    Greeted(Box<Greeting>, FrameReader<PipeEnd>, PipeEnd),
    Streaming(Box<Wire<PipeEnd>>, AckStream, FrameReader<PipeEnd>),
}

/// What a step of an end has led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Something,
    /// Nothing until then, unless bytes come.
    Idle(Duration),
    Down,
}

/// Keeps the events of a sender until the log writer is not in the middle of a step.
#[derive(Default)]
struct Events(Mutex<Vec<SenderEvent>>);

impl SenderObserver for Events {
    fn acknowledged(&self, _: usize, _: Option<RemoteAnswer>) {}

    fn event(&self, _: usize, event: &SenderEvent) {
        trace::say(|| format!("sender: {event}"));
        lock(&self.0).push(event.clone());
    }
}

impl SenderEnd {
    pub fn new(config: SenderConfig, source: Arc<dyn RedoSource>, time: &Time) -> SenderEnd {
        let events = Arc::new(Events::default());
        let core = Arc::new(SenderCore::new(0, config, source, events.clone(), Arc::new(time.clone())));
        SenderEnd { core, events, state: State::Down, gaps: 0, refusal: None }
    }

    pub fn core(&self) -> &Arc<SenderCore> {
        &self.core
    }

    pub fn is_down(&self) -> bool {
        matches!(self.state, State::Down)
    }

    pub fn is_streaming(&self) -> bool {
        matches!(self.state, State::Streaming(..))
    }

    pub fn take_gaps(&mut self) -> u64 {
        std::mem::take(&mut self.gaps)
    }

    /// Checks whether archived logs would be faster than the stream, which then begins again.
    pub fn poll_gap(&mut self) {
        let State::Streaming(wire, ..) = &self.state else { return };
        if let Some(behind) = self.core.gap_behind(wire.sent()) {
            self.state = State::Down;
            self.core.ended(behind);
        }
    }

    pub fn is_refused(&self) -> bool {
        self.refusal.is_some()
    }

    /// Takes the code of a refusal after which only a new copy of the standby helps.
    pub fn take_refusal(&mut self) -> Option<RefuseCode> {
        self.refusal.take()
    }

    /// Records what the instance remembers of its destinations.
    pub fn note_events(&mut self, environment: &Environment, name: &str) {
        for event in std::mem::take(&mut *lock(&self.events.0)) {
            note_synchronised(environment, name, &event);
            self.gaps += u64::from(matches!(event, SenderEvent::GapResolved { .. }));
        }
    }

    /// Connects over `end`.
    pub fn connect(&mut self, end: PipeEnd) {
        self.core.connected();
        let greeting = Greeting::new(&self.core, false);
        let sent =
            FrameWriter::new(end.clone()).write_json(FrameKind::Hello, PROTOCOL_VERSION, greeting.hello());
        match sent {
            Ok(()) => self.state = State::Greeted(Box::new(greeting), FrameReader::new(end.clone()), end),
            Err(error) => self.core.failed(lost(&error)),
        }
    }

    /// An attempt to connect fails.
    pub fn unreachable(&self) {
        self.core.failed(Failure::Lost("no route to host".into()));
    }

    /// Offers a batch as the log writer does.
    pub fn offer(&mut self, batch: &Batch<'_>) -> Outcome<()> {
        if !self.core.note_offered(batch) {
            return Ok(());
        }
        let State::Streaming(wire, ..) = &mut self.state else { return Ok(()) };
        match self.core.offer(wire, batch) {
            Ok(_) => Ok(()),
            Err(error) => self.end(Ended::Lost(format!("sending failed: {error}"))),
        }
    }

    /// Takes what has arrived, and sends what is next.
    ///
    /// # Errors
    /// Why the stream ended, unless the connection was lost.
    pub fn step(&mut self) -> Outcome<Progress> {
        let stepped = match std::mem::replace(&mut self.state, State::Down) {
            State::Down => {
                // Commits may wait for long enough meanwhile.
                self.core.tick();
                return Ok(Progress::Down);
            }
            State::Greeted(greeting, reader, end) => self.await_answer(greeting, reader, end),
            State::Streaming(wire, acks, reader) => {
                return self
                    .stream(wire, acks, reader)
                    .or_else(|ended| self.end(ended).map(|()| Progress::Down));
            }
        };
        match stepped {
            Ok(progress) => Ok(progress),
            Err(failure) => {
                let reported = self.reported(&failure);
                self.core.failed(failure);
                reported.map_or(Ok(Progress::Down), Err)
            }
        }
    }

    fn await_answer(
        &mut self,
        greeting: Box<Greeting>,
        mut reader: FrameReader<PipeEnd>,
        end: PipeEnd,
    ) -> Result<Progress, Failure> {
        let came = fill(&mut reader).map_err(|error| Failure::Lost(error.to_string()))?;
        let (peer, length) = match reader.peek(0).map_err(|error| Failure::Lost(error.to_string()))? {
            Some((frame, length)) => (answer_in(&frame)?, length),
            None => {
                self.state = State::Greeted(greeting, reader, end);
                return Ok(if came { Progress::Something } else { Progress::Idle(Duration::from_secs(1)) });
            }
        };
        reader.consume(length);
        let mut writer = FrameWriter::new(end.clone());
        let agreed = greeting.answered(&self.core, &peer, None).inspect_err(|failure| {
            if let Some(refusal) = failure.refusal() {
                let _ = writer.write_json(FrameKind::Refuse, 0, &refusal);
            }
        })?;
        writer
            .write_json(FrameKind::Hello, PROTOCOL_VERSION, agreed.start())
            .map_err(|error| lost(&error))?;
        let wire = Box::new(agreed.begin(&self.core, end)?);
        self.state = State::Streaming(wire, agreed.acks(None), reader);
        Ok(Progress::Something)
    }

    fn stream(
        &mut self,
        mut wire: Box<Wire<PipeEnd>>,
        mut acks: AckStream,
        mut reader: FrameReader<PipeEnd>,
    ) -> Result<Progress, Ended> {
        let mut came = false;
        while fill(&mut reader).map_err(|error| Ended::Lost(error.to_string()))? {
            came = true;
            acks.take(&self.core, &mut reader)?;
        }
        if let Some(ended) = self.core.tick() {
            return Err(ended);
        }
        let step = self.core.feed(&mut wire)?;
        self.state = State::Streaming(wire, acks, reader);
        Ok(match step {
            Step::Idle(wait) if !came => Progress::Idle(wait),
            _ => Progress::Something,
        })
    }

    fn end(&mut self, ended: Ended) -> Outcome<()> {
        self.state = State::Down;
        if let Some(open) = self.core.open_gap() {
            self.core.end_gap(&open);
        }
        let reported = match &ended {
            Ended::Lost(_) => None,
            Ended::Restart(reason) => Some(reason.clone()),
            Ended::Refused(refusal) => Some(refusal.to_string()),
        };
        self.core.ended(ended);
        reported.map_or(Ok(()), Err)
    }

    /// Why there is no stream, unless the connection was lost or only a new copy of the standby helps.
    fn reported(&mut self, failure: &Failure) -> Option<String> {
        match failure {
            Failure::Lost(_) => None,
            Failure::Own(reason) => Some(reason.clone()),
            Failure::Refused(refusal) if only_a_new_copy_helps(refusal) => {
                self.refusal = Some(refusal.code);
                None
            }
            Failure::Refused(refusal) => Some(refusal.to_string()),
            Failure::Fenced { peer, .. } => Some(format!("`{peer}` has become primary")),
        }
    }
}

/// Whether the standby has left the stream, or redo that it needs is gone.
pub(super) fn only_a_new_copy_helps(refusal: &Refusal) -> bool {
    matches!(refusal.code, RefuseCode::Diverged | RefuseCode::Gap)
}

fn lost(error: &Error) -> Failure {
    Failure::Lost(error.to_string())
}

/// Takes what has arrived; returns whether anything has.
pub(super) fn fill(reader: &mut FrameReader<PipeEnd>) -> Result<bool, FramingError> {
    match reader.fill() {
        Ok(()) => Ok(true),
        Err(FramingError::TimedOut) => Ok(false),
        Err(error) => Err(error),
    }
}
