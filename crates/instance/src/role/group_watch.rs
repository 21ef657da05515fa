//! Watches the destinations of groups: puts another choice in force when one fails or returns.

use crate::role::running::Running;
use standfast_environment::config::destination_config::DestinationConfig;
use standfast_environment::config::error::InstanceError;
use standfast_environment::ship::destination_groups::judge;
use standfast_transport::selection::{Condition, Use, retry_failed};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// When failed members were last tried again.
#[derive(Default)]
pub struct GroupWatch {
    retried: HashMap<String, Instant>,
}

impl GroupWatch {
    /// Checks the groups once. Call it about twice a second.
    ///
    /// # Errors
    /// When a sender cannot be started; it is tried again.
    pub fn look(&mut self, running: &Running) -> Result<(), InstanceError> {
        let Some(ships) = running.ships() else { return Ok(()) };
        let mut configured = running.configured();
        configured.retain(|at| ships.is_shipped_to(at));
        if configured.iter().all(|at| at.group == 0) {
            return Ok(());
        }
        let (members, uses) = judge(&configured, &ships.status());
        let before = ships.uses();
        if uses != before {
            running.reapply_destinations()?;
            // `reapply_destinations` has chosen again, from the state of that moment.
            let Some(now) = running.ships().map(|ships| ships.uses()) else { return Ok(()) };
            for at in configured.iter().filter(|at| now.get(&at.name) != before.get(&at.name)) {
                let what = match now.get(&at.name) {
                    Some(Use::Serves) => "is in use now",
                    Some(Use::Returns) => "has failed and is tried again; another one of its group is in use",
                    _ => "is not in use: another one of its group is",
                };
                running
                    .environment
                    .alert
                    .say(format!("destination {} of group {} {what}", at.name, at.group));
            }
            return Ok(());
        }
        for (at, member) in configured.iter().zip(&members) {
            if member.condition == Condition::Failed && retry_failed(&members, at.group) && self.is_due(at) {
                ships.enable(&at.name);
            }
        }
        Ok(())
    }

    fn is_due(&mut self, at: &DestinationConfig) -> bool {
        let now = Instant::now();
        let last = self.retried.entry(at.name.clone()).or_insert(now);
        let due = now.duration_since(*last) >= Duration::from_millis(at.reopen_ms);
        if due {
            *last = now;
        }
        due
    }
}
