//! Log groups, their members, and the contents of each.

use crate::error::LogError;
use crate::hole::{Hole, Leftover};
use crate::keeper::MemberKeeper;
use crate::layout::Layout;
use crate::unreachable::Unreachable;
use standfast_format::{BlockHeader, FILE_HEADER_BYTES, LogFileHeader, LogKind, StreamCrc};
use standfast_io::{Disk, LogFile};
use standfast_types::{IncarnationId, IncarnationNo, InstanceId, Scn};
use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};

/// Geometry and directories of a redo log.
#[derive(Clone, Debug)]
pub struct LogConfig {
    pub kind: LogKind,
    /// One directory per member; a group has a file in each.
    pub member_directories: Vec<PathBuf>,
    /// Number of groups, at least 2.
    pub groups: usize,
    /// Groups beyond `redo.groups`, of which a standby has some; used in messages only.
    pub unnamed_groups: usize,
    /// Bytes of each file.
    pub group_bytes: u64,
    /// 512 or 4,096: the logical block size of the device.
    pub block_bytes: usize,
    pub archive_directory: PathBuf,
    /// Stale members: they were dropped and lack redo. Nothing is read from them until recovery has repaired them. A
    /// caller that opens a log to write to it records [`RedoLog::dropped_members`] durably before the first write, and
    /// passes them here at the next start.
    pub distrusted: Vec<PathBuf>,
    /// The current groups and members, once they differ from `member_directories`, `groups` and `group_bytes`, with
    /// which the log was created.
    pub layout: Option<Layout>,
    /// Family of the redo in the files, by [`LogIdentity::instance`]. Files of another family are neither trusted nor
    /// changed. `None` accepts any family.
    pub family: Option<InstanceId>,
}

impl LogConfig {
    /// Refuses a file with redo of another instance.
    pub(crate) fn check_owner(&self, path: &Path, header: &LogFileHeader) -> Result<(), LogError> {
        match self.family {
            Some(family) if family != header.instance => {
                Err(LogError::Foreign { path: path.to_owned(), found: header.instance, family })
            }
            _ => Ok(()),
        }
    }

    /// Applies [`LogConfig::check_owner`] to the file at `path`, if there is one, before another file replaces it.
    pub(crate) fn check_file(&self, disk: &dyn Disk, path: &Path) -> Result<(), LogError> {
        match RedoLog::header_at(disk, path) {
            Ok(Some(header)) => self.check_owner(path, &header),
            _ => Ok(()),
        }
    }
}

/// Identity of the redo in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogIdentity {
    pub instance: InstanceId,
    pub incarnation: IncarnationNo,
    pub incarnation_id: IncarnationId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSwitch {
    pub sequence: u64,
    /// SCN of the first byte.
    pub first_scn: Scn,
    /// Time of the switch, microseconds since the Unix epoch.
    pub time_us: u64,
    /// Bytes from `first_scn` to the first record that starts in it.
    pub first_record: u32,
}

impl LogSwitch {
    fn of(header: &LogFileHeader) -> LogSwitch {
        LogSwitch {
            sequence: header.sequence,
            first_scn: header.first_scn,
            time_us: header.first_time_us,
            first_record: header.first_record,
        }
    }
}

/// State of a group, as in V$LOG.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupState {
    /// Never written, or its header is void.
    Unused,
    Current,
    /// Full; its redo is still needed for recovery.
    Active,
    /// Full and not needed for recovery.
    Inactive,
}

/// Why the log cannot switch now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchBlocked {
    CheckpointIncomplete,
    ArchivingNeeded,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedLog {
    pub path: PathBuf,
    pub header: LogFileHeader,
    /// Bytes of the file.
    pub bytes: u64,
}

impl ArchivedLog {
    /// Returns whether this log contains the byte at `at`.
    pub fn holds(&self, at: Scn) -> bool {
        self.header.first_scn <= at && self.header.next_scn.is_some_and(|next| at < next)
    }
}

/// A living member: one file of a group, read and written.
#[derive(Clone)]
pub(crate) struct Member {
    pub file: Arc<dyn LogFile>,
    pub path: PathBuf,
}

/// A message to the operator about a member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberNotice {
    /// The member is neither read nor written; the group continues with the others.
    Dropped {
        path: PathBuf,
        cause: String,
        /// A member with which the group continues.
        living: PathBuf,
    },
    /// The member did not hold what its group holds, and was repaired.
    Repaired {
        path: PathBuf,
        /// Number of blocks written to it.
        blocks: u32,
        /// Some of these blocks lie before correct ones: the file was damaged, not only behind.
        damaged: bool,
    },
}

pub(crate) struct Group {
    pub members: Vec<Member>,
    pub dropped: Vec<PathBuf>,
    pub header: Option<LogFileHeader>,
    /// SCN after the last byte; known once the group is full.
    pub next_scn: Option<Scn>,
    pub archived: bool,
    /// Truncation blocks in the group, in order of writing; `None` until they have been read since the log was opened.
    pub cuts: Option<Vec<Cut>>,
}

/// A truncation block: from this block on the stream continues at an earlier position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cut {
    pub block: u32,
    pub at: Scn,
}

impl Cut {
    pub fn of(block: &BlockHeader) -> Option<Cut> {
        block.cut.then_some(Cut { block: block.number, at: block.position })
    }
}

pub(crate) struct Catalog {
    pub groups: Vec<Group>,
    pub current: usize,
    pub archived: Vec<ArchivedLog>,
    /// The open gap: redo that is not held although later redo is.
    pub hole: Option<Hole>,
    /// Work that is left on disk before anything is written.
    pub leftover: Leftover,
    /// Findings of recovery beyond the end of the redo; the log writer takes them.
    pub unreachable: Option<Unreachable>,
    /// Groups and members. A group has the slot of its number; an unused number has an empty slot.
    pub layout: Layout,
}

impl Group {
    /// An empty slot, for a number without a group.
    pub fn absent() -> Group {
        Group {
            members: Vec::new(),
            dropped: Vec::new(),
            header: None,
            next_scn: None,
            archived: false,
            cuts: None,
        }
    }
}

impl Catalog {
    pub fn new(groups: Vec<Group>, current: usize, archived: Vec<ArchivedLog>) -> Catalog {
        let (leftover, layout) = (Leftover::default(), Layout::default());
        Catalog { groups, current, archived, hole: None, leftover, unreachable: None, layout }
    }

    /// Index of the group that holds the newest log.
    pub fn newest(&self) -> Option<usize> {
        let held = self.groups.iter().enumerate().filter_map(|(index, group)| {
            let header = group.header?;
            Some(((header.incarnation, header.sequence), index))
        });
        held.max().map(|(_, index)| index)
    }
}

/// A group as seen from outside this crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// Group number, from 1.
    pub group: usize,
    pub state: GroupState,
    /// Header of the log that the group holds; `None` when it holds none.
    pub header: Option<LogFileHeader>,
    /// SCN after the last byte; `None` unless the group is full.
    pub next_scn: Option<Scn>,
    pub archived: bool,
    /// Bytes of each of its files.
    pub bytes: u64,
    pub members: Vec<PathBuf>,
    /// Members that are neither read nor written: lost since the start, or missing at the start.
    pub dropped: Vec<PathBuf>,
}

/// The log groups and archived logs of an instance, shared by the log writer, the archiver and the readers.
pub struct RedoLog {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) config: LogConfig,
    catalog: Mutex<Catalog>,
    /// Recovery does not need redo before this SCN.
    checkpoint: AtomicU64,
    /// A group whose log ends after this SCN is not reused: that redo has not reached every place that it must reach.
    reuse_limit: AtomicU64,
    notices: Vec<MemberNotice>,
    pub(crate) keeper: Mutex<Option<Arc<dyn MemberKeeper>>>,
}

impl RedoLog {
    pub(crate) fn new(
        disk: Arc<dyn Disk>,
        config: LogConfig,
        mut catalog: Catalog,
        notices: Vec<MemberNotice>,
    ) -> RedoLog {
        catalog.layout = config.layout();
        let (catalog, checkpoint) = (Mutex::new(catalog), AtomicU64::new(0));
        let reuse_limit = AtomicU64::new(u64::MAX);
        RedoLog { disk, config, catalog, checkpoint, reuse_limit, notices, keeper: Mutex::default() }
    }

    /// Forbids reuse of groups whose log ends after `limit`, whatever their state: a destination still needs them.
    pub fn set_reuse_limit(&self, limit: Scn) {
        self.reuse_limit.store(limit.0, SeqCst);
    }

    /// Limit set by [`RedoLog::set_reuse_limit`].
    pub fn reuse_limit(&self) -> Scn {
        Scn(self.reuse_limit.load(SeqCst))
    }

    /// Messages about the members from opening the log.
    pub fn notices(&self) -> &[MemberNotice] {
        &self.notices
    }

    /// Files of all members, living and dropped.
    pub fn members(&self) -> Vec<PathBuf> {
        let layout = self.layout();
        let indexes = layout.groups.keys().map(|number| number - 1);
        indexes.flat_map(|index| layout.paths_at(self.config.kind, index)).collect()
    }

    pub fn layout(&self) -> Layout {
        self.catalog().layout.clone()
    }

    /// Files of all dropped members. They are stale from the first write on.
    pub fn dropped_members(&self) -> Vec<PathBuf> {
        self.catalog().groups.iter().flat_map(|group| group.dropped.clone()).collect()
    }

    pub(crate) fn catalog(&self) -> MutexGuard<'_, Catalog> {
        self.catalog.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Creates the files of all groups, zeroed. Keeps existing files that are large enough; replaces shorter ones,
    /// which a power loss during an earlier attempt leaves.
    ///
    /// # Errors
    /// When a file cannot be created; the files that were created stay.
    pub fn create_files(disk: &dyn Disk, config: &LogConfig) -> Result<(), LogError> {
        RedoLog::create_living_files(disk, config).into_iter().next().map_or(Ok(()), Err)
    }

    /// Creates the files like [`RedoLog::create_files`] and returns every failure: a log can be started with one member
    /// of each group.
    pub fn create_living_files(disk: &dyn Disk, config: &LogConfig) -> Vec<LogError> {
        let layout = config.layout();
        let create = |(path, bytes): (PathBuf, u64)| {
            let failed = |error| LogError::io("create the redo log", &path)(error);
            let create = || {
                config.check_file(disk, &path)?;
                if let Ok(file) = disk.open(&path) {
                    if file.len().map_err(failed)? >= bytes {
                        return Ok(());
                    }
                    disk.remove(&path).map_err(failed)?;
                }
                disk.create(&path, bytes).map(drop).map_err(failed)
            };
            create().err()
        };
        let files = layout.groups.iter().flat_map(|(number, bytes)| {
            layout.paths_at(config.kind, number - 1).into_iter().map(|path| (path, *bytes))
        });
        files.filter_map(create).collect()
    }

    /// Removes all group files.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn remove_files(disk: &dyn Disk, config: &LogConfig) -> Result<(), LogError> {
        let layout = config.layout();
        for number in layout.groups.keys() {
            for path in layout.paths_at(config.kind, number - 1) {
                disk.remove(&path).map_err(LogError::io("remove the redo log", &path))?;
            }
        }
        Ok(())
    }

    /// Declares that recovery no longer needs redo before `scn`.
    pub fn set_checkpoint(&self, scn: Scn) {
        self.checkpoint.fetch_max(scn.0, SeqCst);
    }

    /// SCN set by [`RedoLog::set_checkpoint`].
    pub fn checkpoint(&self) -> Scn {
        Scn(self.checkpoint.load(SeqCst))
    }

    pub fn groups(&self) -> Vec<GroupView> {
        let catalog = self.catalog();
        let view = |(index, group): (usize, &Group)| GroupView {
            group: index + 1,
            state: self.state_of(&catalog, index),
            header: group.header,
            next_scn: group.next_scn,
            archived: group.archived,
            bytes: catalog.layout.bytes_at(index).unwrap_or(0),
            members: group.members.iter().map(|member| member.path.clone()).collect(),
            dropped: group.dropped.clone(),
        };
        let is_there = |(index, _): &(usize, &Group)| catalog.layout.bytes_at(*index).is_some();
        catalog.groups.iter().enumerate().filter(is_there).map(view).collect()
    }

    pub(crate) fn state_of(&self, catalog: &Catalog, index: usize) -> GroupState {
        let group = &catalog.groups[index];
        match (group.header, group.next_scn) {
            (None, _) => GroupState::Unused,
            (Some(_), _) if index == catalog.current => GroupState::Current,
            (Some(_), Some(next)) if next <= self.checkpoint() => GroupState::Inactive,
            _ => GroupState::Active,
        }
    }

    /// All archived logs, oldest first.
    pub fn archived(&self) -> Vec<ArchivedLog> {
        self.catalog().archived.clone()
    }

    /// Full groups that are not archived, oldest first, as (group index, next SCN).
    pub fn to_archive(&self) -> Vec<(usize, Scn)> {
        let catalog = self.catalog();
        // The last log before a gap is incomplete.
        let held = |header: &LogFileHeader| catalog.hole.is_some_and(|hole| header.first_scn < hole.to);
        let mut full: Vec<_> = catalog
            .groups
            .iter()
            .enumerate()
            .filter(|(_, group)| group.header.is_some_and(|header| !held(&header)) && !group.archived)
            .filter_map(|(index, group)| Some((index, group.next_scn?)))
            .collect();
        full.sort_by_key(|(_, next)| *next);
        full
    }

    /// Returns whether at least half of the groups wait to be archived: soon there would be no group left to write to.
    pub fn archiver_is_behind(&self) -> bool {
        2 * self.to_archive().len() >= self.layout().groups.len()
    }

    /// Index of the group that may be written next, or why there is none.
    pub(crate) fn next_group(&self) -> Result<usize, SwitchBlocked> {
        let catalog = self.catalog();
        let places = catalog.groups.len();
        let mut blocked = None;
        for index in (1..places).map(|step| (catalog.current + step) % places) {
            if catalog.layout.bytes_at(index).is_none() || catalog.is_last_before_hole(index) {
                continue;
            }
            let group = &catalog.groups[index];
            let why = match (group.header, group.next_scn) {
                (None, _) => return Ok(index),
                (Some(_), _) if !group.archived => SwitchBlocked::ArchivingNeeded,
                (Some(_), Some(end)) if end > self.reuse_limit() => SwitchBlocked::ArchivingNeeded,
                // A standby reads redo that is not applied yet from the archived log, so incoming redo does not wait
                // for apply.
                (Some(_), _) if self.config.kind == LogKind::Standby => return Ok(index),
                (Some(_), Some(end)) if end <= self.checkpoint() => return Ok(index),
                _ => SwitchBlocked::CheckpointIncomplete,
            };
            // Report the reason of the group that is next in order.
            blocked = blocked.or(Some(why));
        }
        Err(blocked.unwrap_or(SwitchBlocked::ArchivingNeeded))
    }

    /// Starts of the logs that begin after `after` and at or before `upto`, ascending.
    pub fn switches(&self, after: Scn, upto: Scn) -> Vec<LogSwitch> {
        let mut found = self.headers();
        found.retain(|header| after < header.first_scn && header.first_scn <= upto);
        found.sort_by_key(|header| Reverse(order_begun(header)));
        // Of the logs that begin at one position, all but the last are empty; the stream continues in the last.
        found.dedup_by_key(|header| header.first_scn);
        found.iter().rev().map(LogSwitch::of).collect()
    }

    /// Start of the log that contains `at`, or would contain the next byte.
    pub fn log_containing(&self, at: Scn) -> Option<LogSwitch> {
        let headers = self.headers();
        let begun = headers.iter().filter(|header| header.first_scn <= at);
        begun.max_by_key(|header| order_begun(header)).map(LogSwitch::of)
    }

    fn headers(&self) -> Vec<LogFileHeader> {
        let catalog = self.catalog();
        let online = catalog.groups.iter().filter_map(|group| group.header);
        online.chain(catalog.archived.iter().map(|log| log.header)).collect()
    }

    /// First SCN of the log being filled.
    pub fn current_first(&self) -> Scn {
        let catalog = self.catalog();
        catalog.groups[catalog.current].header.map_or(Scn::ZERO, |header| header.first_scn)
    }

    /// First SCN of the oldest log that can be read.
    pub fn oldest(&self) -> Scn {
        self.headers().iter().map(|header| header.first_scn).min().unwrap_or(Scn::ZERO)
    }
}

/// Sort key for the order in which logs were begun: an empty log begins where the next one does.
pub(crate) fn order_begun(header: &LogFileHeader) -> (Scn, u32, u64) {
    (header.first_scn, header.incarnation, header.sequence)
}

pub(crate) fn file_prefix(kind: LogKind) -> &'static str {
    if kind == LogKind::Online { "online" } else { "standby" }
}

pub(crate) fn read_header(file: &dyn LogFile, path: &Path) -> Result<Option<LogFileHeader>, LogError> {
    let mut block = [0; FILE_HEADER_BYTES];
    file.read_at(&mut block, 0).map_err(LogError::io("read the header of the redo log", path))?;
    match LogFileHeader::decode(&block) {
        Ok(header) => Ok(Some(header)),
        Err(source @ standfast_format::DecodeError::Version { .. }) => {
            Err(LogError::Damaged { path: path.to_owned(), source })
        }
        // Never written, or torn during the write: the group was about to be used and holds nothing yet.
        Err(_) => Ok(None),
    }
}

pub(crate) fn header_for(
    config: &LogConfig,
    file_bytes: u64,
    identity: &LogIdentity,
    switch: &LogSwitch,
    stream_crc: StreamCrc,
    turn: u8,
) -> LogFileHeader {
    LogFileHeader {
        kind: config.kind,
        block_bytes: config.block_bytes as u32,
        instance: identity.instance,
        incarnation: identity.incarnation,
        incarnation_id: identity.incarnation_id,
        sequence: switch.sequence,
        first_scn: switch.first_scn,
        next_scn: None,
        first_time_us: switch.time_us,
        file_bytes,
        stream_crc,
        first_record: switch.first_record,
        turn,
    }
}
