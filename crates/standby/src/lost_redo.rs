//! Redo that this standby had hardened and can no longer read, because its log was damaged in the group being filled.
//!
//! The databases may already contain it, so until it has arrived again the standby applies nothing and cannot take
//! over. The primary resends it like any redo that the standby lacks. The control file records the loss before the
//! first write to the log.

use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_environment::state::control::{Control, LostRecord, Role};
use standfast_log::{LogError, LostRedo};
use standfast_types::{Hint, Scn};

/// Records what the opening of the log, which ends at `end`, found missing. Returns whether some of it is still
/// missing.
pub(crate) fn note(
    environment: &Environment,
    found: Option<LostRedo>,
    end: Scn,
) -> Result<bool, InstanceError> {
    if let Some(LostRedo { path, from, to }) = found {
        let error = LogError::LostEnd { path: path.clone(), from, to };
        environment.alert.say(error.in_one_line());
        environment.update_control(|control| {
            let known = control.lost.take().unwrap_or(LostRecord { path, from, to });
            control.lost = Some(LostRecord { from: known.from.min(from), to: known.to.max(to), ..known });
        })?;
    }
    is_still_missing(environment, end, None)
}

/// Whether lost redo is still missing, when the redo without a gap ends at `end` and that of the source at
/// `source_end`. Once it is complete, clears the record and writes it to the alert log.
pub(crate) fn is_still_missing(
    environment: &Environment,
    end: Scn,
    source_end: Option<Scn>,
) -> Result<bool, InstanceError> {
    let is_back = |control: &Control| {
        // A primary has all redo that it ever confirmed, and a standby applies nothing else.
        let from_primary = control.upstream.as_ref().is_some_and(|at| at.role == Role::Primary.of_peer());
        control.lost.as_ref().map(|lost| {
            end >= lost.to || from_primary && source_end.is_some_and(|source_end| end >= source_end)
        })
    };
    match environment.of_control(is_back) {
        None => Ok(false),
        Some(false) => Ok(true),
        Some(true) => {
            environment.update_control(|control| control.lost = None)?;
            environment
                .alert
                .say(format!("the redo that was damaged here has come again: it is whole up to SCN {end}"));
            Ok(false)
        }
    }
}

/// Checks that no redo is missing.
///
/// # Errors
/// `LostEnd` while redo is missing.
pub(crate) fn check(environment: &Environment) -> Result<(), LogError> {
    environment.of_control(|control| match &control.lost {
        None => Ok(()),
        Some(LostRecord { path, from, to }) => {
            Err(LogError::LostEnd { path: path.clone(), from: *from, to: *to })
        }
    })
}
