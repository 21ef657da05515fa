//! From nothing to a stream: connect and handshake.

use super::Shared;
use crate::error::{PROTOCOL_VERSION, Refusal, RefuseCode, SourceError, TransportError};
use crate::framing::{FrameReader, FrameWriter};
use crate::hello::{self, ReceiverHello, SenderHello};
use crate::identity::Incarnation;
use crate::lock;
use crate::resolve::{Verdict, View, resolve};
use crate::standby::StreamStart;
use crate::sys;
use crate::wire::Wire;
use standfast_format::FrameKind;
use standfast_types::Scn;
use std::io::{Error, ErrorKind};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Why there is no stream.
pub(super) enum Failure {
    Lost(String),
    Refused(Refusal),
    Fenced { incarnation: Incarnation, peer: String },
}

impl Failure {
    /// What the other end is told.
    fn refusal(&self) -> Option<Refusal> {
        match self {
            Failure::Refused(refusal) => Some(refusal.clone()),
            Failure::Fenced { incarnation, .. } => {
                let text =
                    format!("replaced by incarnation {}: it accepts no more commits", incarnation.number);
                Some(Refusal::new(RefuseCode::Fenced, text))
            }
            Failure::Lost(_) => None,
        }
    }
}

impl From<TransportError> for Failure {
    fn from(error: TransportError) -> Failure {
        match error {
            TransportError::Refused(refusal) => Failure::Refused(refusal),
            other => Failure::Lost(other.to_string()),
        }
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Failure {
        Failure::Lost(format!("reading own redo failed: {error}"))
    }
}

/// Connects, agrees with the standby where to go on, and sets the stream up.
pub(super) fn establish(shared: &Shared) -> Result<(), Failure> {
    let timeout = shared.config.destination.net_timeout;
    let stream = connect(&shared.config.address, shared.config.insecure, timeout, &|| shared.stopping())?;
    let stream = Arc::new(stream);
    // From here on `stop` can end the handshake by closing the socket.
    lock(&shared.link).stream = Some(stream.clone());
    if shared.stopping() {
        return Err(abandon(shared, Failure::Lost("the sender is stopped".into())));
    }
    shared.with_destination(|at, now| at.connected(now));
    let agreed = shake_hands(shared, &stream).map_err(|failure| abandon(shared, failure))?;
    let Agreed { start, held, reader } = agreed;
    // A log that begins right here may be unknown to the standby: it is announced (again).
    let announced =
        if start.log.first_scn == start.from { Scn(start.from.0 - 1) } else { start.log.first_scn };
    let captured = shared.source.captured();
    shared.stats.connects.fetch_add(1, Relaxed);
    let applied = held.applied;
    shared.with_destination(|at, now| at.resolved(now, start.from, start.keep, applied, captured));
    *lock(&shared.wire) = Some(Wire::new(stream, start.from, announced));
    lock(&shared.link).reader = Some(reader);
    shared.link_changed.notify_all();
    Ok(())
}

fn abandon(shared: &Shared, failure: Failure) -> Failure {
    let mut link = lock(&shared.link);
    link.stream = None;
    link.reason = None;
    failure
}

struct Agreed {
    start: StreamStart,
    held: hello::StandbyPositions,
    reader: FrameReader<TcpStream>,
}

fn shake_hands(shared: &Shared, stream: &Arc<TcpStream>) -> Result<Agreed, Failure> {
    let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
    let timeout = shared.config.destination.net_timeout;
    let clone =
        |stream: &TcpStream| stream.try_clone().map_err(TransportError::io("preparing the connection"));
    sys::prepare(stream, timeout).map_err(TransportError::io("preparing the connection"))?;
    let mut reader = FrameReader::new(clone(stream)?);
    let mut writer = FrameWriter::new(clone(stream)?);
    let hello = SenderHello {
        source: shared.source.identity(),
        mode: shared.config.destination.mode,
        net_timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
    };
    let greet = TransportError::io("greeting the standby");
    writer.write_json(FrameKind::Hello, PROTOCOL_VERSION, &hello).map_err(&greet)?;
    let peer: ReceiverHello = {
        let frame = hello::await_frame(&mut reader, deadline).map_err(TransportError::from)?;
        hello::expect(&frame, FrameKind::Hello)?;
        hello::decode(&frame)?
    };
    match decide(shared, hello, &peer) {
        Ok((start, held)) => {
            writer.write_json(FrameKind::Hello, PROTOCOL_VERSION, &start).map_err(&greet)?;
            Ok(Agreed { start, held, reader })
        }
        Err(failure) => {
            // The standby's alert log should say it too; it does not matter if it cannot be told.
            if let Some(refusal) = failure.refusal() {
                let _ = writer.write_json(FrameKind::Refuse, 0, &refusal);
            }
            Err(failure)
        }
    }
}

fn decide(
    shared: &Shared,
    hello: SenderHello,
    peer: &ReceiverHello,
) -> Result<(StreamStart, hello::StandbyPositions), Failure> {
    let source = &*shared.source;
    let sum = |at: Option<Scn>| at.map_or(Ok(None), |at| source.stream_crc(at));
    let view = View {
        source: hello.source,
        expected_name: shared.config.expected_name.clone(),
        durable: source.durable(),
        oldest: source.oldest(),
        crc_at_end: sum(peer.positions.map(|held| held.end.scn))?,
        log_at_end: peer.positions.and_then(|held| source.log_containing(held.end.scn)),
        crc_at_confirmed: sum(peer.positions.map(|held| held.confirmed.scn))?,
    };
    match (resolve(&view, peer), peer.positions) {
        (Verdict::Start { from, keep }, Some(held)) => {
            let log = source.log_containing(from).ok_or_else(|| no_log(from))?;
            Ok((StreamStart { source: view.source, from, keep, log }, held))
        }
        (Verdict::Fenced(incarnation), _) => {
            Err(Failure::Fenced { incarnation, peer: peer.standby.name.clone() })
        }
        (Verdict::Refuse(refusal), _) => Err(Failure::Refused(refusal)),
        (Verdict::Start { .. }, None) => Err(Failure::Lost("the standby did not say what it holds".into())),
    }
}

fn no_log(from: Scn) -> Failure {
    let message = format!(
        "the log that contains {from} exists no more; create the standby anew with `standfast standby create`"
    );
    Failure::Refused(Refusal::new(RefuseCode::Gap, message))
}

/// Connects to the first address of `address` that answers.
///
/// # Errors
/// `Address`, `Insecure`, or what the network says about the last address tried.
pub(crate) fn connect(
    address: &str,
    insecure: bool,
    timeout: Duration,
    give_up: &dyn Fn() -> bool,
) -> Result<TcpStream, TransportError> {
    let unusable = |source| TransportError::Address { address: address.into(), source };
    let mut last = Error::from(ErrorKind::AddrNotAvailable);
    for candidate in address.to_socket_addrs().map_err(unusable)? {
        check_secure(address, candidate, insecure)?;
        match sys::connect(candidate, timeout.min(CONNECT_TIMEOUT), give_up) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(TransportError::Address { address: address.into(), source: last })
}

/// Refuses plain TCP beyond this machine unless it is wanted.
///
/// # Errors
/// `Insecure`.
pub(crate) fn check_secure(address: &str, at: SocketAddr, insecure: bool) -> Result<(), TransportError> {
    if insecure || at.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    Err(TransportError::Insecure { address: address.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_tcp_leaves_the_machine_only_when_wanted() {
        let check = |text: &str, insecure| check_secure(text, text.parse().unwrap(), insecure).is_ok();
        assert!(
            check("127.0.0.1:1", false) && check("[::1]:1", false) && check("[::ffff:127.0.0.1]:1", false)
        );
        assert!(
            !check("10.0.0.1:1", false) && !check("[2001:db8::1]:1", false) && !check("0.0.0.0:1", false)
        );
        assert!(check("10.0.0.1:1", true));
    }
}
