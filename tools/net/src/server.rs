//! The server of tests: serves any number of clients, one after the other or concurrently, within bounds.

use crate::access::{Network, is_allowed};
use crate::auth::{Key, Side, Transcript, nonce};
use crate::file::TestFile;
use crate::link::Link;
use crate::lobby::{self, Arrival, Challenge, Lobby, Reported};
use crate::plan::Direction;
use crate::random::Random;
use crate::sender::{Orders, drive};
use crate::session::serve;
use crate::socket::{self, SLICE, readable};
use crate::watch::Watches;
use crate::wire::{
    Answer, Hello, MAX_TEXT, NONCE_BYTES, PROOF_BYTES, RESPONSE_BYTES, Status, VERSION, WireError,
};
use crate::{NetError, Result};
use standfast_io::listening::lengthen_queue;
use standfast_page::units::classic_size;
use standfast_types::{About, Line, LineBudget};
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// Default of the longest wait for the next message, in addition to twice the pause that the client announced.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Connections accepted before the waiting ones are polled again.
const ACCEPTED_AT_ONCE: usize = 64;
/// Descriptors reserved beyond those of connections.
const SPARE_DESCRIPTORS: usize = 64;
/// Stack of a session. It is small, because the buffers are on the heap.
const STACK_BYTES: usize = 256 << 10;
/// Bytes that a sending server repeats in its messages; all connections share them.
const PAYLOAD_BYTES: usize = 1 << 20;
/// Zeros that a sending server repeats in its messages; fewer suffice, because zeros are alike everywhere.
const ZERO_BYTES: usize = 64 << 10;

#[derive(Clone, Debug)]
pub struct ServerPlan {
    /// Address or name of this host to listen on; None listens on all addresses.
    pub host: Option<String>,
    /// Port; 0 takes a free one.
    pub port: u16,
    /// Written by tests with durable writes.
    pub file: PathBuf,
    /// Socket buffer in bytes; 0 leaves it to the system, or to what a client asks for.
    pub buffer: u32,
    /// Maximum number of concurrent connections of tests.
    pub connections: usize,
    /// Longest time without progress of a test, in addition to twice the pause that its client announced.
    pub timeout: Duration,
    /// Networks whose clients are served; empty: all.
    pub allow: Vec<Network>,
    /// Shared secret that clients must prove; None requires none.
    pub key: Option<Key>,
}

pub struct Server {
    listener: TcpListener,
    file: TestFile,
    plan: ServerPlan,
    serving: AtomicUsize,
    watches: Watches,
    /// Budget of output lines about clients that are not served.
    lines: Mutex<LineBudget>,
    began: Instant,
    payload: Arc<[u8]>,
}

/// A client that passed the checks of its address and key.
struct Client {
    socket: Arc<TcpStream>,
    address: SocketAddr,
    hello: Hello,
    /// Proof for the client that this server has the key; None without a key.
    proof: Option<[u8; PROOF_BYTES]>,
}

/// Output of a server: one line per call, from several threads.
pub type Log<'a> = &'a (dyn Fn(&str) + Sync);

impl Server {
    /// Checks the file and starts to listen.
    pub fn bind(plan: ServerPlan) -> Result<Server> {
        let file = TestFile::new(&plan.file)?;
        let address = format!("{}:{}", plan.host.as_deref().unwrap_or("*"), plan.port);
        let listener = match &plan.host {
            Some(host) => TcpListener::bind((host.as_str(), plan.port)),
            // Most systems accept both families on ::, some have no IPv6.
            None => {
                TcpListener::bind(("::", plan.port)).or_else(|_| TcpListener::bind(("0.0.0.0", plan.port)))
            }
        };
        // Errors are ignored: with fewer descriptors it serves fewer connections.
        let _ = socket::allow_descriptors(plan.connections + lobby::PLACES + SPARE_DESCRIPTORS);
        let listening = listener.and_then(|listener| {
            // Connections inherit the buffer, and thus the right window from their first segment on.
            socket::request_buffers(&listener, plan.buffer)?;
            lengthen_queue(&listener)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        });
        let listener = listening.map_err(|source| NetError::Listen { address, source })?;
        let mut payload = vec![0; PAYLOAD_BYTES];
        Random::new(Random::fresh_seed()).fill(&mut payload);
        Ok(Server {
            listener,
            file,
            plan,
            serving: AtomicUsize::new(0),
            watches: Watches::default(),
            lines: Mutex::default(),
            began: Instant::now(),
            payload: payload.into(),
        })
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> Result<SocketAddr> {
        self.listener.local_addr().map_err(|source| NetError::system("cannot read the own address", source))
    }

    /// Returns the receive buffer that connections start with, bytes as the system counts them.
    pub fn receive_buffer(&self) -> u32 {
        socket::receive_buffer(&self.listener)
    }

    /// Serves until `stop` is set. No client can end it.
    pub fn run(&self, stop: &AtomicBool, log: Log<'_>) -> Result<()> {
        let mut lobby = Lobby::default();
        std::thread::scope(|scope| {
            while !stop.load(Ordering::Relaxed) {
                let watched: Vec<i32> =
                    std::iter::once(self.listener.as_raw_fd()).chain(lobby.descriptors()).collect();
                let ready = readable(&watched, SLICE)
                    .map_err(|source| NetError::system("cannot wait for connections", source))?;
                for arrival in lobby.listen(&ready[1..], Instant::now()) {
                    self.receive(scope, &mut lobby, arrival, stop, log);
                }
                if ready[0] {
                    self.accept(&mut lobby, log);
                }
                self.watches.look(Instant::now(), false);
            }
            // The sessions end; a session that waits for a silent client must be woken.
            while self.serving.load(Ordering::Relaxed) > 0 {
                self.watches.look(Instant::now(), true);
                std::thread::sleep(SLICE / 10);
            }
            Ok(())
        })
    }

    fn accept(&self, lobby: &mut Lobby, log: Log<'_>) {
        for _ in 0..ACCEPTED_AT_ONCE {
            match self.listener.accept() {
                Ok((socket, address)) if is_allowed(&self.plan.allow, address.ip()) => {
                    lobby.enter(socket, address, Instant::now());
                }
                // Answered immediately: it takes no place in the lobby from allowed clients.
                Ok((socket, address)) => {
                    self.not_served(&address, "not in an allowed network (--allow); not authorised", log);
                    answer(&socket, Status::NotAuthorised, b"its --allow does not name this address");
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) => {
                    log(&format!("no descriptor left for a connection: {error}"));
                    lobby.drop_oldest();
                    return;
                }
                // The error concerns that one connection; the next one may succeed.
                Err(_) => {}
            }
        }
    }

    fn receive<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        lobby: &mut Lobby,
        arrival: Arrival,
        stop: &'scope AtomicBool,
        log: Log<'scope>,
    ) {
        let Arrival { socket, address, since, printed } = arrival;
        match (printed, &self.plan.key) {
            (Reported::Nonsense(error), _) => self.turn_away(&socket, &address, error, log),
            (Reported::Hello(hello, _), None) => {
                self.admit(scope, Client { socket: Arc::new(socket), address, hello, proof: None }, stop, log)
            }
            (Reported::Hello(hello, bytes), Some(_)) => match nonce() {
                Ok(nonce) => {
                    answer(&socket, Status::Challenge, &nonce);
                    lobby.challenge(socket, address, since, Challenge { hello, bytes, nonce });
                }
                Err(error) => log(&format!("{address}: {error}")),
            },
            (Reported::Response(challenge, response), Some(key)) => match check(key, &challenge, &response) {
                Some(proof) => {
                    let socket = Arc::new(socket);
                    let client = Client { socket, address, hello: challenge.hello, proof: Some(proof) };
                    self.admit(scope, client, stop, log);
                }
                None => {
                    self.not_served(&address, "another key than this server's; not authorised", log);
                    answer(&socket, Status::NotAuthorised, b"its key (--psk-file, -psk_file) is another one");
                }
            },
            // A server without a key challenges no client.
            (Reported::Response(..), None) => {}
        }
    }

    /// Reports that a client is not served, within the line budget of its address.
    fn not_served(&self, address: &SocketAddr, why: &str, log: Log<'_>) {
        let about = About::unauthenticated(address.ip(), false);
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        match lines.line(self.began.elapsed(), &about, why) {
            Line::Reported => log(&format!("{address}: {why}")),
            Line::CountSuppressed(count) => {
                log(&format!("further refusals are not shown: {count} within the hour"));
            }
            Line::Repeated | Line::Suppressed => {}
        }
    }

    /// Reports why a client is turned away, also to the client if it can parse the answer.
    fn turn_away(&self, socket: &TcpStream, address: &SocketAddr, error: WireError, log: Log<'_>) {
        match error {
            WireError::NotOurs => self.not_served(address, "not a test client; dropped", log),
            WireError::Version(version) => {
                let why = format!("version {version} of the protocol, this server has {VERSION}; refused");
                self.not_served(address, &why, log);
                let text =
                    format!("its protocol has version {VERSION}, the client's {version}; use one release");
                answer(socket, Status::Version, text.as_bytes());
            }
            WireError::Field(field) => {
                self.not_served(address, &format!("{field} out of range; refused"), log);
                answer(socket, Status::Refused, format!("{field} is out of range").as_bytes());
            }
        }
    }

    /// Starts a thread for a client, unless the maximum of connections is reached.
    fn admit<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        client: Client,
        stop: &'scope AtomicBool,
        log: Log<'scope>,
    ) {
        let address = client.address;
        let most = self.plan.connections;
        if self.serving.fetch_add(1, Ordering::Relaxed) >= most {
            self.serving.fetch_sub(1, Ordering::Relaxed);
            self.not_served(&address, &format!("busy with {most} connections; refused"), log);
            let text = format!("busy: {most} connections of tests are the most it takes; try again later");
            return answer(&client.socket, Status::Refused, text.as_bytes());
        }
        let work = move || {
            if let Err(error) = self.session(&client, stop, log) {
                log(&format!("{address}: {error}"));
            }
            self.serving.fetch_sub(1, Ordering::Relaxed);
        };
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        if let Err(error) = thread {
            self.serving.fetch_sub(1, Ordering::Relaxed);
            log(&format!("{address}: no thread for a test: {error}"));
        }
    }

    fn session(&self, client: &Client, stop: &AtomicBool, log: Log<'_>) -> Result<()> {
        let Client { socket, address, hello, proof } = client;
        // In the other direction the client writes.
        let writes = hello.write && hello.direction == Direction::ToServer;
        let ring = match writes.then(|| self.file.ring()).transpose() {
            Ok(ring) => ring,
            Err(error) => {
                answer(socket, Status::Refused, error.to_string().as_bytes());
                return Err(error);
            }
        };
        socket
            .set_nonblocking(false)
            .and_then(|()| socket::prepare(socket))
            .map_err(|source| NetError::system("cannot set up the connection", source))?;
        if self.plan.buffer == 0 {
            // Errors are ignored: the kernel clamps an odd size, and the size in force is reported.
            let _ = socket::request_buffers(socket, hello.buffer);
        }
        if hello.stream == 0 {
            log(&describe(address, hello));
        }
        answer(socket, Status::Ready, proof.as_ref().map_or(&[], |proof| &proof[..]));
        let pace = hello.pace;
        let timeout = Some(self.plan.timeout + 2 * pace.longest_pause());
        let link = Link { socket, watch: None, abort: stop, timeout, arrivals: None };
        match hello.direction {
            Direction::ToServer => {
                let watched = self.watches.over(Arc::clone(socket));
                let watched =
                    watched.map_err(|source| NetError::system("cannot set up the connection", source))?;
                let link = Link { watch: Some(&watched.watch), ..link };
                serve(&link, (pace.mode, pace.length), ring, &())
            }
            Direction::FromServer => drive(link, &self.orders(hello, &AtomicU64::new(hello.amount)), &()),
        }
    }

    /// Returns the parameters for sending to a client that receives.
    fn orders<'a>(&self, hello: &Hello, amount: &'a AtomicU64) -> Orders<'a> {
        Orders {
            pace: hello.pace,
            payload: if hello.zero_payload { vec![0; ZERO_BYTES].into() } else { Arc::clone(&self.payload) },
            start: Instant::now(),
            deadline: None,
            budget: (hello.amount != u64::MAX).then_some(amount),
            tells: true,
            seed: hello.test.wrapping_add(hello.stream.into()),
        }
    }
}

fn describe(address: &SocketAddr, hello: &Hello) -> String {
    let write = match (hello.write, hello.direction) {
        (false, _) => "",
        (true, Direction::ToServer) => ", disk write",
        (true, Direction::FromServer) => ", disk write there",
    };
    let connections = if hello.streams == 1 { "connection" } else { "connections" };
    format!(
        "{address}: {} test {}, {}, {} {connections}{write}",
        hello.pace.mode.name(),
        hello.direction.name(),
        classic_size(hello.pace.length.into()),
        hello.streams,
    )
}

/// Returns the proof that this server has the key, when the client's proof is right.
fn check(key: &Key, challenge: &Challenge, response: &[u8; RESPONSE_BYTES]) -> Option<[u8; PROOF_BYTES]> {
    let (client, proof) = response.split_first_chunk::<NONCE_BYTES>()?;
    let transcript = Transcript { hello: &challenge.bytes, server: &challenge.nonce, client };
    key.is_proved(Side::Client, transcript, proof).then(|| key.prove(Side::Server, transcript))
}

/// Sends an answer. A client that has disconnected does not receive it, which is harmless.
fn answer(socket: &TcpStream, status: Status, text: &[u8]) {
    let text = &text[..text.len().min(MAX_TEXT)];
    let limit = |name| socket::sysctl(name).unwrap_or(0).min(u32::MAX.into()) as u32;
    let answer = Answer {
        status,
        text: text.len(),
        receive_buffer: socket::receive_buffer(socket),
        receive_limit: limit("net.core.rmem_max"),
        send_limit: limit("net.core.wmem_max"),
    };
    let mut bytes = answer.encode().to_vec();
    bytes.extend(text);
    let mut socket = socket;
    let _ = socket.write_all(&bytes);
}
