//! Opens the log groups after any stop, and finds where the valid redo ends.
//!
//! The group with the highest (incarnation, sequence) and a valid header was being filled. Its blocks are read up to
//! the first one that is valid in no member. A header that was being written when the power failed is torn, hence void;
//! the group before it is then still the current one, and nothing was written behind the torn header.

use crate::archived_logs::{ArchivedLog, archived_logs};
use crate::blocks::{Blocks, Source};
use crate::catalog::Catalog;
use crate::config::LogConfig;
use crate::error::LogError;
use crate::groups::{Cut, Group, Member};
use crate::header::{LogIdentity, LogSwitch, order_begun, read_header};
use crate::hole::{Hole, Leftover, give_up};
use crate::log_writer::LogWriter;
use crate::open::{OpenMember, Opened, open_for_new, open_groups};
use crate::redo_log::RedoLog;
use crate::repair::bring_in_line;
use crate::unreachable::{LostRedo, look_behind};
use standfast_format::{BlockWriter, LogFileHeader, LogKind, NO_RECORD, StreamCrc, incarnation_tag};
use standfast_io::Disk;
use standfast_types::Scn;
use std::path::Path;
use std::sync::Arc;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// SCN after the last valid byte.
    pub end: Scn,
    /// Highest SCN that the primary had confirmed, as hardened here.
    pub confirmed: Scn,
    pub identity: LogIdentity,
    /// Sequence of the log being filled.
    pub sequence: u64,
    /// Redo beyond `end` that had been durable: the log is damaged there. The first write voids what lies beyond the
    /// damage; before that, the log can be repaired.
    pub lost: Option<LostRedo>,
}

impl RedoLog {
    /// Opens existing groups and finds the end of the redo. Members that differ are repaired: each then holds what all
    /// members of its group hold together. A member that cannot be read or written is dropped while another lives.
    ///
    /// # Errors
    /// `NoGroups` when no header is valid, `Damaged` for files of another version, `Geometry` for files that were made
    /// with other settings, `OnlyDistrusted`, `Io`.
    pub fn open(
        disk: Arc<dyn Disk>,
        config: LogConfig,
    ) -> Result<(Arc<RedoLog>, LogWriter, Recovered), LogError> {
        RedoLog::open_after_hole(disk, config, None)
    }

    /// Opens the log like [`RedoLog::open`], after a stop while the gap `hole` was open. If archived logs fill it, the
    /// redo beyond counts and the groups before it are void; otherwise the redo beyond is void, and archived logs of it
    /// are removed. The caller then calls [`LogWriter::settle`] before it writes anything, and only after that forgets
    /// the gap.
    ///
    /// # Errors
    /// As [`RedoLog::open`].
    pub fn open_after_hole(
        disk: Arc<dyn Disk>,
        config: LogConfig,
        hole: Option<Hole>,
    ) -> Result<(Arc<RedoLog>, LogWriter, Recovered), LogError> {
        let (log, scan, recovered) = RedoLog::recover(disk, config, true, hole)?;
        let writer = LogWriter::new(log.clone(), recovered.identity, scan.writer)?;
        Ok((log, writer, recovered))
    }

    /// Opens the log like [`RedoLog::open`], for reading only: nothing is written.
    ///
    /// # Errors
    /// As [`RedoLog::open`].
    pub fn look(disk: Arc<dyn Disk>, config: LogConfig) -> Result<(Arc<RedoLog>, Recovered), LogError> {
        let (log, _, recovered) = RedoLog::recover(disk, config, false, None)?;
        Ok((log, recovered))
    }

    fn recover(
        disk: Arc<dyn Disk>,
        config: LogConfig,
        repair: bool,
        hole: Option<Hole>,
    ) -> Result<(Arc<RedoLog>, Scan, Recovered), LogError> {
        let mut opened = open_groups(disk.as_ref(), &config)?;
        if repair {
            bring_in_line(&mut opened, config.block_bytes)?;
            sync(&mut opened)?;
        }
        let (mut groups, notices) = opened.finish();
        let leftover = match hole {
            Some(hole) => give_up(disk.as_ref(), &mut groups, &config, hole)?,
            None => Leftover::default(),
        };
        let newest = newest_group(&groups).ok_or_else(|| LogError::NoGroups {
            directory: config.member_directories.first().cloned().unwrap_or_default(),
        })?;
        let (current, header) = newest;
        let archived = archived_logs(disk.as_ref(), &config.archive_directory, config.family)?;
        close_older_groups(&mut groups, current, &archived)?;
        let source = source_of(&groups[current], &header);
        let scan = scan(source.clone())?;
        let end = (scan.writer.number, scan.writer.position, scan.writer.stream_crc);
        let unreachable = look_behind(&groups, current, &source, end)?;
        groups[current].cuts = Some(scan.cuts.clone());
        let mut confirmed = scan.confirmed;
        if config.kind == LogKind::Standby && confirmed == Scn::ZERO {
            confirmed = confirmed_before(&mut groups, &header)?;
        }
        confirmed = confirmed.max(leftover.filled_to.unwrap_or_default());
        let identity = LogIdentity::of(&header);
        let mut catalog = Catalog::new(groups, current, archived);
        catalog.leftover = leftover;
        let lost = unreachable.as_ref().map(|behind| behind.lost.clone());
        catalog.unreachable = unreachable;
        let log = Arc::new(RedoLog::new(disk, config, catalog, notices));
        let recovered =
            Recovered { end: scan.writer.position, confirmed, identity, sequence: header.sequence, lost };
        Ok((log, scan, recovered))
    }

    /// Starts an empty log at `start` in the first group, and voids what the groups held.
    ///
    /// # Errors
    /// `Io`.
    pub fn start(
        disk: Arc<dyn Disk>,
        config: LogConfig,
        identity: LogIdentity,
        start: LogSwitch,
        stream_crc: StreamCrc,
    ) -> Result<(Arc<RedoLog>, LogWriter), LogError> {
        let (groups, notices) = open_for_new(disk.as_ref(), &config)?;
        let archived = archived_logs(disk.as_ref(), &config.archive_directory, config.family)?;
        let block_bytes = config.block_bytes;
        let first = config.layout().groups.first_key_value().map_or(0, |(number, _)| number - 1);
        let catalog = Catalog::new(groups, first, archived);
        let log = Arc::new(RedoLog::new(disk, config, catalog, notices));
        let writer = BlockWriter {
            block_bytes,
            number: 1,
            sequence: start.sequence,
            position: start.first_scn,
            stream_crc,
            next_record: start.first_scn,
            incarnation_tag: incarnation_tag(identity.incarnation_id),
            turn: 0,
            durable_before: 0,
        };
        let mut writer = LogWriter::new(log.clone(), identity, writer)?;
        writer.begin(first, &start)?;
        Ok((log, writer))
    }
}

/// Syncs all members: what was written when the process ended may not be durable yet, and counts as durable from now
/// on.
fn sync(opened: &mut Opened) -> Result<(), LogError> {
    for group in opened.groups.iter_mut().filter(|group| !group.members.is_empty()) {
        group.drop_members(|OpenMember { member: Member { file, path }, .. }| {
            file.sync().map_err(LogError::io("sync the redo log", path)).err()
        });
        group.check_alive()?;
    }
    Ok(())
}

fn newest_group(groups: &[Group]) -> Option<(usize, LogFileHeader)> {
    groups
        .iter()
        .enumerate()
        .filter_map(|(index, group)| Some((index, group.header?)))
        .max_by_key(|(_, header)| (header.incarnation, header.sequence))
}

/// Sets the end of each older group: where the next sequence begins. Marks groups that were archived and need no
/// further copy.
fn close_older_groups(
    groups: &mut [Group],
    current: usize,
    archived: &[ArchivedLog],
) -> Result<(), LogError> {
    let mut starts: Vec<(usize, LogFileHeader)> =
        groups.iter().enumerate().filter_map(|(index, group)| Some((index, group.header?))).collect();
    starts.sort_by_key(|(_, header)| order_begun(header));
    for pair in starts.windows(2) {
        let ((index, header), (_, next)) = (pair[0], pair[1]);
        let follows = header.incarnation_id == next.incarnation_id
            && header.sequence.checked_add(1) == Some(next.sequence);
        let end = match follows {
            true => next.first_scn,
            false => end_of_last(groups, index, &header, archived)?.unwrap_or(next.first_scn),
        };
        groups[index].next_scn = Some(end.min(next.first_scn));
    }
    groups[current].next_scn = None;
    for group in groups.iter_mut() {
        let Some(header) = group.header else { continue };
        group.archived =
            archived.iter().any(|log| is_copy(&log.header, &header) && log.header.next_scn == group.next_scn);
    }
    Ok(())
}

/// Returns where the log in group `index` ends if the next one is in no group: that group was dropped or filled again, or
/// the log came as an archived one. It ends where its blocks end, or, where these are damaged, where its archived log
/// ends; `None`: it is damaged, and there is no copy.
fn end_of_last(
    groups: &[Group],
    index: usize,
    header: &LogFileHeader,
    archived: &[ArchivedLog],
) -> Result<Option<Scn>, LogError> {
    let source = source_of(&groups[index], header);
    let scan = scan(source.clone())?;
    let held = scan.writer.position;
    let copied = archived.iter().find(|log| is_copy(&log.header, header));
    if let Some(next) = copied.and_then(|log| log.header.next_scn) {
        return Ok(Some(held.max(next)));
    }
    let damage = look_behind(groups, index, &source, (scan.writer.number, held, scan.writer.stream_crc))?;
    Ok(damage.is_none().then_some(held))
}

fn is_copy(archived: &LogFileHeader, header: &LogFileHeader) -> bool {
    archived.sequence == header.sequence && archived.incarnation_id == header.incarnation_id
}

fn source_of(group: &Group, fallback: &LogFileHeader) -> Source {
    let header = group.header.unwrap_or(*fallback);
    Source { members: group.members.clone(), header, cuts: Vec::new() }
}

/// Returns what was confirmed when the log of `newest`, which holds nothing yet, was begun.
fn confirmed_before(groups: &mut [Group], newest: &LogFileHeader) -> Result<Scn, LogError> {
    let mut older: Vec<(LogFileHeader, &mut Group)> = groups
        .iter_mut()
        .filter_map(|group| Some((group.header.filter(|header| header != newest)?, group)))
        .collect();
    older.sort_by_key(|(header, _)| std::cmp::Reverse(order_begun(header)));
    for (header, group) in older {
        let scan = scan(source_of(group, &header))?;
        // There may be further truncation blocks behind a damaged block.
        let whole = group.next_scn.is_none_or(|next| next == scan.writer.position);
        group.cuts = whole.then_some(scan.cuts);
        if scan.confirmed > Scn::ZERO {
            return Ok(scan.confirmed);
        }
    }
    Ok(Scn::ZERO)
}

struct Scan {
    writer: BlockWriter,
    confirmed: Scn,
    cuts: Vec<Cut>,
}

/// Reads all valid blocks of a log.
fn scan(source: Source) -> Result<Scan, LogError> {
    let header = source.header;
    let mut blocks = Blocks::new(source)?;
    let mut confirmed = Scn::ZERO;
    let mut cuts = Vec::new();
    let mut last_record = header.first_scn + u64::from(header.first_record);
    while let Some((block, _)) = blocks.next()? {
        confirmed = confirmed.max(block.confirmed);
        cuts.extend(Cut::of(&block));
        if block.first_record != NO_RECORD {
            last_record = block.position + u64::from(block.first_record);
        }
    }
    let (number, position, stream_crc) = blocks.end();
    // Writers pass whole records, so the stream ends where a record ends, and the next record starts there. On a
    // standby a truncation or a crash may have left part of a record, which `next_record` must not skip.
    let next_record = position.max(last_record);
    let writer = BlockWriter {
        block_bytes: header.block_bytes as usize,
        number,
        sequence: header.sequence,
        position,
        stream_crc,
        next_record,
        incarnation_tag: incarnation_tag(header.incarnation_id),
        turn: header.turn,
        durable_before: 0,
    };
    Ok(Scan { writer, confirmed, cuts })
}

impl RedoLog {
    /// Opens one file as a log, for inspection.
    ///
    /// # Errors
    /// When the file is not a redo log.
    pub fn of_file(disk: Arc<dyn Disk>, path: &Path) -> Result<Arc<RedoLog>, LogError> {
        let file = disk.open(path).map_err(LogError::io("open the redo log", path))?;
        let header = read_header(file.as_ref(), path)?
            .ok_or_else(|| LogError::NoGroups { directory: path.to_owned() })?;
        let mut group = Group {
            members: vec![Member { file, path: path.to_owned() }],
            dropped: Vec::new(),
            header: Some(header),
            next_scn: None,
            archived: true,
            cuts: None,
        };
        group.cuts = Some(scan(source_of(&group, &header))?.cuts);
        let directory = path.parent().unwrap_or(Path::new("/")).to_owned();
        let config = LogConfig {
            kind: header.kind,
            member_directories: vec![directory.clone()],
            groups: 1,
            group_bytes: header.file_bytes,
            block_bytes: header.block_bytes as usize,
            archive_directory: directory,
            distrusted: Vec::new(),
            unnamed_groups: 0,
            layout: None,
            family: None,
        };
        Ok(Arc::new(RedoLog::new(disk, config, Catalog::new(vec![group], 0, Vec::new()), Vec::new())))
    }

    /// SCN after the last valid byte of the log being filled.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn end_of_current(&self) -> Result<Scn, LogError> {
        let source = {
            let catalog = self.catalog();
            let group = &catalog.groups[catalog.current];
            let header = group.header.ok_or(LogError::Unopened)?;
            source_of(group, &header)
        };
        Ok(scan(source)?.writer.position)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use standfast_types::{IncarnationId, InstanceId};

    fn header(incarnation: u32, sequence: u64, first: u64) -> LogFileHeader {
        LogFileHeader {
            kind: LogKind::Online,
            block_bytes: 4096,
            instance: InstanceId([1; 16]),
            incarnation,
            incarnation_id: IncarnationId([incarnation as u8; 8]),
            sequence,
            first_scn: Scn(first),
            next_scn: None,
            first_time_us: 0,
            file_bytes: 8192,
            stream_crc: StreamCrc(0),
            first_record: 0,
            turn: 0,
        }
    }

    fn group(header: Option<LogFileHeader>) -> Group {
        Group {
            members: Vec::new(),
            dropped: Vec::new(),
            header,
            next_scn: None,
            archived: false,
            cuts: None,
        }
    }

    fn archived(log: LogFileHeader, next: u64) -> ArchivedLog {
        let header = LogFileHeader { kind: LogKind::Archived, next_scn: Some(Scn(next)), ..log };
        ArchivedLog { path: "archived.log".into(), header, bytes: header.file_bytes }
    }

    #[test]
    fn newest_incarnation_is_being_filled_whatever_its_sequence() {
        let groups = [
            group(Some(header(1, 8, 5000))),
            group(Some(header(2, 1, 6000))),
            group(None),
            group(Some(header(2, 2, 7000))),
            group(Some(header(1, 9, 5500))),
        ];
        assert_eq!(newest_group(&groups), Some((3, header(2, 2, 7000))));
        assert_eq!(newest_group(&groups[2..3]), None);
    }

    #[test]
    fn group_ends_where_the_next_log_begins_and_is_archived_with_that_end_only() {
        let (first, second, third) = (header(1, 4, 5000), header(1, 5, 6000), header(1, 6, 7000));
        let mut groups = [group(Some(third)), group(Some(first)), group(None), group(Some(second))];
        let archived = [
            // Ends elsewhere: it was copied before the log was full.
            archived(first, 5500),
            // Another log with that end.
            archived(header(2, 4, 5900), 6000),
            archived(second, 7000),
        ];
        close_older_groups(&mut groups, 0, &archived).unwrap();
        let found = groups.map(|group| (group.next_scn.map(|scn| scn.0), group.archived));
        assert_eq!(found, [(None, false), (Some(6000), false), (None, false), (Some(7000), true)]);
    }
}
