//! The configuration of a redo log, and the headers of logs that follow from it.

use crate::error::LogError;
use crate::header::{LogIdentity, LogSwitch, header_at};
use crate::layout::Layout;
use standfast_format::{LogFileHeader, LogKind, StreamCrc};
use standfast_io::Disk;
use standfast_types::InstanceId;
use std::path::{Path, PathBuf};

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
    /// Size of the file of each member.
    pub group_bytes: u64,
    /// 512 or 4,096: the logical block size of the device.
    pub block_bytes: usize,
    pub archive_directory: PathBuf,
    /// Stale members: they were dropped and lack redo. Nothing is read from them until recovery has repaired them. A
    /// caller that opens a log to write to it records [`crate::RedoLog::dropped_members`] durably before the first
    /// write, and passes them here at the next start.
    pub distrusted: Vec<PathBuf>,
    /// The current groups and members, once they differ from `member_directories`, `groups` and `group_bytes`, with
    /// which the log was created.
    pub layout: Option<Layout>,
    /// Family of the redo in the files, by [`LogIdentity::instance`]. Files of another family are neither trusted nor
    /// changed. `None` accepts any family.
    pub family: Option<InstanceId>,
}

impl LogConfig {
    /// Returns the layout that is set, or groups of equal size from the other settings.
    pub fn layout(&self) -> Layout {
        self.layout.clone().unwrap_or_else(|| Layout {
            groups: (1..=self.groups).map(|number| (number, self.group_bytes)).collect(),
            members: ('a'..='z').zip(self.member_directories.iter().cloned()).collect(),
        })
    }

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
        match header_at(disk, path) {
            Ok(Some(header)) => self.check_owner(path, &header),
            _ => Ok(()),
        }
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
