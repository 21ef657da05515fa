//! Puts in force what [`standfast_transport::selection`] chooses among the destinations of a primary or a standby.

use crate::config::destination_config::DestinationConfig;
use standfast_transport::selection::{Condition, Member, Use, choose};
use standfast_transport::{DestinationStatus, Sender, Standing};
use std::collections::HashMap;
use std::sync::Arc;

/// How the destinations that an instance ships to are used, by name.
pub type Uses = HashMap<String, Use>;

pub trait Ships {
    /// Whether the instance has a sender for this destination, or would have one if the destination's group did not use
    /// another one (`Use::Rests`).
    fn is_shipped_to(&self, destination: &DestinationConfig) -> bool;

    /// How each destination that is shipped to is used.
    fn uses(&self) -> Uses;

    /// Senders of all destinations but those with `Use::Rests`.
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

/// Returns the choice, given the state of the existing senders.
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

/// Ends the wait of commits for members that another member of their group has replaced. Call it once the replacements
/// are in force. Also ends it for a new sender whose group had lost its protection before.
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
