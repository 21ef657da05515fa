//! Sending and receiving that end when the test ends, or when nothing moves for too long.

use crate::socket::is_pause;
use crate::watch::Watch;
use crate::{NetError, Result};
use std::io::{Error, ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A prepared connection: its calls return every slice, but receives that are watched.
pub struct Link<'a> {
    /// The connection.
    pub socket: &'a TcpStream,
    /// Who ends a receive that takes too long, when it blocks without a timeout.
    pub watch: Option<&'a Watch>,
    /// Waiting ends when this is set.
    pub abort: &'a AtomicBool,
    /// Longest time without progress; None waits for ever.
    pub patience: Option<Duration>,
}

/// Begins at the first pause, so that calls that do not wait do not look at the clock.
#[derive(Default)]
pub struct Waiting(Option<Instant>);

impl Link<'_> {
    /// What a failed call means: go on waiting, or an error.
    fn after(&self, error: Error, waiting: &mut Waiting, doing: &'static str) -> Result<()> {
        if !is_pause(&error) {
            return Err(NetError::Cut { doing, source: error });
        }
        if self.abort.load(Ordering::Relaxed) {
            return Err(NetError::Interrupted { doing });
        }
        let waited = waiting.0.get_or_insert_with(Instant::now).elapsed();
        match self.patience {
            Some(patience) if waited >= patience => {
                Err(NetError::Timeout { doing, seconds: patience.as_secs_f64() })
            }
            _ => Ok(()),
        }
    }

    /// Sends a header and a payload as one.
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

    /// Waits for bytes and takes what is there: at least one.
    pub fn receive(&self, out: &mut [u8], doing: &'static str) -> Result<usize> {
        let mut waiting = Waiting::default();
        loop {
            if let Some(bytes) = self.receive_for_a_slice(out, &mut waiting, doing)? {
                return Ok(bytes);
            }
        }
    }

    /// As [`Link::receive`], but returns None after a slice in which nothing came.
    pub fn receive_for_a_slice(
        &self,
        out: &mut [u8],
        waiting: &mut Waiting,
        doing: &'static str,
    ) -> Result<Option<usize>> {
        if let Some(watch) = self.watch {
            return match watch.receive(out, self.patience, doing)? {
                0 => Err(NetError::Cut { doing, source: closed() }),
                bytes => Ok(Some(bytes)),
            };
        }
        let mut socket = self.socket;
        match socket.read(out) {
            Ok(0) => Err(NetError::Cut { doing, source: closed() }),
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) => self.after(error, waiting, doing).map(|()| None),
        }
    }

    /// Fills `out`.
    pub fn receive_exact(&self, out: &mut [u8], doing: &'static str) -> Result<()> {
        let mut have = 0;
        while have < out.len() {
            have += self.receive(&mut out[have..], doing)?;
        }
        Ok(())
    }
}

/// The error of a connection that the other side has closed.
pub fn closed() -> Error {
    Error::new(ErrorKind::UnexpectedEof, "closed by the other side")
}
