//! Who is active, by wait class.

use crate::status::Status;
use serde::{Deserialize, Serialize};
use standfast_instruments::{Observation, WaitClass};

/// In the place of a wait class: a session that works.
pub const ON_CPU: &str = "CPU";
/// A look that is older says nothing of this moment, microseconds.
const FRESH_US: u64 = 5_000_000;

/// Sessions of a wait class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ActiveClass {
    /// Its name, or `CPU`.
    pub class: String,
    /// How many at this moment.
    pub sessions: u64,
}

/// Classes in which a session can be active, `CPU` first.
pub fn classes() -> impl Iterator<Item = &'static str> {
    let waits = WaitClass::ALL.into_iter().filter(|class| *class != WaitClass::Idle).map(WaitClass::name);
    std::iter::once(ON_CPU).chain(waits)
}

/// Sessions of applications that were not idle at the newest look, by class, all classes; `None` when it is not known.
pub fn active_sessions(observation: &Observation) -> Option<Vec<ActiveClass>> {
    let activity = &observation.history.activity;
    let newest = activity.iter().map(|seen| seen.time_us).max();
    let fresh = newest.filter(|newest| observation.sample.time_us.saturating_sub(*newest) <= FRESH_US);
    if fresh.is_none() && Status::of(&observation.status).sessions != Some(0) {
        return None;
    }
    let count = |class: &str| {
        let of_class = activity.iter().filter(|seen| Some(seen.time_us) == fresh && seen.foreground);
        of_class.filter(|seen| seen.class.map_or(ON_CPU, WaitClass::name) == class).count() as u64
    };
    Some(classes().map(|class| ActiveClass { class: class.into(), sessions: count(class) }).collect())
}
