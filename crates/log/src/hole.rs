//! Redo that a standby lacks while it holds later redo: archived logs fill the hole.
//!
//! ```text
//!            from = end without hole                 to
//!  group s ───────┤ . . . . . . hole . . . . . . . .├─── group t (begun beyond the hole)
//!            ├─ archived s ─┼─ archived s+1 ─┼─ ... ─┤
//! ```
//!
//! Archived logs lead over a hole when each begins where the one before ended, with the same running sum, and every
//! block of each is right. While a hole is open the groups before it are not reused, and nothing in it can be read
//! but what archived logs hold. The hole itself is remembered by the instance, durably, before anything is written
//! beyond it; see [`RedoLog::open_after_hole`].

use crate::archive::archived_logs;
use crate::blocks::{Blocks, Source};
use crate::error::LogError;
use crate::groups::{ArchivedLog, Catalog, Group, LogConfig, Member, RedoLog};
use standfast_format::{LogFileHeader, StreamCrc};
use standfast_io::Disk;
use standfast_types::{IncarnationId, IncarnationNo, Scn};
use std::path::{Path, PathBuf};

/// Redo that is not held, between redo that is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hole {
    /// End of the redo without a hole when it was opened.
    pub from: Scn,
    /// Where the redo goes on: the beginning of a log.
    pub to: Scn,
}

/// What an archived log holds, once every block of it has been checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Its header.
    pub header: LogFileHeader,
    /// Running sum of the stream after its last byte.
    pub end_crc: StreamCrc,
    /// Running sum at the position asked for, when that lies in it or at one of its ends.
    pub crc_at: Option<StreamCrc>,
    /// Where the last record that starts in it begins, or its first position.
    pub last_record: Scn,
}

/// Archived logs that lead on from a position without a hole.
#[derive(Clone, Debug)]
pub struct Chain {
    /// They, in order.
    pub logs: Vec<ArchivedLog>,
    /// Position after the last one.
    pub end: Scn,
    /// Running sum there.
    pub crc: StreamCrc,
    /// Where the last record that starts in them begins.
    pub last_record: Scn,
}

/// Reads the archived log at `path` from its first to its last block, and notes the running sum at `at` on the way.
///
/// # Errors
/// `NotWhole` when it is damaged, cut short or no finished archived log; `Io`.
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
        // A cut would void what came before it, and archived logs are written without.
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

/// The archived logs among `archived` that lead on from `from`, where the stream has the sum `crc`, up to `upto` at
/// most. Only those that `belongs` says are of this stream, and only as far as every block is right.
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
            // Where nothing is known of the sum, the end of the chain proves it.
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

/// What is still to be done on disk after a stop with a hole.
#[derive(Default)]
pub(crate) struct Leftover {
    /// Groups that are void but for what stands in their files, in the order in which they are to be voided.
    pub void: Vec<usize>,
    /// Archived logs, hence confirmed redo, fill the hole up to here.
    pub filled_to: Option<Scn>,
}

/// Decides at a start which groups are void after a stop with a hole, and removes archived logs that belong to those.
/// They are to be voided on disk before anything is written.
pub(crate) fn give_up(
    disk: &dyn Disk,
    groups: &mut [Group],
    config: &LogConfig,
    hole: Hole,
) -> Result<Leftover, LogError> {
    let begins = |group: &Group| group.header.map(|header| header.first_scn);
    let archived = archived_logs(disk, &config.archive_directory, config.family)?;
    // The first log beyond may be archived already and its group hold a later one.
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
        // Newest first: what is left at any moment is without a hole but for the one that is known.
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
    /// Whether the redo without a hole ends in this group: it is not used again before the hole is closed, so that
    /// there is always a group to go back to.
    pub fn is_last_before_hole(&self, group: usize) -> bool {
        self.hole.is_some_and(|hole| {
            let last = self.groups.iter().enumerate().filter_map(|(index, group)| {
                let first = group.header?.first_scn;
                (first < hole.to).then_some((first, index))
            });
            last.max().is_some_and(|(_, index)| index == group)
        })
    }

    /// Lists an archived log in its place; another one in the same file is replaced.
    pub fn add_archived(&mut self, log: ArchivedLog) {
        self.archived.retain(|other| other.path != log.path);
        let key = |log: &ArchivedLog| (log.header.incarnation, log.header.sequence);
        let at = self.archived.partition_point(|other| key(other) < key(&log));
        self.archived.insert(at, log);
    }

    /// The first position from `from` to `upto` that no archived log holds.
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
    /// The hole that is open.
    pub fn hole(&self) -> Option<Hole> {
        self.catalog().hole
    }

    /// Position of the first byte that neither the groups before the hole nor archived logs hold: the end of the redo
    /// without a hole. `None` when no hole is open.
    pub fn end_before_hole(&self) -> Option<Scn> {
        let catalog = self.catalog();
        let hole = catalog.hole?;
        Some(catalog.not_archived(hole.from, hole.to).unwrap_or(hole.to))
    }

    /// Where the archived log with this number belongs.
    pub fn archive_path(
        &self,
        incarnation: IncarnationNo,
        incarnation_id: IncarnationId,
        sequence: u64,
    ) -> PathBuf {
        crate::archive::archive_path(&self.config.archive_directory, incarnation, incarnation_id, sequence)
    }

    /// A whole archived log has been put into the archive directory: from now on it is read.
    pub fn add_archived(&self, log: ArchivedLog) {
        self.catalog().add_archived(log);
    }

    /// Removes the archived logs that `unwanted` says, newest first. Returns them.
    ///
    /// # Errors
    /// `Io`; those before it are removed.
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

    /// See [`chain`], among the archived logs of this redo log.
    pub fn chain(
        &self,
        from: Scn,
        crc: Option<StreamCrc>,
        belongs: &dyn Fn(&LogFileHeader) -> bool,
    ) -> Chain {
        chain(self.disk.as_ref(), &self.archived(), from, crc, Scn(u64::MAX), belongs)
    }
}
