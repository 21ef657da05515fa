//! Connections that have not said yet what they want, or not proved that they may. They cost no thread, and there is a
//! bound on them and on their time: the oldest one leaves when a new one comes, so ten thousand silent connections do not
//! keep a client out.

use crate::auth::NONCE_BYTES;
use crate::socket::receive_now;
use crate::wire::{HELLO_BYTES, Hello, RESPONSE_BYTES, WireError, may_be_hello};
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Most connections that wait here.
pub const PLACES: usize = 256;
/// A connection that has said nothing for so long is dropped.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// What a client that must prove its key has said and heard.
#[derive(Clone, Copy, Debug)]
pub struct Challenge {
    /// What it wants.
    pub hello: Hello,
    /// The same as it came.
    pub bytes: [u8; HELLO_BYTES],
    /// What it is to answer to.
    pub nonce: [u8; NONCE_BYTES],
}

/// A connection without its Hello, or without its proof.
struct Guest {
    socket: TcpStream,
    address: SocketAddr,
    since: Instant,
    challenge: Option<Challenge>,
    bytes: [u8; HELLO_BYTES],
    have: usize,
}

/// What a connection said.
pub enum Said {
    /// What it wants, and the same as it came.
    Hello(Hello, [u8; HELLO_BYTES]),
    /// Its answer to a challenge.
    Response(Challenge, [u8; RESPONSE_BYTES]),
    /// What is not understood, and why.
    Nonsense(WireError),
}

// A guest has one place for either.
const _: () = assert!(HELLO_BYTES == RESPONSE_BYTES);

/// What became of a connection.
pub struct Arrival {
    /// The connection.
    pub socket: TcpStream,
    /// Its other side.
    pub address: SocketAddr,
    /// When it came.
    pub since: Instant,
    /// What it said.
    pub said: Said,
}

/// The waiting connections, oldest first.
#[derive(Default)]
pub struct Lobby {
    guests: VecDeque<Guest>,
}

impl Lobby {
    /// Lets a connection in, and the oldest one go when there is no place.
    pub fn enter(&mut self, socket: TcpStream, address: SocketAddr, now: Instant) {
        self.take_in(socket, address, now, None);
    }

    /// Lets a client wait for its own answer to a challenge, but not longer altogether than any other guest.
    pub fn challenge(
        &mut self,
        socket: TcpStream,
        address: SocketAddr,
        since: Instant,
        challenge: Challenge,
    ) {
        self.take_in(socket, address, since, Some(challenge));
    }

    fn take_in(
        &mut self,
        socket: TcpStream,
        address: SocketAddr,
        since: Instant,
        challenge: Option<Challenge>,
    ) {
        self.make_room();
        self.guests.push_back(Guest { socket, address, since, challenge, bytes: [0; HELLO_BYTES], have: 0 });
    }

    /// Lets the oldest one go when all places are taken.
    fn make_room(&mut self) {
        if self.guests.len() >= PLACES {
            self.guests.pop_front();
        }
    }

    /// Lets the oldest one go, e.g. when the process has no descriptor left.
    pub fn drop_oldest(&mut self) {
        self.guests.pop_front();
    }

    /// Descriptors to watch, in order.
    pub fn descriptors(&self) -> impl Iterator<Item = i32> + '_ {
        self.guests.iter().map(|guest| guest.socket.as_raw_fd())
    }

    /// Reads from those that are `ready` (in the order of [`Lobby::descriptors`]) and returns those that have said
    /// what they want. Those that hang up or wait too long are dropped.
    pub fn listen(&mut self, ready: &[bool], now: Instant) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        let mut staying = VecDeque::with_capacity(self.guests.len());
        for (number, mut guest) in std::mem::take(&mut self.guests).into_iter().enumerate() {
            if ready.get(number).copied().unwrap_or(false) && !guest.read() {
                continue;
            }
            match guest.understood() {
                Some(said) => {
                    let Guest { socket, address, since, .. } = guest;
                    arrivals.push(Arrival { socket, address, since, said });
                }
                None if now.saturating_duration_since(guest.since) < TIMEOUT => staying.push_back(guest),
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

    fn understood(&self) -> Option<Said> {
        if let Some(challenge) = self.challenge {
            return (self.have == RESPONSE_BYTES).then_some(Said::Response(challenge, self.bytes));
        }
        if !may_be_hello(&self.bytes[..self.have]) {
            return Some(Said::Nonsense(WireError::NotOurs));
        }
        // Magic and version come first in every version; the rest of another one may be shorter than ours.
        match (self.have, Hello::decode(&self.bytes)) {
            (HELLO_BYTES, Ok(hello)) => Some(Said::Hello(hello, self.bytes)),
            (HELLO_BYTES, Err(error)) => Some(Said::Nonsense(error)),
            (10.., Err(error @ WireError::Version(_))) => Some(Said::Nonsense(error)),
            _ => None,
        }
    }
}
