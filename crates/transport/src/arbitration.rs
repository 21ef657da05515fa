//! The conversation of a member with an observer: requests and answers of fast-start failover, one after the other, over
//! one connection. What they say is JSON that this crate does not read.
//!
//! ```text
//! member                                   observer
//!   Request::Arbitrate{name}  ───────────>
//!                             <───────────  Done null
//!   Request JSON              ───────────>
//!                             <───────────  Done JSON      and so on, until the member closes the connection
//! ```

use crate::error::{PROTOCOL_VERSION, TransportError};
use crate::framing::{FrameReader, FrameWriter, FramingError};
use crate::hello::{self, Request};
use crate::link::{LinkEnd, Security};
use crate::request::{connect, request};
use crate::standby::ReceiverService;
use serde_json::Value;
use standfast_format::FrameKind;
use std::time::{Duration, Instant};

/// A member that asks nothing for this long is disconnected; it asks every few seconds.
const IDLE: Duration = Duration::from_secs(90);

/// Serves a member's conversation until it ends.
pub(crate) fn serve(
    service: &dyn ReceiverService,
    member: &str,
    stream: &LinkEnd,
    writer: &mut FrameWriter<LinkEnd>,
    may_still_ask: &dyn Fn() -> Result<(), TransportError>,
) -> Result<(), TransportError> {
    let answering = TransportError::io("answering a member");
    stream.set_read_timeout(Some(IDLE)).map_err(&answering)?;
    let mut reader = FrameReader::new(stream.clone());
    writer.write_json(FrameKind::Done, 0, &Value::Null).map_err(&answering)?;
    loop {
        let frame = match reader.read() {
            Err(FramingError::Closed | FramingError::TimedOut) => return Ok(()),
            other => other?,
        };
        hello::expect(&frame, FrameKind::Request)?;
        may_still_ask()?;
        let answer = service.arbitrate(member, &hello::decode(&frame)?)?;
        writer.write_json(FrameKind::Done, 0, &answer).map_err(&answering)?;
    }
}

/// A member's end: connects when it is first used, and again after an error.
pub struct ObserverConnection {
    /// HOST:PORT.
    address: String,
    security: Security,
    /// Name of this member.
    member: String,
    open: Option<Open>,
}

impl ObserverConnection {
    /// `security` must accept no other certificate than the observer's.
    pub fn new(address: &str, security: Security, member: &str) -> ObserverConnection {
        ObserverConnection { address: address.to_owned(), security, member: member.to_owned(), open: None }
    }

    /// Asks and waits for the answer, at most `limit`.
    ///
    /// # Errors
    /// When the observer cannot be reached, refuses, or does not answer in time. It may have carried out the request.
    pub fn ask(&mut self, wish: &Value, limit: Duration) -> Result<Value, TransportError> {
        let deadline = Instant::now() + limit;
        // After an error the connection is not used again: an answer that comes late is not the next one's.
        let mut open = match self.open.take() {
            Some(open) => open,
            None => self.connect(deadline)?,
        };
        let answer = open.exchange(wish, deadline)?;
        self.open = Some(open);
        Ok(answer)
    }

    fn connect(&self, deadline: Instant) -> Result<Open, TransportError> {
        let stream = connect(&self.address, &self.security, until(deadline))?;
        let mut reader = request(stream.clone(), &Request::Arbitrate { name: self.member.clone() })?;
        hello::expect(&hello::await_frame(&mut reader, deadline)?, FrameKind::Done)?;
        Ok(Open { stream, reader })
    }
}

struct Open {
    stream: LinkEnd,
    reader: FrameReader<LinkEnd>,
}

impl Open {
    fn exchange(&mut self, wish: &Value, deadline: Instant) -> Result<Value, TransportError> {
        let asking = TransportError::io("asking the observer");
        self.stream.set_write_timeout(Some(until(deadline))).map_err(&asking)?;
        FrameWriter::new(self.stream.clone())
            .write_json(FrameKind::Request, PROTOCOL_VERSION, wish)
            .map_err(&asking)?;
        let frame = hello::await_frame(&mut self.reader, deadline)?;
        hello::expect(&frame, FrameKind::Done)?;
        hello::decode(&frame)
    }
}

/// Not zero, which a socket takes for no limit.
fn until(deadline: Instant) -> Duration {
    deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
}
