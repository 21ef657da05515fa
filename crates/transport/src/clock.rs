//! Time as the machines of this crate read it, so that a simulation can set it.

use standfast_instruments::monotonic_ns;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

pub trait Clock: Send + Sync {
    fn now(&self) -> Instant;

    /// Microseconds since the Unix epoch.
    fn unix_us(&self) -> u64;

    /// Nanoseconds on the clock of the instruments.
    fn monotonic_ns(&self) -> u64;
}

/// The clocks of this host.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn unix_us(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_micros() as u64)
    }

    fn monotonic_ns(&self) -> u64 {
        monotonic_ns()
    }
}
