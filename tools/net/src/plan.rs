//! Parameters of a test. Pure: no clock, no socket.

use standfast_page::units::Extent;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Limit of the bytes of a message.
pub const MAX_LENGTH: u32 = 64 << 20;
/// Shortest message of a test with random lengths, bytes.
pub const MIN_RANDOM_LENGTH: u32 = 512;
/// Maximum number of connections of one test.
pub const MAX_STREAMS: u16 = 256;

/// File for durable writes unless another one is given.
pub const DEFAULT_FILE: &str = "standfast-net.tmp";

/// Limit of the pause between two messages.
pub const MAX_PAUSE: Duration = Duration::from_secs(3600);

/// Whether a message waits for the acknowledgement of the previous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Messages follow one another as fast as the link takes them.
    Async,
    /// The next message is sent once the previous one is acknowledged.
    Sync,
}

impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::Async => "ASYNC",
            Mode::Sync => "SYNC",
        }
    }
}

/// Direction of the messages of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The client sends, like a primary on this host and a standby on the server.
    ToServer,
    /// The server sends: the direction of the redo after a role change.
    FromServer,
}

impl Direction {
    /// Returns the name for the screen.
    pub fn name(self) -> &'static str {
        match self {
            Direction::ToServer => "to server",
            Direction::FromServer => "from server",
        }
    }

    pub fn code(self) -> &'static str {
        match self {
            Direction::ToServer => "to_server",
            Direction::FromServer => "from_server",
        }
    }
}

/// One direction of a test, or both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Directions {
    ToServer,
    FromServer,
    /// Both at the same time, each on its own connections.
    Both,
}

impl Directions {
    pub fn all(self) -> &'static [Direction] {
        match self {
            Directions::ToServer => &[Direction::ToServer],
            Directions::FromServer => &[Direction::FromServer],
            Directions::Both => &[Direction::ToServer, Direction::FromServer],
        }
    }

    pub fn has_reverse(self) -> bool {
        self != Directions::ToServer
    }

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

/// Mode, lengths and timing of the messages of a connection: what its sender must know, on either side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    pub mode: Mode,
    /// Payload of a message, bytes; with `random_length` the longest.
    pub length: u32,
    /// Lengths are uniformly distributed from 512 to `length`.
    pub random_length: bool,
    /// Pause before each message except the first.
    pub delay: Duration,
    /// Pauses are uniformly distributed from 0 to `delay`.
    pub random_delay: bool,
    /// Time between the moments at which messages are due; None sends as fast as possible.
    pub period: Option<Duration>,
}

impl Pace {
    /// Returns the longest planned time between two messages.
    pub fn longest_pause(&self) -> Duration {
        self.delay.max(self.period.unwrap_or_default())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Payload {
    /// Bytes that a compressing link cannot shrink.
    Random,
    /// Zeros: they show what a compressing link makes of them.
    Zero,
    /// The content of a file, repeated.
    File {
        name: String,
        /// File content; at least one byte.
        content: Arc<[u8]>,
    },
}

impl Payload {
    /// Returns `RANDOM`, `ZERO` or the file's name.
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
    pub directions: Directions,
    pub mode: Mode,
    /// The receiver writes every message durably before it acknowledges it.
    pub write: bool,
    /// File for the durable writes of this side, when it receives.
    pub file: PathBuf,
    /// Payload of a message, bytes; 0 measures a pure round trip. With `random_length` the longest.
    pub length: u32,
    /// Lengths are uniformly distributed from 512 to `length`.
    pub random_length: bool,
    /// Pause before each message except the first.
    pub delay: Duration,
    /// Pauses are uniformly distributed from 0 to `delay`.
    pub random_delay: bool,
    pub payload: Payload,
    pub streams: u16,
    /// Socket buffer of this side, bytes; 0 leaves it to the system.
    pub buffer: u32,
    /// Socket buffer requested from the server, bytes; 0 leaves it to the server.
    pub far_buffer: u32,
    pub interval: Duration,
    pub duration: Extent,
    /// Initial time that no figure counts.
    pub omit: Duration,
    /// Payload bytes per second of all connections of a direction together. Messages are due at fixed moments, and a
    /// latency counts from that moment: a stall makes every message that it delayed slow, not only one.
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
            file: PathBuf::from(DEFAULT_FILE),
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
    /// Returns the mean payload of a message, bytes.
    pub fn mean_length(&self) -> f64 {
        match self.random_length {
            true => f64::from(MIN_RANDOM_LENGTH.min(self.length) + self.length) / 2.0,
            false => f64::from(self.length),
        }
    }

    /// Returns whether the test measures the round trip alone: SYNC messages without payload.
    pub fn is_round_trip(&self) -> bool {
        self.mode == Mode::Sync && self.length == 0
    }

    /// Returns the time between two due messages of a connection; None without a rate.
    pub fn period(&self) -> Option<Duration> {
        let seconds = self.mean_length().max(1.0) * f64::from(self.streams) / self.rate?;
        // Out of range when the rate is almost zero; the callers that accept a rate refuse such a one by MAX_PAUSE.
        Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

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

    /// Returns the payload after which a sending server finishes a connection, bytes: its share of the whole.
    /// [`u64::MAX`] without a bound.
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
