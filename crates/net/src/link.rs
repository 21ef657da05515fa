//! Sending and receiving that stop when the test ends, or when nothing moves for too long.

use crate::socket::{is_pause, note_arrivals, receive_waking};
use crate::watch::Watch;
use crate::{NetError, Result};
use std::cell::Cell;
use std::io::{Error, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A prepared connection. Its calls return every slice, except receives that are watched.
pub struct Link<'a> {
    pub socket: &'a TcpStream,
    /// Ends a receive that takes too long; set when receives block without a timeout.
    pub watch: Option<&'a Watch>,
    /// Ends all waiting when it is set.
    pub abort: &'a AtomicBool,
    /// Longest time without progress; None waits for ever.
    pub timeout: Option<Duration>,
    /// Records the age of received data.
    pub arrivals: Option<&'a Arrivals>,
}

/// How long received data had been at this host before the program saw it.
///
/// Timestamps cost half a microsecond per message. They are used only where messages are slow enough for that not to
/// matter.
#[derive(Default)]
pub struct Arrivals {
    /// Consecutive slow messages, up to [`ENOUGH`].
    slow: Cell<u8>,
    /// The kernel was asked to timestamp arriving data.
    noted: Cell<bool>,
    age_ns: Cell<u64>,
}

/// Latency from which a message is slow.
const SLOW_NS: u64 = 100_000;
/// Consecutive slow messages from which timestamps are used: fewer may be chance.
const ENOUGH: u8 = 4;

impl Arrivals {
    /// Notes the latency of the last message; asks the kernel for timestamps after [`ENOUGH`] slow messages in a row.
    pub fn took(&self, socket: &TcpStream, latency_ns: u64) {
        let slow = if latency_ns < SLOW_NS { 0 } else { self.slow.get().saturating_add(1).min(ENOUGH) };
        self.slow.set(slow);
        if slow == ENOUGH && !self.noted.replace(true) {
            // A kernel without timestamps leaves the time with the network.
            let _ = note_arrivals(socket);
        }
    }

    fn is_worth_asking(&self) -> bool {
        self.slow.get() == ENOUGH
    }

    /// Takes the age of the data of the last receive, nanoseconds; 0 when it was not asked for or the kernel does not
    /// say.
    pub fn take(&self) -> u64 {
        self.age_ns.take()
    }
}

/// Receives once, and records the age of the data where `arrivals` asks for it.
pub fn receive_once(
    mut socket: &TcpStream,
    out: &mut [u8],
    arrivals: Option<&Arrivals>,
) -> std::io::Result<usize> {
    match arrivals.filter(|arrivals| arrivals.is_worth_asking()) {
        None => socket.read(out),
        Some(arrivals) => {
            let (bytes, age_ns) = receive_waking(socket, out)?;
            arrivals.age_ns.set(age_ns);
            Ok(bytes)
        }
    }
}

/// Start of a wait. It is set at the first pause, so that calls that do not wait do not read the clock.
#[derive(Default)]
pub struct Waiting(Option<Instant>);

impl Link<'_> {
    /// Judges a failed call: Ok to continue waiting, or the error.
    fn after(&self, error: Error, waiting: &mut Waiting, doing: &'static str) -> Result<()> {
        if !is_pause(&error) {
            return Err(NetError::Cut { doing, source: error });
        }
        if self.abort.load(Ordering::Relaxed) {
            return Err(NetError::Interrupted { doing });
        }
        let waited = waiting.0.get_or_insert_with(Instant::now).elapsed();
        match self.timeout {
            Some(timeout) if waited >= timeout => {
                Err(NetError::Timeout { doing, seconds: timeout.as_secs_f64() })
            }
            _ => Ok(()),
        }
    }

    /// Sends a header and a payload as one message.
    pub fn send(&self, header: &[u8], payload: &[u8], doing: &'static str) -> Result<()> {
        let (mut header, mut payload) = (header, payload);
        let mut waiting = Waiting::default();
        while !header.is_empty() || !payload.is_empty() {
            let mut socket = self.socket;
            let written = match (header.is_empty(), payload.is_empty()) {
                (true, _) => socket.write(payload),
                (_, true) => socket.write(header),
                _ => socket.write_vectored(&[IoSlice::new(header), IoSlice::new(payload)]),
            };
            match written {
                Ok(0) => return Err(NetError::Cut { doing, source: ErrorKind::WriteZero.into() }),
                Ok(bytes) => {
                    let of_header = bytes.min(header.len());
                    header = &header[of_header..];
                    payload = &payload[bytes - of_header..];
                    waiting = Waiting::default();
                }
                Err(error) => self.after(error, &mut waiting, doing)?,
            }
        }
        Ok(())
    }

    /// Waits for bytes and takes those that are there, at least one.
    pub fn receive(&self, out: &mut [u8], doing: &'static str) -> Result<usize> {
        let mut waiting = Waiting::default();
        loop {
            if let Some(bytes) = self.receive_for_a_slice(out, &mut waiting, doing)? {
                return Ok(bytes);
            }
        }
    }

    /// Receives like [`Link::receive`], but returns None after a slice in which nothing arrived.
    pub fn receive_for_a_slice(
        &self,
        out: &mut [u8],
        waiting: &mut Waiting,
        doing: &'static str,
    ) -> Result<Option<usize>> {
        if let Some(watch) = self.watch {
            return match watch.receive(out, self.timeout, self.arrivals, doing)? {
                0 => Err(NetError::Cut { doing, source: closed() }),
                bytes => Ok(Some(bytes)),
            };
        }
        match receive_once(self.socket, out, self.arrivals) {
            Ok(0) => Err(NetError::Cut { doing, source: closed() }),
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => self.after(error, waiting, doing).map(|()| None),
        }
    }

    pub fn receive_exact(&self, out: &mut [u8], doing: &'static str) -> Result<()> {
        let mut have = 0;
        while have < out.len() {
            have += self.receive(&mut out[have..], doing)?;
        }
        Ok(())
    }
}

/// Returns the error of a connection that the other side has closed.
pub fn closed() -> Error {
    Error::new(ErrorKind::UnexpectedEof, "closed by the other side")
}
