//! The first block of an online, standby or archived redo log.
//!
//! ```text
//!  0  8 bytes  "SFREDO01"
//!  8  u32      version of the file format
//! 12  u32      block size in bytes
//! 16  u8       kind: 1 online, 2 standby, 3 archived
//! 17  7 bytes  zero
//! 24  16 bytes instance that generated the redo
//! 40  u32      incarnation number
//! 44  u8       generation: how often the file has been begun, modulo 256; 0 in an archived log
//! 45  3 bytes  zero
//! 48  8 bytes  incarnation id
//! 56  u64      log sequence number
//! 64  u64      first SCN: stream position of the first byte in this log
//! 72  u64      next SCN: stream position after its last byte; 0 while it is being filled
//! 80  u64      time of the switch into this log, microseconds since the Unix epoch
//! 88  u64      size of the file in bytes
//! 96  u32      running CRC-32C of the stream before the first SCN
//! 100 u32      offset from the first SCN to the first record that starts in this log
//! 104 ...      zero
//! 508 u32      CRC-32C of bytes 0..508
//! ```
//!
//! A file that is not in use has, in place of the header, a block of zeros if it was never begun, or "SFVOID01"
//! followed by zeros.
//!
//! The generation distinguishes the blocks of a log from those of an earlier log with the same sequence in the same
//! file, from which redo that a primary never made durable was truncated.

use crate::{DecodeError, StreamCrc, crc32c, le, malformed};
use standfast_types::{IncarnationId, IncarnationNo, InstanceId, Scn};

/// Bytes of the header, at the start of a whole block.
pub const FILE_HEADER_BYTES: usize = 512;
/// Version that this build writes and reads.
pub const FILE_VERSION: u32 = 1;
const MAGIC: &[u8; 8] = b"SFREDO01";
const VOID: &[u8; 8] = b"SFVOID01";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum LogKind {
    /// Filled by the log writer of a primary.
    Online = 1,
    /// Filled by the receiver of a standby.
    Standby = 2,
    Archived = 3,
}

/// The decoded header of a log file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogFileHeader {
    pub kind: LogKind,
    /// Block size in bytes: 512 or 4,096.
    pub block_bytes: u32,
    pub instance: InstanceId,
    /// Number of the instance's incarnation at that time.
    pub incarnation: IncarnationNo,
    pub incarnation_id: IncarnationId,
    /// Log sequence number, from 1 in each incarnation.
    pub sequence: u64,
    /// SCN of the first stream byte in the file.
    pub first_scn: Scn,
    /// SCN after the last byte; `None` while the log is being filled.
    pub next_scn: Option<Scn>,
    /// Time of the switch into this log, microseconds since the Unix epoch.
    pub first_time_us: u64,
    pub file_bytes: u64,
    /// Running checksum of the stream before `first_scn`.
    pub stream_crc: StreamCrc,
    /// Bytes from `first_scn` to the first record that starts in this log.
    pub first_record: u32,
    /// Generation: how often the file has been begun, modulo 256.
    pub turn: u8,
}

/// Fills `block`, a whole block, with the first block of a file that holds nothing.
pub fn encode_void(block: &mut [u8]) {
    block.fill(0);
    block[..8].copy_from_slice(VOID);
}

/// Returns whether the file that begins with `block` was declared to hold nothing.
pub fn is_void(block: &[u8]) -> bool {
    block.starts_with(VOID)
}

impl LogFileHeader {
    /// Writes the header to the start of `block`, a whole block, and zeroes the rest of it.
    pub fn encode(&self, block: &mut [u8]) {
        block.fill(0);
        block[..8].copy_from_slice(MAGIC);
        block[8..12].copy_from_slice(&FILE_VERSION.to_le_bytes());
        block[12..16].copy_from_slice(&self.block_bytes.to_le_bytes());
        block[16] = self.kind as u8;
        block[24..40].copy_from_slice(&self.instance.0);
        block[40..44].copy_from_slice(&self.incarnation.to_le_bytes());
        block[44] = self.turn;
        block[48..56].copy_from_slice(&self.incarnation_id.0);
        block[56..64].copy_from_slice(&self.sequence.to_le_bytes());
        block[64..72].copy_from_slice(&self.first_scn.0.to_le_bytes());
        block[72..80].copy_from_slice(&self.next_scn.map_or(0, |scn| scn.0).to_le_bytes());
        block[80..88].copy_from_slice(&self.first_time_us.to_le_bytes());
        block[88..96].copy_from_slice(&self.file_bytes.to_le_bytes());
        block[96..100].copy_from_slice(&self.stream_crc.0.to_le_bytes());
        block[100..104].copy_from_slice(&self.first_record.to_le_bytes());
        let crc = crc32c(&block[..508]);
        block[508..512].copy_from_slice(&crc.to_le_bytes());
    }

    /// Decodes the header at the start of `block`.
    ///
    /// # Errors
    /// `Checksum` when the header is torn, `Version` when another version wrote it, `Malformed` when it was never
    /// written or has invalid fields.
    pub fn decode(block: &[u8]) -> Result<LogFileHeader, DecodeError> {
        if block.len() < FILE_HEADER_BYTES {
            return Err(DecodeError::Incomplete { needed: FILE_HEADER_BYTES });
        }
        if &block[..8] != MAGIC {
            return Err(malformed("log file header", "not a Standfast redo log"));
        }
        if crc32c(&block[..508]) != le::u32_at(block, 508) {
            return Err(DecodeError::Checksum { item: "log file header" });
        }
        let version = le::u32_at(block, 8);
        if version != FILE_VERSION {
            return Err(DecodeError::Version { item: "log file", version, supported: FILE_VERSION });
        }
        let kind = match block[16] {
            1 => LogKind::Online,
            2 => LogKind::Standby,
            3 => LogKind::Archived,
            _ => return Err(malformed("log file header", "unknown kind")),
        };
        let block_bytes = le::u32_at(block, 12);
        if block_bytes != 512 && block_bytes != 4096 {
            return Err(malformed("log file header", "block size is neither 512 nor 4096"));
        }
        let mut instance = InstanceId::default();
        instance.0.copy_from_slice(&block[24..40]);
        let mut incarnation_id = IncarnationId::default();
        incarnation_id.0.copy_from_slice(&block[48..56]);
        let (first_scn, next_scn) = (le::u64_at(block, 64), le::u64_at(block, 72));
        if Scn(first_scn.max(next_scn)) > Scn::LIMIT {
            return Err(malformed("log file header", "a position that no stream reaches"));
        }
        Ok(LogFileHeader {
            kind,
            block_bytes,
            instance,
            incarnation: le::u32_at(block, 40),
            incarnation_id,
            sequence: le::u64_at(block, 56),
            first_scn: Scn(first_scn),
            next_scn: (next_scn != 0).then_some(Scn(next_scn)),
            first_time_us: le::u64_at(block, 80),
            file_bytes: le::u64_at(block, 88),
            stream_crc: StreamCrc(le::u32_at(block, 96)),
            first_record: le::u32_at(block, 100),
            turn: block[44],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_that_no_stream_reaches_is_refused() {
        let mut block = vec![0; 512];
        LogFileHeader { first_scn: Scn::LIMIT, ..header() }.encode(&mut block);
        assert!(LogFileHeader::decode(&block).is_ok());
        LogFileHeader { first_scn: Scn(u64::MAX), ..header() }.encode(&mut block);
        assert!(LogFileHeader::decode(&block).is_err());
        LogFileHeader { next_scn: Some(Scn::LIMIT + 1), ..header() }.encode(&mut block);
        assert!(LogFileHeader::decode(&block).is_err());
    }

    fn header() -> LogFileHeader {
        LogFileHeader {
            kind: LogKind::Standby,
            block_bytes: 4096,
            instance: InstanceId([7; 16]),
            incarnation: 2,
            incarnation_id: IncarnationId([8; 8]),
            sequence: 41,
            first_scn: Scn(5000),
            next_scn: None,
            first_time_us: 1,
            file_bytes: 64 << 20,
            stream_crc: StreamCrc(17),
            first_record: 3,
            turn: 255,
        }
    }

    #[test]
    fn log_file_header_roundtrips_and_detects_flipped_bits() {
        let header = header();
        let mut block = vec![1; 4096];
        header.encode(&mut block);
        assert_eq!(LogFileHeader::decode(&block), Ok(header));
        for bit in 0..FILE_HEADER_BYTES * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert!(LogFileHeader::decode(&block).is_err(), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
