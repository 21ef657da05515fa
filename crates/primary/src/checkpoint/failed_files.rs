//! What follows when a write or a sync of a protected database fails at the primary.
//!
//! A sync that succeeds after a failed one proves nothing: the kernel may regard as written what it could not write. So
//! the database fails: its commits get that error, and the control file records the position from which its redo is
//! needed, which keeps its logs while recovery of the other databases advances. A restart finds the record, makes sure
//! of the files (`open_primary`) and applies what they lack.

use crate::commit::primary::PrimaryShared;
use standfast_environment::context::environment::Environment;
use standfast_session::DatabaseState;
use standfast_types::{DatabaseId, Hint};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// A failed write of the control file is tried again after this time.
const AGAIN: Duration = Duration::from_millis(500);

/// Failures that were reported to sessions and operator, and failures that the control file has.
#[derive(Default)]
pub struct FailedFiles {
    reported: BTreeSet<DatabaseId>,
    recorded: BTreeSet<DatabaseId>,
    tried: Option<Instant>,
}

impl FailedFiles {
    /// Reports and records databases that have failed since the last call.
    pub fn look(&mut self, environment: &Environment, shared: &PrimaryShared) {
        for database in shared.all_databases() {
            let id = database.id();
            let Err(error) = database.trusted() else { continue };
            if self.recorded.contains(&id) {
                continue;
            }
            if self.reported.insert(id) {
                shared.segment.set_state(id.0, DatabaseState::Offline);
                shared.segment.wake_all(id.0);
                environment.alert.say(error.in_one_line());
            } else if self.tried.is_some_and(|tried| tried.elapsed() < AGAIN) {
                continue;
            }
            match environment.update_control(|control| control.take_offline(id, control.checkpoint)) {
                Ok(()) => {
                    self.recorded.insert(id);
                }
                Err(error) => {
                    if self.tried.is_none() {
                        environment.alert.say(format!(
                            "the failure of database {} cannot be recorded and will be tried again: {}",
                            database.record().name,
                            error.in_one_line()
                        ));
                    }
                    self.tried = Some(Instant::now());
                }
            }
        }
    }
}
