//! Reads the stream by position from online, standby and archived logs.

use crate::archived_logs::{ArchivedLog, archived_logs};
use crate::blocks::{Blocks, Source};
use crate::error::LogError;
use crate::groups::{Cut, Group, Member};
use crate::header::{LogIdentity, order_begun};
use crate::redo_log::RedoLog;
use standfast_format::{BlockWriter, StreamCrc, incarnation_tag};
use standfast_instruments::{Event, waiting};
use standfast_types::Scn;

#[derive(Clone, Copy)]
pub(crate) struct Most {
    /// Limit of bytes of the stream.
    pub bytes: usize,
    /// Bytes of the file, including padding.
    pub of_file: usize,
}

pub(crate) struct CutPlace {
    pub group: usize,
    pub writer: BlockWriter,
    /// That of the log in the group.
    pub identity: LogIdentity,
    /// Truncation blocks that the group already holds.
    pub cuts: Vec<Cut>,
}

impl RedoLog {
    /// Returns the readable log that holds the byte at `at`; archived copies come last.
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
        if let Some((index, header, cuts)) = online.max_by_key(|(_, header, _)| order_begun(header)) {
            let members = catalog.groups[index].members.clone();
            let mut source = Source { members, header, cuts: Vec::new() };
            drop(catalog);
            source.cuts = match cuts {
                Some(cuts) => cuts,
                None => match self.look_for_cuts(index, &source) {
                    Ok(cuts) => cuts,
                    // The archived log was copied while the group could be read, without what the truncations void.
                    Err(error) => return self.archived_copy(at).unwrap_or(Err(error)),
                },
            };
            return Ok(source);
        }
        let archived = catalog.archived.iter().find(|log| log.holds(at)).cloned();
        drop(catalog);
        let log = match archived {
            Some(log) => log,
            None => self.archived_since(at)?,
        };
        self.open_archived(log)
    }

    fn archived_copy(&self, at: Scn) -> Option<Result<Source, LogError>> {
        let copy = self.catalog().archived.iter().find(|log| log.holds(at)).cloned();
        copy.map(|copy| self.open_archived(copy))
    }

    fn open_archived(&self, log: ArchivedLog) -> Result<Source, LogError> {
        let file = self.disk.open(&log.path).map_err(LogError::io("open the archived log", &log.path))?;
        let members = vec![Member { file, path: log.path }];
        Ok(Source { members, header: log.header, cuts: Vec::new() })
    }

    /// Returns the archived log that holds `at` and was not there when the log was opened.
    fn archived_since(&self, at: Scn) -> Result<ArchivedLog, LogError> {
        let (oldest, directory) = (self.oldest(), &self.config().archive_directory);
        let archived = archived_logs(self.disk.as_ref(), directory, self.config().family)?;
        let found = archived.into_iter().find(|log| log.holds(at));
        let log = found.ok_or_else(|| match at < oldest.min(self.checkpoint()) {
            true => LogError::TooOld { at, oldest },
            // A log that recovery needs, or one between others, is never removed.
            false => LogError::Missing { at, directory: directory.clone() },
        })?;
        self.catalog().add_archived(log.clone());
        Ok(log)
    }

    /// Reads the truncation blocks of a full group that has not been read since the log was opened. They decide which
    /// of its blocks are void, so the group must not be read without them, nor with only those before a damaged block.
    fn look_for_cuts(&self, index: usize, source: &Source) -> Result<Vec<Cut>, LogError> {
        let mut blocks = Blocks::new(source.clone())?;
        let mut cuts = Vec::new();
        while let Some((block, _)) = blocks.next()? {
            cuts.extend(Cut::of(&block));
        }
        let mut catalog = self.catalog();
        let group = &mut catalog.groups[index];
        // Otherwise the group was reused meanwhile, which the reader detects.
        if group.header == Some(source.header) {
            let (_, end, _) = blocks.end();
            if group.next_scn.is_some_and(|next| next != end) {
                let path = source.members.first().map(|member| member.path.clone()).unwrap_or_default();
                return Err(LogError::Lost { path, at: end });
            }
            group.cuts.get_or_insert_with(|| cuts.clone());
        }
        Ok(cuts)
    }

    /// Reads stream bytes from `from` up to `upto`, at most `bytes_max`, and appends them to `out`: at least one byte
    /// when `upto` is later than `from`. Stops early at the end of a log; call again for more. Everything before `upto`
    /// must have been written. What cannot be read from the group that it was written to is read from its archived log.
    ///
    /// # Errors
    /// `TooOld` or `Missing` when no log holds `from`; `Lost` when the log is damaged there; `Io`. `out` is then
    /// unchanged.
    pub fn read(&self, from: Scn, upto: Scn, bytes_max: usize, out: &mut Vec<u8>) -> Result<(), LogError> {
        self.read_limited(from, upto, Most { bytes: bytes_max, of_file: usize::MAX }, out)
    }

    /// Reads like [`RedoLog::read`], and also stops once `most.of_file` bytes of the log have been read: in a log of
    /// small batches most of them are padding.
    pub(crate) fn read_limited(
        &self,
        from: Scn,
        upto: Scn,
        most: Most,
        out: &mut Vec<u8>,
    ) -> Result<(), LogError> {
        if from >= upto || most.bytes == 0 {
            return Ok(());
        }
        loop {
            let source = self.source_of(from)?;
            let header = source.header;
            let path = source.members.first().map(|member| member.path.clone()).unwrap_or_default();
            let failure = match read_some(source, from, upto, most, out) {
                Ok(true) => return Ok(()),
                Ok(false) => LogError::Lost { path: path.clone(), at: from },
                Err(error) => error,
            };
            // A group that was reused during the read no longer holds this redo; an archived log does.
            if self.source_of(from)?.header != header {
                continue;
            }
            let copy = self.catalog().archived.iter().find(|log| log.holds(from)).cloned();
            let Some(copy) = copy.filter(|copy| copy.path != path) else { return Err(failure) };
            return match self.open_archived(copy).map(|copy| read_some(copy, from, upto, most, out)) {
                Ok(Ok(true)) => Ok(()),
                _ => Err(failure),
            };
        }
    }

    /// Running checksum of the stream at `at`; `None` when no log holds `at`.
    ///
    /// # Errors
    /// `Io`.
    pub fn stream_crc(&self, at: Scn) -> Result<Option<StreamCrc>, LogError> {
        // The byte before `at` decides which log to read; the very first position has none.
        let source = match self.source_of(Scn(at.0.saturating_sub(1))).or_else(|_| self.source_of(at)) {
            Ok(source) => source,
            Err(LogError::TooOld { .. } | LogError::Missing { .. }) => return Ok(None),
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
                .max_by_key(|(_, group)| group.header.as_ref().map(order_begun));
            let found = found.and_then(|(index, group)| Some((index, group, group.header?)));
            let Some((index, group, header)) = found else {
                let held = catalog.groups.iter().filter_map(|group| group.header);
                let oldest = held.map(|header| header.first_scn).min().unwrap_or(at);
                return Err(LogError::TooOld { at, oldest });
            };
            (index, Source { members: group.members.clone(), header, cuts: Vec::new() })
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
            turn: header.turn,
            durable_before: 0,
        };
        Ok(CutPlace { group, writer, identity: LogIdentity::of(&header), cuts })
    }
}

/// Returns whether anything was read; if not, `out` is unchanged.
fn read_some(source: Source, from: Scn, upto: Scn, most: Most, out: &mut Vec<u8>) -> Result<bool, LogError> {
    let before = out.len();
    let _wait = waiting(Event::LogFileSequentialRead);
    let read = read_from(source, from, upto, most, out);
    if read.is_err() {
        out.truncate(before);
    }
    read.map(|()| out.len() > before)
}

fn read_from(source: Source, from: Scn, upto: Scn, most: Most, out: &mut Vec<u8>) -> Result<(), LogError> {
    let (first_block, stretch_end) = source.stretch(from);
    let upto = stretch_end.map_or(upto, |end| end.min(upto));
    let block_bytes = source.header.block_bytes as usize;
    let mut blocks = Blocks::new(source)?.in_reads_of(most.of_file);
    blocks.skip_towards(from, first_block)?;
    let limit = upto.bytes_since(from).min(most.bytes as u64) as usize;
    let start = out.len();
    let mut position = from;
    let mut of_file = 0;
    while out.len() - start < limit && (of_file < most.of_file || out.len() == start) {
        let Some((header, payload)) = blocks.next()? else { break };
        of_file += block_bytes;
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
