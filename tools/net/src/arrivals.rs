//! How long received data had been at this host before the program saw it.

use crate::socket::{note_arrivals, receive_waking};
use std::cell::Cell;
use std::io::Read;
use std::net::TcpStream;

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
