//! How long commits wait for a standby before its source continues alone. Each frame of a stream carries this time; a
//! standby that takes over uses it to judge what redo it may lack.

use std::time::{Duration, Instant};

/// Lower bits of a frame's flags: how its redo is compressed. The upper bits: the wait, in units of [`UNIT`].
const PACKING_BITS: u32 = 4;
const UNIT: Duration = Duration::from_millis(10);

/// Returns the `flags` of a frame that carries `wait`, rounded down, and limited to the largest value that fits.
pub(crate) fn with_wait(packing: u16, wait: Duration) -> u16 {
    debug_assert!(packing < 1 << PACKING_BITS);
    let units = (wait.as_nanos() / UNIT.as_nanos()).min(u128::from(u16::MAX >> PACKING_BITS));
    packing | (units as u16) << PACKING_BITS
}

/// Returns how the redo is compressed, and how long commits wait from the time the frame was made.
pub(crate) fn packing_and_wait(flags: u16) -> (u16, Duration) {
    (flags & ((1 << PACKING_BITS) - 1), UNIT * u32::from(flags >> PACKING_BITS))
}

/// Estimates when the frames of one connection were made, on the clock of this end. The clocks of the two ends need not
/// agree: the frame with the shortest transit counts as received when it was made.
#[derive(Debug)]
pub(crate) struct Made {
    began: Instant,
    /// Smallest difference of the two clocks so far, microseconds.
    least: Option<i128>,
}

impl Made {
    pub fn new(began: Instant) -> Made {
        Made { began, least: None }
    }

    /// Returns when the frame was made that arrived at `received` and that the sender's clock dated `made_us`. If the
    /// sender's clock is set back, frames appear older than they are, never younger.
    pub fn at(&mut self, received: Instant, made_us: u64) -> Instant {
        let apart = received.saturating_duration_since(self.began).as_micros() as i128 - i128::from(made_us);
        let least = self.least.map_or(apart, |least| least.min(apart));
        self.least = Some(least);
        let age = Duration::from_micros(u64::try_from(apart - least).unwrap_or(u64::MAX));
        received.checked_sub(age).unwrap_or(self.began)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_carry_compression_and_the_wait_rounded_down() {
        for (wait, reported) in [(0, 0), (9, 0), (10, 10), (19, 10), (30_000, 30_000), (1_200_000, 40_950)] {
            for packing in [0, 1, 2] {
                let flags = with_wait(packing, Duration::from_millis(wait));
                assert_eq!(packing_and_wait(flags), (packing, Duration::from_millis(reported)));
            }
        }
    }

    #[test]
    fn frame_age_includes_its_transit_delay() {
        let began = Instant::now();
        let at = |ms: u64| began + Duration::from_millis(ms);
        // The sender's clock is a million seconds ahead.
        let sent = |ms: u64| 1_000_000_000_000 + ms * 1000;
        let mut made = Made::new(began);
        assert_eq!(made.at(at(5), sent(0)), at(5), "nothing to compare with");
        assert_eq!(made.at(at(11), sent(10)), at(11), "quicker than the first");
        assert_eq!(made.at(at(9_011), sent(2_010)), at(2_011), "seven seconds on its way");
        // The sender's clock is set back by 4 s, later forward by 10 s.
        assert_eq!(made.at(at(10_001), sent(6_000)), at(6_001));
        assert_eq!(made.at(at(11_001), sent(17_000)), at(11_001));
        assert_eq!(made.at(at(12_001), sent(17_500)), at(11_501));
    }
}
