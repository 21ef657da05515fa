//! Databases that other processes held at the start: each is opened when it is free, while the others are served.

use super::Running;
use standfast_primary::open::open_primary::{Late, open_late};
use standfast_types::{DatabaseId, Hint};
use std::sync::Weak;
use std::time::Duration;

/// Pause between attempts, in which other commands can run.
const PAUSE: Duration = Duration::from_millis(250);

/// Starts a thread that opens the late databases, if there are any.
pub(super) fn open_in_turn(running: &Weak<Running>, late: Late) -> std::io::Result<()> {
    let Late { mut databases, sessions_confirm } = late;
    if databases.is_empty() {
        return Ok(());
    }
    let running = running.clone();
    let run = move || {
        while !databases.is_empty() {
            // There is no notification when another process releases its lock.
            std::thread::sleep(PAUSE);
            let Some(running) = running.upgrade() else { return };
            databases.retain(|id| running.is_still_late(*id, sessions_confirm));
        }
    };
    std::thread::Builder::new().name("late-open".into()).spawn(run).map(drop)
}

impl Running {
    /// Tries to open the database; returns whether to try again.
    fn is_still_late(&self, id: DatabaseId, sessions_confirm: bool) -> bool {
        if self.is_stopping() {
            return false;
        }
        let opened = self.with_primary(|primary| {
            let log = primary.source.redo_log();
            open_late(&self.environment, &primary.threads, log, id, sessions_confirm)
        });
        match opened {
            Ok(()) => false,
            Err(error) if error.is_held_by_others() => true,
            Err(error) => {
                self.environment
                    .alert
                    .say(format!("database {id} cannot be opened: {}", error.in_one_line()));
                false
            }
        }
    }
}
