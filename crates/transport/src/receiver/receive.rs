//! The thread of an open stream: runs the machine ([`ReceiverStream`]) over a connection.

use super::fetch::Fetch;
use super::outgoing::Outgoing;
use super::shared::Shared;
use super::stream::{GapBefore, ReceiverStream, StreamSite};
use crate::ack::AckSender;
use crate::certificate::CertificateRight;
use crate::channel::{CertificateChannel, OpenChannel};
use crate::error::{Refusal, TransportError};
use crate::event::ReceiverEvent;
use crate::framing::{FrameReader, FramingError};
use crate::hello::{self, SenderHello};
use crate::link::LinkEnd;
use crate::lock;
use crate::positions::PositionRequests;
use crate::standby::{StandbyLog, StreamStart};
use standfast_format::FrameKind;
use standfast_instruments::{Event, waiting};
use std::sync::Arc;
use std::time::Duration;

/// Receives until the stream ends; returns why.
pub(super) fn receive(
    shared: &Shared,
    stream: &LinkEnd,
    reader: &mut FrameReader<LinkEnd>,
    log: &mut dyn StandbyLog,
    hello: &SenderHello,
    start: &StreamStart,
    gap: Option<&Arc<Fetch>>,
) -> TransportError {
    let net_timeout = hello.net_timeout();
    let acks = match prepare(shared, stream, net_timeout) {
        Ok(acks) => acks,
        Err(source) => return TransportError::Io { what: "preparing the stream", source },
    };
    reader.allow_redo();
    let acks = Outgoing::new(acks, log.cascade_limit());
    let channel = open_channel(shared, stream, hello, &acks);
    log.may_request_positions(hello.reports_position.then(|| PositionRequests::new(acks.beside())));
    let gap = gap.map(|fetch| Box::new(Filling { shared, fetch: fetch.clone() }) as Box<dyn GapBefore>);
    let (service, counts, clock) = (shared.service.clone(), shared.counts.clone(), shared.clock.clone());
    let from = stream.peer_addr().map(|at| at.to_string());
    let site = StreamSite { service, counts, clock, acks, channel, from, gap };
    let machine = ReceiverStream::new(site, hello, start);
    let ended = run(shared, stream, reader, log, machine, net_timeout);
    log.may_request_positions(None);
    ended
}

fn run(
    shared: &Shared,
    stream: &LinkEnd,
    reader: &mut FrameReader<LinkEnd>,
    log: &mut dyn StandbyLog,
    mut machine: ReceiverStream<'_>,
    net_timeout: Duration,
) -> TransportError {
    let mut timeout = net_timeout;
    loop {
        if let Err(error) = machine.take(reader, log) {
            return last_word(reader, error);
        }
        if shared.slot.is_leaving() {
            return TransportError::Protocol("this instance is being stopped".into());
        }
        let wanted = machine.wait(log);
        if wanted != timeout {
            timeout = wanted;
            if let Err(source) = set_timeout(stream, timeout) {
                return TransportError::Io { what: "waiting for redo", source };
            }
        }
        let idle = waiting(Event::RfsIdle);
        let filled = reader.fill();
        drop(idle);
        match filled {
            Ok(()) => machine.bytes_came(),
            Err(FramingError::TimedOut) => {
                if let Err(silent) = machine.nothing_came() {
                    return silent;
                }
            }
            Err(other) => return other.into(),
        }
    }
}

/// The gap before a stream, filled by the connections for archived logs.
struct Filling<'a> {
    shared: &'a Shared,
    fetch: Arc<Fetch>,
}

impl GapBefore for Filling<'_> {
    fn failure(&self) -> Option<Refusal> {
        self.fetch.failure()
    }

    fn is_filled(&self) -> bool {
        self.fetch.is_filled()
    }

    fn close(&self) -> ReceiverEvent {
        let resolved = self.fetch.resolved(self.shared.clock.now());
        *lock(&self.shared.fetch) = None;
        self.fetch.close();
        resolved
    }
}

/// Returns why the stream has ended, given the `error` seen here. An acknowledgement cannot be sent to an end that has
/// closed the connection, but frames that it sent before, possibly with the reason, can still be read.
fn last_word(reader: &mut FrameReader<LinkEnd>, error: TransportError) -> TransportError {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset};
    let TransportError::Io { source, .. } = &error else { return error };
    if !matches!(source.kind(), BrokenPipe | ConnectionReset | ConnectionAborted) {
        return error;
    }
    let mut at = 0;
    // No more comes than the system has buffered already.
    loop {
        match reader.peek(at) {
            Ok(Some((frame, _))) if frame.header.kind == FrameKind::Refuse => {
                return hello::decode(&frame).map_or(error, TransportError::Refused);
            }
            Ok(Some((_, length))) => at += length,
            Ok(None) => {
                reader.consume(std::mem::take(&mut at));
                if reader.fill().is_err() {
                    return error;
                }
            }
            Err(_) => return error,
        }
    }
}

fn set_timeout(stream: &LinkEnd, timeout: Duration) -> std::io::Result<()> {
    stream.set_read_timeout(Some(timeout.max(Duration::from_millis(100))))
}

fn prepare(shared: &Shared, stream: &LinkEnd, net_timeout: Duration) -> std::io::Result<AckSender> {
    stream.prepare(net_timeout)?;
    set_timeout(stream, net_timeout)?;
    AckSender::new(stream.clone(), shared.config.ack_delay)
}

/// Opens the channel over which both ends request and grant certificates beside the redo. TLS only.
fn open_channel(
    shared: &Shared,
    stream: &LinkEnd,
    hello: &SenderHello,
    acks: &Outgoing,
) -> Option<OpenChannel> {
    let peer = stream.peer_name()?;
    let service = shared.service.clone();
    let certify = move |wish: &_| service.certify(wish, &CertificateRight::Certificate);
    let channel = CertificateChannel::open(peer, Box::new(acks.beside()), Box::new(certify));
    if hello.renews {
        shared.service.certificate_channel(&channel);
    }
    Some(channel)
}
