//! The header of a log: what it says, and how it is read from a file.

use crate::error::LogError;
use standfast_format::{FILE_HEADER_BYTES, LogFileHeader};
use standfast_io::{Disk, LogFile};
use standfast_types::{IncarnationId, IncarnationNo, InstanceId, Scn};
use std::path::Path;

/// Identity of the redo in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogIdentity {
    pub instance: InstanceId,
    pub incarnation: IncarnationNo,
    pub incarnation_id: IncarnationId,
}

impl LogIdentity {
    pub fn of(header: &LogFileHeader) -> LogIdentity {
        LogIdentity {
            instance: header.instance,
            incarnation: header.incarnation,
            incarnation_id: header.incarnation_id,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSwitch {
    pub sequence: u64,
    /// SCN of the first byte of the new log.
    pub first_scn: Scn,
    /// Time of the switch, microseconds since the Unix epoch.
    pub time_us: u64,
    /// Bytes from `first_scn` to the first record that starts in it.
    pub first_record: u32,
}

impl LogSwitch {
    pub(crate) fn of(header: &LogFileHeader) -> LogSwitch {
        LogSwitch {
            sequence: header.sequence,
            first_scn: header.first_scn,
            time_us: header.first_time_us,
            first_record: header.first_record,
        }
    }
}

/// Sort key for the order in which logs were begun: an empty log begins where the next one does.
pub(crate) fn order_begun(header: &LogFileHeader) -> (Scn, u32, u64) {
    (header.first_scn, header.incarnation, header.sequence)
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

pub(crate) fn header_at(disk: &dyn Disk, path: &Path) -> Result<Option<LogFileHeader>, LogError> {
    let file = disk.open(path).map_err(LogError::io("open the redo log", path))?;
    read_header(file.as_ref(), path)
}
