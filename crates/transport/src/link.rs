//! A connection between two instances: plain TCP, or TLS 1.3 over it.
//!
//! A link has two halves that different threads use at the same time: one reads, others write. A write that has to wait
//! never blocks the reader. [`Link::send_now`] never waits at all, so that the log writer may call it. Only `dial`
//! opens and accepts links in this crate.

mod dial;
mod session;

pub use dial::{Identities, Security};
pub(crate) use dial::{accept, check_listen, connect};

use crate::sys::{self, Segments};
use session::Session;
use std::io::{Error, ErrorKind, IoSlice, Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

pub struct Link {
    stream: TcpStream,
    /// Set once, when both ends have agreed on TLS.
    session: OnceLock<Session>,
    /// How long a write over TLS waits for room, milliseconds. Plain writes use the socket's own timeout.
    write_timeout_ms: AtomicU64,
}

/// A write without a time limit.
const NO_TIMEOUT_MS: u64 = u64::MAX;

impl Link {
    /// Wraps a new connection, before anything is sent over it.
    pub(crate) fn plain(stream: TcpStream) -> LinkEnd {
        LinkEnd(Arc::new(Link {
            stream,
            session: OnceLock::new(),
            write_timeout_ms: AtomicU64::new(NO_TIMEOUT_MS),
        }))
    }

    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.stream.peer_addr().ok()
    }

    pub fn is_tls(&self) -> bool {
        self.session.get().is_some()
    }

    /// The name in the certificate of the other end; `None` over plain TCP, and for a host that has no certificate yet.
    pub fn peer_name(&self) -> Option<&str> {
        self.session.get()?.peer_name()
    }

    /// Bytes that only the two ends of this TLS session know; `None` over plain TCP.
    pub(crate) fn exported(&self) -> Option<[u8; 32]> {
        self.session.get()?.exported()
    }

    /// Hands as many bytes of `slices` to the connection as it takes without waiting, and returns how many. Bytes taken
    /// may still be on their way to the socket: see [`Link::flush_now`].
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) fn send_now(&self, slices: &[IoSlice<'_>]) -> Result<usize> {
        let sent = match self.session.get() {
            Some(session) => session.send_now(&self.stream, slices),
            None => sys::send_now(&self.stream, slices),
        };
        match sent {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            result => result,
        }
    }

    /// Hands bytes taken earlier to the socket, as far as possible without waiting. Returns whether none are left.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) fn flush_now(&self) -> Result<bool> {
        self.session.get().map_or(Ok(true), |session| session.flush_now(&self.stream))
    }

    /// Whether the socket has all bytes taken.
    pub(crate) fn is_flushed(&self) -> bool {
        self.session.get().is_none_or(Session::is_flushed)
    }

    /// Waits until the socket takes bytes or the connection has ended. False when `timeout` has passed.
    pub(crate) fn wait_writable(&self, timeout: Duration) -> Result<bool> {
        sys::wait_writable(&self.stream, timeout)
    }

    /// Sets the options of every connection; see [`sys::prepare`].
    pub(crate) fn prepare(&self, timeout: Duration) -> Result<()> {
        sys::prepare(&self.stream, timeout)
    }

    /// Sets the socket's buffers; see [`sys::set_buffers`].
    pub(crate) fn set_buffers(&self, send_bytes: u32, receive_bytes: u32) -> Result<()> {
        sys::set_buffers(&self.stream, send_bytes, receive_bytes)
    }

    /// The segments that this end has sent; see [`sys::segments`].
    pub(crate) fn segments(&self) -> Segments {
        sys::segments(&self.stream)
    }

    /// Sets how long a read waits for bytes.
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        self.stream.set_read_timeout(timeout)
    }

    /// Sets how long a write waits for room.
    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        let millis = timeout.map_or(NO_TIMEOUT_MS, |timeout| timeout.as_millis() as u64);
        self.write_timeout_ms.store(millis, Relaxed);
        self.stream.set_write_timeout(timeout)
    }

    /// Allows reads that use more memory, for speed, once the other end is authenticated.
    pub(crate) fn allow_large_reads(&self) {
        if let Some(session) = self.session.get() {
            session.allow_large_reads();
        }
    }

    /// Ends the connection for both halves; threads that wait in it return.
    pub fn shutdown(&self) {
        // An error means that it is closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Stops reading from the connection; a thread that waits for bytes returns. Writes of this end still go out.
    pub(crate) fn shutdown_read(&self) {
        // An error means that it is closed already.
        let _ = self.stream.shutdown(Shutdown::Read);
    }

    fn wait_for_room(&self) -> Result<()> {
        let timeout = Duration::from_millis(self.write_timeout_ms.load(Relaxed));
        if self.wait_writable(timeout)? { Ok(()) } else { Err(Error::from(ErrorKind::TimedOut)) }
    }
}

/// A holder of a link. At a time one holder may read, and one may write with [`Write`].
#[derive(Clone)]
pub struct LinkEnd(Arc<Link>);

impl LinkEnd {
    /// Whether both are the same connection.
    pub(crate) fn is(&self, other: &LinkEnd) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Deref for LinkEnd {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.0
    }
}

impl Read for LinkEnd {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        match self.session.get() {
            Some(session) => session.read(&self.stream, out),
            None => (&self.stream).read(out),
        }
    }
}

impl Write for LinkEnd {
    /// Returns when the socket has the bytes reported as written.
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        if !self.is_tls() {
            return (&self.stream).write(bytes);
        }
        let taken = loop {
            match self.send_now(&[IoSlice::new(bytes)])? {
                0 if !bytes.is_empty() => self.wait_for_room()?,
                taken => break taken,
            }
        };
        while !self.flush_now()? {
            self.wait_for_room()?;
        }
        Ok(taken)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_testkit::{thread_id, until_asleep};
    use standfast_tls::{Authority, Clock, FixedClock, Identity, Request};
    use std::net::TcpListener;
    use std::sync::mpsc::channel;
    use std::time::Instant;

    const NOW: u64 = 1_800_000_000;
    const WITHIN: Duration = Duration::from_secs(30);

    struct Member(Arc<Identity>);

    impl Identities for Member {
        fn current(&self) -> std::result::Result<Arc<Identity>, String> {
            Ok(self.0.clone())
        }
    }

    fn member(authority: &Authority, name: &str) -> Security {
        let request = Request::create(name).unwrap();
        let signed = authority.sign(name, request.der(), NOW).unwrap();
        let pem = request.identity_pem(&signed, name).unwrap();
        let clock: Clock = Arc::new(FixedClock(NOW));
        let identity = Identity::from_pem(&pem, authority.certificate_pem(), &clock).unwrap();
        Security::with_certificates(Arc::new(Member(Arc::new(identity))), false)
    }

    /// Both ends of a connection over TLS.
    fn pair() -> (LinkEnd, LinkEnd) {
        let authority = Authority::create("tests", NOW).unwrap();
        let (near, far) = (member(&authority, "oslo"), member(&authority, "paris"));
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let accepting = std::thread::spawn(move || {
            let link = Link::plain(listener.accept().unwrap().0);
            accept(&link, &far, Instant::now() + WITHIN).unwrap();
            link
        });
        let link = connect(&address, &near, None, WITHIN, &|| false).unwrap();
        (link, accepting.join().unwrap())
    }

    #[test]
    fn no_thread_keeps_the_tls_lock_while_it_waits_for_the_socket() {
        let (near, mut far) = pair();
        let (read, reads) = channel();
        let mut reader = near.clone();
        let reading = std::thread::spawn(move || {
            let mut byte = [0];
            while let Ok(1) = reader.read(&mut byte) {
                read.send(byte[0]).unwrap();
            }
        });
        let (fill, full) = channel();
        let mut writer = near.clone();
        let writing = std::thread::spawn(move || {
            let filler = vec![7; 1 << 20];
            while writer.send_now(&[IoSlice::new(&filler)]).unwrap() > 0 {}
            fill.send(thread_id()).unwrap();
            writer.write_all(&filler)
        });
        let writing_thread = full.recv_timeout(WITHIN);
        until_asleep(
            writing_thread.expect("the reader, which waits for bytes, does not hold up one that sends"),
        );
        far.write_all(&[5]).unwrap();
        assert_eq!(reads.recv_timeout(WITHIN), Ok(5), "the writer, which waits for room, holds up no reader");
        assert!(!writing.is_finished(), "nothing has made room");
        near.shutdown();
        assert!(writing.join().unwrap().is_err());
        reading.join().unwrap();
    }
}
