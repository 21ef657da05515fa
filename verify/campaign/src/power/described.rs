//! Positions of all instances, for the trace and for reports.

use super::sites::Site;
use super::world::World;
use standfast_simulation::lock;
use standfast_transport::StandbyLog;

impl World {
    /// Describes the positions of all instances.
    pub(super) fn described(&self) -> String {
        format!("{}; {}", self.primary_described(), self.standbys_described())
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

    fn standbys_described(&self) -> String {
        let all: Vec<String> = self.standbys.iter().map(Site::described).collect();
        if all.is_empty() { "no standby".to_owned() } else { all.join("; ") }
    }
}

impl Site {
    fn described(&self) -> String {
        let held = lock(&self.host);
        let Some(standby) = held.as_ref() else { return format!("standby {} is down", self.number) };
        let log = standby.log();
        format!(
            "standby {} {:?} at boundary {}: received {}, confirmed {}, applied {}",
            self.number,
            self.mode(),
            self.machine.boundaries(),
            log.received_end(),
            log.confirmed(),
            log.applied()
        )
    }
}
