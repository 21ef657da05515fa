//! What only this instance has: redo beyond the position where the histories part.

use super::branch::is_lost;
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::creation::make_directory;
use standfast_environment::ship::archiving::archive_at_once;
use standfast_environment::state::control::Role;
use standfast_environment::state::modes;
use standfast_environment::state::now::now_us;
use standfast_format::{LogKind, Record, decode_record};
use standfast_io::sync_directory_of;
use standfast_log::{RecordReader, RedoLog, archived_logs};
use standfast_transport::Incarnation;
use standfast_types::{DatabaseId, Hint, Scn};
use std::path::PathBuf;

/// Redo that no other instance follows.
pub struct LostBranch {
    begin: Scn,
    /// Archived logs can hold it.
    is_kept: bool,
    found: Result<Found, InstanceError>,
}

#[derive(Default)]
struct Found {
    commits: u64,
    /// Databases that were protected here after the histories parted.
    protected: Vec<DatabaseId>,
}

impl LostBranch {
    /// Reads the redo here from `begin` on, where the histories part.
    pub fn read(environment: &Environment, begin: Scn) -> LostBranch {
        let is_kept = environment.of_control(|control| control.gap.is_none());
        LostBranch { begin, is_kept, found: read(environment, begin) }
    }

    /// Databases that were protected here after the histories parted, as far as the redo can be read.
    pub fn protected(&self) -> Vec<DatabaseId> {
        self.found.as_ref().map_or_else(|_| Vec::new(), |found| found.protected.clone())
    }

    /// Says what a reinstatement discards.
    pub fn text(&self) -> String {
        let begin = self.begin;
        let kept = if self.is_kept { ", and stay in archived logs" } else { "" };
        match &self.found {
            Ok(Found { commits: 0, .. }) => {
                format!(
                    "no commit is only here: the redo ends where the primary's branches off, at SCN {begin}"
                )
            }
            Ok(Found { commits, .. }) => format!(
                "{commits} commits after SCN {begin} are only here: they are DISCARDED in the databases{kept}"
            ),
            Err(error) => format!(
                "commits after SCN {begin} are DISCARDED; how many is not known: {}",
                error.in_one_line()
            ),
        }
    }
}

fn read(environment: &Environment, from: Scn) -> Result<Found, InstanceError> {
    let mut found = Found::default();
    let kind = kind_of(environment);
    let (log, recovered) = RedoLog::look(environment.disk.clone(), environment.log_config(kind))?;
    if recovered.end <= from {
        return Ok(found);
    }
    let mut reader = RecordReader::new(log, from, recovered.end);
    while let Some((bytes, _)) = reader.next_record()? {
        // The reader has already decoded it.
        match decode_record(bytes).map(|(record, _)| record) {
            Ok(Record::Commit { .. }) => found.commits += 1,
            Ok(Record::Attach(attach)) => found.protected.push(attach.database),
            _ => {}
        }
    }
    Ok(found)
}

/// The log in which the newest redo of this instance is.
pub fn kind_of(environment: &Environment) -> LogKind {
    match environment.of_control(|control| control.role) {
        Role::Primary => LogKind::Online,
        Role::Standby | Role::FarSync => LogKind::Standby,
    }
}

/// Archives the redo to its end. What a standby has beyond a gap is of no use, and void.
///
/// # Errors
/// When the redo cannot be read, or an archived log not be written.
pub fn archive_to_the_end(environment: &Environment) -> Result<(), InstanceError> {
    if environment.of_control(|control| control.gap.is_some()) {
        return Ok(());
    }
    let config = environment.log_config(kind_of(environment));
    let (log, mut writer, recovered) = RedoLog::open(environment.disk.clone(), config)?;
    // The databases here will not be recovered from it.
    log.set_checkpoint(recovered.end);
    archive_at_once(&log)?;
    if writer.group_is_empty() {
        return Ok(());
    }
    if writer.switch(now_us())?.is_err() {
        let what = "the last redo log cannot be archived: no group is free for the next one";
        let hint = "make room on the volume of the archived logs, then run this again";
        return Err(InstanceError::refused(what, hint));
    }
    Ok(archive_at_once(&log)?)
}

/// Moves archived logs with redo that is not the primary's out of the way of those of the new incarnation. Returns where
/// they are.
///
/// # Errors
/// When one cannot be moved.
pub fn set_lost_logs_aside(
    environment: &Environment,
    there: &[Incarnation],
) -> Result<Option<PathBuf>, InstanceError> {
    let control = environment.control();
    let (disk, archive) = (environment.disk.as_ref(), &environment.paths.archive);
    let incarnation = control.incarnation();
    let aside = archive.join(format!("lost-{}-{}", incarnation.number, incarnation.id));
    for log in archived_logs(disk, archive, Some(control.family))? {
        let (header, Some(name)) = (&log.header, log.path.file_name()) else { continue };
        if is_lost(header.incarnation_id, header.next_scn, there) {
            make_directory(&aside, modes::PRIVATE_DIRECTORY)?;
            // A directory that a power loss takes away would take the logs along.
            sync_directory_of(&aside).map_err(InstanceError::io("sync the directory of", &aside))?;
            let to = aside.join(name);
            disk.rename(&log.path, &to).map_err(InstanceError::io("move the archived log", &log.path))?;
        }
    }
    Ok(aside.is_dir().then_some(aside))
}
