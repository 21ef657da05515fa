//! Puts in force what [`standfast_transport::selection`] chooses among the destinations of a primary.

use crate::destination_config::DestinationConfig;
use crate::error::InstanceError;
use crate::running::Running;
use crate::shipping::Destinations;
use standfast_transport::selection::{Condition, Member, Use, choose, retry_failed};
use standfast_transport::{DestinationStatus, Standing};
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What the senders of the destinations that a primary ships to are in use for, by name.
pub type Uses = HashMap<String, Use>;

/// When members that were given up were last tried again.
#[derive(Default)]
pub struct GroupWatch {
    retried: HashMap<String, Instant>,
}

impl GroupWatch {
    /// To be called about twice a second.
    ///
    /// # Errors
    /// When a sender cannot be started; it is tried again.
    pub fn look(&mut self, running: &Running) -> Result<(), InstanceError> {
        let configured = shipped(&running.configured());
        if configured.iter().all(|at| at.group == 0) {
            return Ok(());
        }
        let Some(primary) = running.primary() else { return Ok(()) };
        let destinations = primary.destinations();
        let (members, uses) = judge(&configured, Some(&destinations));
        if uses != *destinations.uses() {
            running.use_destinations_anew()?;
            // They were judged once more for it.
            let Some(primary) = running.primary() else { return Ok(()) };
            let (before, now) = (destinations, primary.destinations());
            for at in configured.iter().filter(|at| now.uses().get(&at.name) != before.uses().get(&at.name)) {
                let what = match now.uses().get(&at.name) {
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
                destinations.enable(&at.name);
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

/// The destinations that a primary ships to, also those that rest.
pub fn shipped(configured: &[DestinationConfig]) -> Vec<DestinationConfig> {
    configured.iter().filter(|at| Destinations::are_shipped_to(at)).cloned().collect()
}

/// What is chosen, as things stand with the senders that there are.
pub fn judge(configured: &[DestinationConfig], now: Option<&Destinations>) -> (Vec<Member>, Uses) {
    let status = now.map_or_else(Vec::new, Destinations::status);
    let member = |at: &DestinationConfig| {
        let known = status.iter().find(|(status, _)| status.name == at.name);
        let condition = known.map_or(Condition::Unknown, |(status, _)| condition(status));
        Member { group: at.group, priority: at.priority, condition }
    };
    let members: Vec<Member> = configured.iter().map(member).collect();
    let uses = configured.iter().map(|at| at.name.clone()).zip(choose(&members)).collect();
    (members, uses)
}

fn condition(status: &DestinationStatus) -> Condition {
    let connected = ["streaming", "catching_up"].contains(&status.phase);
    match status.standing {
        _ if status.phase == "failed" => Condition::Failed,
        Standing::Optional | Standing::Required if connected => Condition::Good,
        _ => Condition::Unknown,
    }
}
