//! The archiver of a standby or far sync.

use crate::standby_shared::StandbyShared;
use standfast_environment::context::environment::Environment;
use standfast_environment::ship::archiving::leave_the_device;
use standfast_environment::state::control::Role;
use standfast_instruments::{Event, waiting};
use standfast_log::{LogError, archive_group, remove_archived};
use standfast_types::Scn;
use std::time::Duration;

/// Archives until `orders` ends or brings `false`; `true` means that a group is full.
pub fn run_archiver(
    environment: &Environment,
    shared: &StandbyShared,
    orders: &std::sync::mpsc::Receiver<bool>,
) {
    let mut reported = false;
    // A log that became full before its last redo was confirmed is archived a little later.
    let mut unconfirmed = false;
    loop {
        let idle = waiting(Event::RdbmsIpcMessage);
        let order = orders.recv_timeout(Duration::from_millis(500));
        drop(idle);
        match order {
            Ok(false) | Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => return,
            Ok(true) => {}
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) if !reported && !unconfirmed => continue,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => {}
        }
        if environment.control().role == Role::FarSync {
            // Nothing is applied here that would need the redo: only the size limit decides about archived logs.
            shared.log.set_checkpoint(shared.confirmed());
        }
        match archive_confirmed(environment, shared) {
            Ok(()) => reported = false,
            Err(error) if !reported => {
                reported = true;
                environment.alert.say(format!("archiving failed and will be tried again: {error}"));
            }
            Err(_) => {}
        }
        unconfirmed = !shared.log.to_archive().is_empty();
    }
}

/// Archives the full groups whose redo the primary has confirmed; unconfirmed redo may still be truncated.
///
/// # Errors
/// When a copy cannot be written.
pub fn archive_confirmed(environment: &Environment, shared: &StandbyShared) -> Result<(), LogError> {
    let log = &shared.log;
    for (group, next) in log.to_archive() {
        if next > shared.archivable() {
            break;
        }
        let wait = waiting(Event::LogArchiveIo);
        archive_group(log, group, &mut || leave_the_device(log))?;
        drop(wait);
    }
    let needed = shared.downstream().map_or(Scn(u64::MAX), |downstream| downstream.needed_from());
    remove_archived(log, environment.config.redo.archive_bytes_max, log.checkpoint().min(needed))?;
    Ok(())
}
