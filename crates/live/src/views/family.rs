//! What an observation says about standbys.

use standfast_documents::status::Destination;
use standfast_instruments::Observation;

/// Names of the standbys of an instance that did not answer, or were not asked.
pub(super) fn silent(at: &Observation) -> Vec<&str> {
    let asked = at.standbys.iter().filter(|remote| remote.observation.is_none());
    let mut names: Vec<&str> = asked.map(|remote| remote.name.as_str()).collect();
    for name in at.status.destinations().iter().filter_map(|known| known.name.as_deref()) {
        if !at.standbys.iter().any(|remote| remote.name == name) {
            names.push(name);
        }
    }
    names
}

/// What the sender to the destination of that name knows, if there is one.
pub(super) fn sender_of<'a>(at: &'a Observation, name: &str) -> Option<&'a Destination> {
    at.status.destinations().iter().find(|known| known.name.as_deref() == Some(name))
}

/// What the destination of that name reports about itself, if it answers.
pub(super) fn observation_of<'a>(at: &'a Observation, name: &str) -> Option<&'a Observation> {
    at.standbys.iter().find(|remote| remote.name == name)?.observation.as_deref()
}
