//! A connection between two instances, and the one place where connections are opened and accepted.
//!
//! A link has two halves that different threads use at the same time: one reads, others write. A write that has to
//! wait never holds up the reader, and [`Link::send_now`] never waits at all, so that the log writer may call it.

mod dial;

pub use dial::Security;
pub(crate) use dial::{check_listen, connect};

use crate::sys;
use std::io::{ErrorKind, IoSlice, Read, Result, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

/// One connection.
pub struct Link {
    stream: TcpStream,
}

impl Link {
    /// A plain connection.
    pub(crate) fn plain(stream: TcpStream) -> LinkEnd {
        LinkEnd(Arc::new(Link { stream }))
    }

    /// Address of the other end.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.stream.peer_addr().ok()
    }

    /// Hands as many bytes of `slices` to the connection as it takes without waiting, and returns how many. What was
    /// taken may still be on its way to the socket: see [`Link::flush_now`].
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) fn send_now(&self, slices: &[IoSlice<'_>]) -> Result<usize> {
        match sys::send_now(&self.stream, slices) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
            result => result,
        }
    }

    /// Hands what was taken to the socket, as far as it goes without waiting. Whether nothing is left.
    ///
    /// # Errors
    /// The connection is lost.
    pub(crate) fn flush_now(&self) -> Result<bool> {
        Ok(true)
    }

    /// Whether the socket has everything that was taken.
    pub(crate) fn is_flushed(&self) -> bool {
        true
    }

    /// Waits until the socket takes bytes or the connection has ended. False when `timeout` has passed.
    pub(crate) fn wait_writable(&self, timeout: Duration) -> Result<bool> {
        sys::wait_writable(&self.stream, timeout)
    }

    /// Sets what every connection has; see [`sys::prepare`].
    pub(crate) fn prepare(&self, timeout: Duration) -> Result<()> {
        sys::prepare(&self.stream, timeout)
    }

    /// Sets the socket's buffers; see [`sys::set_buffers`].
    pub(crate) fn set_buffers(&self, send_bytes: u32, receive_bytes: u32) -> Result<()> {
        sys::set_buffers(&self.stream, send_bytes, receive_bytes)
    }

    /// How long a read waits for bytes.
    pub(crate) fn set_read_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        self.stream.set_read_timeout(timeout)
    }

    /// How long a write waits for room.
    pub(crate) fn set_write_timeout(&self, timeout: Option<Duration>) -> Result<()> {
        self.stream.set_write_timeout(timeout)
    }

    /// Ends the connection for both halves; threads that wait in it return.
    pub fn shutdown(&self) {
        // An error means that it is closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}

/// A holder of a link. One at a time may read, and one at a time write with [`Write`].
#[derive(Clone)]
pub struct LinkEnd(Arc<Link>);

impl Deref for LinkEnd {
    type Target = Link;

    fn deref(&self) -> &Link {
        &self.0
    }
}

impl Read for LinkEnd {
    fn read(&mut self, out: &mut [u8]) -> Result<usize> {
        (&self.0.stream).read(out)
    }
}

impl Write for LinkEnd {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        (&self.0.stream).write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
