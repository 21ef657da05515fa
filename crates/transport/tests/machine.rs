//! The machines of both ends, stepped by hand: what goes out, and in which order with what the standby log does.
#![allow(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod common;

use common::*;
use standfast_format::{Frame, FrameHeader, FrameKind, encode_frame};
use standfast_testkit::SimClock;
use standfast_transport::framing::{FrameReader, FramingError};
use standfast_transport::hello::{ReceiverHello, SenderHello};
use standfast_transport::machine::*;
use standfast_transport::*;
use standfast_types::Scn;
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Read};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// What happened, a line each.
#[derive(Clone, Default)]
struct Transcript(Arc<Mutex<Vec<String>>>);

impl Transcript {
    fn say(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn line(frame: &Frame<'_>) -> String {
    let FrameHeader { kind, a, b, c, .. } = frame.header;
    match kind {
        FrameKind::Redo => format!("redo {a}..{} durable {b}", a + frame.payload.len() as u64),
        FrameKind::Confirm => format!("confirm {a} durable {b}"),
        FrameKind::Switch => format!("switch {a} to log {b}"),
        FrameKind::Ack => format!("ack received {a} hardened {b} applied {c}"),
        other => format!("{other:?}"),
    }
}

/// A standby log that notes what is done to it.
struct Noting(MemoryLog, Transcript);

impl StandbyLog for Noting {
    fn received_end(&self) -> Scn {
        self.0.received_end()
    }
    fn confirmed(&self) -> Scn {
        self.0.confirmed()
    }
    fn applied(&self) -> Scn {
        self.0.applied()
    }
    fn stopped(&self, known: u64) -> Option<(u64, Vec<StoppedDatabase>)> {
        self.0.stopped(known)
    }
    fn stream_crc(&self, at: Scn) -> Result<Option<standfast_format::StreamCrc>, StageError> {
        self.0.stream_crc(at)
    }
    fn read(&self, from: Scn, bytes: usize) -> Result<Vec<u8>, StageError> {
        self.0.read(from, bytes)
    }
    fn log_containing(&self, at: Scn) -> Option<LogSwitch> {
        self.0.log_containing(at)
    }
    fn cut(&mut self, at: Scn) -> Result<(), StageError> {
        self.1.say(format!("cut {at}"));
        self.0.cut(at)
    }
    fn begin(&mut self, start: &StreamStart) -> Result<(), StageError> {
        self.1.say(format!("begin {} keep {}", start.from, start.keep));
        self.0.begin(start)
    }
    fn append(&mut self, slices: &[&[u8]], confirmed: Scn) -> Result<Scn, StageError> {
        let end = self.0.append(slices, confirmed)?;
        self.1.say(format!("append to {end} confirmed {confirmed}"));
        Ok(end)
    }
    fn switch(&mut self, log: &LogSwitch) -> Result<(), StageError> {
        self.1.say(format!("log {}", log.sequence));
        self.0.switch(log)
    }
    fn confirm(&mut self, confirmed: Scn) -> Result<(), StageError> {
        self.1.say(format!("confirm {confirmed}"));
        self.0.confirm(confirmed)
    }
    fn hardened_notice(&self) {}
}

/// Acknowledgements go into the transcript.
struct Back(Transcript);

impl FrameSink for Back {
    fn send(&mut self, frame: &[u8]) -> std::io::Result<()> {
        self.0.say(line(&Frame::decode(frame).unwrap().0));
        Ok(())
    }
}

/// Bytes that have arrived.
#[derive(Clone, Default)]
struct Arrived(Arc<Mutex<VecDeque<u8>>>);

impl Arrived {
    fn push(&self, bytes: &[u8]) {
        self.0.lock().unwrap().extend(bytes);
    }
}

impl Read for Arrived {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let mut bytes = self.0.lock().unwrap();
        if bytes.is_empty() { Err(ErrorKind::WouldBlock.into()) } else { bytes.read(out) }
    }
}

#[derive(Clone)]
struct Time(SimClock, Instant);

impl Time {
    fn new() -> Time {
        Time(SimClock::default(), Instant::now())
    }

    fn pass(&self, ms: u64) {
        self.0.advance(ms * 1000);
    }
}

impl Clock for Time {
    fn now(&self) -> Instant {
        self.1 + Duration::from_micros(self.0.now_us() - SimClock::default().now_us())
    }
    fn unix_us(&self) -> u64 {
        self.0.now_us()
    }
    fn monotonic_ns(&self) -> u64 {
        self.0.now_us() * 1000
    }
}

/// An open stream at its receiving end.
struct Receiving {
    stream: ReceiverStream<'static>,
    log: Noting,
    arrived: Arrived,
    reader: FrameReader<Arrived>,
    transcript: Transcript,
    time: Time,
}

fn greeting(mode: TransportMode) -> SenderHello {
    SenderHello {
        source: identity("paris", Role::Primary, &[incarnation(1, 4096)]),
        mode,
        net_timeout_ms: 1000,
        receive_buffer_bytes: 0,
        compression: Compression::None,
        archives_to: None,
        via: Vec::new(),
        delay_ms: None,
        logs: None,
        peers: Vec::new(),
        members: Vec::new(),
        issuer: None,
        renews: false,
        reports_position: false,
    }
}

impl Receiving {
    /// A stream from `from` to a standby that holds `held` from 4096 on.
    fn begin(mode: TransportMode, held: &[u8], from: u64) -> Receiving {
        let (transcript, time, arrived) = (Transcript::default(), Time::new(), Arrived::default());
        let standby = empty_standby();
        let first = LogSwitch { sequence: 1, first_scn: Scn::START, time_us: 1, first_record: 0 };
        standby.change(|state| {
            state.bytes = held.to_vec();
            state.logs.push(first);
        });
        let log = Noting(MemoryLog(standby), transcript.clone());
        let site = StreamSite {
            service: Service::standby("oslo", &[incarnation(1, 4096)]),
            counts: Arc::default(),
            clock: Arc::new(time.clone()),
            acks: Outgoing::new(Back(transcript.clone()), None),
            channel: None,
            from: None,
            gap: None,
        };
        let hello = greeting(mode);
        let from = Scn(from);
        let start = StreamStart {
            source: hello.source.clone(),
            from,
            keep: log.received_end(),
            log: first,
            gap: None,
        };
        let mut reader = FrameReader::new(arrived.clone());
        reader.allow_redo();
        Receiving {
            stream: ReceiverStream::new(site, &hello, &start),
            log,
            arrived,
            reader,
            transcript,
            time,
        }
    }

    fn frame(&self, kind: FrameKind, at: u64, b: u64, payload: &[u8]) {
        let mut bytes = Vec::new();
        let end = at + payload.len() as u64;
        encode_frame(FrameHeader::new(kind, at, b, self.time.unix_us(), end), payload, &mut bytes);
        self.arrived.push(&bytes);
    }

    fn switch(&self, at: u64, sequence: u64) {
        let mut bytes = Vec::new();
        encode_frame(FrameHeader::new(FrameKind::Switch, at, sequence, 2, 0), &[], &mut bytes);
        self.arrived.push(&bytes);
    }

    fn take(&mut self) -> Result<Vec<String>, TransportError> {
        loop {
            match self.reader.fill() {
                Ok(()) => self.stream.bytes_came(),
                Err(FramingError::TimedOut) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.stream.take(&mut self.reader, &mut self.log)?;
        Ok(self.transcript.take())
    }
}

#[test]
fn redo_is_acknowledged_as_hardened_only_after_its_append() {
    let mut end = Receiving::begin(TransportMode::SyncAffirm, b"", 4096);
    end.frame(FrameKind::Redo, 4096, 4096, &[1; 10]);
    end.frame(FrameKind::Redo, 4106, 4100, &[2; 10]);
    assert_eq!(
        end.take().unwrap(),
        ["append to 4116 confirmed 4100", "ack received 4116 hardened 4116 applied 0"],
        "one write and one acknowledgement for all that has arrived"
    );
    end.frame(FrameKind::Confirm, 4116, 4116, &[]);
    assert_eq!(end.take().unwrap(), ["confirm 4116", "ack received 4116 hardened 4116 applied 0"]);
}

#[test]
fn fastsync_acknowledges_receipt_before_and_hardening_after_the_append() {
    let mut end = Receiving::begin(TransportMode::FastSync, b"", 4096);
    end.frame(FrameKind::Redo, 4096, 4096, &[1; 10]);
    assert_eq!(
        end.take().unwrap(),
        [
            "ack received 4106 hardened 4096 applied 0",
            "append to 4106 confirmed 4096",
            "ack received 4106 hardened 4106 applied 0"
        ]
    );
}

#[test]
fn redo_before_a_switch_is_appended_before_the_next_log_begins() {
    let mut end = Receiving::begin(TransportMode::SyncAffirm, b"", 4096);
    end.frame(FrameKind::Redo, 4096, 4096, &[1; 10]);
    end.switch(4106, 2);
    end.frame(FrameKind::Redo, 4106, 4096, &[2; 5]);
    assert_eq!(
        end.take().unwrap(),
        [
            "append to 4106 confirmed 4096",
            "log 2",
            "append to 4111 confirmed 4096",
            "ack received 4111 hardened 4111 applied 0"
        ]
    );
}

#[test]
fn held_redo_is_compared_and_truncated_only_where_it_differs() {
    let mut end = Receiving::begin(TransportMode::SyncAffirm, b"abcdef", 4096);
    end.frame(FrameKind::Redo, 4096, 4102, b"abc");
    assert_eq!(end.take().unwrap(), ["confirm 4099", "ack received 4099 hardened 4099 applied 0"]);
    end.frame(FrameKind::Redo, 4099, 4102, b"dXfgh");
    assert_eq!(
        end.take().unwrap(),
        ["cut 4100", "append to 4104 confirmed 4102", "ack received 4104 hardened 4104 applied 0"]
    );
    assert_eq!(end.log.read(Scn(4096), 8).unwrap(), b"abcdXfgh");
}

#[test]
fn frame_in_parts_is_taken_once_when_it_is_complete() {
    let whole = Receiving::begin(TransportMode::SyncAffirm, b"", 4096);
    whole.frame(FrameKind::Redo, 4096, 4096, &[1; 100]);
    let bytes: Vec<u8> = whole.arrived.0.lock().unwrap().drain(..).collect();
    for split in 1..bytes.len() {
        let mut end = Receiving::begin(TransportMode::SyncAffirm, b"", 4096);
        end.arrived.push(&bytes[..split]);
        assert_eq!(end.take().unwrap(), [""; 0], "{split} bytes");
        end.arrived.push(&bytes[split..]);
        assert_eq!(end.take().unwrap().len(), 2);
    }
}

#[test]
fn frame_out_of_order_ends_the_stream_without_an_append() {
    let mut end = Receiving::begin(TransportMode::SyncAffirm, b"", 4096);
    end.frame(FrameKind::Redo, 4097, 4096, &[1; 10]);
    let Err(TransportError::Refused(refusal)) = end.take() else { panic!("not refused") };
    assert_eq!(refusal.code, RefuseCode::OutOfOrder);
    assert_eq!(end.transcript.take(), [""; 0]);
}

#[test]
fn stream_ends_after_a_silent_net_timeout() {
    let mut end = Receiving::begin(TransportMode::SyncAffirm, b"", 4096);
    assert_eq!(end.stream.wait(&end.log), Duration::from_secs(1));
    end.time.pass(999);
    end.stream.nothing_came().unwrap();
    assert_eq!(end.stream.wait(&end.log), Duration::from_millis(200));
    end.time.pass(1);
    let silent = end.stream.nothing_came().unwrap_err().to_string();
    assert!(silent.contains("nothing heard for 1.0 s"), "{silent}");
}

/// An outlet that takes `room` bytes of each call, and keeps what it has taken.
#[derive(Clone)]
struct Out {
    arrived: Arrived,
    room: Arc<AtomicUsize>,
}

impl Outlet for Out {
    fn send_now(&self, slices: &[IoSlice<'_>]) -> std::io::Result<usize> {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let taken = bytes.len().min(self.room.load(SeqCst));
        self.arrived.push(&bytes[..taken]);
        Ok(taken)
    }
    fn flush_now(&self) -> std::io::Result<bool> {
        Ok(true)
    }
    fn is_flushed(&self) -> bool {
        true
    }
}

/// An open stream at its sending end, to a standby that holds nothing.
struct Sending {
    core: SenderCore,
    source: Arc<MemorySource>,
    wire: Wire<Out>,
    acks: AckStream,
    out: Out,
    reader: FrameReader<Arrived>,
    time: Time,
}

fn standby_at(end: u64, crc: u32) -> ReceiverHello {
    let at = hello::PositionSum { scn: Scn(end), crc };
    ReceiverHello {
        standby: identity("oslo", Role::Standby, &[incarnation(1, 4096)]),
        positions: Some(hello::StandbyPositions {
            end: at,
            confirmed: at,
            applied: Scn(end),
            passed: None,
            log: None,
        }),
        sdu_bytes: 0,
        renews: false,
        lists: false,
        configures: false,
    }
}

fn core(source: &Arc<MemorySource>, time: &Time) -> SenderCore {
    let mut config = sender_config("127.0.0.1:1".parse().unwrap(), Security::insecure(), None);
    config.archive.settings.connections = 0;
    config.destination.net_timeout = Duration::from_secs(3);
    SenderCore::new(0, config, source.clone(), Arc::new(Observer::default()), Arc::new(time.clone()))
}

impl Sending {
    fn begin() -> Sending {
        let (source, time) = (MemorySource::new("paris", &[incarnation(1, 4096)]), Time::new());
        let core = core(&source, &time);
        core.connected();
        let agreed = Greeting::new(&core, false).answered(&core, &standby_at(4096, 0), None).ok().unwrap();
        let out = Out { arrived: Arrived::default(), room: Arc::new(AtomicUsize::new(usize::MAX)) };
        let wire = agreed.begin(&core, out.clone()).ok().unwrap();
        let mut reader = FrameReader::new(out.arrived.clone());
        reader.allow_redo();
        Sending { acks: agreed.acks(None), core, source, wire, out, reader, time }
    }

    /// Feeds until there is nothing to do; returns the frames.
    fn feed(&mut self) -> Vec<String> {
        while matches!(self.core.feed(&mut self.wire), Ok(Step::Sent)) {}
        self.frames()
    }

    fn frames(&mut self) -> Vec<String> {
        while self.reader.fill().is_ok() {}
        let mut lines = Vec::new();
        let mut at = 0;
        while let Some((frame, length)) = self.reader.peek(at).unwrap() {
            lines.push(line(&frame));
            at += length;
        }
        self.reader.consume(at);
        lines
    }

    fn offer(&mut self, bytes: &[u8]) -> Offer {
        let (first, log_first, durable) = self.source.0.change(|state| {
            let first = state.end();
            state.bytes.extend_from_slice(bytes);
            (first, state.logs.last().unwrap().first_scn, state.durable)
        });
        let slices = [RedoSlice::new(first, Arc::new(bytes.to_vec()))];
        let batch = Batch { slices: &slices, log_first, durable, captured: self.source.end() };
        assert!(self.core.note_offered(&batch));
        self.core.offer(&mut self.wire, &batch).unwrap().offer
    }

    fn ack(&mut self, received: u64, hardened: u64) {
        let (arrived, mut bytes) = (Arrived::default(), Vec::new());
        let times = AckTimes::default().encode();
        encode_frame(FrameHeader::new(FrameKind::Ack, received, hardened, 0, 0), &times, &mut bytes);
        arrived.push(&bytes);
        let mut reader = FrameReader::new(arrived);
        reader.fill().unwrap();
        self.acks.take(&self.core, &mut reader).unwrap();
    }
}

#[test]
fn log_is_announced_before_its_redo_and_redo_goes_directly_once_it_is() {
    let mut end = Sending::begin();
    assert_eq!(end.offer(&[1; 10]), Offer::Deferred, "its log is not announced yet");
    assert_eq!(end.feed(), ["switch 4096 to log 1", "redo 4096..4106 durable 4096"]);
    assert_eq!(end.offer(&[2; 5]), Offer::Sent);
    assert_eq!(end.frames(), ["redo 4106..4111 durable 4096"]);
    end.source.switch();
    assert_eq!(end.offer(&[3; 5]), Offer::Deferred);
    assert_eq!(end.feed(), ["switch 4111 to log 2", "redo 4111..4116 durable 4096"]);
}

#[test]
fn durable_position_is_confirmed_after_two_quiet_milliseconds() {
    let mut end = Sending::begin();
    end.offer(&[1; 10]);
    end.feed();
    end.source.harden();
    end.time.pass(1);
    assert_eq!(end.feed(), [""; 0]);
    end.time.pass(1);
    assert_eq!(end.feed(), ["confirm 4106 durable 4106"]);
    end.time.pass(999);
    assert_eq!(end.feed(), [""; 0]);
    end.time.pass(1);
    assert_eq!(end.feed(), ["confirm 4106 durable 4106"], "a heartbeat");
}

#[test]
fn frame_that_goes_out_in_parts_is_complete_before_the_next() {
    let mut end = Sending::begin();
    end.feed();
    end.out.room.store(7, SeqCst);
    assert_eq!(end.offer(&[1; 100]), Offer::Deferred);
    assert_eq!(end.offer(&[2; 100]), Offer::Deferred);
    for _ in 0..1000 {
        let _ = end.core.feed(&mut end.wire);
    }
    let frames = end.frames();
    let redo: Vec<_> = frames.iter().filter(|frame| frame.starts_with("redo")).collect();
    assert_eq!(redo, ["redo 4096..4196 durable 4096", "redo 4196..4296 durable 4096"]);
}

#[test]
fn stream_of_another_epoch_sends_nothing_more() {
    let mut end = Sending::begin();
    end.offer(&[1; 10]);
    end.feed();
    end.source.0.change(|state| state.epoch = 2);
    assert_eq!(end.offer(&[2; 10]), Offer::Deferred);
    assert!(matches!(end.core.feed(&mut end.wire), Err(Ended::Restart(_))));
    assert_eq!(end.frames(), [""; 0]);
}

#[test]
fn destination_decides_whether_commits_wait() {
    let mut end = Sending::begin();
    assert!(end.core.is_required(), "it counts from the start");
    end.offer(&[1; 10]);
    end.feed();
    end.ack(4106, 4100);
    assert_eq!(end.core.acknowledged(), Scn(4100), "hardened counts");
    for _ in 0..40 {
        end.time.pass(100);
        if let Some(ended) = end.core.tick() {
            end.core.ended(ended);
        }
    }
    assert!(!end.core.is_required(), "it kept a commit waiting for the net timeout");
}

#[test]
fn greeting_is_answered_with_the_position_where_both_agree() {
    let (source, time) = (MemorySource::new("paris", &[incarnation(1, 4096)]), Time::new());
    source.write(&redo(Scn::START, 100, 0));
    let core = core(&source, &time);
    let agree = |end: u64, crc: u32| Greeting::new(&core, false).answered(&core, &standby_at(end, crc), None);
    let crc = source.stream_crc(Scn(4146)).unwrap().unwrap().0;
    assert_eq!(agree(4146, crc).ok().unwrap().start().from, Scn(4146));
    let Err(Failure::Refused(refusal)) = agree(4146, crc ^ 1) else { panic!("not refused") };
    assert_eq!(refusal.code, RefuseCode::Diverged);
}
