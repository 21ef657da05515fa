//! What a test does. Pure: no clock, no socket.

use crate::units::Extent;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Longest message in bytes.
pub const MAX_LENGTH: u32 = 64 << 20;
/// Shortest message of a test with random lengths, in bytes.
pub const MIN_RANDOM_LENGTH: u32 = 512;
/// Most connections of one test.
pub const MAX_STREAMS: u16 = 256;

/// Longest pause between two messages.
pub const MAX_PAUSE: Duration = Duration::from_secs(3600);

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

/// Who sends the messages of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The client sends, as a primary here and a standby there would.
    ToServer,
    /// The server sends: the way of the redo after the roles have changed.
    FromServer,
}

impl Direction {
    /// In words.
    pub fn name(self) -> &'static str {
        match self {
            Direction::ToServer => "to server",
            Direction::FromServer => "from server",
        }
    }

    /// A name for machines.
    pub fn code(self) -> &'static str {
        match self {
            Direction::ToServer => "to_server",
            Direction::FromServer => "from_server",
        }
    }
}

/// The directions of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directions {
    /// The client sends.
    ToServer,
    /// The server sends.
    FromServer,
    /// Both at once, each on connections of its own.
    Both,
}

impl Directions {
    /// Each of them.
    pub fn all(self) -> &'static [Direction] {
        match self {
            Directions::ToServer => &[Direction::ToServer],
            Directions::FromServer => &[Direction::FromServer],
            Directions::Both => &[Direction::ToServer, Direction::FromServer],
        }
    }

    /// Whether the server sends.
    pub fn has_reverse(self) -> bool {
        self != Directions::ToServer
    }

    /// A name for machines.
    pub fn code(self) -> &'static str {
        match self {
            Directions::Both => "both",
            one => one.all()[0].code(),
        }
    }
}

impl From<Direction> for Directions {
    fn from(direction: Direction) -> Directions {
        match direction {
            Direction::ToServer => Directions::ToServer,
            Direction::FromServer => Directions::FromServer,
        }
    }
}

/// What a connection carries and when: what its sender has to know, on whichever side it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// Streaming or message by message.
    pub mode: Mode,
    /// Payload of a message, bytes; with `random_length` the longest one.
    pub length: u32,
    /// Lengths are drawn evenly from 512 to `length`.
    pub random_length: bool,
    /// Pause before each message but the first.
    pub delay: Duration,
    /// Pauses are drawn evenly from 0 to `delay`.
    pub random_delay: bool,
    /// Messages are due at this distance; None: as fast as they go.
    pub period: Option<Duration>,
}

impl Pace {
    /// Longest time from one message to the next that is no standstill.
    pub fn longest_pause(&self) -> Duration {
        self.delay.max(self.period.unwrap_or_default())
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
    /// Who sends.
    pub directions: Directions,
    /// Streaming or message by message.
    pub mode: Mode,
    /// The receiver writes every message durably, before it acknowledges it.
    pub write: bool,
    /// File for this side's durable writes, when it receives.
    pub file: PathBuf,
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
    /// Connections at the same time, in each direction.
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
    /// Payload bytes per second of all connections of a direction together. Messages are due at fixed moments, and a latency
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
            directions: Directions::ToServer,
            mode: Mode::Sync,
            write: false,
            file: PathBuf::from(crate::tcptest::options::DEFAULT_FILE),
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
        let seconds = self.mean_length().max(1.0) * f64::from(self.streams) / self.rate?;
        // Beyond all bounds when the rate is next to nothing; whoever takes such a rate refuses it by MAX_PAUSE.
        Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

    /// What the sender of a connection has to know.
    pub fn pace(&self) -> Pace {
        Pace {
            mode: self.mode,
            length: self.length,
            random_length: self.random_length,
            delay: self.delay,
            random_delay: self.random_delay,
            period: self.period(),
        }
    }

    /// What a sending server finishes after on a connection, bytes: its part of the whole. [`u64::MAX`]: no bound.
    pub fn amount(&self, stream: u16) -> u64 {
        match self.duration {
            Extent::Bytes(bytes) => {
                let streams = u64::from(self.streams);
                bytes / streams + u64::from(u64::from(stream) < bytes % streams)
            }
            _ => u64::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_shared_by_the_connections() {
        let plan = Plan { length: 1000, streams: 4, rate: Some(8000.0), ..Plan::default() };
        assert_eq!(plan.period(), Some(Duration::from_millis(500)));
        assert_eq!(Plan { rate: Some(1e-30), ..plan }.period(), Some(Duration::MAX));
    }

    #[test]
    fn an_amount_is_shared_by_the_connections_to_the_byte() {
        let plan = Plan { streams: 3, duration: Extent::Bytes(11), ..Plan::default() };
        assert_eq!([0, 1, 2].map(|stream| plan.amount(stream)), [4, 4, 3]);
        assert_eq!(Plan::default().amount(0), u64::MAX);
    }
}
