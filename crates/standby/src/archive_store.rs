//! Archived logs that a standby fetches over separate connections: from the first byte to a verified file.

use crate::standby_shared::StandbyShared;
use standfast_environment::context::environment::Environment;
use standfast_format::{LogKind, StreamCrc};
use standfast_io::{Disk, LogFile};
use standfast_log::{ArchivedLog, LogError, RedoLog, Verified, verify_archived};
use standfast_transport::{ArchivePart, ArchiveStore, ArchivedLogInfo, Gap, StageError, stage_error};
use standfast_types::{InstanceId, Scn, hint};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// File name extension of a log that is being fetched.
const SUFFIX: &str = "fetch";

/// What an archived log must contain.
#[derive(Clone, Copy, Debug)]
pub struct Expected {
    pub log: ArchivedLogInfo,
    /// Family that the redo belongs to.
    pub family: InstanceId,
    /// Running checksum after its last byte.
    pub end_crc: StreamCrc,
    /// A position that the log may contain, and the running checksum that this standby has there.
    pub joint: (Scn, StreamCrc),
}

impl Expected {
    /// Builds it for the log at `index` of a gap that begins with the running checksum `crc`.
    pub fn of(gap: &Gap, index: usize, family: InstanceId, crc: StreamCrc) -> Expected {
        let end_crc = gap.logs.get(index + 1).map_or(gap.crc, |next| next.crc);
        Expected { log: gap.logs[index], family, end_crc: StreamCrc(end_crc), joint: (gap.from, crc) }
    }

    /// Verifies that the file at `path` is that log, complete from its first to its last block; `None` when it is not.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn is_met_by(&self, disk: &dyn Disk, path: &Path) -> Result<Option<Verified>, LogError> {
        let verified = match verify_archived(disk, path, self.joint.0) {
            Ok(verified) => verified,
            Err(LogError::NotWhole { .. } | LogError::Damaged { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let (header, log) = (&verified.header, &self.log);
        let same = header.kind == LogKind::Archived
            && header.instance == self.family
            && (header.incarnation, header.incarnation_id) == (log.incarnation, log.incarnation_id)
            && (header.sequence, header.first_scn) == (log.sequence, log.first_scn)
            && header.next_scn == Some(log.next_scn)
            && (header.stream_crc, header.file_bytes) == (StreamCrc(log.crc), log.bytes)
            && verified.end_crc == self.end_crc;
        let contains_joint = log.first_scn <= self.joint.0 && self.joint.0 <= log.next_scn;
        let joins = !contains_joint || verified.crc_at == Some(self.joint.1);
        Ok((same && joins).then_some(verified))
    }
}

/// Store for the logs of a gap.
pub struct FetchedLogs {
    environment: Arc<Environment>,
    shared: Arc<StandbyShared>,
    gap: Gap,
    /// Running checksum where the gap begins.
    crc: StreamCrc,
}

impl FetchedLogs {
    /// Takes `gap` and the running checksum `crc` of the stream before it.
    pub fn new(
        environment: &Arc<Environment>,
        shared: &Arc<StandbyShared>,
        gap: &Gap,
        crc: StreamCrc,
    ) -> FetchedLogs {
        FetchedLogs { environment: environment.clone(), shared: shared.clone(), gap: gap.clone(), crc }
    }
}

impl ArchiveStore for FetchedLogs {
    fn create(&self, log: &ArchivedLogInfo) -> Result<Arc<dyn ArchivePart>, StageError> {
        let index = self.gap.logs.iter().position(|other| other == log).ok_or("a log that is not missing")?;
        let family = self.environment.control().family;
        let disk = self.environment.disk.clone();
        let path = archive_path(&self.shared.log, log);
        let part = path.with_extension(SUFFIX);
        disk.remove(&part).map_err(keeping(&part))?;
        let file = disk.create_copy(&part, log.bytes).map_err(keeping(&part))?;
        let expected = Expected::of(&self.gap, index, family, self.crc);
        Ok(Arc::new(Part { disk, shared: self.shared.clone(), expected, path, part, file }))
    }
}

pub fn archive_path(log: &RedoLog, info: &ArchivedLogInfo) -> PathBuf {
    log.archive_path(info.incarnation, info.incarnation_id, info.sequence)
}

fn keeping(path: &Path) -> impl FnOnce(std::io::Error) -> StageError {
    let path = path.display().to_string();
    move |error| {
        let what = format!("cannot write {path}: {error}");
        hint::in_one_line(what, standfast_io::remedy(&error).as_deref()).into()
    }
}

struct Part {
    disk: Arc<dyn Disk>,
    shared: Arc<StandbyShared>,
    expected: Expected,
    path: PathBuf,
    part: PathBuf,
    file: Arc<dyn LogFile>,
}

impl ArchivePart for Part {
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), StageError> {
        self.file.write(bytes, offset).map_err(keeping(&self.part))
    }

    fn complete(&self) -> Result<bool, StageError> {
        self.file.sync().map_err(keeping(&self.part))?;
        let Some(verified) = self.expected.is_met_by(self.disk.as_ref(), &self.part).map_err(stage_error)?
        else {
            self.disk.remove(&self.part).map_err(keeping(&self.part))?;
            return Ok(false);
        };
        self.disk.rename(&self.part, &self.path).map_err(keeping(&self.path))?;
        let (path, bytes) = (self.path.clone(), verified.header.file_bytes);
        self.shared.log.add_archived(ArchivedLog { path, header: verified.header, bytes });
        self.shared.note_contiguous();
        Ok(true)
    }
}

/// Removes the remains of logs whose fetch was interrupted when the instance stopped.
///
/// # Errors
/// When a file cannot be removed.
pub fn remove_unfinished(disk: &dyn Disk, directory: &Path) -> std::io::Result<()> {
    for path in disk.list(directory)? {
        if path.extension().is_some_and(|extension| extension == SUFFIX) {
            disk.remove(&path)?;
        }
    }
    Ok(())
}
