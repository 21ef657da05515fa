//! The listening port of an instance. On a standby it takes the primary's stream; on every instance it answers
//! requests. A thread accepts, and each connection has a thread of its own.

mod admission;
pub(crate) mod claims;
mod fetch;
mod handshake;
mod outgoing;
mod slot;
mod stream;

use crate::error::TransportError;
use crate::gap::GapStatus;
use crate::link::{self, Link, LinkEnd, Security};
use crate::lock;
use crate::standby::{ReceiverService, StandbyLog};
use crate::sys;
use admission::{Admission, Admitted, Stranger};
use fetch::Fetch;
use slot::Slot;
use standfast_io::listening::lengthen_queue;
use standfast_types::{About, IncarnationNo, Line, LineBudget};
use std::collections::HashMap;
use std::io::Error;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use admission::Limits;

/// How long the source of a stream may take to be told that this instance stops.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// How an instance listens.
#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// HOST:PORT to listen on; port 0 takes any free one.
    pub listen: String,
    /// How connections are protected.
    pub security: Security,
    /// Every acknowledgement leaves so much later: emulates a distant standby on one machine. Normally zero.
    pub ack_delay: Duration,
    /// A handshake or request must be complete within this time.
    pub handshake_timeout: Duration,
    /// Connections at a time; further ones are closed at once.
    pub connections_max: usize,
    /// SDU: largest payload of a frame that is wanted; 0 = as large as the protocol allows.
    pub sdu_bytes: u32,
    /// Bounds on those that have not introduced themselves.
    pub limits: Limits,
}

impl Default for ReceiverConfig {
    fn default() -> Self {
        ReceiverConfig {
            listen: "127.0.0.1:7450".into(),
            security: Security::default(),
            ack_delay: Duration::ZERO,
            handshake_timeout: Duration::from_secs(5),
            connections_max: 256,
            sdu_bytes: 0,
            limits: Limits::default(),
        }
    }
}

/// What a receiver has seen since it was started.
#[derive(Debug, Default)]
pub struct ReceiverCounts {
    /// Connections accepted.
    pub connections: AtomicU64,
    /// Connections closed at once because there were too many, or too many in too short a time.
    pub turned_away: AtomicU64,
    /// Connections closed because what came was not this protocol or did not come in time.
    pub garbage: AtomicU64,
    /// Handshakes of TLS that failed, and plain connections where they are not allowed.
    pub insecure: AtomicU64,
    /// Tokens refused.
    pub bad_tokens: AtomicU64,
    /// Streams begun.
    pub streams: AtomicU64,
    /// Bytes of redo received.
    pub redo_bytes: AtomicU64,
    /// Writes to the standby log.
    pub writes: AtomicU64,
    /// Positions hardened without redo.
    pub confirms: AtomicU64,
}

/// Listens until stopped or dropped.
pub struct Receiver {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

pub(crate) struct Shared {
    config: ReceiverConfig,
    service: Arc<dyn ReceiverService>,
    slot: Slot,
    /// The gap that is being resolved.
    fetch: Mutex<Option<Arc<Fetch>>>,
    counts: ReceiverCounts,
    listener: TcpListener,
    stopping: AtomicBool,
    connections: Mutex<Connections>,
    began: Instant,
    lines: Mutex<LineBudget>,
}

struct Connections {
    next: u64,
    live: HashMap<u64, Live>,
    admission: Admission,
    threads: HashMap<u64, JoinHandle<()>>,
}

impl Receiver {
    /// Starts to listen. `log` is the standby log when this instance is a standby.
    ///
    /// # Errors
    /// `Address`, `Insecure`, `Io`.
    pub fn start(
        config: ReceiverConfig,
        service: Arc<dyn ReceiverService>,
        log: Option<Box<dyn StandbyLog>>,
    ) -> Result<Receiver, TransportError> {
        let listener = bind(&config)?;
        let address = listener.local_addr().map_err(TransportError::io("listening"))?;
        let connections = Connections {
            next: 0,
            live: HashMap::new(),
            admission: Admission::new(config.limits),
            threads: HashMap::new(),
        };
        let shared = Arc::new(Shared {
            config,
            service,
            slot: Slot::new(log),
            fetch: Mutex::default(),
            counts: ReceiverCounts::default(),
            listener,
            stopping: AtomicBool::new(false),
            connections: Mutex::new(connections),
            began: Instant::now(),
            lines: Mutex::default(),
        });
        let theirs = shared.clone();
        let accepting = std::thread::Builder::new()
            .name("rfs-accept".into())
            .spawn(move || accept(&theirs))
            .map_err(TransportError::io("starting the accepting thread"))?;
        Ok(Receiver { shared, address, accepting: Mutex::new(Some(accepting)) })
    }

    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Counters.
    pub fn counts(&self) -> &ReceiverCounts {
        &self.shared.counts
    }

    /// Gives it a standby log: from now on it takes redo.
    pub fn attach(&self, log: Box<dyn StandbyLog>) {
        self.shared.slot.put(log);
    }

    /// Ends the stream, if there is one, and takes the log back, for a role change. From now on it takes no redo.
    pub fn detach(&self) -> Option<Box<dyn StandbyLog>> {
        self.shared.slot.take_away()
    }

    /// Ends the stream when its source knows no incarnation as new as `number`: nothing more of it is acknowledged. The
    /// source finds out why when it connects again.
    pub fn end_older(&self, number: IncarnationNo) {
        self.shared.slot.end_older(number);
    }

    /// As `detach`, because the instance stops in good order: the source of the stream is told so, and does not let
    /// commits wait for an answer that cannot come. Not for a change of role: a primary must not go on without an instance
    /// that is about to take over.
    pub fn leave(&self) -> Option<Box<dyn StandbyLog>> {
        self.shared.slot.leave(Instant::now() + LEAVE_TIMEOUT)
    }

    /// Whether a stream is live.
    pub fn is_streaming(&self) -> bool {
        self.shared.slot.is_live()
    }

    /// The gap that is being resolved, if there is one.
    pub fn gap(&self) -> Option<GapStatus> {
        lock(&self.shared.fetch).as_ref().map(|fetch| fetch.status())
    }

    /// Closes the port and all connections; returns when all threads have ended.
    pub fn stop(&self) {
        self.shared.stopping.store(true, SeqCst);
        sys::stop_accepting(&self.shared.listener);
        if let Some(thread) = lock(&self.accepting).take() {
            // A panic there was reported by the runtime.
            let _ = thread.join();
        }
        let threads = {
            let mut connections = lock(&self.shared.connections);
            for connection in connections.live.values() {
                connection.stream.shutdown();
            }
            std::mem::take(&mut connections.threads)
        };
        for thread in threads.into_values() {
            let _ = thread.join();
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.stop();
    }
}

fn bind(config: &ReceiverConfig) -> Result<TcpListener, TransportError> {
    let unusable = |source| TransportError::Address { address: config.listen.clone(), source };
    let mut last = Error::from(std::io::ErrorKind::AddrNotAvailable);
    link::check_listen(&config.listen, &config.security)?;
    for candidate in config.listen.to_socket_addrs().map_err(unusable)? {
        let listening =
            TcpListener::bind(candidate).and_then(|listener| lengthen_queue(&listener).map(|()| listener));
        match listening {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(unusable(last))
}

fn accept(shared: &Arc<Shared>) {
    loop {
        let accepted = shared.listener.accept();
        if shared.stopping.load(SeqCst) {
            return;
        }
        match accepted {
            Ok((stream, from)) => serve(shared, stream, from.ip()),
            // Out of descriptors or memory, or a connection that is gone already: not for ever.
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Serves a connection in a thread of its own, unless there are too many.
fn serve(shared: &Arc<Shared>, stream: TcpStream, from: IpAddr) {
    let mut connections = lock(&shared.connections);
    connections.threads.retain(|_, thread| !thread.is_finished());
    let room = connections.live.len() < shared.config.connections_max;
    let admitted = room.then(|| connections.admission.admit(shared.began.elapsed(), from).ok()).flatten();
    let Some(Admitted { stranger, displaces }) = admitted else {
        shared.counts.turned_away.fetch_add(1, Relaxed);
        return;
    };
    if let Some(address) = displaces {
        connections.displace(address);
        shared.counts.turned_away.fetch_add(1, Relaxed);
    }
    shared.counts.connections.fetch_add(1, Relaxed);
    let id = connections.next;
    connections.next += 1;
    let stream = Link::plain(stream);
    connections.live.insert(id, Live { stream: stream.clone(), stranger: Some(stranger) });
    let theirs = shared.clone();
    let thread = std::thread::Builder::new().name(format!("rfs-{id}")).spawn(move || {
        theirs.service.enter_thread(&format!("rfs-{id}"));
        handshake::serve(&theirs, id, &stream);
        // Other holders of the socket must not keep it open.
        stream.shutdown();
        lock(&theirs.connections).end(id);
    });
    match thread {
        Ok(thread) => {
            connections.threads.insert(id, thread);
        }
        Err(_) => connections.end(id),
    }
}

struct Live {
    stream: LinkEnd,
    /// Until it has introduced itself.
    stranger: Option<Stranger>,
}

impl Connections {
    fn end(&mut self, id: u64) {
        if let Some(stranger) = self.live.remove(&id).and_then(|live| live.stranger) {
            self.admission.left(stranger);
        }
    }

    /// The oldest stranger of an address gives its place up; its thread ends.
    fn displace(&mut self, address: IpAddr) {
        let of_address = |live: &Live| live.stranger.as_ref().is_some_and(|stranger| stranger.is_of(address));
        let oldest = self.live.iter().filter(|(_, live)| of_address(live)).map(|(id, _)| *id).min();
        if let Some(live) = oldest.and_then(|id| self.live.get_mut(&id)) {
            live.stream.shutdown();
            if let Some(stranger) = live.stranger.take() {
                self.admission.left(stranger);
            }
        }
    }
}

impl Shared {
    /// The connection has said who it is, and that was accepted: bounds on strangers count for it no more.
    fn introduced(&self, id: u64) {
        let connections = &mut *lock(&self.connections);
        if let Some(stranger) = connections.live.get_mut(&id).and_then(|live| live.stranger.take()) {
            connections.admission.introduced(stranger);
        }
    }

    /// Whoever guesses waits.
    fn penalise(&self, from: IpAddr) {
        lock(&self.connections).admission.penalise(self.began.elapsed(), from);
    }

    /// Whom a line about a peer at `from` is about, of which TLS has proved the name `proved`.
    fn about(&self, from: IpAddr, proved: Option<&str>) -> About {
        match proved {
            Some(name) => About::Member(name.to_owned()),
            None => About::unauthenticated(from, lock(&self.connections).admission.is_known(from)),
        }
    }

    /// What becomes of a line of the alert log about a peer.
    fn line(&self, about: &About, text: &str) -> Line {
        lock(&self.lines).line(self.began.elapsed(), about, text)
    }
}
