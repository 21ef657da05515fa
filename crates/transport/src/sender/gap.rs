//! The primary's end of a gap: archivers answer the standby, which requests archived logs over separate connections.
//!
//! Archivers live as long as the stream beside them. An archiver reconnects after a lost connection; the standby then
//! requests the units again that have not arrived.

use super::open_gap::OpenGap;
use super::shared::Shared;
use crate::error::{PROTOCOL_VERSION, Refusal, RefuseCode, TransportError};
use crate::event::SenderEvent;
use crate::framing::{FrameReader, FrameWriter, FramingError};
use crate::gap::ArchivedLogInfo;
use crate::hello::{self, SenderHello};
use crate::link::{self, LinkEnd};
use crate::lock;
use crate::packing::Compression;
use crate::source::ArchivedFile;
use standfast_format::{FrameHeader, FrameKind, StreamCrc};
use standfast_instruments::{Event, Statistic, count, waiting};
use standfast_io::behind::run_behind;
use standfast_io::fault::{self, Fault};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Payload bytes of one frame of a unit.
const PIECE_BYTES: u64 = 1 << 20;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Checks whether a standby that is fed from the logs is so far behind that archivers are faster. Returns why its
/// stream must begin again. Called periodically.
pub(super) fn poll(shared: &Shared) -> Option<String> {
    let behind = matches!(shared.phase(), crate::Phase::CatchingUp) && lock(&shared.gap).is_none();
    let sent = lock(&shared.wire).as_ref().map(|wire| wire.sent)?;
    let gap = shared.gap_from(sent).ok().flatten().filter(|_| behind)?;
    let (low, high) = (gap.low_sequence(), gap.high_sequence());
    Some(format!("logs {low} to {high} are missing there: they are sent over connections of their own"))
}

/// Runs the archivers of a gap as long as `feed` runs.
pub(super) fn beside(shared: &Shared, open: Option<Arc<OpenGap>>, feed: impl FnOnce()) {
    let Some(open) = open else { return feed() };
    let (name, open) = (&shared.config.destination.name, &*open);
    std::thread::scope(|scope| {
        for number in 0..open.connections() {
            let archiver = std::thread::Builder::new().name(format!("arc{number}-{name}"));
            // With fewer archivers it only takes longer.
            let _ = archiver.spawn_scoped(scope, move || {
                shared.observer.enter_thread(&format!("arc{number}-{name}"));
                archive(shared, open);
            });
        }
        feed();
        open.cut();
    });
    *lock(&shared.gap) = None;
}

/// Runs one archiver: one connection after the other, until the gap or its stream is over.
fn archive(shared: &Shared, open: &OpenGap) {
    // Commits have priority over this thread.
    run_behind();
    let mut pause = FIRST_PAUSE;
    while !open.is_over() {
        let Some(busy) = shared.config.archive.archivers.take(&|| open.is_over()) else { return };
        let before = open.sent();
        if serve(shared, open).is_ok() {
            return;
        }
        drop(busy);
        if open.sent() > before {
            pause = FIRST_PAUSE;
        }
        open.pause(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn serve(shared: &Shared, open: &OpenGap) -> Result<(), TransportError> {
    let config = &shared.config;
    let timeout = config.destination.net_timeout;
    let expected = config.expected_name.as_deref();
    let link = link::connect(&config.address, &config.security, expected, timeout, &|| open.is_over())?;
    let Some(id) = open.enter(&link) else { return Ok(()) };
    let served = converse(shared, open, &link, timeout);
    open.leave(id);
    link.shutdown();
    served
}

fn converse(
    shared: &Shared,
    open: &OpenGap,
    link: &LinkEnd,
    timeout: Duration,
) -> Result<(), TransportError> {
    let preparing = TransportError::io("preparing the connection");
    link.prepare(timeout).map_err(&preparing)?;
    link.set_write_timeout(Some(timeout)).map_err(&preparing)?;
    let shape = shared.config.shape;
    // Without these buffers it is only slower.
    let _ = link.set_buffers(shape.send_buffer_bytes, shape.receive_buffer_bytes);
    let (mut reader, mut writer) = (FrameReader::new(link.clone()), FrameWriter::new(link.clone()));
    let hello = SenderHello {
        source: shared.source.identity(),
        mode: shared.config.destination.mode,
        compression: Compression::None,
        net_timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
        archives_to: Some(open.to()),
        peers: Vec::new(),
        members: Vec::new(),
        issuer: None,
        renews: false,
        via: shared.source.via(),
        delay_ms: None,
        logs: None,
        receive_buffer_bytes: shared.config.shape.receive_buffer_bytes,
    };
    let sending = TransportError::io("sending an archived log");
    writer.write_json(FrameKind::Hello, PROTOCOL_VERSION, &hello).map_err(&sending)?;
    let frame = hello::await_frame(&mut reader, Instant::now() + HANDSHAKE_TIMEOUT)?;
    hello::expect(&frame, FrameKind::Hello)?;
    link.set_read_timeout(Some(timeout)).map_err(&preparing)?;
    let mut file = None;
    loop {
        let idle = waiting(Event::RdbmsIpcMessage);
        let asked = reader.read();
        drop(idle);
        let wanted = match asked {
            Ok(frame) if frame.header.kind == FrameKind::Done => return Ok(()),
            Ok(frame) => {
                hello::expect(&frame, FrameKind::Fetch)?;
                frame.header
            }
            // The other connections are fetching the rest, or the standby is verifying a log.
            Err(FramingError::TimedOut) if !open.is_over() => continue,
            Err(error) => return Err(error.into()),
        };
        let Some(log) = open.log(wanted.a, wanted.d) else {
            return Err(TransportError::Protocol(format!("log {} is not one that is missing", wanted.a)));
        };
        let (offset, bytes) = (wanted.b, wanted.c);
        if offset.checked_add(bytes).is_none_or(|end| end > log.bytes) || !offset.is_multiple_of(4096) {
            return Err(TransportError::Protocol("a unit beyond the end of its log".into()));
        }
        send_unit(shared, open, log, (offset, bytes), &mut file, &mut writer)?;
    }
}

/// The log that an archiver has open.
type Opened = Option<(ArchivedLogInfo, Box<dyn ArchivedFile>)>;

fn send_unit(
    shared: &Shared,
    open: &OpenGap,
    log: &ArchivedLogInfo,
    (offset, bytes): (u64, u64),
    file: &mut Opened,
    writer: &mut FrameWriter<LinkEnd>,
) -> Result<(), TransportError> {
    let sending = TransportError::io("sending an archived log");
    if file.as_ref().is_none_or(|(opened, _)| opened != log) {
        *file = match shared.source.open_archived(log) {
            Ok(opened) => Some((*log, opened)),
            Err(error) => return Err(unusable(shared, log, error.to_string(), writer)),
        };
    }
    let Some((_, file)) = file else { return Ok(()) };
    let (mut at, end, mut crc) = (offset, offset + bytes, StreamCrc::default());
    let mut piece = vec![0; PIECE_BYTES.min(bytes) as usize];
    while at < end {
        let length = (end - at).min(PIECE_BYTES);
        let piece = &mut piece[..length as usize];
        let held_back = shared.config.archive.archivers.holds_back(length);
        if !held_back.is_zero() {
            let _wait = waiting(Event::ArchPace);
            open.pause(held_back);
        }
        let wait = waiting(Event::ArchRemoteWrite);
        fault::check(Fault::ArchiveSend).map_err(&sending)?;
        if let Err(error) = file.read(at, piece) {
            return Err(unusable(shared, log, error.to_string(), writer));
        }
        crc = crc.after(piece);
        let header = FrameHeader::new(FrameKind::Unit, log.sequence, at, 0, 0);
        writer.write(header, piece).map_err(&sending)?;
        drop(wait);
        at += length;
        open.add_sent(length);
        shared.stats.archived_bytes.fetch_add(length, Relaxed);
        count(Statistic::RedoReadForTransport, length);
    }
    let end = FrameHeader::new(FrameKind::UnitEnd, log.sequence, offset, bytes, u64::from(crc.0));
    writer.write(end, &[]).map_err(&sending)
}

/// Reports to both ends that a log cannot be sent, and excludes it from later gaps.
fn unusable(
    shared: &Shared,
    log: &ArchivedLogInfo,
    reason: String,
    writer: &mut FrameWriter<LinkEnd>,
) -> TransportError {
    let sequence = log.sequence;
    let text = format!("the archived log {sequence} cannot be sent: {reason}");
    if lock(&shared.unusable).insert((log.incarnation_id, sequence)) {
        shared.report(&SenderEvent::ArchiveUnusable { sequence, reason });
    }
    let refusal = Refusal::new(RefuseCode::Source, text);
    // A peer that this does not reach sees the end of the connection.
    let _ = writer.write_json(FrameKind::Refuse, 0, &refusal);
    TransportError::Refused(refusal)
}
