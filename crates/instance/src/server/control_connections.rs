//! Limits of the control socket: connections at a time, in all and per user, and the time a request may take to arrive.

use crate::server::rights::Peer;
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Connections in all; each has a thread.
pub const CONNECTIONS_MAX: usize = 128;
/// Connections of users who may only look, in all. The others are for root and the instance's user.
pub const LOOKING_MAX: usize = 64;
/// Connections of one user who may only look.
pub const LOOKING_OF_ONE_MAX: usize = 32;
/// Time from the start of the connection to the end of the request, however slowly it comes.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a request of a user who may administer.
pub const REQUEST_BYTES_MAX: usize = 1 << 20;
/// Bytes of a request of a user who may only look: such requests are short.
pub const LOOKING_BYTES_MAX: usize = 4 << 10;

/// Why a connection is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    All,
    /// All connections of users who may only look are in use.
    Looking,
    /// This user has as many connections as one user may have.
    OfOne,
}

impl Full {
    /// Returns the message for the client.
    pub fn text(self, peer: Peer) -> String {
        let uid = peer.uid;
        match self {
            Full::All => {
                format!(
                    "the instance serves {CONNECTIONS_MAX} control connections already, as many as it can"
                )
            }
            Full::Looking => format!(
                "the instance serves {LOOKING_MAX} control connections of users who may look already, as many as it can"
            ),
            Full::OfOne => format!(
                "uid {uid} has {LOOKING_OF_ONE_MAX} control connections already, as many as one user can have"
            ),
        }
    }
}

#[derive(Debug, Default)]
struct Open {
    all: usize,
    looking: BTreeMap<u32, usize>,
}

impl Open {
    fn begin(&mut self, peer: Peer, administers: bool) -> Result<(), Full> {
        if self.all >= CONNECTIONS_MAX {
            return Err(Full::All);
        }
        if !administers {
            let of_one = self.looking.get(&peer.uid).copied().unwrap_or(0);
            if of_one >= LOOKING_OF_ONE_MAX {
                return Err(Full::OfOne);
            }
            if self.looking.values().sum::<usize>() >= LOOKING_MAX {
                return Err(Full::Looking);
            }
            self.looking.insert(peer.uid, of_one + 1);
        }
        self.all += 1;
        Ok(())
    }

    fn end(&mut self, peer: Peer, administers: bool) {
        self.all = self.all.saturating_sub(1);
        if !administers && let Some(of_one) = self.looking.get_mut(&peer.uid) {
            *of_one = of_one.saturating_sub(1);
            if *of_one == 0 {
                self.looking.remove(&peer.uid);
            }
        }
    }
}

/// Counts the connections of one socket.
#[derive(Clone, Debug, Default)]
pub struct Connections {
    open: Arc<Mutex<Open>>,
}

/// A served connection; it is counted until this is dropped.
#[derive(Debug)]
pub struct Served {
    connections: Connections,
    peer: Peer,
    administers: bool,
}

impl Connections {
    /// Counts one more connection.
    ///
    /// # Errors
    /// When a limit is reached.
    pub fn begin(&self, peer: Peer, administers: bool) -> Result<Served, Full> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).begin(peer, administers)?;
        Ok(Served { connections: self.clone(), peer, administers })
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let mut open = self.connections.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.end(self.peer, self.administers);
    }
}

/// Reads one line, which must be complete within `limit` and have at most `bytes_max` bytes. `None`: the line does not
/// come in time, or the client closes without sending a byte.
///
/// # Errors
/// The system's; `InvalidData` for a line that is longer or not UTF-8.
pub fn read_request(
    mut stream: &UnixStream,
    bytes_max: usize,
    limit: Duration,
) -> io::Result<Option<String>> {
    let end = Instant::now() + limit;
    let (mut line, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(None);
        }
        stream.set_read_timeout(Some(left))?;
        let bytes = match stream.read(&mut buffer) {
            Ok(0) if line.is_empty() => return Ok(None),
            Ok(0) => return text(line),
            Ok(bytes) => &buffer[..bytes],
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let end_of_line = bytes.iter().position(|byte| *byte == b'\n');
        line.extend_from_slice(&bytes[..end_of_line.unwrap_or(bytes.len())]);
        if line.len() > bytes_max {
            return Err(ErrorKind::InvalidData.into());
        }
        if end_of_line.is_some() {
            return text(line);
        }
    }
}

fn text(line: Vec<u8>) -> io::Result<Option<String>> {
    String::from_utf8(line).map(Some).map_err(|_| ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    const ALICE: Peer = Peer { uid: 60_001 };
    const ROOT: Peer = Peer { uid: 0 };

    #[test]
    fn read_only_users_leave_connections_for_administrators() {
        let connections = Connections::default();
        let of = |uid| (0..LOOKING_OF_ONE_MAX).map(move |_| Peer { uid });
        let mut open: Vec<Served> =
            of(60_001).chain(of(60_002)).map(|peer| connections.begin(peer, false).unwrap()).collect();
        assert_eq!(connections.begin(ALICE, false).unwrap_err(), Full::OfOne);
        assert_eq!(connections.begin(Peer { uid: 60_003 }, false).unwrap_err(), Full::Looking);
        while open.len() < CONNECTIONS_MAX {
            open.push(connections.begin(ROOT, true).unwrap());
        }
        assert_eq!(connections.begin(ROOT, true).unwrap_err(), Full::All);
        open.clear();
        assert_eq!(connections.open.lock().unwrap().all, 0);
        assert!(connections.open.lock().unwrap().looking.is_empty());
        connections.begin(ALICE, false).unwrap();
    }

    #[test]
    fn byte_by_byte_request_does_not_extend_the_timeout() {
        let (here, mut there) = UnixStream::pair().unwrap();
        there.write_all(&[b'x'; LOOKING_BYTES_MAX + 1]).unwrap();
        let long = read_request(&here, LOOKING_BYTES_MAX, Duration::from_secs(60)).unwrap_err();
        assert_eq!(long.kind(), ErrorKind::InvalidData, "no byte more is waited for");
        let writer = std::thread::spawn(move || while there.write_all(b"x").is_ok() {});
        let late = read_request(&here, REQUEST_BYTES_MAX, Duration::from_millis(200)).unwrap();
        assert_eq!(late, None, "it came all the time");
        drop(here);
        writer.join().unwrap();
        let (here, mut there) = UnixStream::pair().unwrap();
        there.write_all(b"{\"op\"").unwrap();
        assert_eq!(read_request(&here, 100, Duration::from_millis(1)).unwrap(), None);
        there.write_all(b":\"status\"}\nmore").unwrap();
        let rest = read_request(&here, 100, Duration::from_secs(60)).unwrap();
        assert_eq!(rest.as_deref(), Some(":\"status\"}"));
    }
}
