//! What a test does. Pure: no clock, no socket.

use crate::units::Extent;
use std::sync::Arc;
use std::time::Duration;

/// Longest message in bytes.
pub const MAX_LENGTH: u32 = 64 << 20;
/// Shortest message of a test with random lengths, in bytes.
pub const MIN_RANDOM_LENGTH: u32 = 512;
/// Most connections of one test.
pub const MAX_STREAMS: u16 = 256;

/// Whether each message waits for its acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Messages follow one another as fast as the link takes them.
    Async,
    /// The next message is sent when the previous one is acknowledged.
    Sync,
}

impl Mode {
    /// `SYNC` or `ASYNC`.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Async => "ASYNC",
            Mode::Sync => "SYNC",
        }
    }
}

/// What the messages contain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Bytes that no link can compress.
    Random,
    /// Zeros, which compress to nothing: what a compressing link makes of them.
    Zero,
    /// The content of a file, repeated.
    File {
        /// Its name, for the screen.
        name: String,
        /// Its bytes; at least one.
        content: Arc<[u8]>,
    },
}

impl Payload {
    /// `RANDOM`, `ZERO` or the file's name.
    pub fn name(&self) -> &str {
        match self {
            Payload::Random => "RANDOM",
            Payload::Zero => "ZERO",
            Payload::File { name, .. } => name,
        }
    }
}

/// A test as the client carries it out.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Streaming or message by message.
    pub mode: Mode,
    /// The server writes every message durably, before it acknowledges it.
    pub write: bool,
    /// Payload of a message, bytes; 0 for a pure round trip. With `random_length` the longest one.
    pub length: u32,
    /// Lengths are drawn evenly from 512 to `length`.
    pub random_length: bool,
    /// Pause before each message but the first.
    pub delay: Duration,
    /// Pauses are drawn evenly from 0 to `delay`.
    pub random_delay: bool,
    /// What is sent.
    pub payload: Payload,
    /// Connections at the same time.
    pub streams: u16,
    /// Socket buffer of this side in bytes; 0 leaves it to the system.
    pub buffer: u32,
    /// Socket buffer asked of the server in bytes; 0 leaves it to the server.
    pub far_buffer: u32,
    /// Time between two rows.
    pub interval: Duration,
    /// When the test ends.
    pub duration: Extent,
    /// Begin of the test that no figure counts.
    pub omit: Duration,
    /// Payload bytes per second of all connections together. Messages are due at fixed moments, and a latency
    /// counts from that moment: a stall makes every message that it delayed slow, not one.
    pub rate: Option<f64>,
    /// Longest time without progress; None waits for ever.
    pub timeout: Option<Duration>,
    /// Congestion control of this side, e.g. `cubic`.
    pub congestion: Option<String>,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            mode: Mode::Sync,
            write: false,
            length: 1 << 20,
            random_length: false,
            delay: Duration::ZERO,
            random_delay: false,
            payload: Payload::Random,
            streams: 1,
            buffer: 0,
            far_buffer: 0,
            interval: Duration::from_secs(10),
            duration: Extent::Endless,
            omit: Duration::ZERO,
            rate: None,
            timeout: None,
            congestion: None,
        }
    }
}

impl Plan {
    /// Payload of a message, bytes, on average.
    pub fn mean_length(&self) -> f64 {
        match self.random_length {
            true => f64::from(MIN_RANDOM_LENGTH.min(self.length) + self.length) / 2.0,
            false => f64::from(self.length),
        }
    }

    /// The test that measures the round trip alone: SYNC messages without payload.
    pub fn is_round_trip(&self) -> bool {
        self.mode == Mode::Sync && self.length == 0
    }

    /// Time from one message of a connection being due to the next, when a rate is set.
    pub fn period(&self) -> Option<Duration> {
        let rate = self.rate?;
        Some(Duration::from_secs_f64(self.mean_length().max(1.0) * f64::from(self.streams) / rate))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_shared_by_the_connections() {
        let plan = Plan { length: 1000, streams: 4, rate: Some(8000.0), ..Plan::default() };
        assert_eq!(plan.period(), Some(Duration::from_millis(500)));
    }
}
