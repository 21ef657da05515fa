//! The listening port of an instance. On a standby it takes the primary's stream; on every instance it answers
//! requests. One thread accepts; each connection has its own thread.

mod admission;
mod agreement;
mod archives;
pub(crate) mod claims;
mod config;
mod connections;
mod counts;
mod fetch;
mod fetch_stream;
mod handshake;
mod outgoing;
mod receive;
mod shared;
mod slot;
mod stream;

pub use admission::Limits;
pub use agreement::{Agreement, may_take, meets};
pub use claims::Proved;
pub use config::ReceiverConfig;
pub use counts::ReceiverCounts;
pub use fetch::Fetch;
pub use fetch_stream::{FetchStep, FetchStream, archiver_answer};
pub use outgoing::Outgoing;
pub use stream::{GapBefore, ReceiverStream, StreamSite};

use crate::error::TransportError;
use crate::gap::GapStatus;
use crate::link::{self, Link};
use crate::lock;
use crate::standby::{ReceiverService, StandbyLog};
use crate::sys;
use admission::Admitted;
use connections::Live;
use shared::Shared;
use standfast_io::listening::lengthen_queue;
use standfast_types::IncarnationNo;
use std::io::Error;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::atomic::{Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time to tell the source of a stream that this instance stops.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);

/// Listens until stopped or dropped.
pub struct Receiver {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: Mutex<Option<JoinHandle<()>>>,
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
        let shared = Arc::new(Shared::new(config, service, log, listener));
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
