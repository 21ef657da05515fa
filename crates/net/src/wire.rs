//! The protocol between client and server of a test. Pure: bytes in, bytes out.
//!
//! ```text
//! client                                  server
//! Hello (64 bytes)          ──────────>           once per connection; carries the version
//!                           <──────────   Answer (32 bytes and a text)
//! Message header (16 bytes)
//! and payload               ──────────>           any number
//!                           <──────────   Report (64 bytes): SYNC after every message, ASYNC now and then
//! Message of kind Finish    ──────────>
//!                           <──────────   Report of kind Summary, then the connection ends
//! ```
//!
//! Numbers are little-endian. Magic and version of Hello and Answer stay where they are in every version, so that
//! each side can name the version of the other.

use crate::plan::{MAX_LENGTH, MAX_STREAMS, Mode};

/// Version of the protocol.
pub const VERSION: u16 = 1;
/// Bytes of a [`Hello`].
pub const HELLO_BYTES: usize = 64;
/// Bytes of an [`Answer`] before its text.
pub const ANSWER_BYTES: usize = 32;
/// Longest text of an [`Answer`], bytes.
pub const MAX_TEXT: usize = 1024;
/// Bytes in front of a payload.
pub const HEADER_BYTES: usize = 16;
/// Bytes of a [`Report`].
pub const REPORT_BYTES: usize = 64;

const MAGIC: [u8; 8] = *b"SFNETTST";
const MESSAGE_MAGIC: u16 = 0x6d73;

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

/// Why bytes of the other side are not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WireError {
    /// No peer of this protocol: a scanner, a browser.
    NotOurs,
    /// Another version of it.
    Version(u16),
    /// A field is out of range; its name.
    Field(&'static str),
}

/// Opens a connection of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Whether every message is acknowledged.
    pub mode: Mode,
    /// Write durably before the acknowledgement.
    pub write: bool,
    /// Longest payload, bytes.
    pub length: u32,
    /// Longest pause between two messages, milliseconds: the server waits at least so long.
    pub pause_ms: u32,
    /// Socket buffer asked of the server, bytes; 0 leaves it.
    pub buffer: u32,
    /// Number of this connection, from 0.
    pub stream: u16,
    /// Connections of the test.
    pub streams: u16,
    /// The same on all connections of a test.
    pub test: u64,
}

impl Hello {
    /// Its bytes.
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let mut out = [0; HELLO_BYTES];
        put(&mut out, 0, &MAGIC);
        put(&mut out, 8, &VERSION.to_le_bytes());
        out[10] = u8::from(self.mode == Mode::Sync);
        out[11] = u8::from(self.write);
        put(&mut out, 12, &self.length.to_le_bytes());
        put(&mut out, 16, &self.pause_ms.to_le_bytes());
        put(&mut out, 20, &self.buffer.to_le_bytes());
        put(&mut out, 24, &self.stream.to_le_bytes());
        put(&mut out, 26, &self.streams.to_le_bytes());
        put(&mut out, 32, &self.test.to_le_bytes());
        out
    }

    /// Reads it back, with every field in range.
    pub fn decode(bytes: &[u8; HELLO_BYTES]) -> Result<Hello, WireError> {
        version(bytes)?;
        let hello = Hello {
            mode: match bytes[10] {
                0 => Mode::Async,
                1 => Mode::Sync,
                _ => return Err(WireError::Field("mode")),
            },
            write: bytes[11] & 1 != 0,
            length: u32_at(bytes, 12),
            pause_ms: u32_at(bytes, 16),
            buffer: u32_at(bytes, 20),
            stream: u16_at(bytes, 24),
            streams: u16_at(bytes, 26),
            test: u64_at(bytes, 32),
        };
        match hello {
            _ if bytes[11] > 1 => Err(WireError::Field("flags")),
            Hello { length, .. } if length > MAX_LENGTH => Err(WireError::Field("length")),
            Hello { streams, .. } if streams == 0 || streams > MAX_STREAMS => {
                Err(WireError::Field("connections"))
            }
            Hello { stream, streams, .. } if stream >= streams => Err(WireError::Field("connection")),
            hello => Ok(hello),
        }
    }
}

/// Whether the first bytes of a connection can still become a [`Hello`]. A scanner is dropped at its first byte.
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

/// What the server makes of a [`Hello`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The test may begin.
    Ready,
    /// Not now; the text says why.
    Refused,
    /// The versions differ.
    Version,
}

/// The server's word about a [`Hello`]; a text of `text` bytes follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether the test may begin.
    pub status: Status,
    /// Bytes of text that follow.
    pub text: usize,
    /// Receive buffer granted to the server, bytes as the system counts them.
    pub receive_buffer: u32,
    /// `net.core.rmem_max` of the server, bytes; 0 when unknown.
    pub receive_limit: u32,
}

impl Answer {
    /// Its bytes.
    pub fn encode(&self) -> [u8; ANSWER_BYTES] {
        let mut out = [0; ANSWER_BYTES];
        put(&mut out, 0, &MAGIC);
        put(&mut out, 8, &VERSION.to_le_bytes());
        put(&mut out, 10, &(self.status as u16).to_le_bytes());
        put(&mut out, 12, &(self.text as u32).to_le_bytes());
        put(&mut out, 16, &self.receive_buffer.to_le_bytes());
        put(&mut out, 20, &self.receive_limit.to_le_bytes());
        out
    }

    /// Reads it back.
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
            _ => return Err(WireError::Field("status")),
        };
        Ok(Answer { status, text, receive_buffer: u32_at(bytes, 16), receive_limit: u32_at(bytes, 20) })
    }
}

/// In front of every payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The test is over; no payload follows.
    pub finish: bool,
    /// Bytes that follow.
    pub length: u32,
    /// Counts from 0.
    pub sequence: u64,
}

impl Header {
    /// Its bytes.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        put(&mut out, 0, &MESSAGE_MAGIC.to_le_bytes());
        out[2] = u8::from(self.finish);
        put(&mut out, 4, &self.length.to_le_bytes());
        put(&mut out, 8, &self.sequence.to_le_bytes());
        out
    }

    /// Reads it back; `most` is the longest payload that was announced.
    pub fn decode(bytes: &[u8; HEADER_BYTES], most: u32) -> Result<Header, WireError> {
        let length = u32_at(bytes, 4);
        match bytes[2] {
            _ if u16_at(bytes, 0) != MESSAGE_MAGIC => Err(WireError::NotOurs),
            kind if kind > 1 || bytes[3] != 0 => Err(WireError::Field("kind")),
            1 if length != 0 => Err(WireError::Field("length")),
            _ if length > most => Err(WireError::Field("length")),
            kind => Ok(Header { finish: kind == 1, length, sequence: u64_at(bytes, 8) }),
        }
    }
}

/// What a [`Report`] stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportKind {
    /// Acknowledges the message of its sequence.
    Acknowledgement,
    /// Where an ASYNC test stands.
    Progress,
    /// All is received; the last one.
    Summary,
}

/// From the server: positions and times of this connection since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// What it stands for.
    pub kind: ReportKind,
    /// Error number of a failed write; 0 when all went well.
    pub errno: u32,
    /// Last message received.
    pub sequence: u64,
    /// Time of the durable write of this message, nanoseconds; 0 without one.
    pub write_ns: u64,
    /// Payload received in all, bytes.
    pub received: u64,
    /// Time spent in durable writes in all, nanoseconds.
    pub disk_ns: u64,
    /// Time spent waiting for bytes in all, nanoseconds.
    pub wait_ns: u64,
    /// Receive buffer now, bytes as the system counts them.
    pub receive_buffer: u32,
    /// Durable writes in all.
    pub writes: u32,
}

impl Report {
    /// Its bytes.
    pub fn encode(&self) -> [u8; REPORT_BYTES] {
        let mut out = [0; REPORT_BYTES];
        put(&mut out, 0, &MESSAGE_MAGIC.to_le_bytes());
        out[2] = self.kind as u8;
        put(&mut out, 4, &self.errno.to_le_bytes());
        put(&mut out, 8, &self.sequence.to_le_bytes());
        put(&mut out, 16, &self.write_ns.to_le_bytes());
        put(&mut out, 24, &self.received.to_le_bytes());
        put(&mut out, 32, &self.disk_ns.to_le_bytes());
        put(&mut out, 40, &self.wait_ns.to_le_bytes());
        put(&mut out, 48, &self.receive_buffer.to_le_bytes());
        put(&mut out, 52, &self.writes.to_le_bytes());
        out
    }

    /// Reads it back.
    pub fn decode(bytes: &[u8; REPORT_BYTES]) -> Result<Report, WireError> {
        if u16_at(bytes, 0) != MESSAGE_MAGIC {
            return Err(WireError::NotOurs);
        }
        let kind = match bytes[2] {
            0 => ReportKind::Acknowledgement,
            1 => ReportKind::Progress,
            2 => ReportKind::Summary,
            _ => return Err(WireError::Field("kind")),
        };
        Ok(Report {
            kind,
            errno: u32_at(bytes, 4),
            sequence: u64_at(bytes, 8),
            write_ns: u64_at(bytes, 16),
            received: u64_at(bytes, 24),
            disk_ns: u64_at(bytes, 32),
            wait_ns: u64_at(bytes, 40),
            receive_buffer: u32_at(bytes, 48),
            writes: u32_at(bytes, 52),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello() -> Hello {
        Hello {
            mode: Mode::Sync,
            write: true,
            length: 8192,
            pause_ms: 7,
            buffer: 1 << 20,
            stream: 1,
            streams: 2,
            test: 99,
        }
    }

    #[test]
    fn what_is_encoded_is_read_back() {
        assert_eq!(Hello::decode(&hello().encode()), Ok(hello()));
        let answer = Answer { status: Status::Refused, text: 5, receive_buffer: 6, receive_limit: 7 };
        assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        let header = Header { finish: false, length: 9, sequence: u64::MAX };
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
        };
        assert_eq!(Report::decode(&report.encode()), Ok(report));
    }

    #[test]
    fn another_version_is_named_and_fields_have_ranges() {
        let mut bytes = hello().encode();
        bytes[8] = 7;
        assert_eq!(Hello::decode(&bytes), Err(WireError::Version(7)));
        let wrong = Hello { stream: 2, ..hello() };
        assert_eq!(Hello::decode(&wrong.encode()), Err(WireError::Field("connection")));
        let wrong = Hello { length: MAX_LENGTH + 1, ..hello() };
        assert_eq!(Hello::decode(&wrong.encode()), Err(WireError::Field("length")));
        assert!(may_be_hello(b"") && may_be_hello(b"SFN") && !may_be_hello(b"GET /"));
    }

    proptest! {
        #[test]
        fn any_bytes_are_decoded_or_refused(bytes in prop::collection::vec(any::<u8>(), 64)) {
            let sixty_four: [u8; 64] = bytes.clone().try_into().unwrap();
            let _ = Report::decode(&sixty_four);
            let _ = Answer::decode(&bytes[..32].try_into().unwrap());
            let _ = Header::decode(&bytes[..16].try_into().unwrap(), 100);
            if let Ok(hello) = Hello::decode(&sixty_four) {
                prop_assert!(hello.length <= MAX_LENGTH && hello.stream < hello.streams);
            }
        }
    }
}
