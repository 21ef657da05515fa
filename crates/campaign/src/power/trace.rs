//! Traces the events of a history to standard error: `--trace`.

use super::lock;
use super::world::World;
use standfast_transport::StandbyLog;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

static ON: AtomicBool = AtomicBool::new(false);

/// Turns the trace on for the histories of this process.
pub fn turn_on() {
    ON.store(true, Relaxed);
}

/// Writes a line if the trace is on.
pub(super) fn say(what: impl FnOnce() -> String) {
    if ON.load(Relaxed) {
        eprintln!("{}", what());
    }
}

impl World {
    /// Describes the positions of both instances.
    pub(super) fn described(&self) -> String {
        format!("{}; {}", self.primary_described(), self.standby_described())
    }

    fn primary_described(&self) -> String {
        let Some(host) = &self.primary else { return "no primary".to_owned() };
        let (shared, checkpoint) = (&host.shared, host.environment.control().checkpoint);
        let mut text = format!(
            "primary at boundary {}: captured {}, released {}, checkpoint {checkpoint}",
            self.primary_machine.boundaries(),
            shared.buffer.captured(),
            shared.released()
        );
        for database in shared.all_databases() {
            let header = database.header().map(|header| (header.salts().0, header.frames()));
            let (salt, frames) = header.unwrap_or_default();
            text += &format!(
                ", {} WAL {salt} frames {frames} durable {} backfilled {}",
                database.record().name,
                database.local().frame(),
                database.backfilled()
            );
        }
        text
    }

    fn standby_described(&self) -> String {
        let held = lock(&self.standby);
        let (Some(standby), Some(machine)) = (held.as_ref(), &self.standby_machine) else {
            return "no standby".to_owned();
        };
        let log = standby.log();
        format!(
            "standby at boundary {}: received {}, confirmed {}, applied {}",
            machine.boundaries(),
            log.received_end(),
            log.confirmed(),
            log.applied()
        )
    }
}
