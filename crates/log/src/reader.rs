//! Reading the stream by position from online, standby and archived logs.

use crate::error::LogError;
use crate::groups::{Cut, Group, RedoLog};
use standfast_format::{
    BLOCK_HEADER_BYTES, BlockHeader, BlockWriter, LogFileHeader, StreamCrc, decode_block, incarnation_tag,
};
use standfast_io::LogFile;
use standfast_types::Scn;
use std::path::PathBuf;
use std::sync::Arc;

const READ_BYTES: usize = 1 << 20;

/// One log that can be read.
#[derive(Clone)]
pub(crate) struct Source {
    pub file: Arc<dyn LogFile>,
    pub path: PathBuf,
    pub header: LogFileHeader,
    pub cuts: Vec<Cut>,
}

impl Source {
    /// Where the valid bytes from `from` on begin, and up to which position they go without another cut.
    fn stretch(&self, from: Scn) -> (u32, Option<Scn>) {
        let last = self.cuts.iter().rposition(|cut| cut.at <= from);
        let first_block = last.map_or(1, |index| self.cuts[index].block);
        let later = &self.cuts[last.map_or(0, |index| index + 1)..];
        (first_block, later.iter().map(|cut| cut.at).min())
    }
}

/// Where a cut goes.
pub(crate) struct CutPlace {
    pub group: usize,
    pub writer: BlockWriter,
    /// Those that the group holds already.
    pub cuts: Vec<Cut>,
}

/// Goes over the valid blocks of a log in order.
pub(crate) struct Blocks {
    source: Source,
    buffer: Vec<u8>,
    buffered_first: u32,
    buffered: usize,
    number: u32,
    expected: Scn,
    crc: StreamCrc,
    blocks: u32,
}

impl Blocks {
    pub fn new(source: Source) -> Result<Blocks, LogError> {
        let bytes = source.file.len().map_err(LogError::io(&source.path))?;
        let blocks = (bytes / u64::from(source.header.block_bytes)) as u32;
        let (expected, crc) = (source.header.first_scn, source.header.stream_crc);
        Ok(Blocks {
            source,
            buffer: Vec::new(),
            buffered_first: 0,
            buffered: 0,
            number: 1,
            expected,
            crc,
            blocks,
        })
    }

    fn block_bytes(&self) -> usize {
        self.source.header.block_bytes as usize
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
        let count = (READ_BYTES / size).min((self.blocks - self.number) as usize);
        self.buffer.resize(count * size, 0);
        let offset = u64::from(self.number) * size as u64;
        self.source.file.read_at(&mut self.buffer, offset).map_err(LogError::io(&self.source.path))?;
        self.buffered_first = self.number;
        self.buffered = count;
        Ok(true)
    }

    fn block(&self, number: u32) -> &[u8] {
        let at = (number - self.buffered_first) as usize * self.block_bytes();
        &self.buffer[at..at + self.block_bytes()]
    }

    /// The next valid block and its payload; `None` at the end of what is valid.
    pub fn next(&mut self) -> Result<Option<(BlockHeader, &[u8])>, LogError> {
        if !self.fill()? {
            return Ok(None);
        }
        let number = self.number;
        let Ok(header) = decode_block(self.block(number)) else { return Ok(None) };
        let expected_tag = incarnation_tag(self.source.header.incarnation_id);
        let belongs = header.number == number
            && header.sequence == self.source.header.sequence
            && header.incarnation_tag == expected_tag;
        let continues = header.position == self.expected && header.stream_crc == self.crc;
        let cuts =
            header.cut && header.position <= self.expected && header.position >= self.source.header.first_scn;
        if !belongs || !(continues || cuts) {
            return Ok(None);
        }
        let payload_bytes = usize::from(header.payload_bytes);
        self.crc = header
            .stream_crc
            .after(&self.block(number)[BLOCK_HEADER_BYTES..BLOCK_HEADER_BYTES + payload_bytes]);
        self.expected = header.end();
        self.number += 1;
        let payload = &self.block(number)[BLOCK_HEADER_BYTES..BLOCK_HEADER_BYTES + payload_bytes];
        Ok(Some((header, payload)))
    }

    /// Number of the next block, position and sum after the last valid one.
    pub fn end(&self) -> (u32, Scn, StreamCrc) {
        (self.number, self.expected, self.crc)
    }
}

impl RedoLog {
    /// The readable log that holds the byte at `at`, archived copies last.
    fn source_of(&self, at: Scn) -> Result<Source, LogError> {
        let catalog = self.catalog();
        let holds = |group: &Group| {
            let header = group.header?;
            (header.first_scn <= at && group.next_scn.is_none_or(|next| at < next)).then_some(header)
        };
        let online = catalog.groups.iter().enumerate().filter_map(|(index, group)| {
            let header = holds(group)?;
            Some((index, header, group.cuts.clone()))
        });
        if let Some((index, header, cuts)) = online.max_by_key(|(_, header, _)| header.first_scn) {
            let group = &catalog.groups[index];
            let (file, path) = (group.files[0].clone(), group.paths[0].clone());
            let mut source = Source { file, path, header, cuts: Vec::new() };
            drop(catalog);
            source.cuts = match cuts {
                Some(cuts) => cuts,
                None => self.look_for_cuts(index, &source)?,
            };
            return Ok(source);
        }
        let archived = catalog
            .archived
            .iter()
            .find(|log| log.header.first_scn <= at && log.header.next_scn.is_some_and(|next| at < next));
        let Some(log) = archived.cloned() else {
            drop(catalog);
            return Err(LogError::TooOld { at, oldest: self.oldest() });
        };
        drop(catalog);
        let file = self.disk.open(&log.path).map_err(LogError::io(&log.path))?;
        Ok(Source { file, path: log.path, header: log.header, cuts: Vec::new() })
    }

    /// Cuts of a full group that nobody has read since the log was opened. They decide which of its blocks are
    /// void, so it must not be read without.
    fn look_for_cuts(&self, index: usize, source: &Source) -> Result<Vec<Cut>, LogError> {
        let mut blocks = Blocks::new(source.clone())?;
        let mut cuts = Vec::new();
        while let Some((block, _)) = blocks.next()? {
            cuts.extend(Cut::of(&block));
        }
        let mut catalog = self.catalog();
        let group = &mut catalog.groups[index];
        if group.header == Some(source.header) && group.cuts.is_none() {
            group.cuts = Some(cuts.clone());
        }
        Ok(cuts)
    }

    /// Reads stream bytes from `from` up to `upto`, at most `bytes_max`, and appends them to `out`. Stops
    /// early at the end of a log; call again for more.
    ///
    /// # Errors
    /// `TooOld` when no log holds `from`; `Io`.
    pub fn read(&self, from: Scn, upto: Scn, bytes_max: usize, out: &mut Vec<u8>) -> Result<(), LogError> {
        if from >= upto {
            return Ok(());
        }
        let source = self.source_of(from)?;
        let (first_block, stretch_end) = source.stretch(from);
        let upto = stretch_end.map_or(upto, |end| end.min(upto));
        let mut blocks = Blocks::new(source)?;
        blocks.skip_towards(from, first_block)?;
        let limit = upto.bytes_since(from).min(bytes_max as u64) as usize;
        let start = out.len();
        let mut position = from;
        while out.len() - start < limit {
            let Some((header, payload)) = blocks.next()? else { break };
            if header.end() <= position {
                continue;
            }
            let skip = position.bytes_since(header.position) as usize;
            let take = (payload.len() - skip).min(limit - (out.len() - start));
            out.extend_from_slice(&payload[skip..skip + take]);
            position = position + take as u64;
        }
        Ok(())
    }

    /// Running sum of the stream at `at`; `None` when no log holds it.
    ///
    /// # Errors
    /// `Io`.
    pub fn stream_crc(&self, at: Scn) -> Result<Option<StreamCrc>, LogError> {
        // The byte before `at` decides which log to look in; the very first position has none.
        let source = match self.source_of(Scn(at.0.saturating_sub(1))).or_else(|_| self.source_of(at)) {
            Ok(source) => source,
            Err(LogError::TooOld { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        if source.header.first_scn == at {
            return Ok(Some(source.header.stream_crc));
        }
        let (first_block, _) = source.stretch(Scn(at.0 - 1));
        let mut blocks = Blocks::new(source)?;
        blocks.skip_towards(Scn(at.0 - 1), first_block)?;
        while let Some((header, payload)) = blocks.next()? {
            if header.position < at && at <= header.end() {
                let before = at.bytes_since(header.position) as usize;
                return Ok(Some(header.stream_crc.after(&payload[..before])));
            }
        }
        Ok(None)
    }

    pub(crate) fn locate_cut(&self, at: Scn) -> Result<CutPlace, LogError> {
        let (group, source) = {
            let catalog = self.catalog();
            let found = catalog
                .groups
                .iter()
                .enumerate()
                .filter(|(_, group)| group.header.is_some_and(|header| header.first_scn <= at))
                .max_by_key(|(_, group)| group.header.map(|header| header.first_scn));
            match found {
                Some((index, group)) => match group.header {
                    Some(header) => (
                        index,
                        Source {
                            file: group.files[0].clone(),
                            path: group.paths[0].clone(),
                            header,
                            cuts: Vec::new(),
                        },
                    ),
                    None => return Err(LogError::TooOld { at, oldest: Scn::ZERO }),
                },
                None => return Err(LogError::TooOld { at, oldest: Scn::ZERO }),
            }
        };
        let header = source.header;
        let mut blocks = Blocks::new(source)?;
        let mut crc_at_cut = (header.first_scn == at).then_some(header.stream_crc);
        let mut cuts = Vec::new();
        while let Some((block, payload)) = blocks.next()? {
            cuts.extend(Cut::of(&block));
            if block.position <= at && at <= block.end() {
                crc_at_cut =
                    Some(block.stream_crc.after(&payload[..at.bytes_since(block.position) as usize]));
            }
        }
        let (number, _, _) = blocks.end();
        let stream_crc = crc_at_cut.ok_or(LogError::TooOld { at, oldest: header.first_scn })?;
        let writer = BlockWriter {
            block_bytes: header.block_bytes as usize,
            number,
            sequence: header.sequence,
            position: at,
            stream_crc,
            next_record: at,
            incarnation_tag: incarnation_tag(header.incarnation_id),
        };
        Ok(CutPlace { group, writer, cuts })
    }
}

impl Blocks {
    /// Moves near `at` by halving, so that reading does not start at the beginning of the log. A block read
    /// this way is only a starting point; order and sums are checked from there on.
    fn skip_towards(&mut self, at: Scn, first_block: u32) -> Result<(), LogError> {
        let size = self.block_bytes();
        let mut block = vec![0; size];
        let (mut low, mut high) = (first_block, self.blocks);
        let mut start = None;
        while low < high {
            let middle = low + (high - low) / 2;
            let offset = u64::from(middle) * size as u64;
            self.source.file.read_at(&mut block, offset).map_err(LogError::io(&self.source.path))?;
            let valid = decode_block(&block).ok().filter(|header| {
                header.number == middle
                    && header.sequence == self.source.header.sequence
                    && header.incarnation_tag == incarnation_tag(self.source.header.incarnation_id)
            });
            match valid {
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
}
