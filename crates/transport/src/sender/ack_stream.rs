//! Acknowledgements of one stream, as they arrive.

use super::failure::Ended;
use super::sender_core::SenderCore;
use crate::ack::AckTimes;
use crate::channel::OpenChannel;
use crate::destination_config::TransportMode;
use crate::error::TransportError;
use crate::framing::FrameReader;
use crate::hello;
use crate::positions::PositionAnswers;
use crate::remote_times::RemoteTimes;
use crate::stopped::StoppedDatabases;
use crate::verified::VerifiedDatabases;
use standfast_format::{Frame, FrameKind};
use standfast_instruments::{Event, RemoteAnswer};
use standfast_types::Scn;
use std::io::Read;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

pub struct AckStream {
    /// `None` over plain TCP.
    channel: Option<OpenChannel>,
    positions: Option<PositionAnswers>,
    remote: RemoteTimes,
}

impl AckStream {
    /// For a connection whose greeting was answered in `greeted_in`, network round trip included.
    pub fn new(channel: Option<OpenChannel>, greeted_in: Duration) -> AckStream {
        AckStream { channel, positions: None, remote: RemoteTimes::new(greeted_in) }
    }

    /// Answers requests for positions from now on.
    pub fn answering(self, positions: PositionAnswers) -> AckStream {
        AckStream { positions: Some(positions), ..self }
    }

    /// Takes all complete frames that have arrived. Acknowledgements are cumulative: only the newest one is used.
    ///
    /// # Errors
    /// Why the connection must be closed.
    pub fn take<R: Read>(&mut self, core: &SenderCore, reader: &mut FrameReader<R>) -> Result<(), Ended> {
        let arrived = Arrived { at_ns: core.clock.monotonic_ns(), at_us: core.clock.unix_us() };
        let mut at = 0;
        let mut newest = None;
        let mut ended = Ok(());
        while let Some((frame, length)) = reader.peek(at).map_err(|error| Ended::Lost(error.to_string()))? {
            at += length;
            match frame.header.kind {
                FrameKind::Ack => newest = Some(note_ack(core, &frame, &arrived, &mut self.remote)?),
                FrameKind::Stopped => match StoppedDatabases::decode(&frame) {
                    Ok(stopped) => core.with_destination(|at, _| at.stopped(stopped)),
                    Err(error) => ended = Err(Ended::Lost(error.to_string())),
                },
                FrameKind::Verified => match VerifiedDatabases::decode(&frame) {
                    Ok(verified) => core.with_destination(|at, _| at.verified(verified)),
                    Err(error) => ended = Err(Ended::Lost(error.to_string())),
                },
                FrameKind::CertificateRequest | FrameKind::CertificateAnswer => {
                    ended = certificate(self.channel.as_ref(), &frame)
                        .map_err(|error| Ended::Lost(error.to_string()));
                }
                FrameKind::PositionRequest => {
                    if let Some(positions) = &self.positions {
                        positions.take(frame.header.a, |call| core.source.position_of_primary(call));
                    }
                }
                FrameKind::Refuse => ended = Err(refusal(&frame)),
                other => {
                    ended = Err(Ended::Lost(format!(
                        "the standby sent {other:?} where only acknowledgements belong"
                    )))
                }
            }
            if ended.is_err() {
                break;
            }
        }
        reader.consume(at);
        if let Some(([received, hardened, applied], by)) = newest {
            let captured = core.source.captured();
            core.arrived(by, |at, now| at.acked(now, received, hardened, applied, captured));
            core.gap_hardened(hardened);
        }
        ended
    }
}

fn certificate(channel: Option<&OpenChannel>, frame: &Frame<'_>) -> Result<(), TransportError> {
    match (channel, frame.header.kind) {
        (Some(channel), FrameKind::CertificateRequest) => channel.take_request(frame),
        (Some(channel), _) => channel.take_answer(frame),
        (None, kind) => Err(TransportError::Protocol(format!("{kind:?} over plain TCP"))),
    }
}

/// The same moment on two clocks.
struct Arrived {
    at_ns: u64,
    at_us: u64,
}

/// Returns the positions of an acknowledgement, and its report of the standby's times.
fn note_ack(
    core: &SenderCore,
    frame: &Frame<'_>,
    arrived: &Arrived,
    remote: &mut RemoteTimes,
) -> Result<([Scn; 3], RemoteAnswer), Ended> {
    let Some(times) = AckTimes::decode(frame.payload) else {
        return Err(Ended::Lost("the standby sent a malformed acknowledgement".into()));
    };
    let header = frame.header;
    let stats = &core.stats;
    stats.acks.fetch_add(1, Relaxed);
    let answer = if header.d > 0 {
        let round_trip = Duration::from_micros(arrived.at_us.saturating_sub(header.d));
        let round_trip_ns = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
        stats.round_trip.record(round_trip_ns);
        let event = match core.config.destination.mode {
            TransportMode::Async => Event::AsyncRemoteWrite,
            TransportMode::SyncAffirm | TransportMode::FastSync => Event::SyncRemoteWrite,
        };
        // A heartbeat is no write.
        if times.write_ns > 0 {
            standfast_instruments::record(event, round_trip);
            stats.responses.record(round_trip_ns);
            if event == Event::SyncRemoteWrite {
                core.config.archive.archivers.answered(arrived.at_ns, round_trip_ns, &mut remote.usual);
            }
        }
        let answer = remote.note(arrived.at_ns, round_trip_ns, times.write_ns);
        stats.shortest_way.store(remote.shortest_ns() / 1000 + 1, Relaxed);
        answer
    } else {
        // This acknowledgement answers no frame.
        RemoteAnswer { arrived_ns: arrived.at_ns, write_ns: times.write_ns, ..RemoteAnswer::default() }
    };
    if times.write_ns > 0 {
        stats.standby_write.record(times.write_ns);
    }
    Ok(([Scn(header.a), Scn(header.b), Scn(header.c)], answer))
}

fn refusal(frame: &Frame<'_>) -> Ended {
    match hello::expect(frame, FrameKind::Ack) {
        Err(TransportError::Refused(refusal)) => Ended::Refused(refusal),
        Err(error) => Ended::Lost(error.to_string()),
        Ok(()) => Ended::Lost("not a refusal".into()),
    }
}
