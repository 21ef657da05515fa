use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Start of simulated time: microseconds since 1970, a day in November 2023.
const START_US: u64 = 1_700_000_000_000_000;

/// Julian day number of 1970-01-01 00:00 UTC, in milliseconds: the unit of SQLite's clock.
const UNIX_EPOCH_JULIAN_MS: u64 = 210_866_760_000_000;

/// A clock that only moves when [`SimClock::advance`] is called. Clones show the same time.
#[derive(Clone, Debug)]
pub struct SimClock {
    microseconds: Arc<AtomicU64>,
}

impl Default for SimClock {
    fn default() -> SimClock {
        SimClock { microseconds: Arc::new(AtomicU64::new(START_US)) }
    }
}

impl SimClock {
    /// Returns microseconds since the Unix epoch.
    pub fn now_us(&self) -> u64 {
        self.microseconds.load(Ordering::SeqCst)
    }

    pub fn advance(&self, microseconds: u64) {
        self.microseconds.fetch_add(microseconds, Ordering::SeqCst);
    }

    /// Milliseconds since the Julian epoch, the unit of SQLite's clock.
    pub fn julian_ms(&self) -> u64 {
        UNIX_EPOCH_JULIAN_MS + self.now_us() / 1000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_advances_only_on_request_and_for_all_clones() {
        let clock = SimClock::default();
        let clone = clock.clone();
        clock.advance(1_500_000);
        assert_eq!(clone.now_us(), START_US + 1_500_000);
    }
}
