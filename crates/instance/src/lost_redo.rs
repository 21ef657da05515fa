//! Redo that this standby had hardened and cannot read any more, since its log was damaged where it was being filled.
//!
//! The databases may hold it already, so nothing is applied, and nothing can take over, before it is here again: its
//! primary sends it as it sends whatever the standby lacks. The control file remembers it from before the first write to
//! the log on.

use crate::control::{Control, Role};
use crate::environment::Environment;
use crate::error::InstanceError;
use serde::{Deserialize, Serialize};
use standfast_log::{LogError, LostRedo};
use standfast_types::Scn;
use std::path::PathBuf;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostRecord {
    /// File that held it.
    pub path: PathBuf,
    /// From here on it is missing.
    pub from: Scn,
    /// It had reached this position.
    pub to: Scn,
}

/// Remembers what opening the log, which ends at `end`, found missing. True: some of it still is.
pub(crate) fn note(
    environment: &Environment,
    found: Option<LostRedo>,
    end: Scn,
) -> Result<bool, InstanceError> {
    if let Some(LostRedo { path, from, to }) = found {
        let error = LogError::LostEnd { path: path.clone(), from, to };
        environment.alert.say(error.to_string().replace("\nhint: ", " | hint: "));
        environment.update_control(|control| {
            let known = control.lost.take().unwrap_or(LostRecord { path, from, to });
            control.lost = Some(LostRecord { from: known.from.min(from), to: known.to.max(to), ..known });
        })?;
    }
    is_still_missing(environment, end, None)
}

/// Whether something is missing now that the redo without a hole ends at `end`, and that of the source at `source_end`;
/// says and remembers when nothing is any more.
pub(crate) fn is_still_missing(
    environment: &Environment,
    end: Scn,
    source_end: Option<Scn>,
) -> Result<bool, InstanceError> {
    let is_back = |control: &Control| {
        // A primary has all redo that it ever confirmed, and nothing else was applied.
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

/// # Errors
/// `LostEnd` while something is missing.
pub(crate) fn check(environment: &Environment) -> Result<(), LogError> {
    environment.of_control(|control| match &control.lost {
        None => Ok(()),
        Some(LostRecord { path, from, to }) => {
            Err(LogError::LostEnd { path: path.clone(), from: *from, to: *to })
        }
    })
}
