//! An open stream at its receiving end, as a machine: frames arrive, redo goes to the standby log, acknowledgements go
//! back. It has no thread and no socket, and reads the time from a [`Clock`]: the thread of a connection (`receive`) runs it
//! over TCP, a simulation over a pipe in memory.
//!
//! ```text
//!  frames ──> take ──> skip_held ──> append / confirm / switch ──> acknowledge
//! ```
//!
//! An acknowledgement names as hardened only redo that an append has returned for, or that was held and compared equal.

use super::counts::ReceiverCounts;
use super::outgoing::Outgoing;
use crate::ack::{Ack, AckTimes};
use crate::channel::OpenChannel;
use crate::clock::Clock;
use crate::destination_config::TransportMode;
use crate::error::{Refusal, RefuseCode, StageError, TransportError};
use crate::event::ReceiverEvent;
use crate::framing::{FrameReader, HELLO_BYTES_MAX};
use crate::hello::{self, SenderHello};
use crate::identity::PeerIdentity;
use crate::packing::Unpacker;
use crate::redo::LogSwitch;
use crate::rights::{MemberRights, Right};
use crate::standby::{ReceiverService, StandbyLog, StreamStart};
use crate::wait::{Made, packing_and_wait};
use crate::{positions, stopped, verified};
use standfast_format::{Frame, FrameKind};
use standfast_instruments::{Event, waiting};
use standfast_types::{APPLY_BEHIND_BYTES, BATCH_BYTES_MAX, Scn};
use std::borrow::Cow;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Minimum interval between acknowledgements that answer no frame.
const BETWEEN_FRAMES: Duration = Duration::from_millis(200);

/// The surroundings of a stream at its receiving end.
pub struct StreamSite<'a> {
    pub service: Arc<dyn ReceiverService>,
    pub counts: Arc<ReceiverCounts>,
    pub clock: Arc<dyn Clock>,
    /// The way back to the source.
    pub acks: Outgoing,
    /// Beside the redo; `None` over plain TCP.
    pub channel: Option<OpenChannel>,
    /// Address of the source's connection, IP:PORT.
    pub from: Option<String>,
    /// The gap before the begin of the stream.
    pub gap: Option<Box<dyn GapBefore + 'a>>,
}

/// The gap before the begin of a stream, which archived logs fill meanwhile.
pub trait GapBefore: Send {
    /// Why it cannot be filled.
    fn failure(&self) -> Option<Refusal>;

    fn is_filled(&self) -> bool;

    /// The log counts the redo beyond it from now on. Returns when no thread fills it any more.
    fn close(&self) -> ReceiverEvent;
}

pub struct ReceiverStream<'a> {
    site: StreamSite<'a>,
    /// Proved over TLS.
    source: PeerIdentity,
    net_timeout: Duration,
    /// When the newest bytes came.
    heard: Instant,
    /// A wait since then has ended without bytes.
    quiet: bool,
    /// Version of the rights at the last check.
    rights: u64,
    ack_on_receipt: bool,
    /// End of the redo that this stream has delivered. Redo that the log holds beyond it is from before and not
    /// compared yet.
    position: Scn,
    /// Newest durable position of the primary.
    durable: Scn,
    /// End of the source's redo when the newest frame was sent.
    source_end: Option<Scn>,
    /// Until when no commit is acknowledged without this standby, from the newest frame.
    waits_until: Option<Instant>,
    made: Made,
    /// When the frames being taken came from the socket.
    came: Instant,
    /// For the next acknowledgement: when the oldest redo that it answers was sent, on the primary's clock; without
    /// redo, when the newest frame was sent.
    echo_us: u64,
    times: AckTimes,
    /// The applied SCN as last reported to the primary, and when that was (as [`AckTimes::received_us`]).
    reported: (Scn, u64),
    /// Version of the stopped databases last reported in this stream.
    stopped_known: u64,
    /// Version of the verification findings last reported in this stream.
    verified_known: u64,
    unpacker: Unpacker,
}

impl<'a> ReceiverStream<'a> {
    /// A stream from the sender of `hello` that begins at `start`.
    pub fn new(site: StreamSite<'a>, hello: &SenderHello, start: &StreamStart) -> ReceiverStream<'a> {
        let (now, now_us) = (site.clock.now(), site.clock.unix_us());
        ReceiverStream {
            site,
            source: hello.source.clone(),
            net_timeout: hello.net_timeout(),
            heard: now,
            quiet: false,
            // No service has this version: changes since the greeting are found too.
            rights: u64::MAX,
            ack_on_receipt: hello.mode == TransportMode::FastSync,
            position: start.first(),
            durable: Scn::ZERO,
            source_end: None,
            waits_until: None,
            made: Made::new(now),
            came: now,
            echo_us: 0,
            times: AckTimes::default(),
            reported: (Scn::ZERO, now_us),
            stopped_known: 0,
            verified_known: 0,
            unpacker: Unpacker::new(hello.compression),
        }
    }

    /// How long to wait for bytes, before [`ReceiverStream::nothing_came`]. After a first silent period, waiting for a
    /// whole net timeout again would end the stream too late.
    pub fn wait(&self, log: &dyn StandbyLog) -> Duration {
        if self.quiet || self.is_behind(log) { BETWEEN_FRAMES } else { self.net_timeout }
    }

    pub fn bytes_came(&mut self) {
        (self.heard, self.quiet) = (self.site.clock.now(), false);
    }

    /// A wait for bytes has ended without any.
    ///
    /// # Errors
    /// `Silent` when the source has been silent for its net timeout: it sends at least three frames within that time.
    pub fn nothing_came(&mut self) -> Result<(), TransportError> {
        if self.site.clock.now().saturating_duration_since(self.heard) < self.net_timeout {
            self.quiet = true;
            return Ok(());
        }
        Err(TransportError::Silent(self.net_timeout))
    }

    /// Takes all complete frames that have arrived: one write for all their redo, one acknowledgement.
    ///
    /// # Errors
    /// Why the stream must end; a `Refused` is to be sent to the source.
    pub fn take<R: Read>(
        &mut self,
        reader: &mut FrameReader<R>,
        log: &mut dyn StandbyLog,
    ) -> Result<(), TransportError> {
        self.may_send_still()?;
        let mut at = 0;
        let mut redo = Gathered::default();
        self.times = AckTimes { received_us: self.site.clock.unix_us(), write_ns: 0 };
        self.came = self.site.clock.now();
        let (mut failed, mut redo_came, mut only_positions) = (Ok(()), false, true);
        let wait = waiting(Event::RfsWrite);
        loop {
            let (frame, length) = match reader.peek(at) {
                Ok(Some(next)) => next,
                Ok(None) => break,
                Err(error) => {
                    failed = Err(error.into());
                    break;
                }
            };
            at += length;
            let expected = self.position + redo.bytes;
            only_positions &= frame.header.kind == FrameKind::Position;
            let taken = self.note(&frame, expected, redo_came).and_then(|what| match what {
                Item::Redo => {
                    redo_came = true;
                    let unpacked =
                        self.unpacker.unpack(packing_and_wait(frame.header.flags).0, frame.payload);
                    let unpacked = unpacked.map_err(|error| protocol(&error.to_string()))?;
                    redo.push(unpacked.map_or(Cow::Borrowed(frame.payload), Cow::Owned));
                    if redo.is_enough() { self.harden(log, &redo.take()) } else { Ok(()) }
                }
                Item::Confirm | Item::Aside => Ok(()),
                Item::Position(request, position) => {
                    log.position_came(request, position);
                    Ok(())
                }
                Item::Switch(next) => {
                    self.harden(log, &redo.take())?;
                    self.switch(log, &next)
                }
            });
            if taken.is_err() {
                failed = taken;
                break;
            }
        }
        // A position is no redo: nothing is to be acknowledged.
        if at > 0 && !only_positions && failed.is_ok() {
            self.harden(log, &redo.take())?;
            self.harden_confirmed(log)?;
            self.look_at_gap(log)?;
            if let Some(source_end) = self.source_end {
                log.heard(self.held_until(log, self.position), source_end, self.waits_until);
            }
            self.acknowledge(log, self.position)?;
            log.hardened_notice();
        } else if failed.is_ok() {
            self.tell_applied(log)?;
        }
        if self.times.write_ns > 0 {
            drop(wait)
        } else {
            wait.forget()
        }
        drop(redo);
        reader.consume(at);
        failed
    }

    /// Checks a frame and records the values that every frame carries.
    fn note(&mut self, frame: &Frame<'_>, expected: Scn, redo_came: bool) -> Result<Item, TransportError> {
        let header = frame.header;
        let item = match header.kind {
            FrameKind::Redo => Item::Redo,
            FrameKind::Confirm => Item::Confirm,
            FrameKind::Switch => Item::Switch(LogSwitch {
                sequence: header.b,
                first_scn: Scn(header.a),
                time_us: header.c,
                first_record: u32::try_from(header.d)
                    .map_err(|_| protocol("a switch with an impossible record offset"))?,
            }),
            FrameKind::Refuse => return Err(TransportError::Refused(hello::decode(frame)?)),
            FrameKind::CertificateRequest | FrameKind::CertificateAnswer => {
                // This frame has no time that could be answered.
                if !redo_came {
                    self.echo_us = 0;
                }
                return self.certificate(frame).map(|()| Item::Aside);
            }
            FrameKind::Position => {
                let (request, position) = positions::decode(frame);
                return Ok(Item::Position(request, position));
            }
            FrameKind::Members => return self.members(frame).map(|()| Item::Aside),
            FrameKind::Configuration => return self.configuration(frame).map(|()| Item::Aside),
            other => return Err(protocol(&format!("{other:?} in the middle of a stream"))),
        };
        if header.a != expected.0 {
            let text = format!("{:?} at {} where {expected} comes next", header.kind, header.a);
            return Err(TransportError::Refused(Refusal::new(RefuseCode::OutOfOrder, text)));
        }
        if !matches!(item, Item::Switch(_)) {
            self.durable = self.durable.max(Scn(header.b));
            // A confirmation after redo was sent later than that redo.
            if !redo_came {
                self.echo_us = header.c;
            }
            self.source_end = Some(Scn(header.d));
            let (_, wait) = packing_and_wait(header.flags);
            let made = self.made.at(self.came, header.c);
            self.waits_until = (!wait.is_zero()).then(|| made + wait);
        }
        Ok(item)
    }

    /// Checks again whether the source may send: the right may be revoked while the stream is open. Plain TCP proves no
    /// name to check.
    fn may_send_still(&mut self) -> Result<(), TransportError> {
        let version = self.site.service.rights_version();
        if self.site.channel.is_some() && self.rights != version {
            self.site.service.authorise(&self.source.name, Right::Send)?;
            self.rights = version;
        }
        Ok(())
    }

    fn members(&self, frame: &Frame<'_>) -> Result<(), TransportError> {
        if self.site.channel.is_none() {
            return Err(protocol("Members over plain TCP"));
        }
        // The same limit as in a Hello.
        if frame.payload.len() > HELLO_BYTES_MAX {
            return Err(protocol("Members that are too many"));
        }
        let members: Vec<MemberRights> = hello::decode(frame)?;
        self.site.service.endorsed_again(&self.source.name, &members);
        Ok(())
    }

    fn configuration(&self, frame: &Frame<'_>) -> Result<(), TransportError> {
        if frame.payload.len() > HELLO_BYTES_MAX {
            return Err(protocol("a Configuration that is too large"));
        }
        self.site.service.configured(&self.source, hello::decode(frame)?, self.site.from.as_deref());
        Ok(())
    }

    fn certificate(&self, frame: &Frame<'_>) -> Result<(), TransportError> {
        match (&self.site.channel, frame.header.kind) {
            (Some(channel), FrameKind::CertificateRequest) => channel.take_request(frame),
            (Some(channel), _) => channel.take_answer(frame),
            (None, kind) => Err(protocol(&format!("{kind:?} over plain TCP"))),
        }
    }

    /// Makes `redo`, which begins at `position`, durable here.
    fn harden(&mut self, log: &mut dyn StandbyLog, redo: &[Cow<'_, [u8]>]) -> Result<(), TransportError> {
        let redo: Vec<&[u8]> = redo.iter().map(AsRef::as_ref).collect();
        let bytes: u64 = redo.iter().map(|slice| slice.len() as u64).sum();
        if bytes == 0 {
            return Ok(());
        }
        self.site.counts.redo_bytes.fetch_add(bytes, Relaxed);
        if self.ack_on_receipt {
            self.acknowledge(log, self.position + bytes)?;
        }
        let began = self.site.clock.now();
        let end = self.position + bytes;
        let fresh = self.skip_held(log, &redo)?;
        if !fresh.is_empty() {
            let confirmed = self.confirmed_at(log, end);
            let written = log.append(&fresh, confirmed).map_err(|error| failed(&error))?;
            self.site.counts.writes.fetch_add(1, Relaxed);
            if written != end {
                return Err(failed(&format!("it ends at {written} after a write up to {end}").into()));
            }
            self.times.write_ns += self.nanoseconds_since(began);
        }
        self.position = end;
        Ok(())
    }

    /// Compares `redo` with the redo that the log holds from before this stream. Returns the new part: empty while both
    /// are equal; from the first difference on everything, after truncating the log there.
    fn skip_held<'r, 's>(
        &mut self,
        log: &mut dyn StandbyLog,
        redo: &'s [&'r [u8]],
    ) -> Result<Cow<'s, [&'r [u8]]>, TransportError> {
        let held_end = log.received_end();
        if held_end == self.position {
            return Ok(Cow::Borrowed(redo));
        }
        let mut at = self.position;
        let mut slices = redo.iter();
        for slice in slices.by_ref() {
            let compared = slice.len().min(held_end.bytes_since(at) as usize);
            let held = log.read(at, compared).map_err(|error| failed(&error))?;
            let same = held.iter().zip(*slice).take_while(|(held, new)| held == new).count();
            at = at + same as u64;
            if same < compared {
                self.cut(log, at)?;
            }
            if same < slice.len() {
                return Ok(std::iter::once(&slice[same..]).chain(slices.copied()).collect());
            }
        }
        Ok(Cow::Borrowed(&[]))
    }

    fn cut(&mut self, log: &mut dyn StandbyLog, at: Scn) -> Result<(), TransportError> {
        let end = log.received_end();
        log.cut(at).map_err(|error| failed(&error))?;
        self.site.service.event(&ReceiverEvent::Cut { at, end });
        Ok(())
    }

    /// Begins the next log at `position`. If the log holds redo beyond, that must continue in the same log; otherwise
    /// it is truncated.
    fn switch(&mut self, log: &mut dyn StandbyLog, next: &LogSwitch) -> Result<(), TransportError> {
        if log.received_end() > self.position {
            let held = log.log_containing(self.position);
            if held.is_some_and(|held| held.first_scn == next.first_scn && held.sequence == next.sequence) {
                return Ok(());
            }
            self.cut(log, self.position)?;
        }
        log.switch(next).map_err(|error| failed(&error))
    }

    /// Hardens the confirmed position of the primary when no redo carried it. The sender limits how often.
    fn harden_confirmed(&mut self, log: &mut dyn StandbyLog) -> Result<(), TransportError> {
        let confirmed = self.confirmed_at(log, self.position);
        if confirmed > log.confirmed() {
            let began = self.site.clock.now();
            log.confirm(confirmed).map_err(|error| failed(&error))?;
            // Frames that arrive meanwhile wait for this write as for any other.
            self.times.write_ns += self.nanoseconds_since(began);
            self.site.counts.confirms.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Returns the position to treat as confirmed once the stream has delivered up to `end`. Redo held beyond is not
    /// compared yet and must not be confirmed, whatever the primary has.
    fn confirmed_at(&self, log: &dyn StandbyLog, end: Scn) -> Scn {
        self.durable.min(end).max(log.confirmed())
    }

    /// Once the gap before this stream is filled, the redo of the stream counts.
    fn look_at_gap(&mut self, log: &mut dyn StandbyLog) -> Result<(), TransportError> {
        let Some(gap) = &self.site.gap else { return Ok(()) };
        if let Some(refusal) = gap.failure() {
            return Err(TransportError::Refused(refusal));
        }
        if gap.is_filled() {
            log.fill_gap().map_err(|error| failed(&error))?;
            let resolved = gap.close();
            self.site.service.event(&resolved);
            self.site.gap = None;
        }
        Ok(())
    }

    fn nanoseconds_since(&self, began: Instant) -> u64 {
        let took = self.site.clock.now().saturating_duration_since(began);
        u64::try_from(took.as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether apply is so far behind that its progress is reported to the primary without other cause. Never at a far
    /// sync, which applies nothing.
    fn is_behind(&self, log: &dyn StandbyLog) -> bool {
        let applied = log.applied();
        applied > Scn::ZERO && self.position.0.saturating_sub(applied.0) >= APPLY_BEHIND_BYTES
    }

    /// Reports the progress of apply between frames. A large frame may take long to arrive, or none may come; apply
    /// continues meanwhile, and must not look stalled at the primary.
    fn tell_applied(&mut self, log: &dyn StandbyLog) -> Result<(), TransportError> {
        let (applied, at_us) = self.reported;
        // After the clock was set back, one report comes early; none is lost.
        let since = Duration::from_micros(self.times.received_us.abs_diff(at_us));
        if log.applied() == applied || since < BETWEEN_FRAMES {
            return Ok(());
        }
        // This acknowledgement answers no frame.
        self.echo_us = 0;
        self.acknowledge(log, self.position)
    }

    /// Returns the end of the redo held here without a gap, when the stream has come to `position`.
    fn held_until(&self, log: &dyn StandbyLog, position: Scn) -> Scn {
        if self.site.gap.is_some() { log.contiguous_end() } else { position }
    }

    fn acknowledge(&mut self, log: &dyn StandbyLog, received: Scn) -> Result<(), TransportError> {
        log.is_sound().map_err(|error| failed(&error))?;
        // Nothing beyond a gap is acknowledged in any mode: commits do not count a standby with a gap.
        let (received, hardened) = (self.held_until(log, received), self.held_until(log, self.position));
        let applied = log.applied();
        self.reported = (applied, self.times.received_us);
        let ack = Ack { received, hardened, applied, echo_us: self.echo_us, times: self.times };
        if let Some((version, databases)) = log.stopped(self.stopped_known) {
            self.stopped_known = version;
            self.site.acks.send(&stopped::encode(&databases)).map_err(TransportError::io("acknowledging"))?;
        }
        if let Some((version, databases)) = log.verified(self.verified_known) {
            self.verified_known = version;
            self.site
                .acks
                .send(&verified::encode(&databases))
                .map_err(TransportError::io("acknowledging"))?;
        }
        self.site.acks.acknowledge(ack).map_err(TransportError::io("acknowledging"))
    }
}

/// Redo that has been taken out of its frames and not written yet.
#[derive(Default)]
struct Gathered<'f> {
    slices: Vec<Cow<'f, [u8]>>,
    bytes: u64,
}

impl<'f> Gathered<'f> {
    fn push(&mut self, redo: Cow<'f, [u8]>) {
        self.bytes += redo.len() as u64;
        self.slices.push(redo);
    }

    /// Whether to write before more frames are taken: redo may be a thousand times larger than its compressed form.
    fn is_enough(&self) -> bool {
        self.bytes >= BATCH_BYTES_MAX as u64
    }

    fn take(&mut self) -> Vec<Cow<'f, [u8]>> {
        self.bytes = 0;
        std::mem::take(&mut self.slices)
    }
}

enum Item {
    Redo,
    Confirm,
    /// Not part of the redo.
    Aside,
    /// Request and position of an answer.
    Position(u64, Scn),
    Switch(LogSwitch),
}

fn protocol(what: &str) -> TransportError {
    TransportError::Protocol(what.into())
}

fn failed(error: &StageError) -> TransportError {
    TransportError::Refused(Refusal::new(RefuseCode::StandbyLog, format!("the standby log failed: {error}")))
}
