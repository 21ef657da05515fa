//! Connections that have not said yet what they want. They cost no thread, and there is a bound on them: the oldest
//! one leaves when a new one comes, so ten thousand silent connections do not keep a client out.

use crate::socket::receive_now;
use crate::wire::{HELLO_BYTES, Hello, WireError, may_be_hello};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Most connections that wait here.
pub const PLACES: usize = 256;
/// A connection that has said nothing for so long is dropped.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A connection without its Hello.
struct Guest {
    socket: TcpStream,
    address: SocketAddr,
    since: Instant,
    bytes: [u8; HELLO_BYTES],
    have: usize,
}

/// What became of a connection.
pub struct Arrival {
    /// The connection.
    pub socket: TcpStream,
    /// Its other side.
    pub address: SocketAddr,
    /// What it said, or why it is not understood.
    pub hello: Result<Hello, WireError>,
}

/// The waiting connections, oldest first.
#[derive(Default)]
pub struct Lobby {
    guests: Vec<Guest>,
}

impl Lobby {
    /// Lets a connection in, and the oldest one go when there is no place.
    pub fn enter(&mut self, socket: TcpStream, address: SocketAddr, now: Instant) {
        self.make_room();
        self.guests.push(Guest { socket, address, since: now, bytes: [0; HELLO_BYTES], have: 0 });
    }

    /// Lets the oldest one go when all places are taken.
    fn make_room(&mut self) {
        if self.guests.len() >= PLACES {
            self.guests.remove(0);
        }
    }

    /// Lets the oldest one go, e.g. when the process has no descriptor left.
    pub fn drop_oldest(&mut self) {
        if !self.guests.is_empty() {
            self.guests.remove(0);
        }
    }

    /// Descriptors to watch, in order.
    pub fn descriptors(&self) -> impl Iterator<Item = i32> + '_ {
        self.guests.iter().map(|guest| guest.socket.as_raw_fd())
    }

    /// Reads from those that are `ready` (in the order of [`Lobby::descriptors`]) and returns those that have said
    /// what they want. Those that hang up or wait too long are dropped.
    pub fn listen(&mut self, ready: &[bool], now: Instant) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        let mut staying = Vec::with_capacity(self.guests.len());
        for (number, mut guest) in std::mem::take(&mut self.guests).into_iter().enumerate() {
            if ready.get(number).copied().unwrap_or(false) && !guest.read() {
                continue;
            }
            match guest.understood() {
                Some(hello) => arrivals.push(Arrival { socket: guest.socket, address: guest.address, hello }),
                None if now.saturating_duration_since(guest.since) < PATIENCE => staying.push(guest),
                None => {}
            }
        }
        self.guests = staying;
        arrivals
    }
}

impl Guest {
    /// False when it has hung up.
    fn read(&mut self) -> bool {
        match receive_now(&self.socket, &mut self.bytes[self.have..]) {
            Ok(Some(0)) | Err(_) => false,
            Ok(Some(bytes)) => {
                self.have += bytes;
                true
            }
            Ok(None) => true,
        }
    }

    fn understood(&self) -> Option<Result<Hello, WireError>> {
        if !may_be_hello(&self.bytes[..self.have]) {
            return Some(Err(WireError::NotOurs));
        }
        // Magic and version come first in every version; the rest of another one may be shorter than ours.
        match (self.have, Hello::decode(&self.bytes)) {
            (HELLO_BYTES, hello) => Some(hello),
            (10.., Err(WireError::Version(version))) => Some(Err(WireError::Version(version))),
            _ => None,
        }
    }
}
