//! `standfast register logfile`: takes an archived log that an operator copied to a standby by hand because its source
//! is unreachable or no longer has it.
//!
//! Everything is verified: family, branch, position in the stream, every block, and the running checksum where the log
//! joins the redo held here. A log that fails changes nothing.

use crate::role::running::{Mode, Running};
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::ship::archive_source::is_of_history;
use standfast_environment::state::control::Control;
use standfast_format::{FILE_HEADER_BYTES, LogFileHeader, LogKind};
use standfast_log::{ArchivedLog, LogError, Verified, verify_archived};
use standfast_standby::received_log::ReceivedLog;
use standfast_types::Scn;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Registered {
    pub sequence: u64,
    /// End of this standby's redo after the registration.
    pub end: Scn,
}

impl Running {
    /// Adds the archived log at `path` to the redo of this standby.
    ///
    /// # Errors
    /// `Refused` with cause and remedy when it is not the missing log; when it cannot be read or stored.
    pub fn register_logfile(&self, path: &Path) -> Result<Registered, InstanceError> {
        let header = header_of(path)?;
        fits_control(path, &header, &self.environment.control())?;
        let copy = Copy::of(&self.environment, path, &header)?;
        let mode = self.mode();
        let Mode::Standby(standby) = &*mode else {
            let hint = "register it at the standby that lacks it";
            return Err(InstanceError::refused("this instance is no standby", hint));
        };
        // A stream would write at the current end of the redo, so it ends first; it begins again afterwards.
        let receiver = self.receiver();
        let lent = receiver.as_ref().and_then(|receiver| receiver.detach());
        let registered = {
            let mut log = standby.received().lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            copy.join(&mut log, path)
        };
        if let (Some(receiver), Some(lent)) = (receiver.as_ref(), lent) {
            receiver.attach(lent);
        }
        let registered = registered?;
        self.environment.alert.say(format!(
            "log {} registered from {}: the redo continues to SCN {}",
            registered.sequence,
            path.display(),
            registered.end
        ));
        Ok(registered)
    }
}

fn header_of(path: &Path) -> Result<LogFileHeader, InstanceError> {
    let mut file = File::open(path).map_err(InstanceError::io("open the archived log", path))?;
    let mut block = [0; FILE_HEADER_BYTES];
    let read = file.read_exact(&mut block);
    let header = read.ok().and_then(|()| LogFileHeader::decode(&block).ok());
    header.filter(|header| header.kind == LogKind::Archived && header.next_scn.is_some()).ok_or_else(|| {
        InstanceError::refused(
            format!("{} is no archived log", path.display()),
            "archived logs end in .arc and lie in the archive directory of the instance that wrote them; a log that is \
             still being filled is archived by `standfast switch-logfile` there",
        )
    })
}

/// Checks the header against the control file, without the redo of this standby.
fn fits_control(path: &Path, header: &LogFileHeader, control: &Control) -> Result<(), InstanceError> {
    let (path, sequence) = (path.display(), header.sequence);
    let next = header.next_scn.unwrap_or_default();
    let history = &control.incarnations;
    let is_known = history.iter().any(|incarnation| incarnation.id == header.incarnation_id);
    if header.instance != control.family {
        // An older release named the logs of a copy after the primary at that time.
        let hint = if is_known {
            "this standby was created by a release that named its logs otherwise: let the primary connect, which sends the \
             redo, or create the standby again with `standfast standby create`"
        } else {
            "take the log of the primary from which this standby was copied"
        };
        let what = format!("{path} holds redo of another family ({})", header.instance);
        return Err(InstanceError::refused(what, hint));
    }
    if !is_known {
        return Err(InstanceError::refused(
            format!(
                "{path} is log {sequence} of incarnation {} ({}), which this standby does not follow",
                header.incarnation, header.incarnation_id
            ),
            "take the log of the branch that the primary is on; if that incarnation is newer, let the primary connect first",
        ));
    }
    if !is_of_history(history, header.incarnation_id, header.first_scn, next) {
        return Err(InstanceError::refused(
            format!("{path} is log {sequence} of a branch that was left before SCN {next}"),
            "take the log of the same sequence that the new primary has archived",
        ));
    }
    Ok(())
}

/// A verified copy in the archive directory, under a name that is never read as an archived log.
struct Copy<'a> {
    environment: &'a Environment,
    place: PathBuf,
    header: LogFileHeader,
}

impl Drop for Copy<'_> {
    fn drop(&mut self) {
        // After a successful rename the file is gone; a file that cannot be removed here is removed by the next start.
        let _ = self.environment.disk.remove(&self.place);
    }
}

impl<'a> Copy<'a> {
    fn of(
        environment: &'a Environment,
        path: &Path,
        header: &LogFileHeader,
    ) -> Result<Copy<'a>, InstanceError> {
        let place = environment.paths.archive.join("registered.fetch");
        let copy = Copy { environment, place, header: *header };
        let reading = || InstanceError::io("read the archived log", path);
        let writing = || InstanceError::io("copy the archived log to", &copy.place);
        let mut source = File::open(path).map_err(reading())?;
        environment.disk.remove(&copy.place).map_err(writing())?;
        let target = environment.disk.create_copy(&copy.place, header.file_bytes).map_err(writing())?;
        let mut buffer = vec![0; 1 << 20];
        let mut at = 0;
        while at < header.file_bytes {
            let bytes = (header.file_bytes - at).min(buffer.len() as u64) as usize;
            if source.read_exact(&mut buffer[..bytes]).is_err() {
                return Err(damaged(path, header.first_scn));
            }
            target.write(&buffer[..bytes], at).map_err(writing())?;
            at += bytes as u64;
        }
        target.sync().map_err(writing())?;
        Ok(copy)
    }

    /// Renames the copy to its archived log name and continues `log` with it, if it follows the end of its redo.
    fn join(&self, log: &mut ReceivedLog, path: &Path) -> Result<Registered, InstanceError> {
        let (end, sequence) = (log.writer().position(), self.header.sequence);
        let next = self.header.next_scn.unwrap_or_default();
        let shown = path.display();
        if next <= end {
            return Err(InstanceError::refused(
                format!(
                    "{shown} is log {sequence}, which ends at SCN {next}: this standby has redo up to {end}"
                ),
                format!("the next log that is missing is {} and contains SCN {end}", log.writer().sequence()),
            ));
        }
        if self.header.first_scn > end {
            return Err(InstanceError::refused(
                format!(
                    "{shown} is log {sequence}, which begins at SCN {}: this standby lacks redo from {end} on",
                    self.header.first_scn
                ),
                format!(
                    "register log {}, which contains SCN {end}, and those between first",
                    log.writer().sequence()
                ),
            ));
        }
        let Verified { header, crc_at, .. } =
            match verify_archived(self.environment.disk.as_ref(), &self.place, end) {
                Err(LogError::NotWhole { at, .. }) => return Err(damaged(path, at)),
                verified => verified?,
            };
        if header != self.header || crc_at != Some(log.writer().stream_crc()) {
            return Err(InstanceError::refused(
                format!("{shown} holds other redo before SCN {end} than this standby"),
                "one of the two left the stream of the primary; let the primary connect, or create the standby again",
            ));
        }
        let redo = log.shared().log.clone();
        let target = redo.archive_path(header.incarnation, header.incarnation_id, header.sequence);
        self.environment
            .disk
            .rename(&self.place, &target)
            .map_err(InstanceError::io("name the archived log", &target))?;
        redo.add_archived(ArchivedLog { path: target, header, bytes: header.file_bytes });
        log.lead_on()?;
        Ok(Registered { sequence, end: log.writer().position() })
    }
}

fn damaged(path: &Path, at: Scn) -> InstanceError {
    InstanceError::refused(
        format!("{} is damaged or incomplete from SCN {at} on", path.display()),
        "copy it again from where it was archived; `standfast log dump FILE` shows what is left of it",
    )
}
