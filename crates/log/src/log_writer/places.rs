//! Whether the files that are written are still what their paths say. A file that was removed, or in whose place there is
//! another one, takes writes as before, and nothing of them is there after a restart.

use super::LogWriter;
use crate::error::LogError;
use crate::groups::{Member, RedoLog};
use crate::members::Failures;
use standfast_io::{Disk, FileIdentity};
use std::io::{Error, ErrorKind};
use std::path::PathBuf;

/// A file of the redo log that is open, and which one that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberPlace {
    /// Its path.
    pub path: PathBuf,
    /// Of the descriptor.
    pub identity: FileIdentity,
    /// Whether its group is being written.
    pub current: bool,
}

impl RedoLog {
    /// The living members of all groups. Those of a disk that knows no identities are not among them.
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

/// Why a member is no longer the file that its path names; `None`: it is, or the disk cannot say.
fn moved(disk: &dyn Disk, member: &Member) -> Option<Error> {
    let open = member.file.identity().ok()??;
    let why = match disk.identity(&member.path) {
        Ok(found) if found.is_none_or(|found| found == open) => return None,
        Ok(_) => "another file has taken its place while it was open",
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            "it was removed while it was open"
        }
        // Whether it is still there cannot be said: nothing is given up for that.
        Err(_) => return None,
    };
    Some(Error::other(format!("{}: {why}", member.path.display())))
}

impl LogWriter {
    /// Goes on without the members of the current group that are no longer what their paths say. Costs two system calls a
    /// member, so it is done at every log switch and about once a second, not at every write.
    ///
    /// # Errors
    /// `Poisoned`, now and ever after, when none is left, or it cannot be remembered which ones lack redo.
    pub fn check_places(&mut self) -> Result<(), LogError> {
        self.usable()?;
        self.leave_moved_members()
    }

    /// Nothing is written any more, because of something outside of the log; the first cause stays.
    pub fn refuse(&mut self, cause: &str) {
        if self.poisoned.is_none() {
            self.poison(cause.to_owned());
        }
    }

    /// Why nothing is written any more.
    ///
    /// # Errors
    /// `Poisoned`.
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
        self.go_on_without(&targets, failures)
    }
}
