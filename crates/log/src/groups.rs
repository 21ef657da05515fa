//! Log groups, their members, and what each holds.

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

/// Geometry and places of a redo log.
#[derive(Clone, Debug)]
pub struct LogConfig {
    /// Online or standby.
    pub kind: LogKind,
    /// One directory per member; a group has a file in each.
    pub member_directories: Vec<PathBuf>,
    /// Groups, at least 2.
    pub groups: usize,
    /// How many of them the configuration does not name: a standby has more than `redo.groups`. For messages.
    pub unnamed_groups: usize,
    /// Bytes of each file.
    pub group_bytes: u64,
    /// 512 or 4,096: the logical block size of the device.
    pub block_bytes: usize,
    /// Where finished logs are copied.
    pub archive_directory: PathBuf,
    /// Members that missed redo while they were dropped: nothing is read from them until they have been brought in
    /// line. Whoever opens a log to write to it remembers [`RedoLog::dropped_members`] durably before the first
    /// write, and gives it here at the next start.
    pub distrusted: Vec<PathBuf>,
    /// Groups and members, when they are no longer those of the first four settings: these are what the log began with.
    pub layout: Option<Layout>,
    /// Whose redo the files hold, by [`LogIdentity::instance`]: files of others are neither believed nor changed. `None`
    /// takes what is there.
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

    /// As [`LogConfig::check_owner`], of whatever is at `path`, before another file takes its place.
    pub(crate) fn check_file(&self, disk: &dyn Disk, path: &Path) -> Result<(), LogError> {
        match RedoLog::header_at(disk, path) {
            Ok(Some(header)) => self.check_owner(path, &header),
            _ => Ok(()),
        }
    }
}

/// Whose redo a log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogIdentity {
    /// Instance that generates it.
    pub instance: InstanceId,
    /// Its incarnation.
    pub incarnation: IncarnationNo,
    /// Identity of the incarnation.
    pub incarnation_id: IncarnationId,
}

/// The beginning of a log sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSwitch {
    /// Its number.
    pub sequence: u64,
    /// Position of its first byte.
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
    /// Being filled.
    Current,
    /// Full; its redo is still needed for recovery.
    Active,
    /// Full and not needed for recovery.
    Inactive,
}

/// Why the log cannot switch now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchBlocked {
    /// `log file switch (checkpoint incomplete)`.
    CheckpointIncomplete,
    /// `log file switch (archiving needed)`.
    ArchivingNeeded,
}

/// One archived log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedLog {
    /// Where it is.
    pub path: PathBuf,
    /// Its header, with `next_scn` set.
    pub header: LogFileHeader,
    /// Bytes of the file.
    pub bytes: u64,
}

impl ArchivedLog {
    /// Whether the byte at `at` belongs to it.
    pub fn holds(&self, at: Scn) -> bool {
        self.header.first_scn <= at && self.header.next_scn.is_some_and(|next| at < next)
    }
}

/// One file of a group that is read and written.
#[derive(Clone)]
pub(crate) struct Member {
    pub file: Arc<dyn LogFile>,
    pub path: PathBuf,
}

/// What an operator should know about a member of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MemberNotice {
    /// It is neither read nor written: the group goes on with the others.
    Dropped {
        /// Its file.
        path: PathBuf,
        /// Why.
        cause: String,
        /// A member that the group goes on with.
        living: PathBuf,
    },
    /// It lacked blocks that another member has, and was given them.
    Mended {
        /// Its file.
        path: PathBuf,
        /// How many.
        blocks: u32,
        /// Some of them lie before blocks that are right: the file was damaged, not only behind.
        damaged: bool,
    },
}

pub(crate) struct Group {
    /// Those that live.
    pub members: Vec<Member>,
    /// Files of those that do not.
    pub dropped: Vec<PathBuf>,
    pub header: Option<LogFileHeader>,
    /// Position after the last byte; known when the group is full.
    pub next_scn: Option<Scn>,
    pub archived: bool,
    /// Cut blocks it holds, in order of writing; `None` when nobody has looked since the log was opened.
    pub cuts: Option<Vec<Cut>>,
}

/// A block from which on the stream goes on at an earlier position.
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
    /// Redo that is not held although later redo is.
    pub hole: Option<Hole>,
    /// What is still to be done on disk before anything is written.
    pub leftover: Leftover,
    /// What recovery found behind the end; the log writer takes it.
    pub unreachable: Option<Unreachable>,
    /// Groups and members; groups are by number, and a place without one is empty.
    pub layout: Layout,
}

impl Group {
    /// A place without a group.
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

    /// The newest log that a group holds.
    pub fn newest(&self) -> Option<usize> {
        let held = self.groups.iter().enumerate().filter_map(|(index, group)| {
            let header = group.header?;
            Some(((header.incarnation, header.sequence), index))
        });
        held.max().map(|(_, index)| index)
    }
}

/// What others may know of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupView {
    /// Number, from 1.
    pub group: usize,
    /// Its state.
    pub state: GroupState,
    /// Header of what it holds.
    pub header: Option<LogFileHeader>,
    /// Position after its last byte, when full.
    pub next_scn: Option<Scn>,
    /// Whether it has been archived.
    pub archived: bool,
    /// Bytes of each of its files.
    pub bytes: u64,
    /// Its members.
    pub members: Vec<PathBuf>,
    /// Members that are neither read nor written: lost since the start, or not there then.
    pub dropped: Vec<PathBuf>,
}

/// The groups and archived logs of an instance; shared by writer, archiver and readers.
pub struct RedoLog {
    pub(crate) disk: Arc<dyn Disk>,
    pub(crate) config: LogConfig,
    catalog: Mutex<Catalog>,
    /// Redo before this position is not needed for recovery.
    checkpoint: AtomicU64,
    /// Logs that end after this position are not used again: redo of theirs is not where it has to be.
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

    /// Logs that end after `limit` are not used again, whatever else is done with them: a destination needs them.
    pub fn set_reuse_limit(&self, limit: Scn) {
        self.reuse_limit.store(limit.0, SeqCst);
    }

    /// See [`RedoLog::set_reuse_limit`].
    pub fn reuse_limit(&self) -> Scn {
        Scn(self.reuse_limit.load(SeqCst))
    }

    /// What opening found out about the members.
    pub fn notices(&self) -> &[MemberNotice] {
        &self.notices
    }

    /// Files of all members, living and dropped.
    pub fn members(&self) -> Vec<PathBuf> {
        let layout = self.layout();
        let indexes = layout.groups.keys().map(|number| number - 1);
        indexes.flat_map(|index| layout.paths_at(self.config.kind, index)).collect()
    }

    /// Groups and members as they are now.
    pub fn layout(&self) -> Layout {
        self.catalog().layout.clone()
    }

    /// Files of all members that are not written to. They lack redo from the first write on.
    pub fn dropped_members(&self) -> Vec<PathBuf> {
        self.catalog().groups.iter().flat_map(|group| group.dropped.clone()).collect()
    }

    pub(crate) fn catalog(&self) -> MutexGuard<'_, Catalog> {
        self.catalog.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Geometry and places.
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Creates the files of all groups, zeroed. Files that exist are kept when they are large enough; a power
    /// loss during an earlier attempt leaves shorter ones.
    ///
    /// # Errors
    /// When a file cannot be created; those made before stay.
    pub fn create_files(disk: &dyn Disk, config: &LogConfig) -> Result<(), LogError> {
        RedoLog::create_living_files(disk, config).into_iter().next().map_or(Ok(()), Err)
    }

    /// As [`RedoLog::create_files`], but goes on with the other files where one cannot be created: a log can be
    /// started with one member of each group. Returns what went wrong.
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

    /// Redo before `scn` is no longer needed for recovery.
    pub fn set_checkpoint(&self, scn: Scn) {
        self.checkpoint.fetch_max(scn.0, SeqCst);
    }

    /// See [`RedoLog::set_checkpoint`].
    pub fn checkpoint(&self) -> Scn {
        Scn(self.checkpoint.load(SeqCst))
    }

    /// All groups.
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

    /// Full groups that are not archived, oldest first: (group index, next SCN).
    pub fn to_archive(&self) -> Vec<(usize, Scn)> {
        let catalog = self.catalog();
        // The last log before a hole is not whole.
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

    /// Whether half of the groups or more wait to be archived: soon there would be none to go on in.
    pub fn archiver_is_behind(&self) -> bool {
        2 * self.to_archive().len() >= self.layout().groups.len()
    }

    /// The group that may be written next, or why none may.
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
                // On a standby what is not applied yet is read from the archived log: redo that comes in does not wait
                // for apply.
                (Some(_), _) if self.config.kind == LogKind::Standby => return Ok(index),
                (Some(_), Some(end)) if end <= self.checkpoint() => return Ok(index),
                _ => SwitchBlocked::CheckpointIncomplete,
            };
            // That of the group whose turn it is.
            blocked = blocked.or(Some(why));
        }
        Err(blocked.unwrap_or(SwitchBlocked::ArchivingNeeded))
    }

    /// Logs that begin after `after` and at or before `upto`, ascending.
    pub fn switches(&self, after: Scn, upto: Scn) -> Vec<LogSwitch> {
        let mut found = self.headers();
        found.retain(|header| after < header.first_scn && header.first_scn <= upto);
        found.sort_by_key(|header| Reverse(order_begun(header)));
        // Of those that begin where an empty one does the last one goes on.
        found.dedup_by_key(|header| header.first_scn);
        found.iter().rev().map(LogSwitch::of).collect()
    }

    /// The log that contains `at`, or would contain the next byte.
    pub fn log_containing(&self, at: Scn) -> Option<LogSwitch> {
        let headers = self.headers();
        let begun = headers.iter().filter(|header| header.first_scn <= at);
        begun.max_by_key(|header| order_begun(header)).map(LogSwitch::of)
    }

    /// Of all that can be read.
    fn headers(&self) -> Vec<LogFileHeader> {
        let catalog = self.catalog();
        let online = catalog.groups.iter().filter_map(|group| group.header);
        online.chain(catalog.archived.iter().map(|log| log.header)).collect()
    }

    /// First position of the log being filled.
    pub fn current_first(&self) -> Scn {
        let catalog = self.catalog();
        catalog.groups[catalog.current].header.map_or(Scn::ZERO, |header| header.first_scn)
    }

    /// First position of the oldest log that can be read.
    pub fn oldest(&self) -> Scn {
        self.headers().iter().map(|header| header.first_scn).min().unwrap_or(Scn::ZERO)
    }
}

/// Orders logs as they were begun: one that is empty begins where the next one does.
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
        // Never written, or torn while it was: the group was about to be used and holds nothing yet.
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
