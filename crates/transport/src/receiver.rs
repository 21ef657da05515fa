//! The listening port of an instance. On a standby it takes the primary's stream; on every instance it answers
//! requests. One thread accepts; each connection has its own thread.

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
use admission::{Admission, Admitted, Unauthenticated};
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

/// Longest time to tell the source of a stream that this instance stops.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Clone, Debug)]
pub struct ReceiverConfig {
    /// HOST:PORT to listen on; port 0 selects any free one.
    pub listen: String,
    pub security: Security,
    /// Delay of every acknowledgement, to emulate a distant standby on one machine. Normally zero.
    pub ack_delay: Duration,
    /// A handshake or request must be complete within this time.
    pub handshake_timeout: Duration,
    /// Connections at a time; further ones are closed immediately.
    pub connections_max: usize,
    /// SDU: largest payload of a frame accepted; 0 = as large as the protocol allows.
    pub sdu_bytes: u32,
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

/// Counters since the receiver was started.
#[derive(Debug, Default)]
pub struct ReceiverCounts {
    pub connections: AtomicU64,
    /// Connections closed immediately because there were too many, or too many in too short a time.
    pub turned_away: AtomicU64,
    /// Connections closed because the bytes were not this protocol or did not come in time.
    pub garbage: AtomicU64,
    /// Failed TLS handshakes, and plain connections where they are not allowed.
    pub insecure: AtomicU64,
    pub bad_tokens: AtomicU64,
    pub streams: AtomicU64,
    pub redo_bytes: AtomicU64,
    pub writes: AtomicU64,
    /// Confirmed positions hardened without redo.
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
    /// Starts to listen. `log` is the standby log if this instance is a standby.
    ///
    /// # Errors
    /// `Address`, `Insecure`, `Certificate`, `Io`.
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

    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    pub fn counts(&self) -> &ReceiverCounts {
        &self.shared.counts
    }

    /// Attaches a standby log: from now on the receiver takes redo.
    pub fn attach(&self, log: Box<dyn StandbyLog>) {
        self.shared.slot.put(log);
    }

    /// Ends the stream, if there is one, and returns the log, for a role change. From now on the receiver takes no
    /// redo.
    pub fn detach(&self) -> Option<Box<dyn StandbyLog>> {
        self.shared.slot.take_away()
    }

    /// Ends the stream if its source knows no incarnation as new as `number`: nothing more of it is acknowledged. The
    /// source learns why when it connects again.
    pub fn end_older(&self, number: IncarnationNo) {
        self.shared.slot.end_older(number);
    }

    /// Detaches the log for a clean shutdown of the instance. The source of the stream learns of it, and commits there
    /// do not wait for an answer that cannot come. Not for a change of role: a primary must not continue without an
    /// instance that is about to take over.
    pub fn leave(&self) -> Option<Box<dyn StandbyLog>> {
        self.shared.slot.leave(Instant::now() + LEAVE_TIMEOUT)
    }

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
            // The runtime has reported a panic of that thread.
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
            // Descriptors or memory are exhausted, or the connection is gone already; this passes.
            Err(_) => std::thread::sleep(Duration::from_millis(10)),
        }
    }
}

/// Serves a connection in its own thread, unless there are too many.
fn serve(shared: &Arc<Shared>, stream: TcpStream, from: IpAddr) {
    let mut connections = lock(&shared.connections);
    connections.threads.retain(|_, thread| !thread.is_finished());
    let room = connections.live.len() < shared.config.connections_max;
    let admitted = room.then(|| connections.admission.admit(shared.began.elapsed(), from).ok()).flatten();
    let Some(Admitted { unauthenticated, displaces }) = admitted else {
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
    connections.live.insert(id, Live { stream: stream.clone(), unauthenticated: Some(unauthenticated) });
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
    /// `None` once the peer is authenticated.
    unauthenticated: Option<Unauthenticated>,
}

impl Connections {
    fn end(&mut self, id: u64) {
        if let Some(unauthenticated) = self.live.remove(&id).and_then(|live| live.unauthenticated) {
            self.admission.left(unauthenticated);
        }
    }

    /// Closes the oldest unauthenticated connection of an address; its thread ends.
    fn displace(&mut self, address: IpAddr) {
        let of_address = |live: &Live| {
            live.unauthenticated.as_ref().is_some_and(|unauthenticated| unauthenticated.is_of(address))
        };
        let oldest = self.live.iter().filter(|(_, live)| of_address(live)).map(|(id, _)| *id).min();
        if let Some(live) = oldest.and_then(|id| self.live.get_mut(&id)) {
            live.stream.shutdown();
            if let Some(unauthenticated) = live.unauthenticated.take() {
                self.admission.left(unauthenticated);
            }
        }
    }
}

impl Shared {
    /// The peer is authenticated and accepted: the limits for unauthenticated peers no longer count this connection.
    fn authenticated(&self, id: u64) {
        let connections = &mut *lock(&self.connections);
        if let Some(unauthenticated) =
            connections.live.get_mut(&id).and_then(|live| live.unauthenticated.take())
        {
            connections.admission.authenticated(unauthenticated);
        }
    }

    /// Delays further connections of an address that has guessed.
    fn penalise(&self, from: IpAddr) {
        lock(&self.connections).admission.penalise(self.began.elapsed(), from);
    }

    /// Returns the subject of an alert log line about a peer at `from`, of which TLS has proved the name `proved`.
    fn about(&self, from: IpAddr, proved: Option<&str>) -> About {
        match proved {
            Some(name) => About::Member(name.to_owned()),
            None => About::unauthenticated(from, lock(&self.connections).admission.is_known(from)),
        }
    }

    /// Charges an alert log line about a peer to the budget of that peer.
    fn line(&self, about: &About, text: &str) -> Line {
        lock(&self.lines).line(self.began.elapsed(), about, text)
    }
}
