//! Sending and receiving that stop when the test ends, or when nothing moves for too long.

use crate::arrivals::{Arrivals, receive_once};
use crate::socket::{closed, is_pause};
use crate::watch::Watch;
use crate::{NetError, Result};
use std::io::{Error, ErrorKind, IoSlice, Write};
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
