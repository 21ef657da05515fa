//! One connection of a test, on the client.

use crate::auth::{Key, Side, Transcript, nonce};
use crate::link::Link;
use crate::plan::{Direction, Payload, Plan};
use crate::socket;
use crate::stats::Window;
use crate::wire::{ANSWER_BYTES, Answer, HELLO_BYTES, Hello, Status, WireError, response};
use crate::{NetError, Result};
use std::io::ErrorKind;
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Longest wait for a connection or an answer when the plan sets no timeout.
const TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone, Debug)]
pub struct Target {
    pub host: String,
    pub port: u16,
    /// Shared secret that the server must have as well.
    pub key: Option<Key>,
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
    pub socket: Arc<TcpStream>,
    pub answer: Answer,
    pub direction: Direction,
    pub window: Mutex<Window>,
}

impl Stream {
    /// Locks the counts since the last poll; a thread that panicked left them consistent.
    pub fn window(&self) -> MutexGuard<'_, Window> {
        self.window.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Identifies one connection of a test.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub direction: Direction,
    /// Number of the connection in this direction, from 0.
    pub stream: u16,
    /// The same on all connections of the test.
    pub test: u64,
}

/// Connects, sends the Hello, and waits until the server accepts the test.
pub fn open(target: &Target, plan: &Plan, place: Place, abort: &AtomicBool) -> Result<Stream> {
    let timeout = plan.timeout.unwrap_or(TIMEOUT);
    let socket = connect(target, timeout)?;
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
    let link = Link { socket: &socket, watch: None, abort, timeout: Some(timeout), arrivals: None };
    let answer = introduce(&link, target, &hello.encode())?;
    Ok(Stream { socket: Arc::new(socket), answer, direction: place.direction, window: Mutex::default() })
}

/// Connects to the first address of the target that accepts.
fn connect(target: &Target, timeout: Duration) -> Result<TcpStream> {
    let failed = |source| NetError::Connect { address: target.to_string(), source };
    let mut last = ErrorKind::AddrNotAvailable.into();
    let found = (target.host.as_str(), target.port).to_socket_addrs();
    let unknown = |source| NetError::Lookup { host: target.host.clone(), source };
    for candidate in found.map_err(unknown)? {
        match TcpStream::connect_timeout(&candidate, timeout) {
            Ok(socket) => return Ok(socket),
            Err(error) => last = error,
        }
    }
    Err(failed(last))
}

/// Sends the Hello, proves the key if there is one, and returns the answer of a server that accepts.
fn introduce(link: &Link<'_>, target: &Target, hello: &[u8; HELLO_BYTES]) -> Result<Answer> {
    let sent = link.send(hello, &[], "introducing the test");
    // A server that does not serve this address answers so and closes, perhaps before it has read the Hello.
    let answered = receive_answer(link, target);
    let (answer, text) = match (answered, sent) {
        (Err(NetError::Protocol(_)), Err(error)) => return Err(error),
        (answered, _) => answered?,
    };
    match (answer.status, &target.key) {
        (Status::Ready, None) => Ok(answer),
        (Status::Challenge, Some(key)) => respond(link, target, key, hello, &text),
        (Status::Challenge, None) => {
            Err(NetError::NotAuthorised("the server wants a key; give --psk-file (-psk_file)".into()))
        }
        // The server is not authenticated.
        (Status::Ready, Some(_)) => Err(NetError::NotAuthorised(
            "the server has no key, so it does not prove that it is the right one; start it with the same file, or leave \
             out --psk-file (-psk_file)"
                .into(),
        )),
        (Status::NotAuthorised, _) => Err(NetError::NotAuthorised(says(&text))),
        (Status::Refused | Status::Version, _) => Err(NetError::Refused(says(&text))),
    }
}

/// Answers a challenge, and checks that the server has the key as well.
fn respond(
    link: &Link<'_>,
    target: &Target,
    key: &Key,
    hello: &[u8; HELLO_BYTES],
    challenge: &[u8],
) -> Result<Answer> {
    let server = challenge.try_into().map_err(|_| not_ours(target))?;
    let client = nonce()?;
    let transcript = Transcript { hello, server: &server, client: &client };
    let proof = key.prove(Side::Client, transcript);
    link.send(&response(&client, &proof), &[], "proving the key")?;
    let (answer, text) = receive_answer(link, target)?;
    match answer.status {
        Status::Ready if key.is_proved(Side::Server, transcript, &text) => Ok(answer),
        Status::Ready => Err(NetError::NotAuthorised("the server does not have the key".into())),
        Status::NotAuthorised => Err(NetError::NotAuthorised(says(&text))),
        Status::Refused => Err(NetError::Refused(says(&text))),
        Status::Version | Status::Challenge => Err(not_ours(target)),
    }
}

/// Returns a server's text for display. The server may be unauthenticated, so control characters, which could move the
/// cursor, are removed.
fn says(text: &[u8]) -> String {
    String::from_utf8_lossy(text).chars().filter(|letter| !letter.is_control()).collect()
}

fn not_ours(target: &Target) -> NetError {
    NetError::Protocol(format!("{target} is no test server of this program"))
}

fn receive_answer(link: &Link<'_>, target: &Target) -> Result<(Answer, Vec<u8>)> {
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
        _ => not_ours(target),
    })?;
    let mut text = vec![0; answer.text];
    link.receive_exact(&mut text, DOING)?;
    Ok((answer, text))
}
