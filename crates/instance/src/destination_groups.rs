//! Puts in force what [`standfast_transport::selection`] chooses among the destinations of a primary or a standby.

use crate::destination_config::DestinationConfig;
use crate::error::InstanceError;
use crate::running::Running;
use standfast_transport::selection::{Condition, Member, Use, choose, retry_failed};
use standfast_transport::{DestinationStatus, Sender, Standing};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How the destinations that an instance ships to are used, by name.
pub type Uses = HashMap<String, Use>;

pub trait Ships {
    /// Whether the instance has a sender for this destination, or would have one if it did not rest.
    fn is_shipped_to(&self, destination: &DestinationConfig) -> bool;

    /// How each destination that is shipped to is used.
    fn uses(&self) -> Uses;

    /// Senders of the destinations that do not rest.
    fn senders(&self) -> Vec<Arc<Sender>>;

    /// State of all senders, and whether commits wait for each.
    fn status(&self) -> Vec<(DestinationStatus, bool)> {
        self.senders().iter().map(|sender| (sender.status(), sender.is_required())).collect()
    }

    /// Makes another attempt to reach a destination now, even after it was abandoned.
    fn enable(&self, name: &str) {
        let senders = self.senders();
        senders.iter().filter(|sender| sender.status().name == name).for_each(|sender| sender.enable());
    }
}

/// When failed members were last tried again.
#[derive(Default)]
pub struct GroupWatch {
    retried: HashMap<String, Instant>,
}

impl GroupWatch {
    /// Checks the groups once. To be called about twice a second.
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
            // The destinations were judged once more for that.
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

/// Returns what is chosen, as things stand with the existing senders.
pub fn judge(configured: &[DestinationConfig], status: &[(DestinationStatus, bool)]) -> (Vec<Member>, Uses) {
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

/// Senders and the configuration that each was started with.
#[derive(Clone, Copy)]
pub struct Group<'a> {
    pub configured: &'a [DestinationConfig],
    pub senders: &'a [Arc<Sender>],
}

/// Ends the wait of commits for members whose work another member of their group does. To be called once these other
/// members are in force. Also ends it for a new sender whose group had lost its protection before.
pub fn let_others_go(uses: &Uses, now: Group<'_>, before: Group<'_>) {
    for (sender, at) in now.senders.iter().zip(now.configured) {
        let unprotected = || {
            let was = |other: &(&DestinationConfig, &Arc<Sender>)| other.0.group == at.group;
            let mut group = before.configured.iter().zip(before.senders).filter(was).peekable();
            let fresh = !before.senders.iter().any(|other| Arc::ptr_eq(other, sender));
            fresh && group.peek().is_some() && group.all(|(_, other)| !other.is_required())
        };
        if at.group > 0 && (uses.get(&at.name) == Some(&Use::Returns) || unprotected()) {
            sender.let_go();
        }
    }
}
