//! Frames of the transport between a sender and a receiver.
//!
//! ```text
//!  0  4 bytes "SFT1"
//!  4  u32     CRC-32C of bytes 8..48 and the payload
//!  8  u32     payload bytes
//! 12  u16     kind
//! 14  u16     flags
//! 16  u64     a   } meaning by kind, see FrameKind
//! 24  u64     b   }
//! 32  u64     c   }
//! 40  u64     d   }
//! 48  ...     payload
//! ```

use crate::{DecodeError, crc32c, le, malformed};
use standfast_types::BATCH_BYTES_MAX;

/// Bytes of a frame before its payload.
pub const FRAME_HEADER_BYTES: usize = 48;
const MAGIC: &[u8; 4] = b"SFT1";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum FrameKind {
    /// Either end introduces itself; payload JSON. a: protocol version.
    Hello = 1,
    /// Redo. a: stream position of the first payload byte; b: primary's durable position;
    /// c: time sent, microseconds since the Unix epoch; d: end of the redo that the primary has captured.
    Redo = 2,
    /// Nothing new to send; fields as in `Redo`, no payload.
    Confirm = 3,
    /// The log sequence `b` begins at stream position `a`. c: time of the switch; d: offset of the first record.
    Switch = 4,
    /// From the standby. a: received; b: hardened; c: applied; d: the `c` of the newest frame answered. The payload is
    /// `AckTimes`.
    Ack = 5,
    /// The sender of this frame ends the conversation; payload JSON with code and message.
    Refuse = 6,
    /// A request by name on a new connection (standby creation, gap fetch); payload JSON.
    Request = 7,
    /// A packet of an answer to a request; the request defines a and b.
    Data = 8,
    /// The answer to a request is complete; payload JSON.
    Done = 9,
    /// From the standby, before the acknowledgement whose `applied` does not cover them: all databases to which redo is
    /// not applied. a: how many; payload JSON. Valid until the next such frame.
    Stopped = 10,
    /// From the standby, before the acknowledgement whose `applied` includes it: results of verification of its
    /// databases. a: number of databases; b: pages that differ; payload JSON. Valid until the next such frame.
    Verified = 11,
    /// From either end of a live stream over TLS: a request for a certificate. a: number of the request; payload JSON.
    CertificateRequest = 12,
    /// The answer to the request with that number. a: number of the request; payload JSON.
    CertificateAnswer = 13,
    /// From the sender of a live stream over TLS: all members with the rights of each, replacing what its Hello
    /// contained; payload JSON.
    Members = 14,
    /// From the sender of a live stream: the configuration that all instances share, replacing what it sent before;
    /// payload JSON.
    Configuration = 15,
    /// From the standby: a request for a position that no commit acknowledged by now is beyond. a: number of the request.
    PositionRequest = 16,
    /// The answer to the request with that number. a: number of the request; b: the position.
    Position = 17,
    /// From the standby, on a connection for archived logs: a request for a unit. a: log sequence; b: first byte in the
    /// file; c: bytes; d: incarnation id, little-endian.
    Fetch = 20,
    /// A packet of the requested unit. a: log sequence; b: first byte in the file.
    Unit = 21,
    /// The unit is complete. a: log sequence; b: first byte in the file; c: bytes; d: CRC-32C of all of them.
    UnitEnd = 22,
}

impl FrameKind {
    fn from_u16(value: u16) -> Option<FrameKind> {
        use FrameKind::*;
        [
            Hello,
            Redo,
            Confirm,
            Switch,
            Ack,
            Refuse,
            Request,
            Data,
            Done,
            Stopped,
            Verified,
            CertificateRequest,
            CertificateAnswer,
            Members,
            Configuration,
            PositionRequest,
            Position,
            Fetch,
            Unit,
            UnitEnd,
        ]
        .into_iter()
        .find(|kind| *kind as u16 == value)
    }
}

/// The fixed part of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameHeader {
    pub kind: FrameKind,
    /// Of `Redo` frames, the lower 4 bits say how the payload is packed. Of `Redo` and `Confirm` frames, the upper 12
    /// bits say for how long after the frame was made no commit is acknowledged without the receiver, in units of 10
    /// ms. Otherwise zero.
    pub flags: u16,
    /// The meaning of `a` to `d` depends on the kind, see [`FrameKind`].
    pub a: u64,
    pub b: u64,
    pub c: u64,
    pub d: u64,
}

impl FrameHeader {
    /// Creates a header of `kind` with its four fields.
    pub fn new(kind: FrameKind, a: u64, b: u64, c: u64, d: u64) -> Self {
        FrameHeader { kind, flags: 0, a, b, c, d }
    }

    /// Encodes the header for a payload that consists of `head` followed by `tail`.
    pub fn encode(&self, head: &[u8], tail: &[u8]) -> [u8; FRAME_HEADER_BYTES] {
        let mut bytes = [0u8; FRAME_HEADER_BYTES];
        bytes[..4].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&((head.len() + tail.len()) as u32).to_le_bytes());
        bytes[12..14].copy_from_slice(&(self.kind as u16).to_le_bytes());
        bytes[14..16].copy_from_slice(&self.flags.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.a.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.b.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.c.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.d.to_le_bytes());
        let crc = crate::StreamCrc(crc32c(&bytes[8..])).after(head).after(tail).0;
        bytes[4..8].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

/// A decoded frame; the payload points into the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    pub header: FrameHeader,
    pub payload: &'a [u8],
}

impl<'a> Frame<'a> {
    /// Decodes the frame at the start of `bytes`; returns it with its length.
    ///
    /// # Errors
    /// `Incomplete` when more bytes are needed (at most `BATCH_BYTES_MAX` and a header in total); any other error means
    /// that the connection must be closed.
    pub fn decode(bytes: &'a [u8]) -> Result<(Frame<'a>, usize), DecodeError> {
        let known = bytes.len().min(4);
        if bytes[..known] != MAGIC[..known] {
            return Err(malformed("transport frame", "not the Standfast protocol"));
        }
        if bytes.len() < FRAME_HEADER_BYTES {
            return Err(DecodeError::Incomplete { needed: FRAME_HEADER_BYTES });
        }
        let payload_bytes = le::u32_at(bytes, 8) as usize;
        if payload_bytes > BATCH_BYTES_MAX {
            return Err(malformed("transport frame", "payload too large"));
        }
        let total = FRAME_HEADER_BYTES + payload_bytes;
        let Some(frame) = bytes.get(..total) else {
            return Err(DecodeError::Incomplete { needed: total });
        };
        if crc32c(&frame[8..]) != le::u32_at(frame, 4) {
            return Err(DecodeError::Checksum { item: "transport frame" });
        }
        let kind =
            FrameKind::from_u16(le::u16_at(frame, 12)).ok_or(malformed("transport frame", "unknown kind"))?;
        let header = FrameHeader {
            kind,
            flags: le::u16_at(frame, 14),
            a: le::u64_at(frame, 16),
            b: le::u64_at(frame, 24),
            c: le::u64_at(frame, 32),
            d: le::u64_at(frame, 40),
        };
        Ok((Frame { header, payload: &frame[FRAME_HEADER_BYTES..] }, total))
    }
}

/// Appends a whole frame to `out`.
pub fn encode_frame(header: FrameHeader, payload: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&header.encode(payload, &[]));
    out.extend_from_slice(payload);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn frame_roundtrips_and_partial_frame_is_incomplete() {
        let header = FrameHeader::new(FrameKind::Redo, 1, 2, 3, 4);
        let mut out = Vec::new();
        encode_frame(header, b"redo bytes", &mut out);
        assert_eq!(Frame::decode(&out).unwrap(), (Frame { header, payload: b"redo bytes" }, out.len()));
        assert_eq!(header.encode(b"redo", b" bytes"), out[..FRAME_HEADER_BYTES]);
        for cut in 0..out.len() {
            assert!(matches!(Frame::decode(&out[..cut]), Err(DecodeError::Incomplete { .. })), "cut {cut}");
        }
    }

    proptest! {
        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Frame::decode(&bytes).is_err());
        }

        #[test]
        fn a_flipped_bit_is_found(at in 0usize..58, bit in 0u32..8) {
            let mut out = Vec::new();
            encode_frame(FrameHeader::new(FrameKind::Ack, 1, 2, 3, 4), b"0123456789", &mut out);
            out[at] ^= 1 << bit;
            prop_assert!(Frame::decode(&out).is_err());
        }
    }
}
