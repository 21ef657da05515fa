//! Connections that have not said yet what they want, or not proved that they may. They cost no thread, and there is a
//! bound on them and on their time: one leaves when a new one comes, of the address that has most ([`Seats`]), so ten thousand
//! silent connections do not keep a client out, and those of one address not even for a moment a client elsewhere.

use crate::auth::NONCE_BYTES;
use crate::socket::receive_now;
use crate::wire::{HELLO_BYTES, Hello, RESPONSE_BYTES, WireError, may_be_hello};
use standfast_types::{SeatLimits, Seats};
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Most connections that wait here.
pub const PLACES: usize = 256;
/// Of these, from one address: a test opens many at once.
const PLACES_PER_ADDRESS: usize = PLACES / 2;
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
    id: u64,
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
pub struct Lobby {
    guests: VecDeque<Guest>,
    seats: Seats,
    next: u64,
}

impl Default for Lobby {
    fn default() -> Lobby {
        // Who has proved anything does not stay here.
        let limits =
            SeatLimits { unauthenticated: PLACES, per_address: PLACES_PER_ADDRESS, authenticated: 0 };
        Lobby { guests: VecDeque::new(), seats: Seats::new(limits), next: 0 }
    }
}

impl Lobby {
    /// Lets a connection in, and another one go when there is no place.
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
        let id = self.next;
        self.next += 1;
        let displaced = self.seats.enter(id, address.ip());
        self.guests.retain(|guest| Some(guest.id) != displaced);
        let bytes = [0; HELLO_BYTES];
        self.guests.push_back(Guest { id, socket, address, since, challenge, bytes, have: 0 });
    }

    /// Lets the oldest one go, e.g. when the process has no descriptor left.
    pub fn drop_oldest(&mut self) {
        let displaced = self.seats.give_up_oldest();
        self.guests.retain(|guest| Some(guest.id) != displaced);
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
                self.seats.leave(guest.id);
                continue;
            }
            match guest.understood() {
                Some(said) => {
                    let Guest { id, socket, address, since, .. } = guest;
                    self.seats.leave(id);
                    arrivals.push(Arrival { socket, address, since, said });
                }
                None if now.saturating_duration_since(guest.since) < TIMEOUT => staying.push_back(guest),
                None => self.seats.leave(guest.id),
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn silent_connections_of_one_address_do_not_displace_a_client_elsewhere() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let at = |last: u8| SocketAddr::from(([203, 0, 113, last], 1));
        let mut lobby = Lobby::default();
        let now = Instant::now();
        lobby.enter(far.try_clone().unwrap(), at(1), now);
        for _ in 0..2 * PLACES {
            lobby.enter(far.try_clone().unwrap(), at(2), now);
        }
        assert_eq!(lobby.guests.len(), 1 + PLACES_PER_ADDRESS);
        assert_eq!(lobby.guests[0].address, at(1));
        assert!(lobby.listen(&[], now + TIMEOUT).is_empty() && lobby.guests.is_empty());
        lobby.enter(far, at(3), now);
        lobby.drop_oldest();
        assert!(lobby.guests.is_empty());
    }
}
