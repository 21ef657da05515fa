//! The sending end of a handshake, as a machine: the greeting, the decision about the answer, the begin of the stream.

use super::ack_stream::AckStream;
use super::failure::Failure;
use super::open_gap::OpenGap;
use super::sender_core::SenderCore;
use crate::channel::OpenChannel;
use crate::error::{Refusal, RefuseCode, TransportError};
use crate::hello::{self, ReceiverHello, SenderHello, StandbyPositions};
use crate::identity::{Meeting, meet};
use crate::lock;
use crate::packing::Packer;
use crate::resolve::{Verdict, View, resolve};
use crate::rights::MemberRights;
use crate::standby::StreamStart;
use crate::wire::{Outlet, Wire};
use standfast_format::{Frame, FrameKind};
use standfast_types::{BATCH_BYTES_MAX, Scn};
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// A greeting that waits for its answer.
pub struct Greeting {
    hello: SenderHello,
    /// Epoch of the source before the greeting: a change of the source meanwhile ends the stream before its first frame.
    epoch: u64,
    asked: Instant,
}

impl Greeting {
    /// `encrypted`: a plain TCP listener is not authenticated and is sent no member names.
    pub fn new(core: &SenderCore, encrypted: bool) -> Greeting {
        let (config, source) = (&core.config, &core.source);
        let in_ms = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let epoch = source.epoch();
        let hello = SenderHello {
            source: source.identity(),
            mode: config.destination.mode,
            compression: config.shape.compression,
            net_timeout_ms: in_ms(config.destination.net_timeout),
            receive_buffer_bytes: config.shape.receive_buffer_bytes,
            via: source.via(),
            delay_ms: config.delay.map(in_ms),
            logs: source.logs(),
            peers: if encrypted { source.peers() } else { Vec::new() },
            members: if encrypted { source.members() } else { Vec::new() },
            issuer: if encrypted { source.issuer() } else { None },
            renews: encrypted,
            reports_position: true,
            archives_to: None,
        };
        Greeting { hello, epoch, asked: core.clock.now() }
    }

    /// The first message of the connection.
    pub fn hello(&self) -> &SenderHello {
        &self.hello
    }

    /// Decides about the answer. `proved`: the name in the certificate of the other end; `None` over plain TCP.
    ///
    /// # Errors
    /// Why there is no stream; its refusal, if it has one, is to be sent to the other end.
    pub fn answered(
        self,
        core: &SenderCore,
        peer: &ReceiverHello,
        proved: Option<&str>,
    ) -> Result<Agreed, Failure> {
        let greeted_in = core.clock.now().saturating_duration_since(self.asked);
        *lock(&core.role) = Some(peer.standby.role);
        core.shares_logs.store(self.hello.source.shares_logs_with(&peer.standby), SeqCst);
        if let Some(name) = proved.filter(|name| *name != peer.standby.name) {
            let text = format!("`{}` there has a certificate of `{name}`", peer.standby.name);
            return Err(Failure::Refused(Refusal::new(RefuseCode::WrongPeer, text)));
        }
        let listed = self.hello.members.clone();
        let (start, held) = decide(core, self.hello, peer, proved.is_some())?;
        Ok(Agreed {
            start,
            held,
            epoch: self.epoch,
            greeted_in,
            sdu_bytes: sdu(core.config.shape.sdu_bytes, peer.sdu_bytes),
            listed,
        })
    }
}

/// Decodes the answer to a greeting.
///
/// # Errors
/// `Refused` by the other end, or `Protocol`.
pub fn answer_in(frame: &Frame<'_>) -> Result<ReceiverHello, TransportError> {
    hello::expect(frame, FrameKind::Hello)?;
    hello::decode(frame)
}

/// Both ends agree on where the stream begins.
pub struct Agreed {
    start: StreamStart,
    held: StandbyPositions,
    epoch: u64,
    greeted_in: Duration,
    sdu_bytes: usize,
    /// The members as the greeting reported them to the destination.
    pub(super) listed: Vec<MemberRights>,
}

impl Agreed {
    /// The message with which the stream begins.
    pub fn start(&self) -> &StreamStart {
        &self.start
    }

    /// Begins the stream, after [`Agreed::start`] was sent.
    ///
    /// # Errors
    /// `Own`.
    pub fn begin<O: Outlet>(&self, core: &SenderCore, outlet: O) -> Result<Wire<O>, Failure> {
        let start = &self.start;
        let packer = Packer::new(core.config.shape.compression)
            .map_err(|error| Failure::Own(format!("compression cannot begin: {error}")))?;
        // The standby may not know a log that begins exactly here: announce it (again).
        let announced =
            if start.log.first_scn == start.first() { Scn(start.first().0 - 1) } else { start.log.first_scn };
        let captured = core.source.captured();
        core.stats.connects.fetch_add(1, Relaxed);
        core.with_destination(|at, now| {
            at.set_cascade_limit(self.held.passed);
            at.resolved(now, start.from, start.keep, self.held.applied, captured);
        });
        core.acknowledged_epoch.store(self.epoch, SeqCst);
        let gap = start.gap.clone().map(|gap| OpenGap::new(gap, core.clock.now()));
        if let Some(open) = &gap {
            core.report(&open.found());
        }
        *lock(&core.gap) = gap;
        let wire = Wire::new(outlet, start.first(), announced, self.epoch, core.clock.now());
        Ok(wire.with(self.sdu_bytes, packer))
    }

    /// Returns the acknowledgements' side of the stream.
    pub fn acks(&self, channel: Option<OpenChannel>) -> AckStream {
        AckStream::new(channel, self.greeted_in)
    }
}

/// Returns the smaller value of both ends; 0 means as large as the protocol allows.
fn sdu(ours: u32, theirs: u32) -> usize {
    let reported = |bytes: u32| if bytes == 0 { BATCH_BYTES_MAX } else { bytes as usize };
    reported(ours).min(reported(theirs)).clamp(1, BATCH_BYTES_MAX)
}

fn decide(
    core: &SenderCore,
    hello: SenderHello,
    peer: &ReceiverHello,
    proven: bool,
) -> Result<(StreamStart, StandbyPositions), Failure> {
    let source = &*core.source;
    let sum = |at: Option<Scn>| at.map_or(Ok(None), |at| source.stream_crc(at));
    let view = View {
        source: hello.source,
        expected_name: core.config.expected_name.clone(),
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
            let gap = if in_place { core.gap_from(from)? } else { None };
            let first = gap.as_ref().map_or(from, |gap| gap.to);
            let log = source.log_containing(first).ok_or_else(|| no_log(first))?;
            // The gap is usable only if a log begins exactly where the last archived log ends.
            let gap = gap.filter(|gap| log.first_scn == gap.to);
            let log =
                if gap.is_some() { log } else { source.log_containing(from).ok_or_else(|| no_log(from))? };
            Ok((StreamStart { source: view.source, from, keep, log, gap }, held))
        }
        (Verdict::Fenced(incarnation), _) => {
            core.observer.may_claim(&peer.standby, &incarnation, proven).map_err(Failure::Refused)?;
            Err(Failure::Fenced { incarnation, peer: peer.standby.name.clone() })
        }
        (Verdict::Refuse(refusal), _) => {
            if let Meeting::Newer(newer) = meet(&view.source, &peer.standby) {
                core.observer.may_claim(&peer.standby, &newer, proven).map_err(Failure::Refused)?;
                core.observer.superseded(&peer.standby, &newer);
            }
            Err(Failure::Refused(refusal))
        }
        (Verdict::Start { .. }, None) => Err(Failure::Lost("the standby did not say what it holds".into())),
    }
}

fn no_log(from: Scn) -> Failure {
    let message = format!(
        "the log that contains {from} exists no more; stop the standby and run `standfast reinstate` there"
    );
    Failure::Refused(Refusal::new(RefuseCode::Gap, message))
}
