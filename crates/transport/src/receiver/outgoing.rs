//! Acknowledgements on their way to the source. If commits also wait for destinations of this standby, an
//! acknowledgement covers only redo that these destinations have acknowledged; another one is sent when they have
//! acknowledged more.

use crate::ack::{Ack, FrameSink};
use crate::lock;
use crate::standby::CascadeLimit;
use standfast_types::Scn;
use std::io::Result;
use std::sync::{Arc, Mutex};

pub struct Outgoing {
    line: Arc<Mutex<Line>>,
    cascade: Option<Arc<dyn CascadeLimit>>,
}

struct Line {
    sender: Box<dyn FrameSink>,
    cascade: Option<Arc<dyn CascadeLimit>>,
    /// The newest acknowledgement, not limited by other destinations.
    newest: Option<Ack>,
    /// Received and hardened as last sent.
    reported: (Scn, Scn),
}

impl Outgoing {
    pub fn new(sender: impl FrameSink + 'static, cascade: Option<Arc<dyn CascadeLimit>>) -> Outgoing {
        let line = Line {
            sender: Box::new(sender),
            cascade: cascade.clone(),
            newest: None,
            reported: (Scn::ZERO, Scn::ZERO),
        };
        let line = Arc::new(Mutex::new(line));
        if let Some(cascade) = &cascade {
            let moved = line.clone();
            // If it cannot be sent, the connection is dead, and the stream's own thread finds that out.
            cascade.watch(Some(Arc::new(move || drop(lock(&moved).say_what_moved()))));
        }
        Outgoing { line, cascade }
    }

    pub(super) fn send(&self, frame: &[u8]) -> Result<()> {
        lock(&self.line).sender.send(frame)
    }

    /// Returns a function that sends whole frames beside the acknowledgements, from any thread.
    pub(super) fn beside(&self) -> impl Fn(&[u8]) -> Result<()> + Send + Sync + 'static {
        let line = self.line.clone();
        move |frame| lock(&line).sender.send(frame)
    }

    pub(super) fn acknowledge(&self, ack: Ack) -> Result<()> {
        let mut line = lock(&self.line);
        line.newest = Some(ack);
        line.say()
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        if let Some(cascade) = &self.cascade {
            cascade.watch(None);
        }
    }
}

impl Line {
    fn limited(&self) -> Option<Ack> {
        let mut ack = self.newest?;
        if let Some(cascade) = &self.cascade {
            ack.received = cascade.limit(ack.received);
            ack.hardened = cascade.limit(ack.hardened);
        }
        Some(ack)
    }

    fn say(&mut self) -> Result<()> {
        let Some(ack) = self.limited() else { return Ok(()) };
        self.reported = (ack.received, ack.hardened);
        self.sender.send(&ack.encode())
    }

    fn say_what_moved(&mut self) -> Result<()> {
        match self.limited() {
            Some(ack) if ack.received > self.reported.0 || ack.hardened > self.reported.1 => self.say(),
            _ => Ok(()),
        }
    }
}
