//! Archiving: a finished log becomes one file that holds exactly its redo. The file gets its final name only when it is
//! complete and durable.

use crate::error::LogError;
use crate::groups::{ArchivedLog, RedoLog, read_header};
use crate::reader::Most;
use standfast_format::{BlockWriter, LogFileHeader, LogKind, incarnation_tag, payload_capacity};
use standfast_io::{AlignedBuf, Disk};
use standfast_types::{IncarnationId, IncarnationNo, InstanceId, Scn};
use std::path::{Path, PathBuf};

const SUFFIX: &str = "arc";
/// Bytes read from the group, or written to the copy, between two calls of `pace`. I/O that is queued ahead of a
/// durable write occupies the device as long as that write does, or longer.
const PIECE_BYTES: usize = 256 << 10;

/// Path of the archived log with this sequence.
pub(crate) fn archive_path(
    directory: &Path,
    incarnation: IncarnationNo,
    incarnation_id: IncarnationId,
    sequence: u64,
) -> PathBuf {
    directory.join(format!("{incarnation}_{sequence:08}_{incarnation_id}.{SUFFIX}"))
}

/// Returns all complete archived logs of `family` in `directory`, oldest first; without `family`, those of every
/// family. Ignores other files.
///
/// # Errors
/// When the directory cannot be read.
pub fn archived_logs(
    disk: &dyn Disk,
    directory: &Path,
    family: Option<InstanceId>,
) -> Result<Vec<ArchivedLog>, LogError> {
    let counts = |header: &LogFileHeader| {
        header.next_scn.is_some() && family.is_none_or(|family| header.instance == family)
    };
    let mut logs = Vec::new();
    for path in disk.list(directory).map_err(LogError::io("list the archived logs in", directory))? {
        if path.extension().is_none_or(|extension| extension != SUFFIX) {
            continue;
        }
        let file = disk.open(&path).map_err(LogError::io("open the archived log", &path))?;
        let bytes = file.len().map_err(LogError::io("read the size of the archived log", &path))?;
        if let Some(header) = read_header(file.as_ref(), &path)?.filter(counts) {
            logs.push(ArchivedLog { path, header, bytes });
        }
    }
    logs.sort_by_key(|log| (log.header.incarnation, log.header.sequence));
    Ok(logs)
}

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
    let (original, mut header) = {
        let catalog = log.catalog();
        let found = catalog.groups.get(group).and_then(|group| Some((group, group.header?, group.next_scn?)));
        let Some((group, header, next)) = found else { return Ok(None) };
        if group.archived {
            return Ok(None);
        }
        (header, LogFileHeader { kind: LogKind::Archived, next_scn: Some(next), turn: 0, ..header })
    };
    let next = header.next_scn.unwrap_or(Scn::ZERO);
    let block_bytes = header.block_bytes as usize;
    let payload = next.bytes_since(header.first_scn) as usize;
    let blocks = 1 + payload.div_ceil(payload_capacity(block_bytes));
    header.file_bytes = (blocks * block_bytes) as u64;

    let directory = &log.config.archive_directory;
    let path = archive_path(directory, header.incarnation, header.incarnation_id, header.sequence);
    let part = path.with_extension("part");
    log.disk.remove(&part).map_err(LogError::io("remove the unfinished archived log", &part))?;
    let copied = copy(log, &header, &part, pace);
    if copied.is_err() {
        let _ = log.disk.remove(&part);
    }
    copied?;
    log.disk.rename(&part, &path).map_err(LogError::io("name the archived log", &path))?;

    let archived = ArchivedLog { path, header, bytes: header.file_bytes };
    let mut catalog = log.catalog();
    // On a standby a truncation may have reopened the group during the copy.
    let unchanged =
        catalog.groups[group].header == Some(original) && catalog.groups[group].next_scn == Some(next);
    if unchanged {
        catalog.groups[group].archived = true;
        catalog.add_archived(archived.clone());
    }
    Ok(unchanged.then_some(archived))
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
    let piece_bytes = PIECE_BYTES / block_bytes * payload_capacity(block_bytes);
    let mut blocks = AlignedBuf::new(PIECE_BYTES);
    header.encode(&mut blocks[..block_bytes]);
    target.write(&blocks[..block_bytes], 0).map_err(LogError::io("write the archived log", part))?;
    let mut piece = Vec::new();
    while writer.position < next {
        let want = next.bytes_since(writer.position).min(piece_bytes as u64) as usize;
        piece.clear();
        while piece.len() < want {
            let before = piece.len();
            let from = writer.position + before as u64;
            log.read_piece(from, next, Most { bytes: want - before, of_file: PIECE_BYTES }, &mut piece)?;
            if piece.len() < want {
                pace();
            }
        }
        let offset = u64::from(writer.number) * block_bytes as u64;
        let used = writer.write(&[&piece], next, &mut blocks);
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
