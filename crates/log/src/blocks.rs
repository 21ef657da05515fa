//! The valid blocks of a log in order, each read from any member that holds it.
//!
//! All members hold the same blocks, so every copy of a block is as good as another. The first member is read; where
//! that fails, or the block does not fit, the other members are tried. Two members that are damaged in different places
//! still give the complete log.

use crate::error::LogError;
use crate::groups::{Cut, Member};
use standfast_format::{
    BLOCK_HEADER_BYTES, BlockHeader, LogFileHeader, StreamCrc, decode_block, incarnation_tag,
};
use standfast_types::Scn;
use std::collections::BTreeMap;

/// Bytes per read, unless the caller sets a limit.
const READ_BYTES: usize = 1 << 20;
/// Number of consecutive blocks without payload that may be damaged, as in one sector of 4 KiB: no redo is missing
/// then.
const EMPTY_BLOCKS_MAX: u32 = 8;

#[derive(Clone)]
pub(crate) struct Source {
    pub members: Vec<Member>,
    pub header: LogFileHeader,
    pub cuts: Vec<Cut>,
}

impl Source {
    /// Returns the first block of the range that holds the valid bytes from `from` on, and the SCN up to which that
    /// range goes before the next truncation.
    pub fn stretch(&self, from: Scn) -> (u32, Option<Scn>) {
        let last = self.cuts.iter().rposition(|cut| cut.at <= from);
        let first_block = last.map_or(1, |index| self.cuts[index].block);
        let later = &self.cuts[last.map_or(0, |index| index + 1)..];
        (first_block, later.iter().map(|cut| cut.at).min())
    }

    /// Fills `out` from the first member that can be read; returns the index of that member.
    fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize, LogError> {
        let mut failure = None;
        for (index, member) in self.members.iter().enumerate() {
            match member.file.read_at(out, offset) {
                Ok(()) => return Ok(index),
                // Report the failure of the first member: a later one may only be shorter.
                Err(error) => {
                    failure = failure.or(Some(LogError::io("read the redo log", &member.path)(error)))
                }
            }
        }
        Err(failure.unwrap_or(LogError::Unopened))
    }

    /// Returns whether a block with `header` belongs at block `number` of this log.
    fn owns(&self, header: &BlockHeader, number: u32) -> bool {
        header.number == number
            && header.sequence == self.header.sequence
            && header.incarnation_tag == incarnation_tag(self.header.incarnation_id)
            && header.turn == self.header.turn
    }
}

pub(crate) struct Blocks {
    source: Source,
    /// Bytes per read; at least one block is read.
    read_bytes: usize,
    buffer: Vec<u8>,
    buffered_first: u32,
    buffered: usize,
    /// Index of the member that the buffer was read from.
    buffered_from: usize,
    number: u32,
    expected: Scn,
    crc: StreamCrc,
    blocks: u32,
}

impl Blocks {
    pub fn new(source: Source) -> Result<Blocks, LogError> {
        let lengths = source.members.iter().map(|member| (member.file.len(), &member.path));
        let (mut bytes, mut failure) = (None, None);
        for (length, path) in lengths {
            match length {
                Ok(length) => bytes = bytes.max(Some(length)),
                Err(error) => failure = failure.or(Some(LogError::io("read the redo log", path)(error))),
            }
        }
        let bytes = bytes.ok_or_else(|| failure.unwrap_or(LogError::Unopened))?;
        let blocks = (bytes / u64::from(source.header.block_bytes)) as u32;
        let (expected, crc) = (source.header.first_scn, source.header.stream_crc);
        Ok(Blocks {
            source,
            read_bytes: READ_BYTES,
            buffer: Vec::new(),
            buffered_first: 0,
            buffered: 0,
            buffered_from: 0,
            number: 1,
            expected,
            crc,
            blocks,
        })
    }

    /// Limits each read to `bytes`, or to one block if that is more.
    pub fn in_reads_of(self, bytes: usize) -> Blocks {
        Blocks { read_bytes: bytes.min(READ_BYTES), ..self }
    }

    fn block_bytes(&self) -> usize {
        self.source.header.block_bytes as usize
    }

    fn offset(&self, number: u32) -> u64 {
        u64::from(number) * self.block_bytes() as u64
    }

    fn fill(&mut self) -> Result<bool, LogError> {
        if self.number >= self.blocks {
            return Ok(false);
        }
        let index = self.number.wrapping_sub(self.buffered_first) as usize;
        if self.buffered > 0 && self.number >= self.buffered_first && index < self.buffered {
            return Ok(true);
        }
        let size = self.block_bytes();
        let offset = self.offset(self.number);
        let mut count = (self.read_bytes / size).clamp(1, (self.blocks - self.number) as usize);
        self.buffer.resize(count * size, 0);
        let from = self.source.read_at(&mut self.buffer, offset).or_else(|_| {
            // Each member may have its own bad sector in this extent, while this block is readable in one of them.
            count = 1;
            self.source.read_at(&mut self.buffer[..size], offset)
        });
        self.buffered = 0;
        self.buffered_from = from?;
        self.buffered_first = self.number;
        self.buffered = count;
        Ok(true)
    }

    fn block(&self, number: u32) -> &[u8] {
        let at = (number - self.buffered_first) as usize * self.block_bytes();
        &self.buffer[at..at + self.block_bytes()]
    }

    /// Returns the header of `block` if the block is valid here: it belongs to the log, and it continues where the one
    /// before ended or truncates.
    fn fits(&self, block: &[u8]) -> Option<BlockHeader> {
        let header = decode_block(block).ok()?;
        let continues = header.position == self.expected && header.stream_crc == self.crc;
        let cuts =
            header.cut && header.position <= self.expected && header.position >= self.source.header.first_scn;
        (self.source.owns(&header, self.number) && (continues || cuts)).then_some(header)
    }

    /// Searches the members that the buffer was not read from for the next block, and copies it into the buffer.
    fn find_elsewhere(&mut self) -> Option<BlockHeader> {
        let (size, offset) = (self.block_bytes(), self.offset(self.number));
        let mut block = vec![0; size];
        for (index, member) in self.source.members.iter().enumerate() {
            if index == self.buffered_from || member.file.read_at(&mut block, offset).is_err() {
                continue;
            }
            if let Some(header) = self.fits(&block) {
                let at = (self.number - self.buffered_first) as usize * size;
                self.buffer[at..at + size].copy_from_slice(&block);
                return Some(header);
            }
        }
        None
    }

    /// Searches for a block that continues exactly where the last valid one ended: the blocks between them held no
    /// redo, or only redo that a truncation voided. Leaves the block in the buffer as the next one.
    fn find_behind_empty_ones(&mut self) -> Option<BlockHeader> {
        let damaged = self.number;
        for number in damaged + 1..=damaged + EMPTY_BLOCKS_MAX {
            self.number = number;
            match self.fill() {
                Ok(true) => {}
                _ => break,
            }
            if let Some(header) = self.fits(self.block(number)).or_else(|| self.find_elsewhere()) {
                return Some(header);
            }
        }
        self.number = damaged;
        None
    }

    /// Headers of the blocks that belong to this log, from the next block on and up to `bytes_max` further, whether or
    /// not they continue the stream. Skips what cannot be read.
    pub fn owned_behind(&self, bytes_max: u64) -> Vec<BlockHeader> {
        let size = self.block_bytes();
        let limit = u64::from(self.number) + bytes_max / size as u64;
        let end = self.blocks.min(u32::try_from(limit).unwrap_or(u32::MAX));
        let mut found = BTreeMap::new();
        // No larger than what there is to read.
        let blocks_at_once = (READ_BYTES / size).min(end.saturating_sub(self.number) as usize);
        let mut buffer = vec![0; blocks_at_once * size];
        for member in &self.source.members {
            let mut first = self.number;
            let mut count = blocks_at_once;
            while first < end {
                let here = count.min((end - first) as usize);
                let read = member.file.read_at(&mut buffer[..here * size], self.offset(first));
                match read {
                    // Read single blocks from here on, and skip those that cannot be read.
                    Err(_) if here > 1 => count = 1,
                    Err(_) => first += 1,
                    Ok(()) => {
                        for (number, block) in (first..).zip(buffer[..here * size].chunks_exact(size)) {
                            let header =
                                says_number(block, number).then(|| decode_block(block).ok()).flatten();
                            if let Some(header) = header.filter(|header| self.source.owns(header, number)) {
                                found.insert(number, header);
                            }
                        }
                        first += here as u32;
                    }
                }
            }
        }
        found.into_values().collect()
    }

    /// Returns the next valid block as header and complete bytes; `None` where the valid blocks end.
    pub fn next_block(&mut self) -> Result<Option<(BlockHeader, &[u8])>, LogError> {
        if !self.fill()? {
            return Ok(None);
        }
        let number = self.number;
        let found = self.fits(self.block(number)).or_else(|| self.find_elsewhere());
        let Some(header) = found.or_else(|| self.find_behind_empty_ones()) else { return Ok(None) };
        let number = self.number;
        let end = BLOCK_HEADER_BYTES + usize::from(header.payload_bytes);
        self.crc = header.stream_crc.after(&self.block(number)[BLOCK_HEADER_BYTES..end]);
        self.expected = header.end();
        self.number += 1;
        Ok(Some((header, self.block(number))))
    }

    /// Returns the next valid block's header and payload; `None` where the valid blocks end.
    pub fn next(&mut self) -> Result<Option<(BlockHeader, &[u8])>, LogError> {
        let payload = |(header, block)| {
            let BlockHeader { payload_bytes, .. } = header;
            let block: &[u8] = block;
            (header, &block[BLOCK_HEADER_BYTES..BLOCK_HEADER_BYTES + usize::from(payload_bytes)])
        };
        Ok(self.next_block()?.map(payload))
    }

    /// Continues where another reader ended, see [`Blocks::end`].
    pub fn resume_at(&mut self, end: (u32, Scn, StreamCrc)) {
        (self.number, self.expected, self.crc) = end;
    }

    /// Number of the next block; SCN and running checksum after the last valid one.
    pub fn end(&self) -> (u32, Scn, StreamCrc) {
        (self.number, self.expected, self.crc)
    }

    /// Moves close to `at` by binary search, so that reading does not start at the beginning of the log. The block
    /// found this way is only a starting point; order and checksums are verified from there on.
    pub fn skip_towards(&mut self, at: Scn, first_block: u32) -> Result<(), LogError> {
        let mut block = vec![0; self.block_bytes()];
        let (mut low, mut high) = (first_block, self.blocks);
        let mut start = None;
        while low < high {
            let middle = low + (high - low) / 2;
            match self.block_of_any(middle, &mut block)? {
                Some(header) if header.position <= at => {
                    start = Some(header);
                    low = middle + 1;
                }
                _ => high = middle,
            }
        }
        if let Some(header) = start {
            self.number = header.number;
            self.expected = header.position;
            self.crc = header.stream_crc;
        }
        Ok(())
    }

    /// Returns the header of block `number` from the first member in which it belongs to this log.
    fn block_of_any(&self, number: u32, block: &mut [u8]) -> Result<Option<BlockHeader>, LogError> {
        let offset = self.offset(number);
        let (mut read, mut failure) = (false, None);
        for Member { file, path } in &self.source.members {
            match file.read_at(block, offset) {
                Ok(()) => read = true,
                Err(error) => {
                    failure = failure.or(Some(LogError::io("read the redo log", path)(error)));
                    continue;
                }
            }
            let header = decode_block(block).ok().filter(|header| self.source.owns(header, number));
            if header.is_some() {
                return Ok(header);
            }
        }
        match failure {
            Some(error) if !read => Err(error),
            _ => Ok(None),
        }
    }
}

/// Returns whether the block claims this number; cheaper than decoding a block that is none.
fn says_number(block: &[u8], number: u32) -> bool {
    debug_assert!(block.len() >= BLOCK_HEADER_BYTES);
    block[4..8] == number.to_le_bytes()
}
