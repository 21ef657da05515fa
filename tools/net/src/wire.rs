//! The protocol between client and server of a test. Pure: bytes in, bytes out.
//!
//! ```text
//! client                                  server
//! Hello (64 bytes)          ──────────>           once per connection; carries the version
//!                           <──────────   Answer (32 bytes and a text)
//!
//! With a key: the answer is a Challenge, its text the server's nonce.
//! Nonce and proof (64 bytes) ─────────>
//!                           <──────────   Answer; when it is Ready its text is the server's proof
//!
//! sender                                  receiver
//! Message header (32 bytes)
//! and payload               ──────────>           any number
//!                           <──────────   Report (64 bytes): SYNC after every message, ASYNC at most every 50 ms
//! Message of kind Finish    ──────────>
//!                           <──────────   Report of kind Summary, then the connection ends
//! ```
//!
//! The Hello says which side is the sender. A receiving client reports when it has enough (report of kind Enough). A
//! sending server reports its kernel's counters (message of kind State) and, in SYNC, the latency of each message in
//! the header of the next one. Both sides report how long arrived data waited until the program saw it.
//!
//! Numbers are little-endian. Magic and version of Hello and Answer are in the same place in every version, so that
//! each side can name the version of the other.

mod message;

use crate::plan::{Direction, MAX_LENGTH, MAX_PAUSE, MAX_STREAMS, Mode, Pace};
pub use message::{Answered, HEADER_BYTES, Header, Kind, REPORT_BYTES, Report, ReportKind, STATE_BYTES};
use std::time::Duration;

pub const VERSION: u16 = 4;
pub const HELLO_BYTES: usize = 64;
pub const NONCE_BYTES: usize = 32;
pub const PROOF_BYTES: usize = 32;
/// Bytes of a client's nonce and proof.
pub const RESPONSE_BYTES: usize = NONCE_BYTES + PROOF_BYTES;
/// Bytes of an [`Answer`] before its text.
pub const ANSWER_BYTES: usize = 32;
/// Longest text of an [`Answer`], bytes.
pub const MAX_TEXT: usize = 1024;

const MAGIC: [u8; 8] = *b"SFNETTST";
/// The next five are the flags of a [`Hello`].
const WRITE: u8 = 1;
const FROM_SERVER: u8 = 2;
const RANDOM_LENGTH: u8 = 4;
const RANDOM_DELAY: u8 = 8;
const ZERO_PAYLOAD: u8 = 16;
const ALL_FLAGS: u8 = WRITE | FROM_SERVER | RANDOM_LENGTH | RANDOM_DELAY | ZERO_PAYLOAD;

fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from(u16_at(bytes, at)) | u32::from(u16_at(bytes, at + 2)) << 16
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}

/// Why received bytes were not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// Not a peer of this protocol, e.g. a port scanner or a browser.
    NotOurs,
    /// A peer of another protocol version.
    Version(u16),
    /// A field is out of range; holds its name.
    Field(&'static str),
}

/// The first message of a connection, from the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    pub direction: Direction,
    pub pace: Pace,
    /// The receiver writes durably; in SYNC before the acknowledgement.
    pub write: bool,
    /// A sending server sends zeros instead of incompressible bytes.
    pub zero_payload: bool,
    /// Payload after which a sending server finishes, bytes; [`u64::MAX`] leaves the end to the client.
    pub amount: u64,
    /// Socket buffer requested from the server, bytes; 0 requests none.
    pub buffer: u32,
    /// Number of this connection, from 0.
    pub stream: u16,
    /// Connections of the test in this direction.
    pub streams: u16,
    /// Identifies the test: the same on all its connections.
    pub test: u64,
}

fn nanos(time: Duration) -> [u8; 8] {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).to_le_bytes()
}

impl Hello {
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut out = [0; HELLO_BYTES];
        let flag = |on: bool, flag: u8| if on { flag } else { 0 };
        put(&mut out, 0, &MAGIC);
        put(&mut out, 8, &VERSION.to_le_bytes());
        out[10] = u8::from(self.pace.mode == Mode::Sync);
        out[11] = flag(self.write, WRITE)
            | flag(self.direction == Direction::FromServer, FROM_SERVER)
            | flag(self.pace.random_length, RANDOM_LENGTH)
            | flag(self.pace.random_delay, RANDOM_DELAY)
            | flag(self.zero_payload, ZERO_PAYLOAD);
        put(&mut out, 12, &self.pace.length.to_le_bytes());
        put(&mut out, 16, &self.buffer.to_le_bytes());
        put(&mut out, 20, &self.stream.to_le_bytes());
        put(&mut out, 22, &self.streams.to_le_bytes());
        put(&mut out, 24, &self.test.to_le_bytes());
        put(&mut out, 32, &self.amount.to_le_bytes());
        put(&mut out, 40, &nanos(self.pace.delay));
        put(&mut out, 48, &nanos(self.pace.period.unwrap_or_default()));
        out
    }

    /// Decodes a Hello and checks the range of every field.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, WireError> {
        version(bytes)?;
        let flag = |flag: u8| bytes[11] & flag != 0;
        let pace = Pace {
            mode: match bytes[10] {
                0 => Mode::Async,
                1 => Mode::Sync,
                _ => return Err(WireError::Field("mode")),
            },
            length: u32_at(bytes, 12),
            random_length: flag(RANDOM_LENGTH),
            delay: Duration::from_nanos(u64_at(bytes, 40)),
            random_delay: flag(RANDOM_DELAY),
            period: Some(Duration::from_nanos(u64_at(bytes, 48))).filter(|period| !period.is_zero()),
        };
        let hello = Hello {
            direction: if flag(FROM_SERVER) { Direction::FromServer } else { Direction::ToServer },
            pace,
            write: flag(WRITE),
            zero_payload: flag(ZERO_PAYLOAD),
            amount: u64_at(bytes, 32),
            buffer: u32_at(bytes, 16),
            stream: u16_at(bytes, 20),
            streams: u16_at(bytes, 22),
            test: u64_at(bytes, 24),
        };
        match hello {
            _ if bytes[11] & !ALL_FLAGS != 0 => Err(WireError::Field("flags")),
            _ if pace.length > MAX_LENGTH => Err(WireError::Field("length")),
            // Such a server would send headers endlessly and never any payload.
            _ if flag(FROM_SERVER) && pace.mode == Mode::Async && pace.length == 0 => {
                Err(WireError::Field("length"))
            }
            _ if pace.longest_pause() > MAX_PAUSE => Err(WireError::Field("pause")),
            Hello { streams, .. } if streams == 0 || streams > MAX_STREAMS => {
                Err(WireError::Field("connections"))
            }
            Hello { stream, streams, .. } if stream >= streams => Err(WireError::Field("connection")),
            hello => Ok(hello),
        }
    }
}

/// Joins the nonce and the proof of a client.
pub fn response(nonce: &[u8; NONCE_BYTES], proof: &[u8; PROOF_BYTES]) -> [u8; RESPONSE_BYTES] {
    let mut out = [0; RESPONSE_BYTES];
    put(&mut out, 0, nonce);
    put(&mut out, NONCE_BYTES, proof);
    out
}

/// Returns whether the first bytes of a connection can still become a [`Hello`]. A port scanner is dropped at its first
/// wrong byte.
pub fn may_be_hello(start: &[u8]) -> bool {
    let known = start.len().min(MAGIC.len());
    start[..known] == MAGIC[..known]
}

fn version(bytes: &[u8]) -> Result<(), WireError> {
    match (bytes[..8] == MAGIC, u16_at(bytes, 8)) {
        (false, _) => Err(WireError::NotOurs),
        (true, VERSION) => Ok(()),
        (true, other) => Err(WireError::Version(other)),
    }
}

/// The server's decision about a [`Hello`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    Ready,
    Refused,
    Version,
    /// The client must prove that it has the key; the text is the server's nonce.
    Challenge,
    /// The client is not authorised; the text says why.
    NotAuthorised,
}

/// The server's answer to a [`Hello`]; a text of `text` bytes follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    pub status: Status,
    /// Length of the text that follows, bytes.
    pub text: usize,
    /// Receive buffer in force at the server, bytes as the system counts them.
    pub receive_buffer: u32,
    /// `net.core.rmem_max` of the server, bytes; 0 when unknown.
    pub receive_limit: u32,
    /// `net.core.wmem_max` of the server, bytes; 0 when unknown.
    pub send_limit: u32,
}

impl Answer {
    pub fn encode(&self) -> [u8; ANSWER_BYTES] {
        let mut out = [0; ANSWER_BYTES];
        put(&mut out, 0, &MAGIC);
        put(&mut out, 8, &VERSION.to_le_bytes());
        put(&mut out, 10, &(self.status as u16).to_le_bytes());
        put(&mut out, 12, &(self.text as u32).to_le_bytes());
        put(&mut out, 16, &self.receive_buffer.to_le_bytes());
        put(&mut out, 20, &self.receive_limit.to_le_bytes());
        put(&mut out, 24, &self.send_limit.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8; ANSWER_BYTES]) -> Result<Answer, WireError> {
        version(bytes)?;
        let text = u32_at(bytes, 12) as usize;
        if text > MAX_TEXT {
            return Err(WireError::Field("text"));
        }
        let status = match u16_at(bytes, 10) {
            0 => Status::Ready,
            1 => Status::Refused,
            2 => Status::Version,
            3 => Status::Challenge,
            4 => Status::NotAuthorised,
            _ => return Err(WireError::Field("status")),
        };
        Ok(Answer {
            status,
            text,
            receive_buffer: u32_at(bytes, 16),
            receive_limit: u32_at(bytes, 20),
            send_limit: u32_at(bytes, 24),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Sender;
    use proptest::prelude::*;

    fn hello() -> Hello {
        Hello {
            direction: Direction::FromServer,
            pace: Pace {
                mode: Mode::Sync,
                length: 8192,
                random_length: true,
                delay: Duration::from_millis(7),
                random_delay: true,
                period: Some(Duration::from_micros(3)),
            },
            write: true,
            zero_payload: true,
            amount: 12,
            buffer: 1 << 20,
            stream: 1,
            streams: 2,
            test: 99,
        }
    }

    #[test]
    fn encoded_wire_messages_decode_to_the_same_values() {
        assert_eq!(Hello::decode(&hello().encode()), Ok(hello()));
        let answer =
            Answer { status: Status::Refused, text: 5, receive_buffer: 6, receive_limit: 7, send_limit: 8 };
        assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        let answered = Answered { latency_ns: 4, waking_ns: 3 };
        let header = Header { kind: Kind::Data, length: 9, sequence: u64::MAX, answered };
        assert_eq!(Header::decode(&header.encode(), 9), Ok(header));
        assert_eq!(Header::decode(&header.encode(), 8), Err(WireError::Field("length")));
        let report = Report {
            kind: ReportKind::Summary,
            errno: 28,
            sequence: 3,
            write_ns: 4,
            received: 5,
            disk_ns: 6,
            wait_ns: 7,
            receive_buffer: 8,
            writes: 9,
            waking_ns: 10,
        };
        assert_eq!(Report::decode(&report.encode()), Ok(report));
        let sender = Sender {
            busy_us: 1,
            receiver_window_us: 2,
            send_buffer_us: 3,
            acknowledged: 4,
            congestion_window: 5,
            retransmissions: 6,
            min_rtt_us: 7,
            offered_window: 0,
            send_buffer: 8,
            sack: true,
            congestion: *b"cubic\0\0\0\0\0\0\0\0\0\0",
        };
        assert_eq!(Sender::decode(&sender.encode()), sender);
    }

    #[test]
    fn message_with_another_version_or_invalid_field_is_refused() {
        let mut bytes = hello().encode();
        bytes[8] = 7;
        assert_eq!(Hello::decode(&bytes), Err(WireError::Version(7)));
        let wrong = Hello { stream: 2, ..hello() };
        assert_eq!(Hello::decode(&wrong.encode()), Err(WireError::Field("connection")));
        let pace = |pace: Pace| Hello { pace, ..hello() };
        let wrong = pace(Pace { delay: MAX_PAUSE + Duration::from_nanos(1), ..hello().pace });
        assert_eq!(Hello::decode(&wrong.encode()), Err(WireError::Field("pause")));
        let wrong = pace(Pace { mode: Mode::Async, length: 0, ..hello().pace });
        assert_eq!(Hello::decode(&wrong.encode()), Err(WireError::Field("length")));
        let wrong = pace(Pace { length: MAX_LENGTH + 1, ..hello().pace });
        assert_eq!(Hello::decode(&wrong.encode()), Err(WireError::Field("length")));
        assert!(may_be_hello(b"") && may_be_hello(b"SFN") && !may_be_hello(b"GET /"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 64)) {
            let sixty_four: [u8; 64] = bytes.clone().try_into().unwrap();
            let _ = Report::decode(&sixty_four);
            let _ = Answer::decode(&bytes[..32].try_into().unwrap());
            let _ = Header::decode(&bytes[..HEADER_BYTES].try_into().unwrap(), 100);
            if let Ok(hello) = Hello::decode(&sixty_four) {
                prop_assert!(hello.pace.length <= MAX_LENGTH && hello.stream < hello.streams);
            }
        }
    }
}
