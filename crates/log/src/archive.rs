//! Archiving: a finished log becomes one file that holds exactly its redo. The file gets its final name only when it is
//! complete and durable. Also adds and removes archived logs of the redo log.

use crate::archived_logs::{ArchivedLog, SUFFIX, archive_path};
use crate::error::LogError;
use crate::hole::{Chain, chain};
use crate::reader::Most;
use crate::redo_log::RedoLog;
use standfast_format::{BlockWriter, LogFileHeader, LogKind, StreamCrc, incarnation_tag, payload_capacity};
use standfast_io::AlignedBuf;
use standfast_types::{IncarnationId, IncarnationNo, Scn};
use std::path::{Path, PathBuf};

/// Bytes read from the group, or written to the copy, between two calls of `pace`. I/O that is queued ahead of a
/// durable write occupies the device as long as that write does, or longer.
const EXTENT_BYTES: usize = 256 << 10;

/// Copies the full group with this index to the archive directory. Returns the archived log, or `None` when the group
/// is not full, is archived already, or was truncated during the copy. Calls `pace` between extents of at most 256 KiB,
/// of the group that is read and of the copy.
///
/// # Errors
/// `Io`, for example when the volume is full: nothing is left behind and the call may be repeated.
pub fn archive_group(
    log: &RedoLog,
    group: usize,
    pace: &mut dyn FnMut(),
) -> Result<Option<ArchivedLog>, LogError> {
    let (original, header) = {
        let catalog = log.catalog();
        let found = catalog.groups.get(group).and_then(|group| Some((group, group.header?, group.next_scn?)));
        let Some((group, header, next)) = found else { return Ok(None) };
        if group.archived {
            return Ok(None);
        }
        (header, LogFileHeader { kind: LogKind::Archived, next_scn: Some(next), turn: 0, ..header })
    };
    let directory = &log.config.archive_directory;
    let path = archive_path(directory, header.incarnation, header.incarnation_id, header.sequence);
    let next = header.next_scn;
    let archived = store(log, header, path, pace)?;
    let mut catalog = log.catalog();
    // On a standby a truncation may have reopened the group during the copy.
    let unchanged = catalog.groups[group].header == Some(original) && catalog.groups[group].next_scn == next;
    if unchanged {
        catalog.groups[group].archived = true;
        catalog.add_archived(archived.clone());
    }
    Ok(unchanged.then_some(archived))
}

/// Copies what the log being filled holds up to `end` to an archived log of its own name. For a standby that fetches a
/// copy of this log which begins later: its source has joined the stream within the log, and recovery here may begin
/// before that.
///
/// # Errors
/// As [`archive_group`].
pub fn keep_beginning(log: &RedoLog, end: Scn) -> Result<(), LogError> {
    let current = {
        let catalog = log.catalog();
        catalog.groups[catalog.current].header
    };
    let Some(header) = current.filter(|header| header.first_scn < end) else { return Ok(()) };
    let path = log.archive_path(header.incarnation, header.incarnation_id, header.sequence);
    let path = path.with_extension(format!("{}.{SUFFIX}", header.first_scn));
    let header = LogFileHeader { kind: LogKind::Archived, next_scn: Some(end), turn: 0, ..header };
    let kept = store(log, header, path, &mut || {})?;
    log.add_archived(kept);
    Ok(())
}

/// Writes the redo that `header` describes to the file `path`, which has that name only once it is complete.
fn store(
    log: &RedoLog,
    mut header: LogFileHeader,
    path: PathBuf,
    pace: &mut dyn FnMut(),
) -> Result<ArchivedLog, LogError> {
    let next = header.next_scn.unwrap_or(header.first_scn);
    let block_bytes = header.block_bytes as usize;
    let payload = next.bytes_since(header.first_scn) as usize;
    let blocks = 1 + payload.div_ceil(payload_capacity(block_bytes));
    header.file_bytes = (blocks * block_bytes) as u64;
    let part = path.with_extension("part");
    log.disk.remove(&part).map_err(LogError::io("remove the unfinished archived log", &part))?;
    let copied = copy(log, &header, &part, pace);
    if copied.is_err() {
        let _ = log.disk.remove(&part);
    }
    copied?;
    log.disk.rename(&part, &path).map_err(LogError::io("name the archived log", &path))?;
    Ok(ArchivedLog { path, header, bytes: header.file_bytes })
}

/// Writes the stream of a log into new blocks: without padding, which is most of a log of small batches, and without
/// truncation blocks.
fn copy(log: &RedoLog, header: &LogFileHeader, part: &Path, pace: &mut dyn FnMut()) -> Result<(), LogError> {
    let block_bytes = header.block_bytes as usize;
    let bytes = header.file_bytes.next_multiple_of(4096);
    let target = log.disk.create_copy(part, bytes).map_err(LogError::io("create the archived log", part))?;
    let mut writer = BlockWriter {
        block_bytes,
        number: 1,
        sequence: header.sequence,
        position: header.first_scn,
        stream_crc: header.stream_crc,
        next_record: header.first_scn + u64::from(header.first_record),
        incarnation_tag: incarnation_tag(header.incarnation_id),
        turn: 0,
        durable_before: 0,
    };
    let next = header.next_scn.unwrap_or(header.first_scn);
    let payload_bytes = EXTENT_BYTES / block_bytes * payload_capacity(block_bytes);
    let mut blocks = AlignedBuf::new(EXTENT_BYTES);
    header.encode(&mut blocks[..block_bytes]);
    target.write(&blocks[..block_bytes], 0).map_err(LogError::io("write the archived log", part))?;
    let mut redo = Vec::new();
    while writer.position < next {
        let want = next.bytes_since(writer.position).min(payload_bytes as u64) as usize;
        redo.clear();
        while redo.len() < want {
            let before = redo.len();
            let from = writer.position + before as u64;
            log.read_limited(from, next, Most { bytes: want - before, of_file: EXTENT_BYTES }, &mut redo)?;
            if redo.len() < want {
                pace();
            }
        }
        let offset = u64::from(writer.number) * block_bytes as u64;
        let used = writer.write(&[&redo], next, &mut blocks);
        target.write(&blocks[..used], offset).map_err(LogError::io("write the archived log", part))?;
        if writer.position < next {
            pace();
        }
    }
    target.sync().map_err(LogError::io("sync the archived log", part))
}

/// Removes the oldest archived logs until at most `bytes_max` bytes are left, and returns the removed logs. Keeps those
/// that end after `keep`, and those that the log needs to continue without a gap: from an open gap on, or beyond what
/// its groups hold.
///
/// # Errors
/// `Io`.
pub fn remove_archived(log: &RedoLog, bytes_max: u64, keep: Scn) -> Result<Vec<ArchivedLog>, LogError> {
    let mut removed = Vec::new();
    loop {
        let oldest = {
            let mut catalog = log.catalog();
            let total: u64 = catalog.archived.iter().map(|log| log.bytes).sum();
            let joint = match catalog.hole {
                Some(hole) => Some(hole.from),
                None => catalog.groups[catalog.current].header.map(|header| header.first_scn),
            };
            let keep = joint.map_or(keep, |joint| keep.min(joint));
            let spare = |log: &ArchivedLog| log.header.next_scn.is_some_and(|next| next > keep);
            match catalog.archived.first() {
                Some(log) if total > bytes_max && !spare(log) => catalog.archived.remove(0),
                _ => return Ok(removed),
            }
        };
        log.disk.remove(&oldest.path).map_err(LogError::io("remove the archived log", &oldest.path))?;
        removed.push(oldest);
    }
}

impl RedoLog {
    /// Path of the archived log with this sequence.
    pub fn archive_path(
        &self,
        incarnation: IncarnationNo,
        incarnation_id: IncarnationId,
        sequence: u64,
    ) -> PathBuf {
        archive_path(&self.config.archive_directory, incarnation, incarnation_id, sequence)
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
