//! Traffic of a running test: messages in one direction, reports in the other. Pure.

use super::{WireError, put, u16_at, u32_at, u64_at};
use crate::stats::Sender;

pub const HEADER_BYTES: usize = 32;
pub const REPORT_BYTES: usize = 64;
/// Payload of a message of [`Kind::State`], bytes.
pub const STATE_BYTES: usize = 64;

const MESSAGE_MAGIC: u16 = 0x6d73;
const SACK: u8 = 1;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Data,
    /// The test is over; no payload follows.
    Finish,
    /// The kernel's counters of a sending server follow instead of a payload; not counted as a message.
    State,
}

/// Measurements that only the sender of a SYNC message can make.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answered {
    /// Time from its send to its acknowledgement, nanoseconds; 0 without a message.
    pub latency_ns: u64,
    /// Part of that in which the acknowledgement had arrived but was not yet seen, nanoseconds; 0 when the kernel did
    /// not say.
    pub waking_ns: u64,
}

/// The header in front of every payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    pub kind: Kind,
    /// Bytes of payload that follow the header.
    pub length: u32,
    /// Number of the message, from 0.
    pub sequence: u64,
    /// Latency of the previous SYNC message.
    pub answered: Answered,
}

impl Header {
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        put(&mut out, 0, &MESSAGE_MAGIC.to_le_bytes());
        out[2] = self.kind as u8;
        put(&mut out, 4, &self.length.to_le_bytes());
        put(&mut out, 8, &self.sequence.to_le_bytes());
        put(&mut out, 16, &self.answered.latency_ns.to_le_bytes());
        put(&mut out, 24, &self.answered.waking_ns.to_le_bytes());
        out
    }

    /// Decodes a header; `most` is the longest payload that was announced.
    pub fn decode(bytes: &[u8; HEADER_BYTES], most: u32) -> Result<Header, WireError> {
        let length = u32_at(bytes, 4);
        let kind = match bytes[2] {
            _ if u16_at(bytes, 0) != MESSAGE_MAGIC => return Err(WireError::NotOurs),
            _ if bytes[3] != 0 => return Err(WireError::Field("kind")),
            0 => Kind::Data,
            1 => Kind::Finish,
            2 => Kind::State,
            _ => return Err(WireError::Field("kind")),
        };
        let fits = match kind {
            Kind::Data => length <= most,
            Kind::Finish => length == 0,
            Kind::State => length as usize == STATE_BYTES,
        };
        match fits {
            true => Ok(Header {
                kind,
                length,
                sequence: u64_at(bytes, 8),
                answered: Answered { latency_ns: u64_at(bytes, 16), waking_ns: u64_at(bytes, 24) },
            }),
            false => Err(WireError::Field("length")),
        }
    }
}

impl Sender {
    /// Encodes the payload of a message of [`Kind::State`].
    pub fn encode(&self) -> [u8; STATE_BYTES] {
        let mut out = [0; STATE_BYTES];
        put(&mut out, 0, &self.busy_us.to_le_bytes());
        put(&mut out, 8, &self.receiver_window_us.to_le_bytes());
        put(&mut out, 16, &self.send_buffer_us.to_le_bytes());
        put(&mut out, 24, &self.acknowledged.to_le_bytes());
        put(&mut out, 32, &self.congestion_window.to_le_bytes());
        put(&mut out, 36, &self.retransmissions.to_le_bytes());
        put(&mut out, 40, &self.min_rtt_us.to_le_bytes());
        put(&mut out, 44, &self.send_buffer.to_le_bytes());
        out[48] = if self.sack { SACK } else { 0 };
        put(&mut out, 49, &self.congestion);
        out
    }

    /// Decodes counters; every byte sequence is valid.
    pub fn decode(bytes: &[u8; STATE_BYTES]) -> Sender {
        let mut congestion = [0; 15];
        congestion.copy_from_slice(&bytes[49..]);
        Sender {
            busy_us: u64_at(bytes, 0),
            receiver_window_us: u64_at(bytes, 8),
            send_buffer_us: u64_at(bytes, 16),
            acknowledged: u64_at(bytes, 24),
            congestion_window: u32_at(bytes, 32),
            retransmissions: u32_at(bytes, 36),
            min_rtt_us: u32_at(bytes, 40),
            offered_window: 0,
            send_buffer: u32_at(bytes, 44),
            sack: bytes[48] & SACK != 0,
            congestion,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportKind {
    /// Acknowledges the message of its sequence.
    Acknowledgement,
    Progress,
    /// Everything was received; the last report.
    Summary,
    /// A receiving client has enough; the sender shall finish.
    Enough,
}

/// A report from the receiver: positions and times of this connection since it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    pub kind: ReportKind,
    /// Error number of a failed write; 0 without a failure.
    pub errno: u32,
    /// Number of the last message received.
    pub sequence: u64,
    /// Time of the durable write of this message, nanoseconds; 0 without one.
    pub write_ns: u64,
    /// Bytes of payload since the start of the test.
    pub received: u64,
    /// Total time in durable writes, nanoseconds.
    pub disk_ns: u64,
    /// Total time waiting for bytes, nanoseconds.
    pub wait_ns: u64,
    /// Current receive buffer, bytes as the system counts them.
    pub receive_buffer: u32,
    /// Number of durable writes; wraps around.
    pub writes: u32,
    /// How long the end of this message had arrived before it was seen, nanoseconds; 0 when the kernel did not say.
    pub waking_ns: u64,
}

impl Report {
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
        put(&mut out, 56, &self.waking_ns.to_le_bytes());
        out
    }

    pub fn decode(bytes: &[u8; REPORT_BYTES]) -> Result<Report, WireError> {
        if u16_at(bytes, 0) != MESSAGE_MAGIC {
            return Err(WireError::NotOurs);
        }
        let kind = match bytes[2] {
            0 => ReportKind::Acknowledgement,
            1 => ReportKind::Progress,
            2 => ReportKind::Summary,
            3 => ReportKind::Enough,
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
            waking_ns: u64_at(bytes, 56),
        })
    }
}
