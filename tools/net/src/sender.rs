//! The sending side of a connection: the client, or the server in a reverse test.

use crate::arrivals::Arrivals;
use crate::link::Link;
use crate::plan::{MIN_RANDOM_LENGTH, Mode, Pace, Payload, Plan};
use crate::random::Random;
use crate::socket::{self, closed, receive_now};
use crate::wire::{Answered, HEADER_BYTES, Header, Kind, REPORT_BYTES, Report, ReportKind, STATE_BYTES};
use crate::{NetError, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How often an ASYNC connection polls for reports from the receiver.
const LISTEN_EVERY: Duration = Duration::from_millis(10);
/// How often a sending server reports its kernel's TCP counters.
const STATE_EVERY: Duration = Duration::from_millis(50);
/// How long the receiver may take to receive what is in flight at the end, when the link has no timeout.
const DRAIN: Duration = Duration::from_secs(120);

/// How fast an ASYNC sender that fell behind its rate may catch up, as a multiple of that rate. A burst would overflow
/// the queues of the path, and the test would count the lost segments as the path's losses.
const CATCH_UP: f64 = 2.0;

/// Longest payload that is sent from one buffer together with its header, bytes.
const WHOLE: usize = 128 << 10;

pub struct Orders<'a> {
    pub pace: Pace,
    /// Bytes of the messages. A message is a prefix of them; a longer message repeats them.
    pub payload: Arc<[u8]>,
    /// When the first message is due.
    pub start: Instant,
    /// No message begins from this moment on.
    pub deadline: Option<Instant>,
    /// Payload that may still be sent, bytes; None without a bound.
    pub budget: Option<&'a AtomicU64>,
    /// The sender is the server: it reports its kernel's counters to the receiver, and the receiver may ask it to
    /// finish.
    pub tells: bool,
    /// Seed of random lengths and pauses.
    pub seed: u64,
}

pub trait Ledger {
    /// Called when an ASYNC message was sent.
    fn sent(&self, _length: u32) {}
    /// Called when a SYNC message was acknowledged. The latency counts from when the message was due or sent. For
    /// `waking_ns` of it the acknowledgement had arrived but the program had not yet seen it.
    fn acknowledged(&self, _length: u32, _latency_ns: u64, _waking_ns: u64, _report: &Report) {}
    /// Called with a report about the progress of the test.
    fn heard(&self, _report: &Report) {}
}

impl Ledger for () {}

/// Returns the bytes that the messages of a plan are made of.
pub fn payload(plan: &Plan) -> Arc<[u8]> {
    let mut bytes = vec![0; plan.length as usize];
    match &plan.payload {
        Payload::Zero => {}
        Payload::Random => Random::new(Random::fresh_seed()).fill(&mut bytes),
        Payload::File { content, .. } => {
            for chunk in bytes.chunks_mut(content.len().max(1)) {
                chunk.copy_from_slice(&content[..chunk.len()]);
            }
        }
    }
    bytes.into()
}

/// Sends messages until the test ends, then waits until the receiver has them all.
pub fn drive(link: Link<'_>, orders: &Orders<'_>, ledger: &dyn Ledger) -> Result<()> {
    let pace = &orders.pace;
    let streaming = pace.mode == Mode::Async && pace.delay.is_zero() && pace.period.is_none();
    // In a stream, the end of a message that fills no segment travels with the next message; a segment of its own would
    // cost as much as a full one. SYNC and paced messages must each leave immediately.
    link.socket.set_nodelay(!streaming).map_err(set_up)?;
    let arrivals = Arrivals::default();
    let link = match pace.mode {
        Mode::Sync => Link { arrivals: Some(&arrivals), ..link },
        Mode::Async => {
            if let Some(period) = pace.period {
                let rate = f64::from(pace.length) / period.as_secs_f64().max(1e-9);
                // Errors are ignored: without the limit the test only sends less evenly.
                let _ = socket::limit_rate(link.socket, (rate * CATCH_UP) as u64);
            }
            link
        }
    };
    let mut driver = Driver {
        link,
        whole: whole(pace.length, &orders.payload),
        orders,
        ledger,
        random: Random::new(orders.seed),
        heard: Partial::default(),
        listened: orders.start,
        reported: None,
        answered: Answered::default(),
        sequence: 0,
        enough: false,
    };
    while let Some(due) = driver.wait_for_turn()? {
        let Some(length) = driver.next_length() else { break };
        driver.message(length, due)?;
    }
    driver.finish()
}

fn set_up(source: std::io::Error) -> NetError {
    NetError::system("cannot set up the connection", source)
}

/// Returns a buffer for a header and the longest payload; empty when that payload is longer than [`WHOLE`] or
/// `payload`.
fn whole(length: u32, payload: &[u8]) -> Vec<u8> {
    let length = length as usize;
    match length <= WHOLE.min(payload.len()) {
        true => [&[0; HEADER_BYTES], &payload[..length]].concat(),
        false => Vec::new(),
    }
}

struct Driver<'a> {
    link: Link<'a>,
    /// Header and payload of a message, contiguous, so that one plain call sends both; empty for long messages.
    whole: Vec<u8>,
    orders: &'a Orders<'a>,
    ledger: &'a dyn Ledger,
    random: Random,
    heard: Partial,
    listened: Instant,
    /// When the counters were last reported.
    reported: Option<Instant>,
    /// Latency of the last SYNC message, for the next header.
    answered: Answered,
    sequence: u64,
    /// The receiver asked the sender to finish.
    enough: bool,
}

/// The first bytes of a report that has not arrived completely.
struct Partial {
    bytes: [u8; REPORT_BYTES],
    have: usize,
}

impl Default for Partial {
    fn default() -> Partial {
        Partial { bytes: [0; REPORT_BYTES], have: 0 }
    }
}

impl Driver<'_> {
    /// Waits until the next message is due and returns that moment; None when the test is over.
    fn wait_for_turn(&mut self) -> Result<Option<Instant>> {
        let pace = &self.orders.pace;
        let mut now = Instant::now();
        let due = match pace.period {
            Some(period) => self.orders.start + period.mul_f64(self.sequence as f64),
            None if self.sequence == 0 || pace.delay.is_zero() => now,
            None if pace.random_delay => {
                now + Duration::from_nanos(self.random.between(0, pace.delay.as_nanos() as u64))
            }
            None => now + pace.delay,
        };
        while !self.over(now) && now < due {
            let until = self.orders.deadline.map_or(due, |deadline| deadline.min(due));
            std::thread::sleep(until.saturating_duration_since(now).min(socket::SLICE));
            if self.orders.tells {
                self.listen()?;
            }
            now = Instant::now();
        }
        if self.over(now) {
            return Ok(None);
        }
        self.tell(now)?;
        Ok(Some(due))
    }

    fn over(&self, now: Instant) -> bool {
        self.enough
            || self.link.abort.load(Ordering::Relaxed)
            || self.orders.deadline.is_some_and(|deadline| now >= deadline)
    }

    /// Reports the kernel's counters of this side to the receiver, at most once per [`STATE_EVERY`].
    fn tell(&mut self, now: Instant) -> Result<()> {
        let recently =
            self.reported.is_some_and(|reported| now.saturating_duration_since(reported) < STATE_EVERY);
        if !self.orders.tells || recently {
            return Ok(());
        }
        self.reported = Some(now);
        let state = socket::sender(self.link.socket).unwrap_or_default().encode();
        let header = Header {
            kind: Kind::State,
            length: STATE_BYTES as u32,
            sequence: self.sequence,
            answered: std::mem::take(&mut self.answered),
        };
        self.link.send(&header.encode(), &state, "sending")
    }

    /// Returns the length of the next message; None when the budget is used up.
    fn next_length(&mut self) -> Option<u32> {
        let pace = &self.orders.pace;
        let length = match pace.random_length {
            true => {
                let least = MIN_RANDOM_LENGTH.min(pace.length);
                self.random.between(least.into(), pace.length.into()) as u32
            }
            false => pace.length,
        };
        let Some(budget) = self.orders.budget else { return Some(length) };
        let take = |left: u64| (left > 0).then(|| left.saturating_sub(u64::from(length.max(1))));
        let left = budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(u64::from(length).min(left) as u32)
    }

    fn message(&mut self, length: u32, due: Instant) -> Result<()> {
        let answered = std::mem::take(&mut self.answered);
        let header = Header { kind: Kind::Data, length, sequence: self.sequence, answered };
        // At a rate the latency counts from when the message was due, otherwise from when it is sent.
        let began = if self.orders.pace.period.is_some() { due } else { Instant::now() };
        if let Err(error) = self.send(&header, length as usize) {
            return Err(self.cause(error));
        }
        self.sequence += 1;
        match self.orders.pace.mode {
            Mode::Sync => {
                let report = self.acknowledgement()?;
                let latency_ns = began.elapsed().as_nanos() as u64;
                let waking_ns = self.link.arrivals.map_or(0, |arrivals| {
                    arrivals.took(self.link.socket, latency_ns);
                    arrivals.take()
                });
                if report.kind != ReportKind::Acknowledgement || report.sequence != header.sequence {
                    return Err(NetError::Protocol("another message was acknowledged".into()));
                }
                self.answered = Answered { latency_ns, waking_ns };
                self.ledger.acknowledged(length, latency_ns, waking_ns, &report);
            }
            Mode::Async => {
                self.ledger.sent(length);
                if began.saturating_duration_since(self.listened) >= LISTEN_EVERY {
                    self.listened = began;
                    self.listen()?;
                }
            }
        }
        Ok(())
    }

    /// Returns the cause of a failed send. A receiver whose disk fails reports that and closes; the sender may notice
    /// the close first, while the report is still unread.
    fn cause(&mut self, error: NetError) -> NetError {
        match self.listen() {
            Err(disk @ NetError::FarDisk(_)) if matches!(error, NetError::Cut { .. }) => disk,
            _ => error,
        }
    }

    fn send(&mut self, header: &Header, length: usize) -> Result<()> {
        if let Some(message) = self.whole.get_mut(..HEADER_BYTES + length) {
            message[..HEADER_BYTES].copy_from_slice(&header.encode());
            return self.link.send(message, &[], "sending");
        }
        let payload = &self.orders.payload;
        let mut count = length.min(payload.len());
        self.link.send(&header.encode(), &payload[..count], "sending")?;
        let mut left = length - count;
        while left > 0 {
            count = left.min(payload.len());
            self.link.send(&[], &payload[..count], "sending")?;
            left -= count;
        }
        Ok(())
    }

    /// Takes the reports that have arrived, without waiting.
    fn listen(&mut self) -> Result<()> {
        loop {
            let Partial { bytes, have } = &mut self.heard;
            match receive_now(self.link.socket, &mut bytes[*have..]) {
                Ok(None) => return Ok(()),
                Ok(Some(0)) => return Err(NetError::Cut { doing: "sending", source: closed() }),
                Err(source) => return Err(NetError::Cut { doing: "sending", source }),
                Ok(Some(more)) => *have += more,
            }
            if self.heard.have == REPORT_BYTES {
                let report = self.take_report()?;
                if report.kind != ReportKind::Enough {
                    self.ledger.heard(&report);
                }
            }
        }
    }

    /// Waits for the report that acknowledges a message.
    fn acknowledgement(&mut self) -> Result<Report> {
        loop {
            let report = self.next_report(self.link.timeout)?;
            if report.kind != ReportKind::Enough {
                return Ok(report);
            }
        }
    }

    fn next_report(&mut self, timeout: Option<Duration>) -> Result<Report> {
        let link = Link { timeout, ..self.link };
        while self.heard.have < REPORT_BYTES {
            let Partial { bytes, have } = &mut self.heard;
            *have += link.receive(&mut bytes[*have..], "waiting for an acknowledgement")?;
        }
        self.take_report()
    }

    fn take_report(&mut self) -> Result<Report> {
        self.heard.have = 0;
        let report = Report::decode(&self.heard.bytes)
            .map_err(|_| NetError::Protocol("the receiver sent what is no report".into()))?;
        match (report.errno, report.kind) {
            (0, ReportKind::Enough) if !self.orders.tells => {
                Err(NetError::Protocol("a server does not end a test that the client sends".into()))
            }
            (0, kind) => {
                self.enough |= kind == ReportKind::Enough;
                Ok(report)
            }
            (errno, _) => Err(NetError::FarDisk(std::io::Error::from_raw_os_error(errno as i32))),
        }
    }

    /// Ends the test on this connection and waits for the receiver's summary.
    fn finish(&mut self) -> Result<()> {
        let timeout = Some(self.link.timeout.unwrap_or(DRAIN));
        self.reported = None;
        self.tell(Instant::now())?;
        // No message follows that could fill the segment.
        self.link.socket.set_nodelay(true).map_err(set_up)?;
        let header =
            Header { kind: Kind::Finish, length: 0, sequence: self.sequence, answered: self.answered };
        Link { timeout, ..self.link }.send(&header.encode(), &[], "ending the test")?;
        loop {
            let report = self.next_report(timeout)?;
            if report.kind != ReportKind::Enough {
                self.ledger.heard(&report);
            }
            if report.kind == ReportKind::Summary {
                return Ok(());
            }
        }
    }
}
