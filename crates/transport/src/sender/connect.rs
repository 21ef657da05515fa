//! From nothing to a stream: connect and handshake.

use super::current::AckSide;
use super::failure::Failure;
use super::gap;
use super::open_gap::OpenGap;
use super::shared::Shared;
use crate::channel::{CertificateChannel, OpenChannel};
use crate::error::{PROTOCOL_VERSION, Refusal, RefuseCode, TransportError};
use crate::framing::{FrameReader, FrameWriter};
use crate::hello::{self, ReceiverHello, SenderHello};
use crate::identity::{Meeting, meet};
use crate::link::{self, LinkEnd};
use crate::lock;
use crate::packing::Packer;
use crate::resolve::{Verdict, View, resolve};
use crate::standby::StreamStart;
use crate::wire::Wire;
use standfast_format::FrameKind;
use standfast_types::{BATCH_BYTES_MAX, Scn};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Connects, agrees with the standby on where to continue, and sets the stream up.
pub(super) fn establish(shared: &Shared) -> Result<Option<Arc<OpenGap>>, Failure> {
    if let Some(refusal) = shared.source.objection(&shared.config.destination.name) {
        return Err(Failure::Refused(refusal));
    }
    let timeout = shared.config.destination.net_timeout;
    let config = &shared.config;
    let stream =
        link::connect(&config.address, &config.security, config.expected_name.as_deref(), timeout, &|| {
            shared.stopping()
        })?;
    // From here on `stop` can end the handshake by closing the socket.
    lock(&shared.link).stream = Some(stream.clone());
    if shared.stopping() {
        return Err(abandon(shared, Failure::Lost("the sender is stopped".into())));
    }
    shared.with_destination(|at, now| at.connected(now));
    // Read before the handshake sends anything: a change of the source meanwhile then ends the stream before its first
    // frame.
    let epoch = shared.source.epoch();
    let agreed = shake_hands(shared, &stream).map_err(|failure| abandon(shared, failure))?;
    let Agreed { start, held, acks, sdu_bytes } = agreed;
    let packer = Packer::new(shared.config.shape.compression)
        .map_err(|error| abandon(shared, Failure::Own(format!("compression cannot begin: {error}"))))?;
    // The standby may not know a log that begins exactly here: announce it (again).
    let announced =
        if start.log.first_scn == start.first() { Scn(start.first().0 - 1) } else { start.log.first_scn };
    let captured = shared.source.captured();
    shared.stats.connects.fetch_add(1, Relaxed);
    let (applied, passed) = (held.applied, held.passed);
    shared.with_destination(|at, now| {
        at.passes_on(passed);
        at.resolved(now, start.from, start.keep, applied, captured);
    });
    shared.acknowledged_epoch.store(epoch, SeqCst);
    let gap = start.gap.clone().map(OpenGap::new);
    if let Some(open) = &gap {
        shared.report(&open.found());
    }
    *lock(&shared.gap) = gap.clone();
    *lock(&shared.wire) = Some(Wire::new(stream, start.first(), announced, epoch).with(sdu_bytes, packer));
    lock(&shared.link).reader = Some(acks);
    shared.link_changed.notify_all();
    Ok(gap)
}

fn abandon(shared: &Shared, failure: Failure) -> Failure {
    let mut link = lock(&shared.link);
    link.end();
    link.reason = None;
    failure
}

struct Agreed {
    start: StreamStart,
    held: hello::StandbyPositions,
    acks: AckSide,
    sdu_bytes: usize,
}

/// Returns the smaller value of both ends; 0 means as large as the protocol allows.
fn sdu(ours: u32, theirs: u32) -> usize {
    let said = |bytes: u32| if bytes == 0 { BATCH_BYTES_MAX } else { bytes as usize };
    said(ours).min(said(theirs)).clamp(1, BATCH_BYTES_MAX)
}

fn shake_hands(shared: &Shared, stream: &LinkEnd) -> Result<Agreed, Failure> {
    let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
    let timeout = shared.config.destination.net_timeout;
    let shape = &shared.config.shape;
    let prepared = stream
        .prepare(timeout)
        .and_then(|()| stream.set_buffers(shape.send_buffer_bytes, shape.receive_buffer_bytes));
    prepared.map_err(TransportError::io("preparing the connection"))?;
    let mut reader = FrameReader::new(stream.clone());
    let mut writer = FrameWriter::new(stream.clone());
    let hello = SenderHello {
        source: shared.source.identity(),
        mode: shared.config.destination.mode,
        compression: shape.compression,
        net_timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        receive_buffer_bytes: shared.config.shape.receive_buffer_bytes,
        via: shared.source.via(),
        delay_ms: shared.config.delay.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX)),
        logs: shared.source.logs(),
        // A plain TCP listener is not authenticated and is sent no member names.
        peers: if stream.is_tls() { shared.source.peers() } else { Vec::new() },
        members: if stream.is_tls() { shared.source.members() } else { Vec::new() },
        issuer: if stream.is_tls() { shared.source.issuer() } else { None },
        renews: stream.is_tls(),
        archives_to: None,
    };
    let greet = TransportError::io("greeting the standby");
    let listed = hello.members.clone();
    let asked = Instant::now();
    writer.write_json(FrameKind::Hello, PROTOCOL_VERSION, &hello).map_err(&greet)?;
    let peer: ReceiverHello = {
        let frame = hello::await_frame(&mut reader, deadline).map_err(TransportError::from)?;
        hello::expect(&frame, FrameKind::Hello)?;
        hello::decode(&frame)?
    };
    let greeted_in = asked.elapsed();
    *lock(&shared.role) = Some(peer.standby.role);
    shared.shares_logs.store(hello.source.shares_logs_with(&peer.standby), SeqCst);
    stream.allow_large_reads();
    let decided = match stream.peer_name() {
        Some(name) if name != peer.standby.name => Err(Failure::Refused(Refusal::new(
            RefuseCode::WrongPeer,
            format!("`{}` there has a certificate of `{name}`", peer.standby.name),
        ))),
        name => decide(shared, hello, &peer, name.is_some()),
    };
    match decided {
        Ok((start, held)) => {
            writer.write_json(FrameKind::Hello, PROTOCOL_VERSION, &start).map_err(&greet)?;
            let channel = open_channel(shared, stream, peer.renews);
            let acks = AckSide { reader, greeted_in, channel, listed, takes_lists: peer.lists };
            Ok(Agreed { start, held, acks, sdu_bytes: sdu(shape.sdu_bytes, peer.sdu_bytes) })
        }
        Err(failure) => {
            // The standby's alert log should show it too; a failed send does not matter.
            if let Some(refusal) = failure.refusal() {
                let _ = writer.write_json(FrameKind::Refuse, 0, &refusal);
            }
            Err(failure)
        }
    }
}

/// Opens the channel over which both ends request and grant certificates beside the acknowledgements. TLS only.
fn open_channel(shared: &Shared, stream: &LinkEnd, renews: bool) -> Option<OpenChannel> {
    let peer = stream.peer_name()?;
    let (sender, stream) = (shared.me.clone(), stream.clone());
    let send = move |frame: &[u8]| {
        let sender = sender.upgrade().ok_or(std::io::ErrorKind::NotConnected)?;
        sender.send_beside(&stream, frame)
    };
    let observer = shared.observer.clone();
    let certify = move |wish: &_| observer.certify(wish);
    let channel = CertificateChannel::open(peer, Box::new(send), Box::new(certify));
    if renews {
        shared.observer.certificate_channel(&channel);
    }
    Some(channel)
}

fn decide(
    shared: &Shared,
    hello: SenderHello,
    peer: &ReceiverHello,
    proven: bool,
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
            // Redo that the standby may have to compare must come over the stream.
            let in_place = from == held.end.scn && from == keep;
            let gap = if in_place { gap::find(shared, from)? } else { None };
            let first = gap.as_ref().map_or(from, |gap| gap.to);
            let log = source.log_containing(first).ok_or_else(|| no_log(first))?;
            // The gap is usable only if a log begins exactly where the last archived log ends.
            let gap = gap.filter(|gap| log.first_scn == gap.to);
            let log =
                if gap.is_some() { log } else { source.log_containing(from).ok_or_else(|| no_log(from))? };
            Ok((StreamStart { source: view.source, from, keep, log, gap }, held))
        }
        (Verdict::Fenced(incarnation), _) => {
            shared.observer.may_claim(&peer.standby, &incarnation, proven).map_err(Failure::Refused)?;
            Err(Failure::Fenced { incarnation, peer: peer.standby.name.clone() })
        }
        (Verdict::Refuse(refusal), _) => {
            if let Meeting::Newer(newer) = meet(&view.source, &peer.standby) {
                shared.observer.may_claim(&peer.standby, &newer, proven).map_err(Failure::Refused)?;
                shared.observer.superseded(&peer.standby, &newer);
            }
            Err(Failure::Refused(refusal))
        }
        (Verdict::Start { .. }, None) => Err(Failure::Lost("the standby did not say what it holds".into())),
    }
}

fn no_log(from: Scn) -> Failure {
    let message = format!(
        "the log that contains {from} exists no more; create the standby again with `standfast standby create`"
    );
    Failure::Refused(Refusal::new(RefuseCode::Gap, message))
}
