//! The redo log: its groups and archived logs, which of them may be written next, and where each log begins.

use crate::archived_logs::ArchivedLog;
use crate::catalog::Catalog;
use crate::config::LogConfig;
use crate::error::LogError;
use crate::groups::{Group, GroupState, GroupView, MemberNotice};
use crate::header::{LogSwitch, order_begun};
use crate::hole::Hole;
use crate::keeper::MemberKeeper;
use crate::layout::Layout;
use standfast_format::{LogFileHeader, LogKind};
use standfast_io::Disk;
use standfast_types::Scn;
use std::cmp::Reverse;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard};

/// Why the log cannot switch now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SwitchBlocked {
    CheckpointIncomplete,
    ArchivingNeeded,
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
    keeper: Mutex<Option<Arc<dyn MemberKeeper>>>,
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

    /// Sets the keeper. From now on a member that fails while another one of its group lives is dropped, and `keeper`
    /// records it. Before, any failure poisons the log.
    pub fn keep_members(&self, keeper: Arc<dyn MemberKeeper>) {
        *self.keeper.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(keeper);
    }

    /// Drops these members, each with its cause; the group continues with the others.
    ///
    /// # Errors
    /// When this cannot be recorded; then nothing has changed.
    pub(crate) fn lose_members(&self, group: usize, lost: &[(PathBuf, String)]) -> Result<(), String> {
        let keeper = self.keeper.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone();
        let keeper = keeper.ok_or("no thread has taken the task yet")?;
        let is_lost = |path: &Path| lost.iter().any(|(other, _)| other == path);
        let members = self.catalog().groups[group].members.clone();
        let living = members.iter().find(|member| !is_lost(&member.path));
        let living = living.map(|member| member.path.clone()).unwrap_or_default();
        let notice = |(path, cause): &(PathBuf, String)| MemberNotice::Dropped {
            path: path.clone(),
            cause: cause.clone(),
            living: living.clone(),
        };
        let notices: Vec<_> = lost.iter().map(notice).collect();
        keeper.lost(&notices).map_err(|error| error.to_string())?;
        let mut catalog = self.catalog();
        let group = &mut catalog.groups[group];
        group.members.retain(|member| !is_lost(&member.path));
        group.dropped.extend(lost.iter().map(|(path, _)| path.clone()));
        Ok(())
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

    /// Returns the archived logs, the oldest first.
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

    /// Whether the redo in this group, if there is any, is archived and not needed for recovery: what must hold when the
    /// group is reused or dropped.
    pub(crate) fn is_spare(&self, catalog: &Catalog, index: usize) -> bool {
        let group = &catalog.groups[index];
        let is_needed = match self.config.kind {
            LogKind::Standby => catalog.is_last_before_hole(index),
            _ => self.state_of(catalog, index) != GroupState::Inactive,
        };
        group.header.is_none() || (group.archived && !is_needed)
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
