//! What an observation says about standbys.

use serde_json::Value;
use standfast_instruments::Observation;

/// Names of the standbys of an instance that did not answer, or were not asked.
pub(super) fn silent(at: &Observation) -> Vec<&str> {
    let asked = at.standbys.iter().filter(|remote| remote.observation.is_none());
    let mut names: Vec<&str> = asked.map(|remote| remote.name.as_str()).collect();
    let known = at.status["destinations"].as_array().into_iter().flatten();
    for name in known.filter_map(|known| known["name"].as_str()) {
        if !at.standbys.iter().any(|remote| remote.name == name) {
            names.push(name);
        }
    }
    names
}

/// What the sender to the destination of that name knows; null if there is none.
pub(super) fn sender_of<'a>(at: &'a Observation, name: &str) -> &'a Value {
    let mut known = at.status["destinations"].as_array().into_iter().flatten();
    known.find(|known| known["name"] == name).unwrap_or(&Value::Null)
}

/// What the destination of that name reports about itself, if it answers.
pub(super) fn observation_of<'a>(at: &'a Observation, name: &str) -> Option<&'a Observation> {
    at.standbys.iter().find(|remote| remote.name == name)?.observation.as_deref()
}
