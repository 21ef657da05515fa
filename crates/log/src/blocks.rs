//! The valid blocks of a log in order, each from any member that holds it.
//!
//! All members hold the same blocks, so a block is as good from one as from another: the first member is read,
//! and where it fails or what it holds does not fit, the others are asked. Damage in different places of two
//! members still gives the whole log.

use crate::error::LogError;
use crate::groups::{Cut, Member};
use crate::unreachable::says_number;
use standfast_format::{
    BLOCK_HEADER_BYTES, BlockHeader, LogFileHeader, StreamCrc, decode_block, incarnation_tag,
};
use standfast_types::Scn;
use std::collections::BTreeMap;

/// Read at once where nothing else is said.
const READ_BYTES: usize = 1 << 20;
/// Blocks without payload that may be damaged one behind the other, as in one sector of 4 KiB: no redo is missing then.
const EMPTY_BLOCKS_MAX: u32 = 8;

/// One log that can be read.
#[derive(Clone)]
pub(crate) struct Source {
    pub members: Vec<Member>,
    pub header: LogFileHeader,
    pub cuts: Vec<Cut>,
}

impl Source {
    /// Where the valid bytes from `from` on begin, and up to which position they go without another cut.
    pub fn stretch(&self, from: Scn) -> (u32, Option<Scn>) {
        let last = self.cuts.iter().rposition(|cut| cut.at <= from);
        let first_block = last.map_or(1, |index| self.cuts[index].block);
        let later = &self.cuts[last.map_or(0, |index| index + 1)..];
        (first_block, later.iter().map(|cut| cut.at).min())
    }

    /// Fills `out` from the first member that can be read; returns which.
    fn read_at(&self, out: &mut [u8], offset: u64) -> Result<usize, LogError> {
        let mut failure = None;
        for (index, member) in self.members.iter().enumerate() {
            match member.file.read_at(out, offset) {
                Ok(()) => return Ok(index),
                // The cause is that of the first one: a later one may only be shorter.
                Err(error) => {
                    failure = failure.or(Some(LogError::io("read the redo log", &member.path)(error)))
                }
            }
        }
        Err(failure.unwrap_or(LogError::Unopened))
    }

    /// Whether `header` was found where block `number` of this log belongs.
    fn owns(&self, header: &BlockHeader, number: u32) -> bool {
        header.number == number
            && header.sequence == self.header.sequence
            && header.incarnation_tag == incarnation_tag(self.header.incarnation_id)
            && header.turn == self.header.turn
    }
}

/// See the module.
pub(crate) struct Blocks {
    source: Source,
    /// Read at once, at least one block.
    read_bytes: usize,
    buffer: Vec<u8>,
    buffered_first: u32,
    buffered: usize,
    /// Member that the buffer was read from.
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

    /// Reads no more than so many bytes at once, if that is a block.
    pub fn in_pieces_of(self, bytes: usize) -> Blocks {
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
            // Each member may have its bad sector within the piece, and this block be readable in one of them.
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

    /// The header of `block` if it can stand here: it belongs to the log and goes on where the one before ended,
    /// or cuts.
    fn fits(&self, block: &[u8]) -> Option<BlockHeader> {
        let header = decode_block(block).ok()?;
        let continues = header.position == self.expected && header.stream_crc == self.crc;
        let cuts =
            header.cut && header.position <= self.expected && header.position >= self.source.header.first_scn;
        (self.source.owns(&header, self.number) && (continues || cuts)).then_some(header)
    }

    /// Looks for the next block in the members that the buffer was not read from, and puts it there.
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

    /// A block that goes on right where the last valid one ended: those between them held no redo, or only such that a
    /// cut made void. Puts it where the buffer has the next block.
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

    /// Headers of blocks from the next one on that belong to this log, wherever they lead, up to `bytes_max` behind it.
    /// What cannot be read is passed over.
    pub fn owned_behind(&self, bytes_max: u64) -> Vec<BlockHeader> {
        let size = self.block_bytes();
        let limit = u64::from(self.number) + bytes_max / size as u64;
        let end = self.blocks.min(u32::try_from(limit).unwrap_or(u32::MAX));
        let mut found = BTreeMap::new();
        // No larger than what there is to read.
        let blocks_at_once = (READ_BYTES / size).min(end.saturating_sub(self.number) as usize);
        let mut piece = vec![0; blocks_at_once * size];
        for member in &self.source.members {
            let mut first = self.number;
            let mut count = blocks_at_once;
            while first < end {
                let here = count.min((end - first) as usize);
                let read = member.file.read_at(&mut piece[..here * size], self.offset(first));
                match read {
                    // Block by block up to the one that cannot be read, and behind it.
                    Err(_) if here > 1 => count = 1,
                    Err(_) => first += 1,
                    Ok(()) => {
                        for (number, block) in (first..).zip(piece[..here * size].chunks_exact(size)) {
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

    /// The next valid block as header and whole bytes; `None` at the end of what is valid.
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

    /// The next valid block and its payload; `None` at the end of what is valid.
    pub fn next(&mut self) -> Result<Option<(BlockHeader, &[u8])>, LogError> {
        let payload = |(header, block)| {
            let BlockHeader { payload_bytes, .. } = header;
            let block: &[u8] = block;
            (header, &block[BLOCK_HEADER_BYTES..BLOCK_HEADER_BYTES + usize::from(payload_bytes)])
        };
        Ok(self.next_block()?.map(payload))
    }

    /// Goes on where another one ended, see [`Blocks::end`].
    pub fn go_on_at(&mut self, end: (u32, Scn, StreamCrc)) {
        (self.number, self.expected, self.crc) = end;
    }

    /// Number of the next block, position and sum after the last valid one.
    pub fn end(&self) -> (u32, Scn, StreamCrc) {
        (self.number, self.expected, self.crc)
    }

    /// Moves near `at` by halving, so that reading does not start at the beginning of the log. A block read
    /// this way is only a starting point; order and sums are checked from there on.
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

    /// The header of block `number` from the first member in which it belongs to this log.
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
