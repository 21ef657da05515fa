//! One connection of a test, on the client.

use crate::link::Link;
use crate::plan::{Direction, Payload, Plan};
use crate::socket;
use crate::stats::Window;
use crate::wire::{ANSWER_BYTES, Answer, Hello, Status, WireError};
use crate::{NetError, Result};
use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a connection or an answer is waited for when the plan sets no bound.
const PATIENCE: Duration = Duration::from_secs(30);

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
    /// Who sends on it.
    pub direction: Direction,
    /// What happened since the last look.
    pub window: Mutex<Window>,
}

impl Stream {
    /// What happened since the last look; a thread that panicked has left it whole.
    pub fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which of the connections of a test.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Who sends on it.
    pub direction: Direction,
    /// Its number in this direction, from 0.
    pub stream: u16,
    /// The same on all connections of the test.
    pub test: u64,
}

/// Connects and introduces a connection.
pub fn open(target: &Target, plan: &Plan, place: Place, abort: &AtomicBool) -> Result<Stream> {
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
    let hello = Hello {
        direction: place.direction,
        pace: plan.pace(),
        write: plan.write,
        zero_payload: plan.payload == Payload::Zero,
        amount: plan.amount(place.stream),
        buffer: plan.far_buffer,
        stream: place.stream,
        streams: plan.streams,
        test: place.test,
    };
    let link = Link { socket: &socket, abort, patience: Some(patience) };
    link.send(&hello.encode(), &[], "introducing the test")?;
    let answer = receive_answer(&link, target)?;
    Ok(Stream { socket, answer, direction: place.direction, window: Mutex::default() })
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
