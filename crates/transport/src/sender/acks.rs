//! The ack reader: reads acknowledgements and checks the timeouts.

use super::current::{AckSide, Ended};
use super::gap;
use super::listing::Listing;
use super::shared::Shared;
use crate::ack::AckTimes;
use crate::channel::OpenChannel;
use crate::destination_config::TransportMode;
use crate::error::TransportError;
use crate::framing::{FrameReader, FramingError};
use crate::link::LinkEnd;
use crate::remote_times::RemoteTimes;
use crate::stopped::StoppedDatabases;
use crate::verified::VerifiedDatabases;
use crate::{hello, now_us};
use standfast_format::{Frame, FrameKind};
use standfast_instruments::{Event, RemoteAnswer, monotonic_ns, waiting};
use standfast_types::Scn;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

pub(super) fn run(shared: &Shared) {
    let mut clock = Ticks::new(shared);
    while !shared.stopping() {
        if let Some(acks) = shared.take_reader(clock.next) {
            let ended = read_acks(shared, acks, &mut clock);
            // A connection that this end has closed looks lost from here.
            let ended = match (ended, shared.let_go()) {
                (Ended::Lost(_), Some(own)) => own,
                (ended, _) => ended,
            };
            shared.deciding(|at, now| match ended {
                Ended::Lost(reason) => at.lost(now, reason),
                Ended::Restart(reason) => at.restarts_stream(now, reason),
                Ended::Refused(refusal) => at.refused(now, refusal),
            });
            shared.reopen_link();
        }
        if let Some(ended) = clock.tick(shared) {
            shared.close(ended);
        }
    }
    shared.let_go();
    shared.reopen_link();
}

/// Timer for [`crate::Destination::tick`], every sixteenth of the net timeout (of `sync_latency` if that is shorter),
/// within 20 ms and 1 s; and for the check for gaps.
struct Ticks {
    next: Instant,
    apart: Duration,
    next_poll: Instant,
}

impl Ticks {
    fn new(shared: &Shared) -> Ticks {
        let config = &shared.config.destination;
        let latency = Some(config.sync_latency).filter(|latency| !latency.is_zero());
        let apart = config.net_timeout.min(latency.unwrap_or(Duration::MAX)) / 16;
        let next_poll = Instant::now() + shared.config.archive.poll;
        let apart = apart.clamp(Duration::from_millis(20), Duration::from_secs(1));
        Ticks { next: Instant::now(), apart, next_poll }
    }

    /// Returns why the connection must be closed, if so.
    fn tick(&mut self, shared: &Shared) -> Option<Ended> {
        let now = Instant::now();
        if now < self.next {
            return None;
        }
        self.next = now + self.apart;
        if now >= self.next_poll {
            self.next_poll = now + shared.config.archive.poll;
            if let Some(reason) = gap::poll(shared) {
                return Some(Ended::Restart(reason));
            }
        }
        let captured = shared.source.captured();
        shared.deciding(|destination, now| destination.tick(now, captured)).map(Ended::Lost)
    }
}

fn read_acks(shared: &Shared, acks: AckSide, clock: &mut Ticks) -> Ended {
    // The channel closes when this function returns.
    let AckSide { mut reader, greeted_in, channel, listed, takes_lists } = acks;
    let mut listing = Listing::new(reader.inner().clone(), listed, takes_lists);
    // Reads end with every tick. If the timeout cannot be set, the socket is dead and the read reports it.
    let _ = reader.inner().set_read_timeout(Some(clock.apart));
    let mut remote = RemoteTimes::new(greeted_in);
    loop {
        let idle = waiting(Event::RdbmsIpcMessage);
        let filled = reader.fill();
        drop(idle);
        match filled {
            Ok(()) => {
                if let Err(ended) = take_frames(shared, &mut reader, channel.as_ref(), &mut remote) {
                    return ended;
                }
            }
            Err(FramingError::TimedOut) => {}
            Err(error) => return Ended::Lost(error.to_string()),
        }
        if shared.stopping() {
            return Ended::Lost("the sender is stopped".into());
        }
        if let Some(ended) = clock.tick(shared).or_else(|| listing.look(shared)) {
            return ended;
        }
    }
}

/// Takes all complete frames that have arrived. Acknowledgements are cumulative: only the newest one is used.
fn take_frames(
    shared: &Shared,
    reader: &mut FrameReader<LinkEnd>,
    channel: Option<&OpenChannel>,
    remote: &mut RemoteTimes,
) -> Result<(), Ended> {
    let arrived = Arrived { at_ns: monotonic_ns(), at_us: now_us() };
    let mut at = 0;
    let mut newest = None;
    let mut ended = Ok(());
    while let Some((frame, length)) = reader.peek(at).map_err(|error| Ended::Lost(error.to_string()))? {
        at += length;
        match frame.header.kind {
            FrameKind::Ack => newest = Some(note_ack(shared, &frame, &arrived, remote)?),
            FrameKind::Stopped => match StoppedDatabases::decode(&frame) {
                Ok(stopped) => shared.with_destination(|at, _| at.stopped(stopped)),
                Err(error) => ended = Err(Ended::Lost(error.to_string())),
            },
            FrameKind::Verified => match VerifiedDatabases::decode(&frame) {
                Ok(verified) => shared.with_destination(|at, _| at.verified(verified)),
                Err(error) => ended = Err(Ended::Lost(error.to_string())),
            },
            FrameKind::CertificateRequest | FrameKind::CertificateAnswer => {
                ended = certificate(channel, &frame).map_err(|error| Ended::Lost(error.to_string()));
            }
            FrameKind::Refuse => ended = Err(refusal(&frame)),
            other => {
                ended =
                    Err(Ended::Lost(format!("the standby sent {other:?} where only acknowledgements belong")))
            }
        }
        if ended.is_err() {
            break;
        }
    }
    reader.consume(at);
    if let Some(([received, hardened, applied], by)) = newest {
        let captured = shared.source.captured();
        shared.arrived(by, |at, now| at.acked(now, received, hardened, applied, captured));
        gap::hardened(shared, hardened);
    }
    ended
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
    shared: &Shared,
    frame: &Frame<'_>,
    arrived: &Arrived,
    remote: &mut RemoteTimes,
) -> Result<([Scn; 3], RemoteAnswer), Ended> {
    let Some(times) = AckTimes::decode(frame.payload) else {
        return Err(Ended::Lost("the standby sent a malformed acknowledgement".into()));
    };
    let header = frame.header;
    let stats = &shared.stats;
    stats.acks.fetch_add(1, Relaxed);
    let answer = if header.d > 0 {
        let round_trip = Duration::from_micros(arrived.at_us.saturating_sub(header.d));
        let round_trip_ns = u64::try_from(round_trip.as_nanos()).unwrap_or(u64::MAX);
        stats.round_trip.record(round_trip_ns);
        let event = match shared.config.destination.mode {
            TransportMode::Async => Event::AsyncRemoteWrite,
            TransportMode::SyncAffirm | TransportMode::FastSync => Event::SyncRemoteWrite,
        };
        // A heartbeat is no write.
        if times.write_ns > 0 {
            standfast_instruments::record(event, round_trip);
            stats.responses.record(round_trip_ns);
            if event == Event::SyncRemoteWrite {
                shared.config.archive.archivers.answered(arrived.at_ns, round_trip_ns, &mut remote.usual);
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
