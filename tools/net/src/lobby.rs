//! Connections that have not yet stated what they want, or not yet proved their key. They use no thread, and their
//! number and time are bounded. When there is no place, a new connection displaces one of the address that has most
//! ([`Slots`]). Ten thousand silent connections therefore do not keep a client out, and those of one address never
//! displace a client at another.

use crate::socket::receive_now;
use crate::wire::{HELLO_BYTES, Hello, NONCE_BYTES, RESPONSE_BYTES, WireError, may_be_hello};
use standfast_types::{SlotLimits, Slots};
use std::collections::VecDeque;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Limit of waiting connections; at the limit one of them is dropped for a new one.
pub const PLACES: usize = 256;
/// Maximum from one address: a test opens many at the same time.
const PLACES_PER_ADDRESS: usize = PLACES / 2;
/// Time after which a connection is dropped whose Hello and proof are not complete.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// Handshake of a client that must prove its key.
#[derive(Clone, Copy, Debug)]
pub struct Challenge {
    pub hello: Hello,
    pub bytes: [u8; HELLO_BYTES],
    /// The nonce that the client must answer to.
    pub nonce: [u8; NONCE_BYTES],
}

/// A connection that has not sent its Hello, or not its proof.
struct Guest {
    id: u64,
    socket: TcpStream,
    address: SocketAddr,
    since: Instant,
    challenge: Option<Challenge>,
    bytes: [u8; HELLO_BYTES],
    have: usize,
}

/// A message of a waiting connection.
pub enum Reported {
    /// The Hello, decoded and as received.
    Hello(Hello, [u8; HELLO_BYTES]),
    Response(Challenge, [u8; RESPONSE_BYTES]),
    /// Bytes that are not understood, and why.
    Nonsense(WireError),
}

// `Guest` has one buffer for either.
const _: () = assert!(HELLO_BYTES == RESPONSE_BYTES);

/// A connection that leaves the lobby with a message.
pub struct Arrival {
    pub socket: TcpStream,
    pub address: SocketAddr,
    pub since: Instant,
    pub printed: Reported,
}

/// Connections that have not proved themselves yet, the oldest first.
pub struct Lobby {
    guests: VecDeque<Guest>,
    slots: Slots,
    next: u64,
}

impl Default for Lobby {
    fn default() -> Lobby {
        // Authenticated connections do not stay here.
        let limits =
            SlotLimits { unauthenticated: PLACES, per_address: PLACES_PER_ADDRESS, authenticated: 0 };
        Lobby { guests: VecDeque::new(), slots: Slots::new(limits), next: 0 }
    }
}

impl Lobby {
    /// Admits a connection; displaces another one when there is no place.
    pub fn enter(&mut self, socket: TcpStream, address: SocketAddr, now: Instant) {
        self.take_in(socket, address, now, None);
    }

    /// Admits a client that must answer a challenge. Its total time here is not longer than that of any other
    /// connection.
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
        let displaced = self.slots.enter(id, address.ip());
        self.guests.retain(|guest| Some(guest.id) != displaced);
        let bytes = [0; HELLO_BYTES];
        self.guests.push_back(Guest { id, socket, address, since, challenge, bytes, have: 0 });
    }

    /// Drops the oldest connection, e.g. when the process has no descriptor left.
    pub fn drop_oldest(&mut self) {
        let displaced = self.slots.give_up_oldest();
        self.guests.retain(|guest| Some(guest.id) != displaced);
    }

    /// Returns the descriptors to poll, in order.
    pub fn descriptors(&self) -> impl Iterator<Item = i32> + '_ {
        self.guests.iter().map(|guest| guest.socket.as_raw_fd())
    }

    /// Reads from the connections that are `ready` (in the order of [`Lobby::descriptors`]) and returns those with a
    /// complete message. Drops connections that were closed or have waited too long.
    pub fn listen(&mut self, ready: &[bool], now: Instant) -> Vec<Arrival> {
        let mut arrivals = Vec::new();
        let mut staying = VecDeque::with_capacity(self.guests.len());
        for (number, mut guest) in std::mem::take(&mut self.guests).into_iter().enumerate() {
            if ready.get(number).copied().unwrap_or(false) && !guest.read() {
                self.slots.leave(guest.id);
                continue;
            }
            match guest.understood() {
                Some(printed) => {
                    let Guest { id, socket, address, since, .. } = guest;
                    self.slots.leave(id);
                    arrivals.push(Arrival { socket, address, since, printed });
                }
                None if now.saturating_duration_since(guest.since) < TIMEOUT => staying.push_back(guest),
                None => self.slots.leave(guest.id),
            }
        }
        self.guests = staying;
        arrivals
    }
}

impl Guest {
    /// Returns false when the connection was closed.
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

    fn understood(&self) -> Option<Reported> {
        if let Some(challenge) = self.challenge {
            return (self.have == RESPONSE_BYTES).then_some(Reported::Response(challenge, self.bytes));
        }
        if !may_be_hello(&self.bytes[..self.have]) {
            return Some(Reported::Nonsense(WireError::NotOurs));
        }
        // Magic and version come first in every version; the rest of another version may be shorter than this one.
        match (self.have, Hello::decode(&self.bytes)) {
            (HELLO_BYTES, Ok(hello)) => Some(Reported::Hello(hello, self.bytes)),
            (HELLO_BYTES, Err(error)) => Some(Reported::Nonsense(error)),
            (10.., Err(error @ WireError::Version(_))) => Some(Reported::Nonsense(error)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn silent_connections_of_one_address_displace_no_other_client() {
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
