//! The threads at the primary's end of a gap: each runs the machine of an archiver ([`ArchiverStream`]) over one connection
//! after the other.
//!
//! Archivers live as long as the stream beside them. An archiver reconnects after a lost connection; the standby then
//! requests the units again that have not arrived.

use super::archiver_stream::{ArchiverStep, ArchiverStream, archiver_hello};
use super::failure::Ended;
use super::open_gap::OpenGap;
use super::shared::Shared;
use crate::error::{PROTOCOL_VERSION, TransportError};
use crate::framing::{FrameReader, FrameWriter, FramingError};
use crate::hello;
use crate::link::{self, LinkEnd};
use crate::lock;
use standfast_format::FrameKind;
use standfast_instruments::{Event, waiting};
use standfast_io::behind::run_behind;
use std::sync::Arc;
use std::time::{Duration, Instant};

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// See [`super::SenderCore::gap_behind`]. Called periodically.
pub(super) fn poll(shared: &Shared) -> Option<Ended> {
    let sent = lock(&shared.wire).as_ref().map(|wire| wire.sent)?;
    shared.gap_behind(sent)
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
        shared.end_gap(open);
    });
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
    let sending = TransportError::io("sending an archived log");
    writer.write_json(FrameKind::Hello, PROTOCOL_VERSION, &archiver_hello(shared, open)).map_err(&sending)?;
    let frame = hello::await_frame(&mut reader, Instant::now() + HANDSHAKE_TIMEOUT)?;
    let mut machine = ArchiverStream::greeted(&frame)?;
    link.set_read_timeout(Some(timeout)).map_err(&preparing)?;
    loop {
        match machine.step(shared, open, &mut reader, &mut writer)? {
            ArchiverStep::Sent => {}
            ArchiverStep::Done => return Ok(()),
            ArchiverStep::Pause(time) => {
                let _wait = waiting(Event::ArchPace);
                open.pause(time);
            }
            ArchiverStep::Awaits => {
                let idle = waiting(Event::RdbmsIpcMessage);
                let filled = reader.fill();
                drop(idle);
                match filled {
                    Ok(()) => {}
                    // The other connections are fetching the rest, or the standby is verifying a log.
                    Err(FramingError::TimedOut) if !open.is_over() => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
    }
}
