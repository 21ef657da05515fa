//! A gap: redo that a standby lacks while it holds later redo. Archived logs fill the gap.
//!
//! ```text
//!            from = end before the gap               to
//!  group s ───────┤ . . . . . . gap  . . . . . . . .├─── group t (begun beyond the gap)
//!            ├─ archived s ─┼─ archived s+1 ─┼─ ... ─┤
//! ```
//!
//! Archived logs lead over a gap when each begins where the one before ended, with the same running checksum, and every
//! block of each is valid. While a gap is open, the groups before it are not reused, and nothing in it can be read
//! except what archived logs hold. The instance records the gap durably before anything is written beyond it; see
//! [`crate::RedoLog::open_after_hole`].

use crate::archived_logs::{ArchivedLog, archived_logs};
use crate::blocks::{Blocks, Source};
use crate::config::LogConfig;
use crate::error::LogError;
use crate::groups::{Group, Member};
use crate::header::read_header;
use standfast_format::{LogFileHeader, StreamCrc};
use standfast_io::Disk;
use standfast_types::Scn;
use std::path::Path;

/// A gap: redo that is not held, between redo that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// End of the redo before the gap, when the gap opened.
    pub from: Scn,
    /// Where the redo continues: the start of a log.
    pub to: Scn,
}

/// Contents of an archived log, once every block of it has been verified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    pub header: LogFileHeader,
    /// Running checksum of the stream after the last byte.
    pub end_crc: StreamCrc,
    /// Running checksum at the requested position, if that lies in the log or at one of its ends.
    pub crc_at: Option<StreamCrc>,
    /// Start of the last record that begins in the log, or the log's first position.
    pub last_record: Scn,
}

/// Archived logs that continue from a position without a gap.
#[derive(Clone, Debug)]
pub struct Chain {
    /// In the order of the stream, without a gap.
    pub logs: Vec<ArchivedLog>,
    /// SCN of the byte after the last log.
    pub end: Scn,
    pub crc: StreamCrc,
    /// Start of the last record that begins in these logs.
    pub last_record: Scn,
}

/// Reads the archived log at `path` from its first to its last block, and takes the running checksum at `at` on the
/// way.
///
/// # Errors
/// `NotWhole` when the log is damaged, truncated or no finished archived log; `Io`.
pub fn verify_archived(disk: &dyn Disk, path: &Path, at: Scn) -> Result<Verified, LogError> {
    let file = disk.open(path).map_err(LogError::io("open the archived log", path))?;
    let not_whole = |at| LogError::NotWhole { path: path.to_owned(), at };
    let header = read_header(file.as_ref(), path)?.ok_or_else(|| not_whole(Scn::ZERO))?;
    let next = header.next_scn.ok_or_else(|| not_whole(header.first_scn))?;
    let members = vec![Member { file, path: path.to_owned() }];
    let mut blocks = Blocks::new(Source { members, header, cuts: Vec::new() })?;
    let mut crc_at = (header.first_scn == at).then_some(header.stream_crc);
    let mut last_record = header.first_scn;
    while let Some((block, payload)) = blocks.next()? {
        // A truncation block would void what came before it, and archived logs are written without.
        if block.cut || block.end() > next {
            return Err(not_whole(block.position));
        }
        if block.position < at && at <= block.end() {
            crc_at = Some(block.stream_crc.after(&payload[..at.bytes_since(block.position) as usize]));
        }
        if block.first_record != standfast_format::NO_RECORD {
            last_record = block.position + u64::from(block.first_record);
        }
    }
    let (_, end, end_crc) = blocks.end();
    if end != next {
        return Err(not_whole(end));
    }
    Ok(Verified { header, end_crc, crc_at, last_record })
}

/// Returns the logs among `archived` that continue from `from`, where the stream has the checksum `crc`, up to `upto`
/// at most. Takes only those that `belongs` assigns to this stream, and only as far as every block is valid.
pub fn chain(
    disk: &dyn Disk,
    archived: &[ArchivedLog],
    from: Scn,
    crc: Option<StreamCrc>,
    upto: Scn,
    belongs: &dyn Fn(&LogFileHeader) -> bool,
) -> Chain {
    let mut chain = Chain { logs: Vec::new(), end: from, crc: crc.unwrap_or_default(), last_record: from };
    let mut known = crc;
    while chain.end < upto {
        let next = archived.iter().find_map(|log| {
            let ends = log.header.next_scn?;
            let leads_on = log.header.first_scn <= chain.end && chain.end < ends && ends <= upto;
            if !leads_on || !belongs(&log.header) {
                return None;
            }
            let verified = verify_archived(disk, &log.path, chain.end).ok()?;
            // If the checksum here is unknown, the one at the end of the chain is the proof.
            let same = known.is_none() || verified.crc_at == known;
            same.then(|| (log.clone(), ends, verified))
        });
        let Some((log, ends, verified)) = next else { break };
        chain.logs.push(log);
        (chain.end, chain.crc, chain.last_record) = (ends, verified.end_crc, verified.last_record);
        known = Some(verified.end_crc);
    }
    chain
}

/// Work that is left on disk after a stop with an open gap.
#[derive(Default)]
pub(crate) struct Leftover {
    /// Groups that are void although their files do not say so, in the order in which to void them.
    pub void: Vec<usize>,
    /// Archived logs, hence confirmed redo, fill the gap up to here.
    pub filled_to: Option<Scn>,
}

/// Decides at a start which groups are void after a stop with an open gap, and removes archived logs that belong to
/// them. The groups are to be voided on disk before anything is written.
pub(crate) fn give_up(
    disk: &dyn Disk,
    groups: &mut [Group],
    config: &LogConfig,
    hole: Hole,
) -> Result<Leftover, LogError> {
    let begins = |group: &Group| group.header.map(|header| header.first_scn);
    let archived = archived_logs(disk, &config.archive_directory, config.family)?;
    // The first log beyond the gap may be archived already, and its group may hold a later one.
    let headers = groups.iter().filter_map(|group| group.header).chain(archived.iter().map(|log| log.header));
    let beyond = headers.into_iter().find(|header| header.first_scn == hole.to);
    // Without a group beyond the gap, the redo beyond was given up, and the archived logs of it are still to be removed.
    let is_held = groups.iter().filter_map(begins).any(|scn| scn >= hole.to);
    let filled = beyond.filter(|_| is_held).is_some_and(|beyond| {
        let chain = chain(disk, &archived, hole.from, None, hole.to, &|_| true);
        chain.end == hole.to && chain.crc == beyond.stream_crc
    });
    let is_void = |scn: Scn| if filled { scn < hole.to } else { scn >= hole.to };
    let mut void: Vec<(Scn, usize)> = groups
        .iter()
        .enumerate()
        .filter_map(|(index, group)| Some((begins(group).filter(|scn| is_void(*scn))?, index)))
        .collect();
    void.sort_unstable();
    if !filled {
        // Newest first: at any moment the remaining redo has no gap except the known one.
        void.reverse();
        for log in archived.iter().filter(|log| log.header.first_scn >= hole.to) {
            disk.remove(&log.path).map_err(LogError::io("remove the archived log", &log.path))?;
        }
    }
    for (_, index) in &void {
        let group = &mut groups[*index];
        group.header = None;
        group.cuts = Some(Vec::new());
    }
    let void = void.into_iter().map(|(_, index)| index).collect();
    Ok(Leftover { void, filled_to: filled.then_some(hole.to) })
}
