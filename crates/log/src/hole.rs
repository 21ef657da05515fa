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
//! [`RedoLog::open_after_hole`].

use crate::archive::archived_logs;
use crate::blocks::{Blocks, Source};
use crate::error::LogError;
use crate::groups::{ArchivedLog, Catalog, Group, LogConfig, Member, RedoLog};
use standfast_format::{LogFileHeader, StreamCrc};
use standfast_io::Disk;
use standfast_types::{IncarnationId, IncarnationNo, Scn};
use std::path::{Path, PathBuf};

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
    /// The logs, in order.
    pub logs: Vec<ArchivedLog>,
    /// SCN after the last log.
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
    let header = crate::groups::read_header(file.as_ref(), path)?.ok_or_else(|| not_whole(Scn::ZERO))?;
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
    let filled = beyond.is_some_and(|beyond| {
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

impl Catalog {
    /// Returns whether the redo before the gap ends in this group. The group is not reused until the gap is closed, so
    /// that there is always a group to return to.
    pub fn is_last_before_hole(&self, group: usize) -> bool {
        self.hole.is_some_and(|hole| {
            let last = self.groups.iter().enumerate().filter_map(|(index, group)| {
                let first = group.header?.first_scn;
                (first < hole.to).then_some((first, index))
            });
            last.max().is_some_and(|(_, index)| index == group)
        })
    }

    /// Adds an archived log to the list, in order; replaces one with the same path.
    pub fn add_archived(&mut self, log: ArchivedLog) {
        self.archived.retain(|other| other.path != log.path);
        let key = |log: &ArchivedLog| (log.header.incarnation, log.header.sequence);
        let at = self.archived.partition_point(|other| key(other) < key(&log));
        self.archived.insert(at, log);
    }

    /// Returns the first position from `from` to `upto` that no archived log holds.
    pub fn not_archived(&self, from: Scn, upto: Scn) -> Option<Scn> {
        let mut at = from;
        while at < upto {
            let ends = |log: &ArchivedLog| {
                log.header.next_scn.filter(|next| log.header.first_scn <= at && at < *next)
            };
            match self.archived.iter().find_map(ends) {
                Some(next) => at = next,
                None => return Some(at),
            }
        }
        None
    }
}

impl RedoLog {
    pub fn hole(&self) -> Option<Hole> {
        self.catalog().hole
    }

    /// SCN of the first byte that neither the groups before the gap nor archived logs hold: the end of the redo without
    /// a gap. `None` when no gap is open.
    pub fn end_before_hole(&self) -> Option<Scn> {
        let catalog = self.catalog();
        let hole = catalog.hole?;
        Some(catalog.not_archived(hole.from, hole.to).unwrap_or(hole.to))
    }

    /// Path of the archived log with this sequence.
    pub fn archive_path(
        &self,
        incarnation: IncarnationNo,
        incarnation_id: IncarnationId,
        sequence: u64,
    ) -> PathBuf {
        crate::archive::archive_path(&self.config.archive_directory, incarnation, incarnation_id, sequence)
    }

    /// Adds a complete archived log that was placed in the archive directory: from now on it is read.
    pub fn add_archived(&self, log: ArchivedLog) {
        self.catalog().add_archived(log);
    }

    /// Removes the archived logs that `unwanted` selects, newest first, and returns them.
    ///
    /// # Errors
    /// `Io`; the logs before the failed one are removed.
    pub fn remove_archived_if(
        &self,
        unwanted: &dyn Fn(&LogFileHeader) -> bool,
    ) -> Result<Vec<ArchivedLog>, LogError> {
        let mut removed = Vec::new();
        loop {
            let found = {
                let mut catalog = self.catalog();
                let at = catalog.archived.iter().rposition(|log| unwanted(&log.header));
                at.map(|at| catalog.archived.remove(at))
            };
            let Some(log) = found else { return Ok(removed) };
            self.disk.remove(&log.path).map_err(LogError::io("remove the archived log", &log.path))?;
            removed.push(log);
        }
    }

    /// Applies [`chain`] to the archived logs of this redo log.
    pub fn chain(
        &self,
        from: Scn,
        crc: Option<StreamCrc>,
        belongs: &dyn Fn(&LogFileHeader) -> bool,
    ) -> Chain {
        chain(self.disk.as_ref(), &self.archived(), from, crc, Scn(u64::MAX), belongs)
    }
}
