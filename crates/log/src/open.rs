//! Opens the files of all groups: finds which members live, and whether they have the configured geometry.

use crate::config::LogConfig;
use crate::error::LogError;
use crate::groups::{Group, Member, MemberNotice};
use crate::header::read_header;
use crate::layout::{Layout, file_prefix};
use standfast_format::{LogFileHeader, encode_void};
use standfast_io::{AlignedBuf, Disk};
use std::path::{Path, PathBuf};

/// A member that can be read.
pub(crate) struct OpenMember {
    pub member: Member,
    /// Header in the file of this member.
    pub header: Option<LogFileHeader>,
    /// Nothing is read from this member: it is stale.
    pub distrusted: bool,
}

/// A group while it is opened.
#[derive(Default)]
pub(crate) struct OpenGroup {
    pub members: Vec<OpenMember>,
    /// Files of dropped members, with the reason.
    pub dropped: Vec<(PathBuf, LogError)>,
}

/// All groups while they are opened.
pub(crate) struct Opened {
    pub groups: Vec<OpenGroup>,
    /// Messages other than those about dropped members.
    pub notices: Vec<MemberNotice>,
}

impl OpenGroup {
    /// Header of the log that the group holds. A member whose header is torn, or that did not receive the newest
    /// header, is completed from another one.
    pub fn header(&self) -> Option<LogFileHeader> {
        let trusted = self.members.iter().filter(|open| !open.distrusted);
        trusted.filter_map(|open| open.header).max_by_key(|header| (header.incarnation, header.sequence))
    }

    /// Members that may be read: all that are not stale.
    pub fn trusted(&self) -> Vec<Member> {
        let trusted = self.members.iter().filter(|open| !open.distrusted);
        trusted.map(|open| open.member.clone()).collect()
    }

    /// Drops the members for which `failed` returns a reason.
    pub fn drop_members(&mut self, mut failed: impl FnMut(&OpenMember) -> Option<LogError>) {
        let mut living = Vec::new();
        for open in std::mem::take(&mut self.members) {
            match failed(&open) {
                Some(cause) => self.dropped.push((open.member.path, cause)),
                None => living.push(open),
            }
        }
        self.members = living;
    }

    /// Returns an error when the group has no member to read from.
    pub fn check_alive(&mut self) -> Result<(), LogError> {
        match self.members.first() {
            None if self.dropped.is_empty() => Err(LogError::Unopened),
            None => Err(self.dropped.swap_remove(0).1),
            Some(first) if self.members.iter().all(|open| open.distrusted) => {
                Err(LogError::OnlyDistrusted { path: first.member.path.clone() })
            }
            Some(_) => Ok(()),
        }
    }

    fn finish(self, notices: &mut Vec<MemberNotice>) -> Group {
        let header = self.header();
        let (members, distrusted): (Vec<_>, Vec<_>) =
            self.members.into_iter().partition(|open| !open.distrusted);
        let living = members.first().map(|open| open.member.path.clone()).unwrap_or_default();
        let mut dropped: Vec<_> = distrusted.into_iter().map(|open| open.member.path).collect();
        for (path, cause) in self.dropped {
            dropped.push(path.clone());
            // Without the hint of the cause, which is for a log that cannot be opened; this one can.
            let cause = cause.to_string();
            notices.push(MemberNotice::Dropped { path, cause, living: living.clone() });
        }
        let members = members.into_iter().map(|open| open.member).collect();
        Group { members, dropped, header, next_scn: None, archived: false, cuts: None }
    }
}

impl Opened {
    pub fn finish(self) -> (Vec<Group>, Vec<MemberNotice>) {
        let mut notices = self.notices;
        let groups = self.groups.into_iter().map(|group| group.finish(&mut notices)).collect();
        (groups, notices)
    }
}

/// Opens the groups of a log for recovery.
pub(crate) fn open_groups(disk: &dyn Disk, config: &LogConfig) -> Result<Opened, LogError> {
    check_number_of_groups(disk, config)?;
    let mut groups = Vec::new();
    let layout = config.layout();
    for index in 0..layout.places() {
        let Some(bytes) = layout.bytes_at(index) else {
            groups.push(OpenGroup::default());
            continue;
        };
        let mut group = open_members(disk, config, index, &config.distrusted)?;
        check_owners(&mut group)?;
        check_geometry(&mut group, config, bytes)?;
        group.check_alive()?;
        groups.push(group);
    }
    if config.layout.is_some() {
        let newest = groups.iter().filter_map(OpenGroup::header).map(|header| order(&header)).max();
        check_unlisted(disk, config, &layout, newest)?;
    }
    Ok(Opened { groups, notices: Vec::new() })
}

/// Opens the groups for a log that starts from scratch, and voids what they held.
pub(crate) fn open_for_new(
    disk: &dyn Disk,
    config: &LogConfig,
) -> Result<(Vec<Group>, Vec<MemberNotice>), LogError> {
    let mut void = AlignedBuf::new(config.block_bytes);
    encode_void(&mut void[..config.block_bytes]);
    let mut groups = Vec::new();
    let layout = config.layout();
    for index in 0..layout.places() {
        if layout.bytes_at(index).is_none() {
            groups.push(OpenGroup::default());
            continue;
        }
        let mut group = open_members(disk, config, index, &[])?;
        // Write even where there is nothing to void, to find a member that cannot be written before the log starts.
        group.drop_members(|OpenMember { member: Member { file, path }, .. }| {
            file.write_durable(&void[..config.block_bytes], 0)
                .map_err(LogError::io("write the redo log", path))
                .err()
        });
        group.members.iter_mut().for_each(|open| open.header = None);
        group.check_alive()?;
        groups.push(group);
    }
    Ok(Opened { groups, notices: Vec::new() }.finish())
}

fn open_members(
    disk: &dyn Disk,
    config: &LogConfig,
    index: usize,
    distrusted: &[PathBuf],
) -> Result<OpenGroup, LogError> {
    let mut group = OpenGroup::default();
    for path in config.layout().paths_at(config.kind, index) {
        match open_member(disk, config, &path) {
            Ok((member, header)) => {
                let distrusted = distrusted.contains(&path);
                group.members.push(OpenMember { member, header, distrusted });
            }
            // Another version of Standfast wrote the file and knows its meaning.
            Err(error @ LogError::Damaged { .. }) => return Err(error),
            Err(error) => group.dropped.push((path, error)),
        }
    }
    Ok(group)
}

fn open_member(
    disk: &dyn Disk,
    config: &LogConfig,
    path: &Path,
) -> Result<(Member, Option<LogFileHeader>), LogError> {
    let file = disk.open(path).map_err(LogError::io("open the redo log", path))?;
    let header = read_header(file.as_ref(), path)?;
    header.map_or(Ok(()), |header| config.check_owner(path, &header))?;
    Ok((Member { file, path: path.to_owned() }, header))
}

/// Refuses to open a log if one of its files belongs to another instance. Continuing without that file would make it a
/// member again at the next start.
fn check_owners(group: &mut OpenGroup) -> Result<(), LogError> {
    let foreign = group.dropped.iter().position(|(_, cause)| matches!(cause, LogError::Foreign { .. }));
    foreign.map_or(Ok(()), |index| Err(group.dropped.swap_remove(index).1))
}

/// Refuses a number of groups that differs from the number of files: fewer groups would omit redo, and more would look
/// like lost files.
fn check_number_of_groups(disk: &dyn Disk, config: &LogConfig) -> Result<(), LogError> {
    if config.layout.is_some() {
        return Ok(());
    }
    let prefix = format!("{}_", file_prefix(config.kind));
    let number = |path: PathBuf| {
        let name = path.file_stem()?.to_str()?.strip_prefix(&prefix)?;
        let digits = name.strip_suffix(|letter: char| letter.is_ascii_lowercase())?;
        let is_log = path.extension().is_some_and(|extension| extension == "log");
        Some((digits.parse::<usize>().ok().filter(|_| is_log)?, path))
    };
    let directories = config.member_directories.iter();
    let files = directories.flat_map(|directory| disk.list(directory).unwrap_or_default());
    match files.filter_map(number).max() {
        Some((found, path)) if found != config.groups => {
            config.check_file(disk, &path)?;
            // A standby has `unnamed_groups` more groups than its configuration names; report both numbers without
            // them.
            let (found, configured) = (found as u64, config.groups as u64);
            let beyond = config.unnamed_groups as u64;
            Err(LogError::Geometry {
                path,
                setting: "redo.groups",
                found: found.saturating_sub(beyond),
                configured: configured.saturating_sub(beyond),
            })
        }
        _ => Ok(()),
    }
}

/// Sort key: the newer of two logs is the greater one.
fn order(header: &LogFileHeader) -> (u32, u64) {
    (header.incarnation, header.sequence)
}

/// Checks the files of groups that the layout does not name. They are left over from a change and hold nothing that
/// counts. If one holds newer redo than all groups, the layout is not that of this log: the control file comes from a
/// backup.
fn check_unlisted(
    disk: &dyn Disk,
    config: &LogConfig,
    layout: &Layout,
    newest: Option<(u32, u64)>,
) -> Result<(), LogError> {
    let prefix = format!("{}_", file_prefix(config.kind));
    for (letter, directory) in &layout.members {
        for path in disk.list(directory).unwrap_or_default() {
            let number = path.file_name().and_then(|name| {
                let name = name.to_str()?.strip_prefix(&prefix)?.strip_suffix(".log")?;
                name.strip_suffix(*letter)?.parse::<usize>().ok()
            });
            if number.is_none_or(|number| layout.groups.contains_key(&number)) {
                continue;
            }
            let header = match open_member(disk, config, &path) {
                Ok((_, Some(header))) => header,
                Err(foreign @ LogError::Foreign { .. }) => return Err(foreign),
                _ => continue,
            };
            if newest.is_none_or(|newest| order(&header) > newest) {
                return Err(LogError::Unlisted { path });
            }
        }
    }
    Ok(())
}

/// Drops members whose size is not that of their group, and refuses a group that was created with other settings. Skips
/// stale members: one may be of a group that was replaced since, and nothing is read from it.
fn check_geometry(group: &mut OpenGroup, config: &LogConfig, bytes: u64) -> Result<(), LogError> {
    group.drop_members(|open| if open.distrusted { None } else { differs(open, config, bytes).err() });
    let alive = group.members.iter().any(|open| !open.distrusted);
    let differing = group.dropped.iter().position(|(_, cause)| matches!(cause, LogError::Geometry { .. }));
    match differing {
        Some(index) if !alive => Err(group.dropped.swap_remove(index).1),
        _ => Ok(()),
    }
}

fn differs(open: &OpenMember, config: &LogConfig, group_bytes: u64) -> Result<(), LogError> {
    let Member { file, path } = &open.member;
    let check = |setting, found, configured| match found == configured {
        true => Ok(()),
        false => Err(LogError::Geometry { path: path.clone(), setting, found, configured }),
    };
    if let Some(header) = open.header {
        check("redo.group_bytes", header.file_bytes, group_bytes)?;
        check("redo.block_bytes", header.block_bytes.into(), config.block_bytes as u64)?;
    }
    // A full group of a standby may have grown.
    let bytes = file.len().map_err(LogError::io("read the size of the redo log", path))?;
    check("redo.group_bytes", bytes.min(group_bytes), group_bytes)
}
