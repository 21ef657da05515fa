//! One connection of a test, on the client.

use crate::link::{Link, closed};
use crate::plan::{MIN_RANDOM_LENGTH, Mode, Payload, Plan};
use crate::random::Random;
use crate::socket::{self, receive_now};
use crate::stats::{Far, Window};
use crate::wire::{ANSWER_BYTES, Answer, Header, Hello, REPORT_BYTES, Report, ReportKind, Status, WireError};
use crate::{NetError, Result};
use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// An ASYNC connection looks so often whether the server has said something.
const LISTEN_EVERY: Duration = Duration::from_millis(10);
/// How long a connection or an answer is waited for when the plan sets no bound.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long the server may take to receive what is on its way at the end, when the plan sets no bound.
const DRAIN: Duration = Duration::from_secs(120);

/// The server of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

impl std::fmt::Display for Target {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.host.contains(':') {
            true => write!(out, "[{}]:{}", self.host, self.port),
            false => write!(out, "{}:{}", self.host, self.port),
        }
    }
}

/// A connection that the server has accepted for a test.
pub struct Stream {
    /// The connection.
    pub socket: TcpStream,
    /// What the server said.
    pub answer: Answer,
    /// What happened since the last look.
    pub window: Mutex<Window>,
}

/// What the connections of a test share.
pub struct Shared<'a> {
    /// The messages' bytes; each message is a prefix.
    pub payload: Arc<[u8]>,
    /// When the first message is due.
    pub start: Instant,
    /// No message is begun from then on.
    pub deadline: Option<Instant>,
    /// Payload that may still be sent, bytes; None without a bound.
    pub budget: Option<AtomicU64>,
    /// Ends all waiting.
    pub abort: &'a AtomicBool,
}

/// The bytes that messages are made of.
pub fn payload(plan: &Plan) -> Arc<[u8]> {
    let mut bytes = vec![0; plan.length as usize];
    match &plan.payload {
        Payload::Zero => {}
        Payload::Random => Random::new(Random::fresh_seed()).fill(&mut bytes),
        Payload::File { content, .. } => {
            for piece in bytes.chunks_mut(content.len().max(1)) {
                piece.copy_from_slice(&content[..piece.len()]);
            }
        }
    }
    bytes.into()
}

/// Connects and introduces a connection.
pub fn open(target: &Target, plan: &Plan, stream: u16, test: u64, abort: &AtomicBool) -> Result<Stream> {
    let patience = plan.timeout.unwrap_or(PATIENCE);
    let socket = connect(target, patience)?;
    let set_up = || {
        socket::prepare(&socket)?;
        socket::request_buffers(&socket, plan.buffer)
    };
    set_up().map_err(|source| NetError::system("cannot set up the connection", source))?;
    if let Some(name) = &plan.congestion {
        socket::set_congestion(&socket, name).map_err(|_| {
            let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
            NetError::option("--congestion", name, known.unwrap_or_default().trim())
        })?;
    }
    let pause = plan.delay.max(plan.period().unwrap_or_default());
    let hello = Hello {
        mode: plan.mode,
        write: plan.write,
        length: plan.length,
        pause_ms: pause.as_millis().min(u32::MAX.into()) as u32,
        buffer: plan.far_buffer,
        stream,
        streams: plan.streams,
        test,
    };
    let link = Link { socket: &socket, abort, patience: Some(patience) };
    link.send(&hello.encode(), &[], "introducing the test")?;
    let answer = receive_answer(&link, target)?;
    Ok(Stream { socket, answer, window: Mutex::default() })
}

/// The first address of the target that takes a connection.
fn connect(target: &Target, patience: Duration) -> Result<TcpStream> {
    let failed = |source| NetError::Connect { address: target.to_string(), source };
    let mut last = ErrorKind::AddrNotAvailable.into();
    for candidate in (target.host.as_str(), target.port).to_socket_addrs().map_err(failed)? {
        match TcpStream::connect_timeout(&candidate, patience) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

fn receive_answer(link: &Link<'_>, target: &Target) -> Result<Answer> {
    const DOING: &str = "waiting for the server's answer";
    let mut bytes = [0; ANSWER_BYTES];
    link.receive_exact(&mut bytes, DOING).map_err(|error| match error {
        NetError::Cut { .. } => NetError::Protocol(format!(
            "{target} closed the connection without an answer: is a test server of this program listening there?"
        )),
        other => other,
    })?;
    let answer = Answer::decode(&bytes).map_err(|error| match error {
        WireError::Version(version) => NetError::Refused(format!(
            "its protocol has version {version}, this program's {}; use one release on both sides",
            crate::wire::VERSION
        )),
        _ => NetError::Protocol(format!("{target} is no test server of this program")),
    })?;
    let mut text = vec![0; answer.text];
    link.receive_exact(&mut text, DOING)?;
    match answer.status {
        Status::Ready => Ok(answer),
        _ => Err(NetError::Refused(String::from_utf8_lossy(&text).into_owned())),
    }
}

/// Sends messages until the test ends, and waits until the server has received them all.
pub fn drive(stream: &Stream, plan: &Plan, shared: &Shared<'_>, seed: u64) -> Result<()> {
    let link = Link { socket: &stream.socket, abort: shared.abort, patience: plan.timeout };
    let mut driver = Driver {
        link,
        stream,
        plan,
        shared,
        random: Random::new(seed),
        heard: Partial::default(),
        listened: shared.start,
        sequence: 0,
    };
    while let Some(due) = driver.wait_for_turn() {
        let Some(length) = driver.next_length() else { break };
        driver.message(length, due)?;
    }
    driver.finish()
}

struct Driver<'a> {
    link: Link<'a>,
    stream: &'a Stream,
    plan: &'a Plan,
    shared: &'a Shared<'a>,
    random: Random,
    heard: Partial,
    listened: Instant,
    sequence: u64,
}

/// The begin of a report whose end has not come yet.
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
    /// Waits for the moment at which the next message is due, and returns it; None when the test is over.
    fn wait_for_turn(&mut self) -> Option<Instant> {
        let now = Instant::now();
        let due = match self.plan.period() {
            Some(period) => self.shared.start + period.mul_f64(self.sequence as f64),
            None if self.sequence == 0 || self.plan.delay.is_zero() => now,
            None if self.plan.random_delay => {
                let most = self.plan.delay.as_nanos() as u64;
                now + Duration::from_nanos(self.random.between(0, most))
            }
            None => now + self.plan.delay,
        };
        let over = |now: Instant| {
            self.shared.abort.load(Ordering::Relaxed)
                || self.shared.deadline.is_some_and(|deadline| now >= deadline)
        };
        let mut now = now;
        while !over(now) && now < due {
            let until = self.shared.deadline.map_or(due, |deadline| deadline.min(due));
            std::thread::sleep(until.saturating_duration_since(now).min(socket::SLICE));
            now = Instant::now();
        }
        (!over(now)).then_some(due)
    }

    /// Length of the next message; None when all that was asked for is sent.
    fn next_length(&mut self) -> Option<u32> {
        let length = match self.plan.random_length {
            true => {
                let least = MIN_RANDOM_LENGTH.min(self.plan.length);
                self.random.between(least.into(), self.plan.length.into()) as u32
            }
            false => self.plan.length,
        };
        let Some(budget) = &self.shared.budget else { return Some(length) };
        let take = |left: u64| (left > 0).then(|| left.saturating_sub(u64::from(length.max(1))));
        let left = budget.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(u64::from(length).min(left) as u32)
    }

    fn message(&mut self, length: u32, due: Instant) -> Result<()> {
        let header = Header { finish: false, length, sequence: self.sequence };
        // At a rate the latency counts from when the message was due, otherwise from when it is sent.
        let began = if self.plan.rate.is_some() { due } else { Instant::now() };
        self.link.send(&header.encode(), &self.shared.payload[..length as usize], "sending")?;
        self.sequence += 1;
        match self.plan.mode {
            Mode::Sync => {
                let report = self.next_report(self.plan.timeout)?;
                let latency = began.elapsed().as_nanos() as u64;
                if report.kind != ReportKind::Acknowledgement || report.sequence != header.sequence {
                    return Err(NetError::Protocol("the server acknowledged another message".into()));
                }
                let mut window = self.window();
                window.latency.record(latency, report.write_ns);
                window.bytes += u64::from(length);
                window.messages += 1;
                window.far = far(&report);
            }
            Mode::Async => {
                let mut window = self.window();
                window.bytes += u64::from(length);
                window.messages += 1;
                drop(window);
                if began.duration_since(self.listened) >= LISTEN_EVERY {
                    self.listened = began;
                    self.listen()?;
                }
            }
        }
        Ok(())
    }

    fn window(&self) -> std::sync::MutexGuard<'_, Window> {
        self.stream.window.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the reports that have come, without waiting.
    fn listen(&mut self) -> Result<()> {
        loop {
            let Partial { bytes, have } = &mut self.heard;
            match receive_now(&self.stream.socket, &mut bytes[*have..]) {
                Ok(None) => return Ok(()),
                Ok(Some(0)) => return Err(NetError::Cut { doing: "sending", source: closed() }),
                Err(source) => return Err(NetError::Cut { doing: "sending", source }),
                Ok(Some(more)) => *have += more,
            }
            if self.heard.have == REPORT_BYTES {
                let report = self.take_report()?;
                self.window().far = far(&report);
            }
        }
    }

    /// Waits for the next report.
    fn next_report(&mut self, patience: Option<Duration>) -> Result<Report> {
        let link = Link { patience, ..self.link };
        while self.heard.have < REPORT_BYTES {
            let Partial { bytes, have } = &mut self.heard;
            *have += link.receive(&mut bytes[*have..], "waiting for an acknowledgement")?;
        }
        self.take_report()
    }

    fn take_report(&mut self) -> Result<Report> {
        self.heard.have = 0;
        let report = Report::decode(&self.heard.bytes)
            .map_err(|_| NetError::Protocol("the server sent what is no report".into()))?;
        match report.errno {
            0 => Ok(report),
            errno => Err(NetError::FarDisk(std::io::Error::from_raw_os_error(errno as i32))),
        }
    }

    /// Ends the test on this connection and waits for the server's last word.
    fn finish(&mut self) -> Result<()> {
        let patience = Some(self.plan.timeout.unwrap_or(DRAIN));
        let header = Header { finish: true, length: 0, sequence: self.sequence };
        Link { patience, ..self.link }.send(&header.encode(), &[], "ending the test")?;
        loop {
            let report = self.next_report(patience)?;
            self.window().far = far(&report);
            if report.kind == ReportKind::Summary {
                return Ok(());
            }
        }
    }
}

fn far(report: &Report) -> Far {
    Far {
        received: report.received,
        disk_ns: report.disk_ns,
        wait_ns: report.wait_ns,
        receive_buffer: report.receive_buffer,
    }
}
