//! Adding and dropping groups and members while the log is written.
//!
//! Order of events, so that an interruption at any point leaves the old or the new layout: new files are created and
//! filled; the thread that writes the log records the new layout durably, in one step; the new layout takes effect in
//! memory; then files that are no longer used can be removed. Files of a layout that was never recorded, or no longer
//! is, hold nothing that counts.

use crate::blocks::{Blocks, Source};
use crate::error::LogError;
use crate::groups::{Group, GroupState, Member};
use crate::header::header_at;
use crate::layout::{Layout, Refusal, file_name};
use crate::log_writer::LogWriter;
use crate::redo_log::RedoLog;
use standfast_format::{LogFileHeader, LogKind, StreamCrc};
use standfast_io::{AlignedBuf, Disk};
use standfast_types::{InstanceId, Scn};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const BUFFER_BYTES: usize = 1 << 20;
const FILL: &str = "fill the new member of the redo log";

/// A group whose files exist and that is not part of the log yet.
pub struct NewGroup {
    number: usize,
    bytes: u64,
    members: Vec<Member>,
}

/// A member of every group, or of those that lack theirs, whose files exist and that is not part of the log yet.
pub struct NewMember {
    letter: char,
    directory: PathBuf,
    /// The new file of each group, by group index.
    files: BTreeMap<usize, Copied>,
}

struct Copied {
    member: Member,
    header: Option<LogFileHeader>,
    /// Where the copy continues: number of the next block, SCN, running checksum.
    end: Option<(u32, Scn, StreamCrc)>,
}

impl NewGroup {
    pub fn number(&self) -> usize {
        self.number
    }

    pub fn files(&self) -> Vec<PathBuf> {
        self.members.iter().map(|member| member.path.clone()).collect()
    }
}

impl NewMember {
    pub fn files(&self) -> Vec<PathBuf> {
        self.files.values().map(|copied| copied.member.path.clone()).collect()
    }
}

impl RedoLog {
    /// Creates the files of a group with the lowest free number.
    ///
    /// # Errors
    /// When a file cannot be created; then none is left.
    pub fn make_group(&self, bytes: u64) -> Result<NewGroup, LogError> {
        let layout = self.layout();
        let number = layout.free_number();
        let mut members = Vec::new();
        for path in layout.paths_at(self.config.kind, number - 1) {
            match self.make_file(&path, bytes) {
                Ok(member) => members.push(member),
                Err(error) => {
                    for member in members {
                        let _ = self.disk.remove(&member.path);
                    }
                    return Err(error);
                }
            }
        }
        Ok(NewGroup { number, bytes, members })
    }

    /// Returns the instance whose redo this file holds; `None` when it holds none.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn owner(disk: &dyn Disk, path: &Path) -> Result<Option<InstanceId>, LogError> {
        Ok(header_at(disk, path)?.map(|header| header.instance))
    }

    /// Creates a zeroed file in the place of whatever is there, unless that belongs to another instance.
    fn make_file(&self, path: &Path, bytes: u64) -> Result<Member, LogError> {
        self.config.check_file(self.disk.as_ref(), path)?;
        self.disk.remove(path).map_err(LogError::io("remove the old file of the redo log", path))?;
        let file = self.disk.create(path, bytes).map_err(LogError::io("create the redo log", path))?;
        Ok(Member { file, path: path.to_owned() })
    }

    /// Creates files in `directory` for all groups that have no living member there. Whatever was there is not trusted.
    ///
    /// # Errors
    /// `Refusal` when there is nothing to do, or no letter is left; otherwise when a file cannot be created, and then
    /// none is left.
    pub fn make_member<E: From<Refusal> + From<LogError>>(&self, directory: &Path) -> Result<NewMember, E> {
        let layout = self.layout();
        let free = ('a'..='e').find(|letter| !layout.members.contains_key(letter));
        let letter = layout.letter_of(directory).or(free).ok_or_else(|| {
            Refusal::new("a redo log has at most 5 members", "drop one with `standfast log member drop DIR`")
        })?;
        let lacks = |path: &PathBuf, index: usize| {
            self.catalog().groups[index].members.iter().all(|member| member.path != *path)
        };
        let mut new = NewMember { letter, directory: directory.to_owned(), files: BTreeMap::new() };
        for (number, bytes) in &layout.groups {
            let index = number - 1;
            let path = directory.join(file_name(self.config.kind, index, letter));
            if !lacks(&path, index) {
                continue;
            }
            match self.make_file(&path, *bytes) {
                Ok(member) => _ = new.files.insert(index, Copied { member, header: None, end: None }),
                Err(error) => {
                    for path in new.files() {
                        let _ = self.disk.remove(&path);
                    }
                    return Err(error.into());
                }
            }
        }
        if new.files.is_empty() {
            let what = format!("every group has a living member in {} already", directory.display());
            return Err(Refusal::new(what, "`standfast log group list` shows the members").into());
        }
        Ok(new)
    }

    /// Copies to a new member what the living members hold beyond what it received before; returns the number of bytes.
    /// The log may be written meanwhile.
    ///
    /// # Errors
    /// When a file cannot be read or written.
    pub fn fill(&self, new: &mut NewMember) -> Result<u64, LogError> {
        let mut bytes = 0;
        for (index, copied) in &mut new.files {
            bytes += self.fill_one(*index, copied)?;
        }
        Ok(bytes)
    }

    fn fill_one(&self, index: usize, copied: &mut Copied) -> Result<u64, LogError> {
        let (header, members) = {
            let catalog = self.catalog();
            let group = &catalog.groups[index];
            (group.header, group.members.clone())
        };
        let block_bytes = self.config.block_bytes;
        let Member { file, path } = &copied.member;
        if copied.header != header || copied.end.is_none() {
            let mut block = AlignedBuf::new(block_bytes);
            if let Some(header) = &header {
                header.encode(&mut block[..block_bytes]);
            }
            file.write_durable(&block[..block_bytes], 0).map_err(LogError::io(FILL, path))?;
            let start = header.map_or(Scn::ZERO, |header| header.first_scn);
            let crc = header.map_or(StreamCrc::default(), |header| header.stream_crc);
            (copied.header, copied.end) = (header, Some((1, start, crc)));
        }
        let (Some(header), Some(end)) = (header, copied.end) else { return Ok(0) };
        let mut blocks = Blocks::new(Source { members, header, cuts: Vec::new() })?;
        blocks.resume_at(end);
        let mut buffer = AlignedBuf::new(BUFFER_BYTES);
        let (mut used, mut at, mut bytes) = (0, end.0, 0);
        loop {
            let next = blocks
                .next_block()?
                .map(|(_, block)| buffer[used..used + block_bytes].copy_from_slice(block));
            used += if next.is_some() { block_bytes } else { 0 };
            if used > 0 && (next.is_none() || used == BUFFER_BYTES) {
                let offset = u64::from(at) * block_bytes as u64;
                file.write_durable(&buffer[..used], offset).map_err(LogError::io(FILL, path))?;
                at += (used / block_bytes) as u32;
                bytes += used as u64;
                used = 0;
            }
            if next.is_none() {
                copied.end = Some(blocks.end());
                return Ok(bytes);
            }
        }
    }

    /// Returns the index of this group, or why the group cannot be dropped now.
    fn check_droppable(&self, number: usize) -> Result<usize, Refusal> {
        let catalog = self.catalog();
        let index = number.wrapping_sub(1);
        if !catalog.layout.groups.contains_key(&number) {
            let what = format!("there is no log group {number}");
            return Err(Refusal::new(what, "`standfast log group list` shows the groups"));
        }
        let refuse = |why: &str, hint: &str| Err(Refusal::new(format!("log group {number} {why}"), hint));
        if index == catalog.current {
            return refuse(
                "is the current one: redo is being written to it",
                "`standfast switch-logfile` (at the primary), then try again",
            );
        }
        if catalog.is_last_before_hole(index) {
            return refuse(
                "is where the redo without a gap ends",
                "wait until the gap is filled, then try again",
            );
        }
        let group = &catalog.groups[index];
        if group.header.is_some() && !group.archived {
            return refuse(
                "is not archived",
                "wait until it is; the alert log says what keeps logs from being archived",
            );
        }
        if group.next_scn.is_some_and(|next| next > self.reuse_limit()) {
            return refuse(
                "is not at every destination that it has to reach before it is used again",
                "look at the destinations in `standfast status`, then try again",
            );
        }
        if self.config.kind == LogKind::Online && self.state_of(&catalog, index) == GroupState::Active {
            return refuse("is still needed for recovery", "`standfast checkpoint`, then try again");
        }
        Ok(index)
    }
}

impl LogWriter {
    /// Drops a group, adds one, or both in one step. `remember` makes durable the layout that it is given, and that the
    /// files are not stale: they are new or no longer part of the log. Returns the files that are no longer used.
    ///
    /// # Errors
    /// `Refusal` when the group cannot be dropped now, or fewer than two groups would be left; the error of `remember`.
    /// Nothing has changed then.
    pub fn change_groups<E: From<Refusal>>(
        &mut self,
        drop: Option<usize>,
        add: Option<NewGroup>,
        remember: impl FnOnce(&Layout, &[PathBuf]) -> Result<(), E>,
    ) -> Result<Vec<PathBuf>, E> {
        let log = self.log().clone();
        let mut layout = log.layout();
        let dropped = drop.map(|number| log.check_droppable(number)).transpose()?;
        let unused = dropped.map(|index| layout.paths_at(log.config.kind, index)).unwrap_or_default();
        let mut lack_nothing = unused.clone();
        if let Some(number) = drop {
            layout.groups.remove(&number);
        }
        if let Some(new) = &add {
            layout.groups.insert(new.number, new.bytes);
            lack_nothing.extend(new.files());
        }
        // Of a standby log one is held before a gap, one is filled beyond it, and the stream that fills the gap must be
        // able to switch.
        let (fewest, what) = match log.config.kind {
            LogKind::Standby => (3, "a standby redo log has at least three groups"),
            _ => (2, "a redo log has at least two groups"),
        };
        if layout.groups.len() < fewest {
            let hint = "add another one first with `standfast log group add`";
            return Err(Refusal::new(what, hint).into());
        }
        remember(&layout, &lack_nothing)?;
        let mut catalog = log.catalog();
        if let Some(index) = dropped {
            debug_assert!(log.is_spare(&catalog, index), "the redo of the group is still needed");
            catalog.groups[index] = Group::absent();
        }
        if let Some(new) = add {
            let index = new.number - 1;
            while catalog.groups.len() <= index {
                catalog.groups.push(Group::absent());
            }
            catalog.groups[index] = Group { members: new.members, ..Group::absent() };
        }
        catalog.layout = layout;
        Ok(unused)
    }

    /// Fills the new member to its end and makes it part of the log. `remember` makes durable the layout that it is
    /// given, and that the files are not stale.
    ///
    /// # Errors
    /// `Refusal` when the member cannot be filled; the error of `remember`. Nothing has changed then.
    pub fn admit_member<E: From<Refusal> + From<LogError>>(
        &mut self,
        mut new: NewMember,
        remember: impl FnOnce(&Layout, &[PathBuf]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.usable()?;
        let log = self.log().clone();
        log.fill(&mut new)?;
        self.check_filled(&new)?;
        let mut layout = log.layout();
        layout.members.insert(new.letter, new.directory.clone());
        self.provide_for(layout.members.len())?;
        remember(&layout, &new.files())?;
        let mut catalog = log.catalog();
        catalog.layout = layout;
        for (index, Copied { member, .. }) in new.files {
            let group = &mut catalog.groups[index];
            group.dropped.retain(|path| *path != member.path);
            group.members.push(member);
            group.members.sort_by(|a, b| a.path.file_name().cmp(&b.path.file_name()));
        }
        let current = catalog.current;
        std::mem::drop(catalog);
        self.write_to(current);
        Ok(())
    }

    /// Checks that the new member is complete: a group whose living members could not be read to the end would lack
    /// redo in it.
    fn check_filled(&self, new: &NewMember) -> Result<(), Refusal> {
        let catalog = self.log().catalog();
        for (index, Copied { member, header, end }) in &new.files {
            let group = &catalog.groups[*index];
            let (number, position) = end.map_or((0, Scn::ZERO), |(number, position, _)| (number, position));
            let whole = match group.header {
                None => header.is_none(),
                Some(_) if *index == catalog.current => {
                    number == self.block_number() && position == self.position()
                }
                Some(_) => group.next_scn == Some(position),
            };
            if *header != group.header || !whole {
                return Err(Refusal::new(
                    format!("{} could not be given all that its group holds", member.path.display()),
                    "look after the devices of the other members, then try again",
                ));
            }
        }
        Ok(())
    }

    /// Drops the members in `directory`. `remember` makes durable the layout that it is given, in which their files no
    /// longer matter. Returns these files.
    ///
    /// # Errors
    /// `Refusal` when a group would have no member left; the error of `remember`. Nothing has changed then.
    pub fn drop_member<E: From<Refusal>>(
        &mut self,
        directory: &Path,
        remember: impl FnOnce(&Layout, &[PathBuf]) -> Result<(), E>,
    ) -> Result<Vec<PathBuf>, E> {
        let log = self.log().clone();
        let mut layout = log.layout();
        let Some(letter) = layout.letter_of(directory) else {
            let what = format!("no member of the redo log is in {}", directory.display());
            return Err(Refusal::new(what, "`standfast log group list` shows the members").into());
        };
        let kind = log.config.kind;
        let numbers: Vec<usize> = layout.groups.keys().copied().collect();
        let files: Vec<PathBuf> =
            numbers.iter().filter_map(|number| layout.path(kind, number - 1, letter)).collect();
        let is_dropped = |path: &PathBuf| files.contains(path);
        for number in &numbers {
            let catalog = log.catalog();
            if catalog.groups[number - 1].members.iter().all(|member| is_dropped(&member.path)) {
                return Err(Refusal::new(
                    format!("log group {number} has no living member but that in {}", directory.display()),
                    "add another one first with `standfast log member add DIR`",
                )
                .into());
            }
        }
        layout.members.remove(&letter);
        remember(&layout, &files)?;
        let mut catalog = log.catalog();
        catalog.layout = layout;
        for group in &mut catalog.groups {
            group.members.retain(|member| !is_dropped(&member.path));
            group.dropped.retain(|path| !is_dropped(path));
        }
        let current = catalog.current;
        std::mem::drop(catalog);
        self.write_to(current);
        Ok(files)
    }
}
