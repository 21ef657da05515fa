//! TLS on a socket that two threads use.
//!
//! One lock guards the library's connection, which holds the keys of both directions and does no I/O. The lock is held
//! for computing only, never while waiting for the socket: the reader takes bytes from the socket before it locks, and
//! writers hand over only as much as the socket takes immediately. So one half delays the other at most for the
//! encryption of [`SEALED_BYTES_MAX`] or the decryption of [`READ_BYTES_MAX`], some tens of microseconds.

use crate::lock;
use crate::sys::{self, SLICES_MAX};
use rustls::Connection;
use standfast_tls::{CertificateInfo, rustls};
use std::io::{Error, ErrorKind, IoSlice, Read, Result, Write};
use std::net::TcpStream;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Most encrypted bytes that wait for the socket. Redo beyond that waits unencrypted, in shared memory.
const SEALED_BYTES_MAX: usize = 256 * 1024;
/// Bytes per read from the socket, before and after the other end is authenticated.
const FIRST_READ_BYTES: usize = 4 * 1024;
const READ_BYTES_MAX: usize = 256 * 1024;
/// How often a handshake checks whether to give up.
const GIVE_UP_POLL: Duration = Duration::from_millis(50);
/// Label of the exported bytes.
const EXPORT_LABEL: &[u8] = b"EXPORTER-standfast-join";

pub(super) struct Session {
    connection: Mutex<Connection>,
    /// Only the reading thread uses it.
    inbound: Mutex<Inbound>,
    /// Whether encrypted bytes wait for the socket.
    unsent: AtomicBool,
    read_bytes: AtomicUsize,
    peer_name: Option<String>,
    exported: Option<[u8; 32]>,
}

/// Encrypted bytes from the socket that the library has not taken: `bytes[start..end]`.
struct Inbound {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
}

/// Why there is no session.
#[derive(Debug)]
pub(super) enum HandshakeError {
    Io(Error),
    Tls(rustls::Error),
    /// The certificate of the other end has no name.
    Nameless(String),
}

impl From<Error> for HandshakeError {
    fn from(error: Error) -> HandshakeError {
        HandshakeError::Io(error)
    }
}

impl Session {
    /// Performs the handshake of `connection`, which must be complete at `deadline` even if the peer sends byte by
    /// byte.
    pub fn agree(
        stream: &TcpStream,
        mut connection: Connection,
        deadline: Instant,
        give_up: &dyn Fn() -> bool,
    ) -> std::result::Result<Session, HandshakeError> {
        connection.set_buffer_limit(Some(SEALED_BYTES_MAX));
        let mut bytes = vec![0; FIRST_READ_BYTES];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(HandshakeError::Io(ErrorKind::TimedOut.into()));
            }
            if give_up() {
                return Err(HandshakeError::Io(ErrorKind::Interrupted.into()));
            }
            let step = left.clamp(Duration::from_millis(1), GIVE_UP_POLL);
            if !hand_over(&mut connection, stream)? {
                sys::wait_writable(stream, step)?;
                continue;
            }
            if !connection.is_handshaking() {
                break;
            }
            stream.set_read_timeout(Some(step))?;
            match (&mut &*stream).read(&mut bytes) {
                Ok(0) => return Err(HandshakeError::Io(ErrorKind::UnexpectedEof.into())),
                Ok(count) => take_in(&mut connection, &bytes[..count]).map_err(|error| {
                    // Tell the other end why, if it still listens.
                    let _ = hand_over(&mut connection, stream);
                    HandshakeError::Tls(error)
                })?,
                Err(error) if is_quiet(&error) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let peer_name = match connection.peer_certificates().and_then(<[_]>::first) {
            Some(certificate) => {
                let info = CertificateInfo::of(certificate);
                Some(info.map_err(|error| HandshakeError::Nameless(error.to_string()))?.name)
            }
            None => None,
        };
        let exported = connection.export_keying_material([0; 32], EXPORT_LABEL, None).ok();
        Ok(Session {
            connection: Mutex::new(connection),
            inbound: Mutex::new(Inbound { bytes, start: 0, end: 0 }),
            unsent: AtomicBool::new(false),
            read_bytes: AtomicUsize::new(FIRST_READ_BYTES),
            peer_name,
            exported,
        })
    }

    pub fn peer_name(&self) -> Option<&str> {
        self.peer_name.as_deref()
    }

    pub fn exported(&self) -> Option<[u8; 32]> {
        self.exported
    }

    pub fn allow_large_reads(&self) {
        self.read_bytes.store(READ_BYTES_MAX, Relaxed);
    }

    pub fn is_flushed(&self) -> bool {
        !self.unsent.load(SeqCst)
    }

    /// Encrypts and sends as much as possible without waiting; returns how many plain bytes were taken. They reach the
    /// socket before anything that is sent later, some of them perhaps only with the next `flush_now`.
    pub fn send_now(&self, stream: &TcpStream, slices: &[IoSlice<'_>]) -> Result<usize> {
        let mut copies = [IoSlice::new(&[]); SLICES_MAX];
        let count = slices.len().min(SLICES_MAX);
        copies[..count].copy_from_slice(&slices[..count]);
        let mut rest = &mut copies[..count];
        let mut taken = 0;
        let mut connection = lock(&self.connection);
        loop {
            if !self.hand_over(&mut connection, stream)? || rest.is_empty() {
                break;
            }
            let sealed = connection.writer().write_vectored(rest)?;
            if sealed == 0 {
                break;
            }
            taken += sealed;
            IoSlice::advance_slices(&mut rest, sealed);
        }
        Ok(taken)
    }

    /// Hands waiting encrypted bytes to the socket, without waiting; returns whether none are left.
    pub fn flush_now(&self, stream: &TcpStream) -> Result<bool> {
        if self.is_flushed() {
            return Ok(true);
        }
        self.hand_over(&mut lock(&self.connection), stream)
    }

    fn hand_over(&self, connection: &mut Connection, stream: &TcpStream) -> Result<bool> {
        let flushed = hand_over(connection, stream)?;
        self.unsent.store(!flushed, SeqCst);
        Ok(flushed)
    }

    /// Waits as the socket does; returns plain bytes, 0 at the end of the connection.
    pub fn read(&self, stream: &TcpStream, out: &mut [u8]) -> Result<usize> {
        let mut inbound = lock(&self.inbound);
        if out.is_empty() {
            return Ok(0);
        }
        loop {
            let decrypted = self.decrypt(&mut inbound, stream, out)?;
            if decrypted > 0 {
                return Ok(decrypted);
            }
            if inbound.fill(stream, self.read_bytes.load(Relaxed))? == 0 {
                // A missing TLS close notification does not matter: frames carry their length, and a stream only ends
                // by a lost connection.
                return Ok(0);
            }
        }
    }

    /// Fills `out` with plain bytes, without reading from the socket.
    fn decrypt(&self, inbound: &mut Inbound, stream: &TcpStream, out: &mut [u8]) -> Result<usize> {
        let mut filled = 0;
        let mut connection = lock(&self.connection);
        loop {
            match connection.reader().read(&mut out[filled..]) {
                Ok(0) if filled < out.len() => return Ok(filled),
                Ok(count) => filled += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    if inbound.is_empty() {
                        break;
                    }
                    inbound.feed(&mut connection)?;
                }
                Err(error) => return Err(error),
            }
            if filled == out.len() {
                break;
            }
        }
        if connection.wants_write() {
            // The library answers, for example a key update. Bytes that the socket does not take are sent with the next
            // write.
            self.hand_over(&mut connection, stream)?;
        }
        Ok(filled)
    }
}

impl Inbound {
    fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Reads from the socket once; called when the library has taken everything.
    fn fill(&mut self, stream: &TcpStream, bytes_max: usize) -> Result<usize> {
        // A read that filled the buffer probably left bytes behind.
        if self.end == self.bytes.len() && self.bytes.len() < bytes_max {
            self.bytes.resize((self.bytes.len() * 4).min(bytes_max), 0);
        }
        (self.start, self.end) = (0, 0);
        self.end = (&mut &*stream).read(&mut self.bytes)?;
        Ok(self.end)
    }

    /// Gives the library as many bytes as it takes at once.
    fn feed(&mut self, connection: &mut Connection) -> Result<()> {
        let mut rest = &self.bytes[self.start..self.end];
        connection.read_tls(&mut rest)?;
        self.start = self.end - rest.len();
        connection
            .process_new_packets()
            .map_err(|error| Error::new(ErrorKind::InvalidData, reported(&error)))?;
        Ok(())
    }
}

/// Returns the text for an operator about an error of the library.
pub(super) fn reported(error: &rustls::Error) -> String {
    use rustls::{AlertDescription as Alert, CertificateError, Error as Tls, InvalidMessage};
    let renew = "renew it there with `standfast cert renew`, and compare the clocks of both hosts";
    match error {
        Tls::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the other end speaks plain TCP: it needs a certificate (`standfast standby token` here, `standfast cert join` \
             there), and no `insecure = true` in its [instance]; or both ends have to have that"
                .into()
        }
        Tls::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "the certificate of the other end is not of this family; join one of the two again with a token".into()
        }
        Tls::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            format!("the certificate of the other end has expired; {renew}")
        }
        Tls::InvalidCertificate(CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. }) => {
            format!("the certificate of the other end is not valid yet; {renew}")
        }
        Tls::AlertReceived(Alert::CertificateExpired) => {
            "the other end refuses this instance's certificate: expired, or by its clock not valid yet; compare the clocks of \
             both hosts, and renew it with `standfast cert renew`"
                .into()
        }
        Tls::AlertReceived(Alert::UnknownCA | Alert::DecryptError) => {
            "the other end refuses this instance's certificate: it is not of its family; join again with a token".into()
        }
        Tls::AlertReceived(Alert::NoApplicationProtocol) => "the other end is no Standfast instance".into(),
        other => other.to_string(),
    }
}

/// Gives all of `bytes` to the library.
fn take_in(connection: &mut Connection, mut bytes: &[u8]) -> std::result::Result<(), rustls::Error> {
    while !bytes.is_empty() {
        connection.read_tls(&mut bytes).map_err(|error| rustls::Error::General(error.to_string()))?;
        connection.process_new_packets()?;
    }
    Ok(())
}

/// Hands the library's output to the socket; returns whether nothing is left.
fn hand_over(connection: &mut Connection, stream: &TcpStream) -> Result<bool> {
    while connection.wants_write() {
        match connection.write_tls(&mut WithoutWaiting(stream)) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn is_quiet(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

struct WithoutWaiting<'a>(&'a TcpStream);

impl Write for WithoutWaiting<'_> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        sys::send_now(self.0, &[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> Result<usize> {
        sys::send_now(self.0, slices)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
