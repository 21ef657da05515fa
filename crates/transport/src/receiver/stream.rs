//! An open stream: takes frames, writes redo to the standby log, sends acknowledgements.

use super::fetch::Fetch;
use super::outgoing::Outgoing;
use super::shared::Shared;
use crate::ack::{Ack, AckSender, AckTimes};
use crate::certificate::CertificateRight;
use crate::channel::{CertificateChannel, OpenChannel};
use crate::destination_config::TransportMode;
use crate::error::{Refusal, RefuseCode, StageError, TransportError};
use crate::event::ReceiverEvent;
use crate::framing::{FrameReader, FramingError, HELLO_BYTES_MAX};
use crate::hello::{self, SenderHello};
use crate::link::LinkEnd;
use crate::packing::Unpacker;
use crate::redo::LogSwitch;
use crate::rights::{MemberRights, Right};
use crate::standby::{StandbyLog, StreamStart};
use crate::wait::{Made, packing_and_wait};
use crate::{lock, now_us, stopped, verified};
use standfast_format::{Frame, FrameKind};
use standfast_instruments::{Event, waiting};
use standfast_types::{APPLY_BEHIND_BYTES, BATCH_BYTES_MAX, Scn};
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Minimum interval between acknowledgements that answer no frame.
const BETWEEN_FRAMES: Duration = Duration::from_millis(200);

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
    let prepared = prepare(shared, stream, net_timeout);
    let acks = match prepared {
        Ok(acks) => acks,
        Err(source) => return TransportError::Io { what: "preparing the stream", source },
    };
    reader.allow_redo();
    let passing = log.passing();
    let acks = Outgoing::new(acks, passing);
    let channel = open_channel(shared, stream, hello, &acks);
    let mut intake = Intake {
        shared,
        source: &hello.source.name,
        // No service has this version: changes since the greeting are found too.
        rights: u64::MAX,
        log,
        acks,
        channel,
        ack_on_receipt: hello.mode == TransportMode::FastSync,
        position: start.first(),
        gap: gap.cloned(),
        durable: Scn::ZERO,
        source_end: None,
        waits_until: None,
        made: Made::new(Instant::now()),
        came: Instant::now(),
        echo_us: 0,
        times: AckTimes::default(),
        told: (Scn::ZERO, now_us()),
        stopped_known: 0,
        verified_known: 0,
        unpacker: Unpacker::new(hello.compression),
    };
    // The sender sends at least three frames within its net timeout.
    let mut heard = Instant::now();
    let (mut timeout, mut quiet) = (net_timeout, false);
    loop {
        if let Err(error) = intake.take_all(reader) {
            return last_word(reader, error);
        }
        if shared.slot.is_leaving() {
            return TransportError::Protocol("this instance is being stopped".into());
        }
        // After a first silent period, waiting for a whole net timeout again would end the stream too late.
        let wanted = if quiet || intake.is_behind() { BETWEEN_FRAMES } else { net_timeout };
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
            Ok(()) => (heard, quiet) = (Instant::now(), false),
            Err(FramingError::TimedOut) if heard.elapsed() < net_timeout => quiet = true,
            Err(FramingError::TimedOut) => return silent(net_timeout),
            Err(other) => return other.into(),
        }
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

fn silent(net_timeout: Duration) -> TransportError {
    TransportError::Protocol(format!("nothing heard for {:.1} s (net_timeout)", net_timeout.as_secs_f64()))
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

struct Intake<'a> {
    shared: &'a Shared,
    /// Name of the source; proved over TLS.
    source: &'a str,
    /// Version of the rights at the last check.
    rights: u64,
    log: &'a mut dyn StandbyLog,
    acks: Outgoing,
    /// `None` over plain TCP.
    channel: Option<OpenChannel>,
    ack_on_receipt: bool,
    /// End of the redo that this stream has delivered. Redo that the log holds beyond it is from before and not
    /// compared yet.
    position: Scn,
    /// The gap before the begin of this stream, while it is open.
    gap: Option<Arc<Fetch>>,
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
    told: (Scn, u64),
    /// Version of the stopped databases last reported in this stream.
    stopped_known: u64,
    /// Version of the verification findings last reported in this stream.
    verified_known: u64,
    unpacker: Unpacker,
}

impl Intake<'_> {
    /// Takes all complete frames that have arrived: one write for all their redo, one acknowledgement.
    fn take_all(&mut self, reader: &mut FrameReader<LinkEnd>) -> Result<(), TransportError> {
        self.may_send_still()?;
        let mut at = 0;
        let mut redo = Gathered::default();
        self.times = AckTimes { received_us: now_us(), write_ns: 0 };
        self.came = Instant::now();
        let (mut failed, mut redo_came) = (Ok(()), false);
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
            let taken = self.note(&frame, expected, redo_came).and_then(|what| match what {
                Item::Redo => {
                    redo_came = true;
                    let unpacked =
                        self.unpacker.unpack(packing_and_wait(frame.header.flags).0, frame.payload);
                    let unpacked = unpacked.map_err(|error| protocol(&error.to_string()))?;
                    redo.push(unpacked.map_or(Cow::Borrowed(frame.payload), Cow::Owned));
                    if redo.is_enough() { self.harden(&redo.take()) } else { Ok(()) }
                }
                Item::Confirm | Item::Aside => Ok(()),
                Item::Switch(log) => {
                    self.harden(&redo.take())?;
                    self.switch(&log)
                }
            });
            if taken.is_err() {
                failed = taken;
                break;
            }
        }
        if at > 0 && failed.is_ok() {
            self.harden(&redo.take())?;
            self.harden_confirmed()?;
            self.look_at_gap()?;
            if let Some(source_end) = self.source_end {
                self.log.heard(self.held_until(self.position), source_end, self.waits_until);
            }
            self.acknowledge(self.position)?;
            self.log.hardened_notice();
        } else if failed.is_ok() {
            self.tell_applied()?;
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
            FrameKind::Members => return self.members(frame).map(|()| Item::Aside),
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
        let version = self.shared.service.rights_version();
        if self.channel.is_some() && self.rights != version {
            self.shared.service.authorise(self.source, Right::Send)?;
            self.rights = version;
        }
        Ok(())
    }

    fn members(&self, frame: &Frame<'_>) -> Result<(), TransportError> {
        if self.channel.is_none() {
            return Err(protocol("Members over plain TCP"));
        }
        // The same limit as in a Hello.
        if frame.payload.len() > HELLO_BYTES_MAX {
            return Err(protocol("Members that are too many"));
        }
        let members: Vec<MemberRights> = hello::decode(frame)?;
        self.shared.service.endorsed_again(self.source, &members);
        Ok(())
    }

    fn certificate(&self, frame: &Frame<'_>) -> Result<(), TransportError> {
        match (&self.channel, frame.header.kind) {
            (Some(channel), FrameKind::CertificateRequest) => channel.take_request(frame),
            (Some(channel), _) => channel.take_answer(frame),
            (None, kind) => Err(protocol(&format!("{kind:?} over plain TCP"))),
        }
    }

    /// Makes `redo`, which begins at `position`, durable here.
    fn harden(&mut self, redo: &[Cow<'_, [u8]>]) -> Result<(), TransportError> {
        let redo: Vec<&[u8]> = redo.iter().map(AsRef::as_ref).collect();
        let bytes: u64 = redo.iter().map(|slice| slice.len() as u64).sum();
        if bytes == 0 {
            return Ok(());
        }
        self.shared.counts.redo_bytes.fetch_add(bytes, Relaxed);
        if self.ack_on_receipt {
            self.acknowledge(self.position + bytes)?;
        }
        let began = Instant::now();
        let end = self.position + bytes;
        let fresh = self.skip_held(&redo)?;
        if !fresh.is_empty() {
            let confirmed = self.confirmed_at(end);
            let written = self.log.append(&fresh, confirmed).map_err(|error| failed(&error))?;
            self.shared.counts.writes.fetch_add(1, Relaxed);
            if written != end {
                return Err(failed(&format!("it ends at {written} after a write up to {end}").into()));
            }
            self.times.write_ns += u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
        self.position = end;
        Ok(())
    }

    /// Compares `redo` with the redo that the log holds from before this stream. Returns the new part: empty while both
    /// are equal; from the first difference on everything, after truncating the log there.
    fn skip_held<'r, 's>(&mut self, redo: &'s [&'r [u8]]) -> Result<Cow<'s, [&'r [u8]]>, TransportError> {
        let held_end = self.log.received_end();
        if held_end == self.position {
            return Ok(Cow::Borrowed(redo));
        }
        let mut at = self.position;
        let mut slices = redo.iter();
        for slice in slices.by_ref() {
            let compared = slice.len().min(held_end.bytes_since(at) as usize);
            let held = self.log.read(at, compared).map_err(|error| failed(&error))?;
            let same = held.iter().zip(*slice).take_while(|(held, new)| held == new).count();
            at = at + same as u64;
            if same < compared {
                self.cut(at)?;
            }
            if same < slice.len() {
                return Ok(std::iter::once(&slice[same..]).chain(slices.copied()).collect());
            }
        }
        Ok(Cow::Borrowed(&[]))
    }

    fn cut(&mut self, at: Scn) -> Result<(), TransportError> {
        let end = self.log.received_end();
        self.log.cut(at).map_err(|error| failed(&error))?;
        self.shared.service.event(&ReceiverEvent::Cut { at, end });
        Ok(())
    }

    /// Begins the next log at `position`. If the log holds redo beyond, that must continue in the same log; otherwise
    /// it is truncated.
    fn switch(&mut self, log: &LogSwitch) -> Result<(), TransportError> {
        if self.log.received_end() > self.position {
            let held = self.log.log_containing(self.position);
            if held.is_some_and(|held| held.first_scn == log.first_scn && held.sequence == log.sequence) {
                return Ok(());
            }
            self.cut(self.position)?;
        }
        self.log.switch(log).map_err(|error| failed(&error))
    }

    /// Hardens the confirmed position of the primary when no redo carried it. The sender limits how often.
    fn harden_confirmed(&mut self) -> Result<(), TransportError> {
        let confirmed = self.confirmed_at(self.position);
        if confirmed > self.log.confirmed() {
            let began = Instant::now();
            self.log.confirm(confirmed).map_err(|error| failed(&error))?;
            // Frames that arrive meanwhile wait for this write as for any other.
            self.times.write_ns += u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.shared.counts.confirms.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// Returns the position to treat as confirmed once the stream has delivered up to `end`. Redo held beyond is not
    /// compared yet and must not be confirmed, whatever the primary has.
    fn confirmed_at(&self, end: Scn) -> Scn {
        self.durable.min(end).max(self.log.confirmed())
    }

    /// Once the gap before this stream is filled, the redo of the stream counts.
    fn look_at_gap(&mut self) -> Result<(), TransportError> {
        let Some(fetch) = &self.gap else { return Ok(()) };
        if let Some(refusal) = fetch.failure() {
            return Err(TransportError::Refused(refusal));
        }
        if fetch.is_filled() {
            self.log.fill_gap().map_err(|error| failed(&error))?;
            self.shared.service.event(&fetch.resolved());
            *lock(&self.shared.fetch) = None;
            fetch.close();
            self.gap = None;
        }
        Ok(())
    }

    /// Whether apply is so far behind that its progress is reported to the primary without other cause. Never at a far
    /// sync, which applies nothing.
    fn is_behind(&self) -> bool {
        let applied = self.log.applied();
        applied > Scn::ZERO && self.position.0.saturating_sub(applied.0) >= APPLY_BEHIND_BYTES
    }

    /// Reports the progress of apply between frames. A large frame may take long to arrive, or none may come; apply
    /// continues meanwhile, and must not look stalled at the primary.
    fn tell_applied(&mut self) -> Result<(), TransportError> {
        let (applied, at_us) = self.told;
        // After the clock was set back, one report comes early; none is lost.
        let since = Duration::from_micros(self.times.received_us.abs_diff(at_us));
        if self.log.applied() == applied || since < BETWEEN_FRAMES {
            return Ok(());
        }
        // This acknowledgement answers no frame.
        self.echo_us = 0;
        self.acknowledge(self.position)
    }

    /// Returns the end of the redo held here without a gap, when the stream has come to `position`.
    fn held_until(&self, position: Scn) -> Scn {
        if self.gap.is_some() { self.log.contiguous_end() } else { position }
    }

    fn acknowledge(&mut self, received: Scn) -> Result<(), TransportError> {
        self.log.is_sound().map_err(|error| failed(&error))?;
        // Nothing beyond a gap is acknowledged in any mode: commits do not count a standby with a gap.
        let (received, hardened) = (self.held_until(received), self.held_until(self.position));
        let applied = self.log.applied();
        self.told = (applied, self.times.received_us);
        let ack = Ack { received, hardened, applied, echo_us: self.echo_us, times: self.times };
        if let Some((version, databases)) = self.log.stopped(self.stopped_known) {
            self.stopped_known = version;
            self.acks.send(&stopped::encode(&databases)).map_err(TransportError::io("acknowledging"))?;
        }
        if let Some((version, databases)) = self.log.verified(self.verified_known) {
            self.verified_known = version;
            self.acks.send(&verified::encode(&databases)).map_err(TransportError::io("acknowledging"))?;
        }
        self.acks.acknowledge(ack).map_err(TransportError::io("acknowledging"))
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
    Switch(LogSwitch),
}

fn protocol(what: &str) -> TransportError {
    TransportError::Protocol(what.into())
}

fn failed(error: &StageError) -> TransportError {
    TransportError::Refused(Refusal::new(RefuseCode::StandbyLog, format!("the standby log failed: {error}")))
}
