//! Acknowledgements that a receiver sends.

use crate::link::LinkEnd;
use crate::lock;
use crate::sys;
use standfast_format::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use standfast_types::Scn;
use std::collections::VecDeque;
use std::io::{Error, ErrorKind, Result, Write};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Times on the standby; payload of every `Ack`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AckTimes {
    /// When the newest redo answered had arrived, microseconds since the Unix epoch (the standby's clock).
    pub received_us: u64,
    /// Duration of the write to the standby log; 0 when nothing was written.
    pub write_ns: u64,
}

impl AckTimes {
    /// Bytes of the encoded form: two little-endian u64.
    pub const BYTES: usize = 16;

    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.received_us.to_le_bytes());
        bytes[8..].copy_from_slice(&self.write_ns.to_le_bytes());
        bytes
    }

    /// Decodes a payload; `None` when it has another length.
    pub fn decode(payload: &[u8]) -> Option<AckTimes> {
        let (received, write) = payload.split_first_chunk::<8>()?;
        let write = write.try_into().ok()?;
        Some(AckTimes { received_us: u64::from_le_bytes(*received), write_ns: u64::from_le_bytes(write) })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ack {
    pub received: Scn,
    pub hardened: Scn,
    pub applied: Scn,
    /// `c` of the oldest `Redo` answered, or else of the newest frame; 0: answers no frame.
    pub echo_us: u64,
    pub times: AckTimes,
}

const ACK_BYTES: usize = FRAME_HEADER_BYTES + AckTimes::BYTES;

impl Ack {
    pub fn encode(&self) -> [u8; ACK_BYTES] {
        let header =
            FrameHeader::new(FrameKind::Ack, self.received.0, self.hardened.0, self.applied.0, self.echo_us);
        let payload = self.times.encode();
        let mut bytes = [0; ACK_BYTES];
        bytes[..FRAME_HEADER_BYTES].copy_from_slice(&header.encode(&payload, &[]));
        bytes[FRAME_HEADER_BYTES..].copy_from_slice(&payload);
        bytes
    }
}

/// Sends whole frames to the source of a stream.
pub trait FrameSink: Send {
    /// # Errors
    /// When the connection is lost.
    fn send(&mut self, frame: &[u8]) -> Result<()>;
}

/// Sends frames immediately or, to emulate a distant standby on one machine, each after a fixed delay.
pub(crate) enum AckSender {
    Direct(LinkEnd),
    Delayed(DelayLine),
}

impl AckSender {
    pub fn new(stream: LinkEnd, delay: Duration) -> Result<AckSender> {
        Ok(if delay.is_zero() {
            AckSender::Direct(stream)
        } else {
            AckSender::Delayed(DelayLine::start(stream, delay)?)
        })
    }
}

impl FrameSink for AckSender {
    fn send(&mut self, frame: &[u8]) -> Result<()> {
        match self {
            AckSender::Direct(stream) => stream.write_all(frame),
            AckSender::Delayed(line) => line.put(frame.into()),
        }
    }
}

struct Line {
    queue: Mutex<Queue>,
    filled: Condvar,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Instant, Box<[u8]>)>,
    closed: bool,
    failed: Option<ErrorKind>,
}

/// A queue whose entries are sent a fixed time after they came, by a separate thread: throughput is unaffected.
pub(crate) struct DelayLine {
    line: Arc<Line>,
    delay: Duration,
    thread: Option<JoinHandle<()>>,
}

impl DelayLine {
    fn start(stream: LinkEnd, delay: Duration) -> Result<DelayLine> {
        let line = Arc::new(Line { queue: Mutex::default(), filled: Condvar::new() });
        let theirs = line.clone();
        let thread =
            std::thread::Builder::new().name("ack-delay".into()).spawn(move || drain(&theirs, stream))?;
        Ok(DelayLine { line, delay, thread: Some(thread) })
    }

    fn put(&self, frame: Box<[u8]>) -> Result<()> {
        let mut queue = lock(&self.line.queue);
        if let Some(kind) = queue.failed {
            return Err(Error::from(kind));
        }
        queue.waiting.push_back((Instant::now() + self.delay, frame));
        drop(queue);
        self.line.filled.notify_one();
        Ok(())
    }
}

impl Drop for DelayLine {
    fn drop(&mut self) {
        lock(&self.line.queue).closed = true;
        self.line.filled.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread ends within one delay; the runtime has reported a panic of it.
            let _ = thread.join();
        }
    }
}

fn drain(line: &Line, mut stream: LinkEnd) {
    sys::precise_sleeps();
    while let Some((due, frame)) = next(line) {
        // Sleeps may end early; never send early.
        while let Some(left) = due.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
            std::thread::sleep(left);
        }
        if let Err(error) = stream.write_all(&frame) {
            lock(&line.queue).failed = Some(error.kind());
            return;
        }
    }
}

/// Returns the next entry in order; `None` when the line is closed: the entries left are dropped with the connection.
fn next(line: &Line) -> Option<(Instant, Box<[u8]>)> {
    let mut queue = lock(&line.queue);
    loop {
        if queue.closed {
            return None;
        }
        if let Some(entry) = queue.waiting.pop_front() {
            return Some(entry);
        }
        queue = line.filled.wait(queue).unwrap_or_else(PoisonError::into_inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::framing::FrameReader;
    use crate::link::Link;
    use std::net::{TcpListener, TcpStream};

    fn ack(received: u64) -> Ack {
        let times = AckTimes { received_us: 7, write_ns: 9 };
        Ack { received: Scn(received), hardened: Scn(2), applied: Scn(3), echo_us: 4, times }
    }

    #[test]
    fn ack_times_roundtrip_and_other_lengths_are_rejected() {
        let times = AckTimes { received_us: 1 << 40, write_ns: 5 };
        assert_eq!(AckTimes::decode(&times.encode()), Some(times));
        assert_eq!(AckTimes::decode(&[0; 15]), None);
        assert_eq!(AckTimes::decode(&[0; 17]), None);
    }

    #[test]
    fn concurrent_delayed_acks_share_one_delay() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = Link::plain(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        let mut reader = FrameReader::new(listener.accept().unwrap().0);
        let delay = Duration::from_millis(40);
        let mut sender = AckSender::new(stream, delay).unwrap();
        let began = Instant::now();
        for received in 0..100 {
            sender.send(&ack(received).encode()).unwrap();
        }
        for received in 0..100 {
            let frame = reader.read().unwrap();
            assert_eq!((frame.header.kind, frame.header.a), (FrameKind::Ack, received));
        }
        let took = began.elapsed();
        assert!(took >= delay && took < delay * 20, "100 acknowledgements one delay apart took {took:?}");
    }
}
