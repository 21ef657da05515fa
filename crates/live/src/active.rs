//! Active sessions by wait class.

use serde::{Deserialize, Serialize};
use standfast_instruments::{Observation, WaitClass};

/// Stands for a wait class: the session is on the CPU.
pub const ON_CPU: &str = "CPU";
/// An older sample is not taken for the present state, microseconds.
const FRESH_US: u64 = 5_000_000;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveClass {
    /// Name of the class, or `CPU`.
    pub class: String,
    pub sessions: u64,
}

/// The classes in which a session can be active, `CPU` first.
pub fn classes() -> impl Iterator<Item = &'static str> {
    let waits = WaitClass::ALL.into_iter().filter(|class| *class != WaitClass::Idle).map(WaitClass::name);
    std::iter::once(ON_CPU).chain(waits)
}

/// Counts the sessions of applications that were not idle in the newest sample, for every class; `None` when unknown.
pub fn active_sessions(observation: &Observation) -> Option<Vec<ActiveClass>> {
    let activity = &observation.history.activity;
    let newest = activity.iter().map(|seen| seen.time_us).max();
    let fresh = newest.filter(|newest| observation.sample.time_us.saturating_sub(*newest) <= FRESH_US);
    if fresh.is_none() && observation.status.sessions != Some(0) {
        return None;
    }
    let count = |class: &str| {
        let of_class = activity.iter().filter(|seen| Some(seen.time_us) == fresh && seen.foreground);
        of_class.filter(|seen| seen.class.map_or(ON_CPU, WaitClass::name) == class).count() as u64
    };
    Some(classes().map(|class| ActiveClass { class: class.into(), sessions: count(class) }).collect())
}
