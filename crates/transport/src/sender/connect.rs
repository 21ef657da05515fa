//! From nothing to a stream: connects and runs the handshake.

use super::current::AckSide;
use super::failure::Failure;
use super::greeting::{Agreed, Greeting, answer_in};
use super::open_gap::OpenGap;
use super::shared::Shared;
use crate::channel::{CertificateChannel, OpenChannel};
use crate::error::{PROTOCOL_VERSION, TransportError};
use crate::framing::{FrameReader, FrameWriter};
use crate::hello;
use crate::link::{self, LinkEnd};
use crate::lock;
use crate::positions::PositionAnswers;
use standfast_format::FrameKind;
use std::sync::Arc;
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
    shared.connected();
    let (agreed, acks) = shake_hands(shared, &stream).map_err(|failure| abandon(shared, failure))?;
    let wire = agreed.begin(shared, stream).map_err(|failure| abandon(shared, failure))?;
    *lock(&shared.wire) = Some(wire);
    lock(&shared.link).reader = Some(acks);
    shared.link_changed.notify_all();
    Ok(lock(&shared.gap).clone())
}

fn abandon(shared: &Shared, failure: Failure) -> Failure {
    let mut link = lock(&shared.link);
    link.end();
    link.reason = None;
    failure
}

fn shake_hands(shared: &Shared, stream: &LinkEnd) -> Result<(Agreed, AckSide), Failure> {
    let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
    let shape = &shared.config.shape;
    let prepared = stream
        .prepare(shared.config.destination.net_timeout)
        .and_then(|()| stream.set_buffers(shape.send_buffer_bytes, shape.receive_buffer_bytes));
    prepared.map_err(TransportError::io("preparing the connection"))?;
    let mut reader = FrameReader::new(stream.clone());
    let mut writer = FrameWriter::new(stream.clone());
    let greet = TransportError::io("greeting the standby");
    let greeting = Greeting::new(shared, stream.is_tls());
    writer.write_json(FrameKind::Hello, PROTOCOL_VERSION, greeting.hello()).map_err(&greet)?;
    let answer = hello::await_frame(&mut reader, deadline).map_err(TransportError::from)?;
    let peer = answer_in(&answer)?;
    stream.allow_large_reads();
    let agreed = greeting.answered(shared, &peer, stream.peer_name()).inspect_err(|failure| {
        // The standby's alert log should show it too; a failed send does not matter.
        if let Some(refusal) = failure.refusal() {
            let _ = writer.write_json(FrameKind::Refuse, 0, &refusal);
        }
    })?;
    writer.write_json(FrameKind::Hello, PROTOCOL_VERSION, agreed.start()).map_err(&greet)?;
    let acks = agreed.acks(open_channel(shared, stream, peer.renews)).answering(answers(shared, stream));
    let listed = agreed.listed.clone();
    Ok((
        agreed,
        AckSide { reader, acks, listed, takes_lists: peer.lists, takes_configuration: peer.configures },
    ))
}

/// Answers to requests for positions, beside the redo. One for which there is no room is dropped: a standby that does not
/// read what it is sent must not fill the memory.
fn answers(shared: &Shared, stream: &LinkEnd) -> PositionAnswers {
    let (sender, stream) = (shared.me.clone(), stream.clone());
    PositionAnswers::new(move |frame| {
        let sender = sender.upgrade().ok_or(std::io::ErrorKind::NotConnected)?;
        if sender.has_room_beside(&stream) { sender.send_beside(&stream, frame) } else { Ok(()) }
    })
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
