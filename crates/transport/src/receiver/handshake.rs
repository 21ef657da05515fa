//! The begin of every connection: a handshake with a sender, or a request.

use super::agreement::{self, Agreement, give_up_gap, may_take, not_from_you, standby_log};
use super::fetch::Fetch;
use super::shared::Shared;
use super::slot::Unavailable;
use super::{archives, claims, receive};
use crate::error::{PROTOCOL_VERSION, Refusal, RefuseCode, TransportError};
use crate::event::ReceiverEvent;
use crate::framing::{FrameReader, FrameWriter};
use crate::hello::{self, ReceiverHello, Request, SenderHello};
use crate::link::{self, LinkEnd};
use crate::standby::{StandbyLog, StreamStart};
use crate::{lock, snapshot};
use standfast_format::FrameKind;
use standfast_types::Line;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

struct Greeting<'a> {
    shared: &'a Shared,
    id: u64,
    stream: &'a LinkEnd,
    reader: FrameReader<LinkEnd>,
    writer: FrameWriter<LinkEnd>,
    deadline: Instant,
    peer: String,
    /// The peer is authenticated and has the right to its request.
    let_in: bool,
}

/// Serves one connection until it ends.
pub(super) fn serve(shared: &Shared, id: u64, stream: &LinkEnd) {
    let timeout = shared.config.handshake_timeout;
    // Without these options the connection is only slower, and a dead peer is noticed later.
    let _ = stream.prepare(timeout);
    let _ = stream.set_write_timeout(Some(timeout));
    let mut greeting = Greeting {
        shared,
        id,
        stream,
        reader: FrameReader::new(stream.clone()),
        writer: FrameWriter::new(stream.clone()),
        deadline: Instant::now() + timeout,
        peer: stream.peer_addr().map_or_else(|| "unknown address".into(), |address| address.to_string()),
        let_in: false,
    };
    match link::accept(stream, &shared.config.security, greeting.deadline).and_then(|()| greeting.converse())
    {
        Ok(()) => {}
        Err(TransportError::Refused(refusal)) => greeting.refuse(refusal),
        Err(error @ (TransportError::Tls { .. } | TransportError::Certificate(_))) => {
            shared.counts.insecure.fetch_add(1, Relaxed);
            if matches!(error, TransportError::Certificate(_)) {
                // Sent in plain text, before any TLS record, so that the other end learns the cause. An unauthenticated
                // peer learns no more.
                let text = "this instance has no certificate that it can show; its alert log says why";
                greeting.tell(&Refusal::new(RefuseCode::Tls, text));
            }
            greeting.report(Refusal::new(RefuseCode::Tls, error.to_string()));
        }
        Err(_) => {
            // Not worth an alert: a port scanner, a health check, a peer that died. The counter shows it.
            shared.counts.garbage.fetch_add(1, Relaxed);
        }
    }
}

enum First {
    Sender(Box<SenderHello>),
    Request(Request),
}

impl Greeting<'_> {
    fn converse(&mut self) -> Result<(), TransportError> {
        let shared = self.shared;
        match self.first()? {
            First::Sender(hello) => {
                if let Some(newer) = agreement::meets(&*shared.service, &**self.stream, &hello)? {
                    shared.slot.end_older(newer.number);
                }
                self.let_in();
                match hello.archives_to {
                    Some(_) => self.take_archives(&hello),
                    None => self.take_stream(&hello),
                }
            }
            First::Request(request) => {
                let right = claims::may_ask(self.stream, &*shared.service, &request)?;
                // A client that requests a certificate stays unauthenticated until it has one.
                if right.is_none() {
                    self.let_in();
                }
                self.stream
                    .set_write_timeout(Some(hello::NET_TIMEOUT_MAX))
                    .map_err(TransportError::io("preparing"))?;
                let again = claims::Again::new(self.stream, &*shared.service, &request);
                snapshot::answer(&*shared.service, &request, right.as_ref(), self.stream, &again)
                    .map_err(|error| self.note_guess(error, right.is_some()))
            }
        }
    }

    /// The peer is authenticated and has the right to its request.
    fn let_in(&mut self) {
        self.let_in = true;
        self.shared.authenticated(self.id);
        self.stream.allow_large_reads();
    }

    /// Delays the address of a client that is refused a certificate.
    fn note_guess(&self, error: TransportError, certificate: bool) -> TransportError {
        let not_allowed = |refusal: &Refusal| refusal.code == RefuseCode::NotAllowed;
        if certificate && matches!(&error, TransportError::Refused(refusal) if not_allowed(refusal)) {
            self.shared.counts.bad_tokens.fetch_add(1, Relaxed);
            if let Some(address) = self.stream.peer_addr() {
                self.shared.penalise(address.ip());
            }
        }
        error
    }

    fn first(&mut self) -> Result<First, TransportError> {
        let frame = hello::await_frame(&mut self.reader, self.deadline)?;
        if frame.header.kind == FrameKind::Request {
            hello::expect(&frame, FrameKind::Request)?;
            return Ok(First::Request(hello::decode(&frame)?));
        }
        // The text of a peer that refuses before it was asked anything must not get into the alert log.
        if frame.header.kind == FrameKind::Refuse {
            return Err(TransportError::Protocol("a refusal where a greeting was expected".into()));
        }
        hello::expect(&frame, FrameKind::Hello)?;
        Ok(First::Sender(Box::new(hello::decode(&frame)?)))
    }

    fn take_stream(&mut self, hello: &SenderHello) -> Result<(), TransportError> {
        self.peer = format!("`{}` at {}", hello.source.name, self.peer);
        let identity = self.shared.service.identity();
        if !may_take(&identity, &hello.source) {
            // Our log is not touched, but the sender must learn our identity: it may be fenced.
            let answer = ReceiverHello::new(identity, None, 0);
            self.writer
                .write_json(FrameKind::Hello, PROTOCOL_VERSION, &answer)
                .map_err(TransportError::io("greeting the primary"))?;
            let frame = hello::await_frame(&mut self.reader, self.deadline)?;
            return Err(TransportError::Refused(match hello::expect(&frame, FrameKind::Hello) {
                Err(TransportError::Refused(refusal)) => refusal,
                _ => not_from_you(&answer.standby, &hello.source),
            }));
        }
        self.shared.service.admit(hello).map_err(TransportError::Refused)?;
        let (slot, stream, deadline) = (&self.shared.slot, self.stream, self.deadline);
        let name = identity.name.clone();
        slot.lend(&hello.source, stream, deadline, |log| self.agree_and_receive(hello, log)).unwrap_or_else(
            |unavailable| {
                Err(TransportError::Refused(match unavailable {
                    Unavailable::None if slot.is_leaving() => leaving(&name),
                    unavailable => unavailable_refusal(&unavailable, &name),
                }))
            },
        )
    }

    /// Serves a connection for archived logs, beside a stream of the same primary.
    fn take_archives(&mut self, hello: &SenderHello) -> Result<(), TransportError> {
        self.peer = format!("archiver of `{}` at {}", hello.source.name, self.peer);
        let identity = self.shared.service.identity();
        if !may_take(&identity, &hello.source) {
            return Err(TransportError::Refused(not_from_you(&identity, &hello.source)));
        }
        self.shared.service.admit(hello).map_err(TransportError::Refused)?;
        // Without this buffer the transfer is only slower.
        let _ = self.stream.set_buffers(0, hello.receive_buffer_bytes);
        archives::serve(self.shared, self.stream, &mut self.reader, &mut self.writer, hello)
    }

    fn agree_and_receive(
        &mut self,
        hello: &SenderHello,
        log: &mut dyn StandbyLog,
    ) -> Result<(), TransportError> {
        let agreement = Agreement::open(&self.shared.service, hello, log)?;
        let answer = agreement.answer(self.shared.config.sdu_bytes, self.stream.is_tls());
        self.writer
            .write_json(FrameKind::Hello, PROTOCOL_VERSION, &answer)
            .map_err(TransportError::io("greeting the primary"))?;
        // The logs of a gap make a long message; the peer is authenticated.
        self.reader.allow_redo();
        let start = agreement.start(&hello::await_frame(&mut self.reader, self.deadline)?, log)?;
        if self.stream.is_tls() {
            self.shared.service.endorsed(hello, self.stream.peer_addr());
        }
        let gap = self.open_gap(log, &start)?;
        let primary = hello.source.name.clone();
        self.event(&ReceiverEvent::Connected { primary: primary.clone(), from: start.from });
        self.shared.counts.streams.fetch_add(1, Relaxed);
        // Without this buffer the stream is only slower.
        let _ = self.stream.set_buffers(0, hello.receive_buffer_bytes);
        if let Some(fetch) = &gap {
            self.event(&fetch.found());
        }
        let ended =
            receive::receive(self.shared, self.stream, &mut self.reader, log, hello, &start, gap.as_ref());
        let ended = match self.shared.slot.is_leaving() {
            true => TransportError::Refused(leaving(&self.shared.service.identity().name)),
            false => ended,
        };
        if let Some(fetch) = gap {
            *lock(&self.shared.fetch) = None;
            fetch.close();
        }
        // If the log can no longer be written, the next handshake or start does this.
        let _ = give_up_gap(&*self.shared.service, log);
        let received = log.received_end();
        let reason = ended.to_string();
        if let TransportError::Refused(refusal) = ended {
            log.refuses();
            self.tell(&refusal);
        }
        self.event(&ReceiverEvent::Ended { primary, received, reason });
        Ok(())
    }

    fn open_gap(
        &self,
        log: &mut dyn StandbyLog,
        start: &StreamStart,
    ) -> Result<Option<Arc<Fetch>>, TransportError> {
        let Some(gap) = &start.gap else { return Ok(None) };
        let opened = log.open_gap(gap, &start.log).map_err(|error| standby_log(&*error))?;
        let fetch = Arc::new(Fetch::new(gap.clone(), start.source.clone(), opened, self.shared.clock.now()));
        *lock(&self.shared.fetch) = Some(fetch.clone());
        Ok(Some(fetch))
    }

    fn refuse(&mut self, refusal: Refusal) {
        self.tell(&refusal);
        if refusal.code == RefuseCode::Tls {
            self.shared.counts.insecure.fetch_add(1, Relaxed);
        }
        self.report(refusal);
    }

    /// Reports a refusal to the alert log, if the budget of this peer allows it.
    fn report(&self, refusal: Refusal) {
        let from = self.stream.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |address| address.ip());
        let about = self.shared.about(from, self.stream.peer_name());
        match self.shared.line(&about, &refusal.to_string()) {
            // For a peer that was let in, the instance decides whether to repeat the line.
            Line::Repeated if !self.let_in => {}
            Line::Reported | Line::Repeated => {
                self.event(&ReceiverEvent::Refused { peer: self.peer.clone(), refusal });
            }
            Line::CountSuppressed(count) => self.event(&ReceiverEvent::Suppressed { count }),
            Line::Suppressed => {}
        }
    }

    fn tell(&mut self, refusal: &Refusal) {
        // The connection ends anyway; a peer that this does not reach notices.
        let _ = self.writer.write_json(FrameKind::Refuse, 0, refusal);
    }

    fn event(&self, event: &ReceiverEvent) {
        self.shared.service.event(event);
    }
}

fn leaving(mine: &str) -> Refusal {
    Refusal::new(RefuseCode::Stopping, format!("`{mine}` is being stopped"))
}

fn unavailable_refusal(why: &Unavailable, mine: &str) -> Refusal {
    match why {
        Unavailable::None => Refusal::new(
            RefuseCode::Starting,
            format!("`{mine}` is not ready: it is starting, stopping or changing its role"),
        ),
        Unavailable::Taken(other) => Refusal::new(
            RefuseCode::Busy,
            format!(
                "`{mine}` already receives from `{other}`; a standby is fed by one source at a time; remove it from the destinations of one of the two"
            ),
        ),
        Unavailable::Slow => {
            Refusal::new(RefuseCode::Busy, format!("`{mine}` is still writing what it received before"))
        }
    }
}
