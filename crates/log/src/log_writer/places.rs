//! Checks that the files being written are still what their paths name. A file that was removed or replaced takes
//! writes as before, but nothing of them is found after a restart.

use super::LogWriter;
use crate::error::LogError;
use crate::groups::Member;
use crate::members::Failures;
use crate::redo_log::RedoLog;
use standfast_io::{Disk, FileIdentity};
use std::io::{Error, ErrorKind};
use std::path::PathBuf;

/// An open file of the redo log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberPlace {
    pub path: PathBuf,
    pub identity: FileIdentity,
    /// Whether its group is being written.
    pub current: bool,
}

impl RedoLog {
    /// The living members of all groups, without those on a disk that does not know file identities.
    pub fn places(&self) -> Vec<MemberPlace> {
        let catalog = self.catalog();
        let groups = catalog.groups.iter().enumerate();
        groups
            .flat_map(|(at, group)| group.members.iter().map(move |member| (at, member)))
            .filter_map(|(at, member)| {
                let identity = member.file.identity().ok()??;
                Some(MemberPlace { path: member.path.clone(), identity, current: at == catalog.current })
            })
            .collect()
    }
}

/// Why a member is no longer the file that its path names; `None` when it is, or when the disk cannot tell.
fn moved(disk: &dyn Disk, member: &Member) -> Option<Error> {
    let open = member.file.identity().ok()??;
    let why = match disk.identity(&member.path) {
        Ok(found) if found.is_none_or(|found| found == open) => return None,
        Ok(_) => "another file has taken its place while it was open",
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            "it was removed while it was open"
        }
        // Whether the file is still there is unknown: the member is not dropped for that.
        Err(_) => return None,
    };
    Some(Error::other(format!("{}: {why}", member.path.display())))
}

impl LogWriter {
    /// Drops the members of the current group that are no longer what their paths name. Costs two system calls per
    /// member, so it is done at every log switch and about once a second, not at every write.
    ///
    /// # Errors
    /// `Poisoned`, now and on every later call, when no member is left, or a stale member cannot be recorded.
    pub fn check_places(&mut self) -> Result<(), LogError> {
        self.usable()?;
        self.leave_moved_members()
    }

    /// Stops all writes because of something outside the log; the first cause is kept.
    pub fn refuse(&mut self, cause: &str) {
        if self.poisoned.is_none() {
            self.poison(cause.to_owned());
        }
    }

    /// Checks that the log may still be written.
    ///
    /// # Errors
    /// `Poisoned`, with the cause, when it may not.
    pub fn is_usable(&self) -> Result<(), LogError> {
        match &self.poisoned {
            Some((at, cause)) => Err(LogError::Poisoned { at: *at, cause: cause.clone() }),
            None => Ok(()),
        }
    }

    pub(super) fn leave_moved_members(&mut self) -> Result<(), LogError> {
        let disk = &*self.log.disk;
        let failures: Failures = self
            .targets
            .iter()
            .enumerate()
            .filter_map(|(index, member)| Some((index, moved(disk, member)?)))
            .collect();
        if failures.is_empty() {
            return Ok(());
        }
        let targets = self.targets.clone();
        self.continue_without(&targets, failures)
    }
}
