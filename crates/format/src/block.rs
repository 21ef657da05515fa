//! Blocks of an online, standby or archived redo log.
//!
//! ```text
//!  0  u32  CRC-32C of bytes 4..block size
//!  4  u32  number of this block in its file; block 0 is the file header
//!  8  u64  log sequence number
//! 16  u64  position in the redo stream of the first payload byte
//! 24  u32  running CRC-32C of the stream before that byte
//! 28  u16  payload bytes; the rest of the block is zero (redo wastage)
//! 30  u16  offset within the payload of the first record that starts here, 0xFFFF for none
//! 32  u64  position up to which the primary had confirmed local durability when this was written
//! 40  u32  tag of the incarnation (first four bytes of its id)
//! 44  u8   flags: 1 truncation
//! 45  u8   generation of the file, as in its header
//! 46  u16  1 + blocks before this one that were not known to be durable when it was written; 0 not stated
//! 48  ...  payload
//! ```
//!
//! A block is valid when its checksum, number, sequence, incarnation and generation are those expected and its position
//! is where the block before it ended. Recovery keeps everything before the first block that is not valid. A power loss
//! leaves no valid block beyond that one which states that it had been durable: if there is one, the log is damaged.
//!
//! A block with the truncation flag begins at an earlier position, within or at the end of a block before it: what
//! those blocks hold from that position on is void. A standby truncates redo that its primary never made durable. It
//! appends the truncation instead of rewriting a block, so that a torn write cannot harm what was acknowledged.

use crate::crc::Shift;
use crate::{DecodeError, StreamCrc, crc32c, le, malformed};
use standfast_types::{IncarnationId, Scn};

/// Bytes of a block before its payload.
pub const BLOCK_HEADER_BYTES: usize = 48;
/// `first_record` of a block in which no record starts.
pub const NO_RECORD: u16 = 0xFFFF;

/// Returns the number of payload bytes that fit into a block of `block_bytes`.
pub fn payload_capacity(block_bytes: usize) -> usize {
    block_bytes - BLOCK_HEADER_BYTES
}

/// The decoded header of a valid block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    pub number: u32,
    pub sequence: u64,
    /// SCN of the first payload byte.
    pub position: Scn,
    /// Running checksum of the stream before `position`.
    pub stream_crc: StreamCrc,
    pub payload_bytes: u16,
    /// Offset within the payload of the first record that starts there, or [`NO_RECORD`].
    pub first_record: u16,
    /// SCN up to which the primary had confirmed durability when the block was written.
    pub confirmed: Scn,
    pub incarnation_tag: u32,
    /// The stream continues at `position`, whatever blocks before this one hold from there on.
    pub cut: bool,
    /// Generation of the file, see [`crate::LogFileHeader::turn`].
    pub turn: u8,
    /// Blocks of the file with lower numbers than this were durable when this block was written; 0 when it does not
    /// state that.
    pub durable_before: u32,
}

const FLAG_CUT: u8 = 1;

impl BlockHeader {
    /// Returns the SCN of the byte after the payload.
    pub fn end(&self) -> Scn {
        self.position + u64::from(self.payload_bytes)
    }
}

/// Returns the tag that blocks carry for `incarnation`.
pub fn incarnation_tag(incarnation: IncarnationId) -> u32 {
    le::u32_at(&incarnation.0, 0)
}

/// Verifies the checksum of `block` and decodes its header.
///
/// # Errors
/// `Checksum` for a torn, stale or never written block; `Malformed` when the payload does not fit.
pub fn decode_block(block: &[u8]) -> Result<BlockHeader, DecodeError> {
    if block.len() < BLOCK_HEADER_BYTES {
        return Err(DecodeError::Incomplete { needed: BLOCK_HEADER_BYTES });
    }
    if crc32c(&block[4..]) != le::u32_at(block, 0) {
        return Err(DecodeError::Checksum { item: "log block" });
    }
    let header = BlockHeader {
        number: le::u32_at(block, 4),
        sequence: le::u64_at(block, 8),
        position: Scn(le::u64_at(block, 16)),
        stream_crc: StreamCrc(le::u32_at(block, 24)),
        payload_bytes: le::u16_at(block, 28),
        first_record: le::u16_at(block, 30),
        confirmed: Scn(le::u64_at(block, 32)),
        incarnation_tag: le::u32_at(block, 40),
        cut: block[44] & FLAG_CUT != 0,
        turn: block[45],
        durable_before: match le::u16_at(block, 46) {
            0 => 0,
            not_known => le::u32_at(block, 4).saturating_sub(u32::from(not_known) - 1),
        },
    };
    if usize::from(header.payload_bytes) > payload_capacity(block.len()) {
        return Err(malformed("log block", "payload larger than the block"));
    }
    if header.first_record != NO_RECORD && header.first_record >= header.payload_bytes {
        return Err(malformed("log block", "first record outside the payload"));
    }
    if header.position.max(header.confirmed) > Scn::LIMIT {
        return Err(malformed("log block", "a position that no stream reaches"));
    }
    Ok(header)
}

/// The header fields of the next block to write; they advance with every block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockWriter {
    pub block_bytes: usize,
    pub number: u32,
    /// Sequence of the log being filled.
    pub sequence: u64,
    /// SCN of the next payload byte.
    pub position: Scn,
    /// Running checksum of the stream before `position`.
    pub stream_crc: StreamCrc,
    /// First byte of a record at or after `position`, as far as known.
    pub next_record: Scn,
    pub incarnation_tag: u32,
    pub turn: u8,
    /// Blocks with lower numbers are durable; 0 when that does not matter.
    pub durable_before: u32,
}

impl BlockWriter {
    /// Returns the number of blocks needed for `payload_bytes` bytes.
    pub fn blocks_for(&self, payload_bytes: usize) -> usize {
        payload_bytes.div_ceil(payload_capacity(self.block_bytes))
    }

    /// Formats consecutive slices of the stream as whole blocks at the start of `out`; returns the bytes used.
    pub fn write(&mut self, slices: &[&[u8]], confirmed: Scn, out: &mut [u8]) -> usize {
        let capacity = payload_capacity(self.block_bytes);
        let total = slices.iter().map(|slice| slice.len()).sum::<usize>();
        let mut cursor = Cursor::default();
        let base = self.position;
        let mut done = 0;
        let mut used = 0;
        while done < total {
            let payload = capacity.min(total - done);
            let block = &mut out[used..used + self.block_bytes];
            cursor.copy(slices, &mut block[BLOCK_HEADER_BYTES..BLOCK_HEADER_BYTES + payload]);
            block[BLOCK_HEADER_BYTES + payload..].fill(0);
            let position = base + done as u64;
            while self.next_record < position {
                let Some(next) = record_after(slices, total, base, self.next_record) else { break };
                self.next_record = next;
            }
            let offset = self.next_record.0.wrapping_sub(position.0);
            let first_record = if self.next_record >= position && offset < payload as u64 {
                offset as u16
            } else {
                NO_RECORD
            };
            self.describe(block, position, payload as u16, first_record, confirmed, 0);
            let before = self.stream_crc;
            self.stream_crc = before.after(&block[BLOCK_HEADER_BYTES..BLOCK_HEADER_BYTES + payload]);
            let crc = match full_payload(block).filter(|_| payload == capacity) {
                // The payload's checksum is the difference of both running checksums, so the payload is read once for
                // two checksums.
                Some(over) => {
                    over.apply(crc32c(&block[4..BLOCK_HEADER_BYTES]) ^ before.0) ^ self.stream_crc.0
                }
                None => crc32c(&block[4..]),
            };
            seal(block, crc);
            self.number += 1;
            used += self.block_bytes;
            done += payload;
        }
        self.position = base + total as u64;
        while self.next_record < self.position {
            let Some(next) = record_after(slices, total, base, self.next_record) else { break };
            self.next_record = next;
        }
        used
    }

    /// Formats a block without payload, which only carries `confirmed`.
    pub fn write_empty(&mut self, confirmed: Scn, out: &mut [u8]) -> usize {
        self.write_bare(confirmed, 0, out)
    }

    /// Formats a block without payload that truncates the stream at `self.position`, which the caller has set.
    pub fn write_cut(&mut self, confirmed: Scn, out: &mut [u8]) -> usize {
        self.write_bare(confirmed, FLAG_CUT, out)
    }

    fn write_bare(&mut self, confirmed: Scn, flags: u8, out: &mut [u8]) -> usize {
        let block = &mut out[..self.block_bytes];
        block.fill(0);
        self.describe(block, self.position, 0, NO_RECORD, confirmed, flags);
        let crc = crc32c(&block[4..]);
        seal(block, crc);
        self.number += 1;
        self.block_bytes
    }

    /// Fills in the header except the checksum.
    fn describe(
        &self,
        block: &mut [u8],
        position: Scn,
        payload_bytes: u16,
        first_record: u16,
        confirmed: Scn,
        flags: u8,
    ) {
        block[4..8].copy_from_slice(&self.number.to_le_bytes());
        block[8..16].copy_from_slice(&self.sequence.to_le_bytes());
        block[16..24].copy_from_slice(&position.0.to_le_bytes());
        block[24..28].copy_from_slice(&self.stream_crc.0.to_le_bytes());
        block[28..30].copy_from_slice(&payload_bytes.to_le_bytes());
        block[30..32].copy_from_slice(&first_record.to_le_bytes());
        block[32..40].copy_from_slice(&confirmed.0.to_le_bytes());
        block[40..44].copy_from_slice(&self.incarnation_tag.to_le_bytes());
        block[44] = flags;
        block[45] = self.turn;
        let not_known = self.number.saturating_sub(self.durable_before).saturating_add(1);
        let reported = u16::try_from(not_known).ok().filter(|_| self.durable_before > 0).unwrap_or(0);
        block[46..48].copy_from_slice(&reported.to_le_bytes());
    }
}

fn seal(block: &mut [u8], crc: u32) {
    block[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Effect of a full block's payload on the checksum of what is before it, for the block sizes that logs have.
fn full_payload(block: &[u8]) -> Option<&'static Shift> {
    static OF_512: Shift = Shift::over(512 - BLOCK_HEADER_BYTES);
    static OF_4096: Shift = Shift::over(4096 - BLOCK_HEADER_BYTES);
    match block.len() {
        512 => Some(&OF_512),
        4096 => Some(&OF_4096),
        _ => None,
    }
}

/// Returns the start of the record after the one at `start`; `None` when its header is not in the slices.
fn record_after(slices: &[&[u8]], total: usize, base: Scn, start: Scn) -> Option<Scn> {
    let mut offset = usize::try_from(start.0.checked_sub(base.0)?).ok()?;
    if offset + 8 > total {
        return None;
    }
    let mut slice = 0;
    while offset >= slices[slice].len() {
        offset -= slices[slice].len();
        slice += 1;
    }
    let mut header = [0; 8];
    Cursor { slice, offset }.copy(slices, &mut header);
    let length = le::u32_at(&header, 4) & 0xff_ffff;
    (length >= 8).then(|| start + u64::from(length))
}

/// A position in a list of slices.
#[derive(Clone, Copy, Default)]
struct Cursor {
    slice: usize,
    offset: usize,
}

impl Cursor {
    /// Fills `out` from here on and advances past what was copied.
    fn copy(&mut self, slices: &[&[u8]], out: &mut [u8]) {
        let mut done = 0;
        while done < out.len() {
            let rest = &slices[self.slice][self.offset..];
            let count = rest.len().min(out.len() - done);
            out[done..done + count].copy_from_slice(&rest[..count]);
            done += count;
            self.offset += count;
            if self.offset == slices[self.slice].len() {
                self.slice += 1;
                self.offset = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RecordBuilder;

    fn stream(records: usize) -> (Vec<u8>, Vec<u64>) {
        let mut bytes = Vec::new();
        let mut starts = Vec::new();
        for i in 0..records {
            starts.push(bytes.len() as u64);
            let mut builder = RecordBuilder::change(&mut bytes, standfast_types::DatabaseId(1));
            let image = vec![i as u8 + 1; 512 + (i % 3) * 512];
            builder.vector(1 + i as u32, None, &image, 0, &mut Vec::new());
            builder.finish();
        }
        (bytes, starts)
    }

    #[test]
    fn stream_roundtrips_through_blocks_at_any_split() {
        let (bytes, starts) = stream(20);
        let cuts = [0, 1, 700, bytes.len()];
        for (block_bytes, cut) in [512, 1024, 4096].into_iter().flat_map(|block| cuts.map(|cut| (block, cut)))
        {
            let mut writer = BlockWriter {
                block_bytes,
                number: 1,
                sequence: 9,
                position: Scn(4096),
                stream_crc: StreamCrc(5),
                next_record: Scn(4096),
                incarnation_tag: 3,
                turn: 7,
                durable_before: 1,
            };
            let mut out = vec![0xFF; writer.blocks_for(bytes.len()) * block_bytes];
            let used = writer.write(&[&bytes[..cut], &bytes[cut..]], Scn(1), &mut out);
            assert_eq!(used, out.len());
            let mut read = Vec::new();
            let mut crc = StreamCrc(5);
            for (i, block) in out.chunks(block_bytes).enumerate() {
                let header = decode_block(block).unwrap();
                assert_eq!((header.number, header.sequence, header.incarnation_tag), (1 + i as u32, 9, 3));
                assert_eq!((header.turn, header.durable_before), (7, 1));
                assert_eq!(header.position.0, 4096 + read.len() as u64);
                assert_eq!(header.stream_crc, crc);
                let expected = starts.iter().find(|s| **s >= read.len() as u64);
                let in_block = expected
                    .map(|s| s - read.len() as u64)
                    .filter(|offset| *offset < u64::from(header.payload_bytes));
                assert_eq!(header.first_record, in_block.map_or(NO_RECORD, |offset| offset as u16));
                let payload = &block[BLOCK_HEADER_BYTES..][..usize::from(header.payload_bytes)];
                crc = crc.after(payload);
                read.extend_from_slice(payload);
            }
            assert_eq!(read, bytes);
            assert_eq!(writer.position.0, 4096 + bytes.len() as u64);
            assert_eq!(writer.next_record, writer.position);
        }
    }

    #[test]
    fn a_position_that_no_stream_reaches_is_refused() {
        let mut out = vec![0; 512];
        let mut at = |position, confirmed| {
            let mut writer = BlockWriter {
                block_bytes: 512,
                number: 1,
                sequence: 9,
                position,
                stream_crc: StreamCrc(0),
                next_record: position,
                incarnation_tag: 3,
                turn: 7,
                durable_before: 1,
            };
            writer.write_empty(confirmed, &mut out);
            decode_block(&out).is_ok()
        };
        assert!(at(Scn::LIMIT, Scn::LIMIT));
        assert!(!at(Scn::LIMIT + 1, Scn(1)));
        assert!(!at(Scn(1), Scn(u64::MAX)));
    }

    #[test]
    fn durable_block_number_is_stored_as_far_as_it_fits() {
        let mut out = vec![0; 512];
        let mut reported = |number, durable_before| {
            let mut writer = BlockWriter {
                block_bytes: 512,
                number,
                sequence: 9,
                position: Scn(4096),
                stream_crc: StreamCrc(0),
                next_record: Scn(4096),
                incarnation_tag: 3,
                turn: 255,
                durable_before,
            };
            writer.write_empty(Scn(1), &mut out);
            decode_block(&out).map(|header| header.durable_before)
        };
        assert_eq!(reported(1, 1), Ok(1));
        assert_eq!(reported(9000, 12), Ok(12));
        assert_eq!(reported(12, 0), Ok(0));
        assert_eq!(reported(70_000, 70_000 - 65_534), Ok(70_000 - 65_534));
        assert_eq!(reported(70_000, 70_000 - 65_535), Ok(0));
        assert_eq!(reported(u32::MAX - 1, u32::MAX - 1), Ok(u32::MAX - 1));
        assert_eq!(reported(u32::MAX - 1, 1), Ok(0));
    }

    #[test]
    fn a_torn_block_is_not_valid() {
        let (bytes, _) = stream(1);
        let mut writer = BlockWriter {
            block_bytes: 4096,
            number: 1,
            sequence: 9,
            position: Scn(4096),
            stream_crc: StreamCrc(0),
            next_record: Scn(4096),
            incarnation_tag: 3,
            turn: 0,
            durable_before: 0,
        };
        let mut out = vec![0; 4096];
        writer.write(&[&bytes], Scn(1), &mut out);
        assert!(decode_block(&out).is_ok());
        out[300] ^= 1;
        assert_eq!(decode_block(&out), Err(DecodeError::Checksum { item: "log block" }));
        assert!(decode_block(&[0; 4096]).is_err());
    }
}
