//! Redo as bytes: records, change vectors, log blocks, log file headers and transport frames.
//!
//! `docs/format.md` and `docs/protocol.md` draw what this crate encodes. Every decoder takes untrusted bytes: it
//! returns a [`DecodeError`], never panics and never allocates more than its input.

mod block;
mod crc;
mod diff;
mod file_header;
mod frame;
mod record;
mod varint;

pub use block::{
    BLOCK_HEADER_BYTES, BlockHeader, BlockWriter, NO_RECORD, decode_block, incarnation_tag, payload_capacity,
};
pub use crc::{StreamCrc, comparable_first_page, crc32c, page_sum};
pub use diff::{Ranges, apply_ranges, encode_ranges};
pub use file_header::{FILE_HEADER_BYTES, FILE_VERSION, LogFileHeader, LogKind, encode_void, is_void};
pub use frame::{FRAME_HEADER_BYTES, Frame, FrameHeader, FrameKind, encode_frame};
pub use record::{
    Attach, PageVector, RECORD_HEADER_BYTES, Record, RecordBuilder, RecordKind, Vectors, count_records,
    decode_record, peek_length,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// More bytes are needed; never returned for a length that is not legal.
    #[error("incomplete: {needed} bytes needed")]
    Incomplete {
        /// Total bytes needed from the start of the item.
        needed: usize,
    },
    #[error("checksum mismatch in {item}")]
    Checksum { item: &'static str },
    /// A field has a value that the format does not allow.
    #[error("malformed {item}: {why}")]
    Malformed { item: &'static str, why: &'static str },
    /// A version that this build does not read.
    #[error("{item} has version {version}; this build reads version {supported}")]
    Version { item: &'static str, version: u32, supported: u32 },
}

pub(crate) fn malformed(item: &'static str, why: &'static str) -> DecodeError {
    DecodeError::Malformed { item, why }
}

/// Little-endian reads from a slice; the caller has checked its length.
pub(crate) mod le {
    pub fn u16_at(bytes: &[u8], at: usize) -> u16 {
        u16::from_le_bytes([bytes[at], bytes[at + 1]])
    }
    pub fn u32_at(bytes: &[u8], at: usize) -> u32 {
        let mut le = [0; 4];
        le.copy_from_slice(&bytes[at..at + 4]);
        u32::from_le_bytes(le)
    }
    pub fn u64_at(bytes: &[u8], at: usize) -> u64 {
        let mut le = [0; 8];
        le.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(le)
    }
}
