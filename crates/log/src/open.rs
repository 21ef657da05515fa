//! Opening the files of all groups: which members live, and do they have the geometry of the configuration?

use crate::error::LogError;
use crate::groups::{Group, LogConfig, Member, MemberNotice, file_prefix, read_header};
use crate::layout::Layout;
use standfast_format::{LogFileHeader, encode_void};
use standfast_io::{AlignedBuf, Disk};
use std::path::{Path, PathBuf};

/// A member that can be read.
pub(crate) struct OpenMember {
    pub member: Member,
    /// Of its own.
    pub header: Option<LogFileHeader>,
    /// Nothing is read from it.
    pub distrusted: bool,
}

/// One group while it is opened.
#[derive(Default)]
pub(crate) struct OpenGroup {
    pub members: Vec<OpenMember>,
    /// With the reason.
    pub dropped: Vec<(PathBuf, LogError)>,
}

/// All groups while they are opened.
pub(crate) struct Opened {
    pub groups: Vec<OpenGroup>,
    /// What was found out beside members that are dropped.
    pub notices: Vec<MemberNotice>,
}

impl OpenGroup {
    /// What the group holds. A member whose header is torn, or that was not yet told of the newest use of the group,
    /// is completed by another one.
    pub fn header(&self) -> Option<LogFileHeader> {
        let trusted = self.members.iter().filter(|open| !open.distrusted);
        trusted.filter_map(|open| open.header).max_by_key(|header| (header.incarnation, header.sequence))
    }

    /// Members that may be read, for going over what they hold together.
    pub fn trusted(&self) -> Vec<Member> {
        let trusted = self.members.iter().filter(|open| !open.distrusted);
        trusted.map(|open| open.member.clone()).collect()
    }

    /// Goes on without the members of which `failed` says why.
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

    /// Why there is nobody to read from, if so.
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
            // The remedy of the cause is that of a log that cannot be opened, and this one can.
            let cause = cause.to_string().lines().next().unwrap_or_default().to_owned();
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

/// Opens the groups of a log that is to be recovered.
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

/// Opens the groups for a log that begins anew and voids what they held.
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
        // Also where there is nothing to void: a member that cannot be written is found out before the log begins.
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
            // Another version of Standfast wrote it, and knows what it means.
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

/// A log is not opened where one of its files is another instance's: to go on without that one would be to make it a
/// member again at the next start.
fn check_owners(group: &mut OpenGroup) -> Result<(), LogError> {
    let foreign = group.dropped.iter().position(|(_, cause)| matches!(cause, LogError::Foreign { .. }));
    foreign.map_or(Ok(()), |index| Err(group.dropped.swap_remove(index).1))
}

/// Fewer groups than there are files would leave out redo, and more would look like files that were lost.
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
            // A standby has more groups than its configuration names, as many as it was given beyond that.
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

/// Which of two logs is the newer one.
fn order(header: &LogFileHeader) -> (u32, u64) {
    (header.incarnation, header.sequence)
}

/// Files of groups that the layout does not name are what is left of a change; they hold nothing that counts. One that
/// holds newer redo than all groups means that the layout is not that of this log: a control file from a backup.
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

/// Drops members that do not have the size that their group has, and refuses a group that was made with other
/// settings. A distrusted member may be of a group that was replaced since: nothing is read from it.
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
