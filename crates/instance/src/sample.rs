//! Wait events and statistics of the whole instance at one moment: what its threads count, and what sessions do.

use crate::running::Running;
use standfast_instruments::Sample;

/// See the module.
pub fn sample(running: &Running) -> Sample {
    running.environment.instruments.sample()
}
