//! Positions of both instances, for the trace and for reports.

use super::world::World;
use standfast_simulation::lock;
use standfast_transport::StandbyLog;

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
