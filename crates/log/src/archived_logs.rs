//! Archived logs: their names, and which of them a directory holds.

use crate::error::LogError;
use crate::header::read_header;
use standfast_format::LogFileHeader;
use standfast_io::Disk;
use standfast_types::{IncarnationId, IncarnationNo, InstanceId, Scn};
use std::path::{Path, PathBuf};

pub(crate) const SUFFIX: &str = "arc";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArchivedLog {
    pub path: PathBuf,
    pub header: LogFileHeader,
    /// Size of the file, its header included.
    pub bytes: u64,
}

impl ArchivedLog {
    /// Returns whether this log contains the byte at `at`.
    pub fn holds(&self, at: Scn) -> bool {
        self.header.first_scn <= at && self.header.next_scn.is_some_and(|next| at < next)
    }
}

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
    logs.sort_by_key(|log| (log.header.incarnation, log.header.sequence, log.header.first_scn));
    Ok(logs)
}
