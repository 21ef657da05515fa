//! Settings of one direction of a link. Pure.

use crate::{Result, WanError};
use serde::{Deserialize, Serialize};

/// Time in nanoseconds: a duration, or a moment on the emulator's clock.
pub type Nanos = u64;
/// A share in parts per billion.
pub type Share = u32;

/// 1 (all) in parts per billion.
pub const WHOLE: Share = 1_000_000_000;
/// A minute, in nanoseconds; a longer delay is refused.
pub const MOST_DELAY: Nanos = 60_000_000_000;
/// Slowest rate in bits per second: one full packet takes twelve seconds.
pub const LEAST_RATE: u64 = 1_000;
/// Smallest queue of [`Queue::Auto`] and [`Queue::Time`], bytes: some bursts of a TCP sender.
const LEAST_QUEUE: u64 = 64 << 10;
/// Two full packets, bytes: with less a rate limit would drop what it should only slow down.
const LEAST_GIVEN_QUEUE: u64 = 3_000;

/// How much may wait for the transmitter of a direction with a rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Queue {
    /// What the rate carries in twice the delay, at least 64 KiB.
    #[default]
    Auto,
    Bytes(u64),
    /// What the rate carries in this time, at least 64 KiB.
    Time(Nanos),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Propagation time, without the time for transmission.
    pub delay: Nanos,
    /// Bits per second of IP packets, headers included; None: as fast as the machine.
    pub rate: Option<u64>,
    /// Limit of the transmitter's queue; more is dropped.
    pub queue: Queue,
    /// Share of segments that are lost.
    pub loss: Share,
    /// The delay varies slowly between `delay - jitter` and `delay + jitter`; the order is kept.
    pub jitter: Nanos,
    /// Share of segments that later ones overtake.
    pub reorder: Share,
    /// How much later an overtaken segment arrives.
    pub reorder_by: Nanos,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            delay: 0,
            rate: None,
            queue: Queue::Auto,
            loss: 0,
            jitter: 0,
            reorder: 0,
            reorder_by: 1_000_000,
        }
    }
}

impl Settings {
    /// Time that `bytes` occupy the transmitter.
    pub fn wire_time(&self, bytes: u64) -> Nanos {
        let nanos = |rate: u64| (u128::from(bytes) * 8_000_000_000 / u128::from(rate)) as Nanos;
        self.rate.map_or(0, nanos)
    }

    /// Bytes that the transmitter sends in `time`; without a rate there is no limit.
    pub fn carried_in(&self, time: Nanos) -> u64 {
        let bytes = |rate: u64| (u128::from(time) * u128::from(rate) / 8_000_000_000) as u64;
        self.rate.map_or(u64::MAX, bytes)
    }

    /// Limit of the queue in bytes.
    pub fn queue_bytes(&self) -> u64 {
        match self.queue {
            Queue::Auto => self.carried_in(2 * self.delay).max(LEAST_QUEUE),
            Queue::Time(time) => self.carried_in(time).max(LEAST_QUEUE),
            Queue::Bytes(bytes) => bytes,
        }
    }

    /// Returns an error for settings that cannot be emulated.
    pub fn check(&self) -> Result<()> {
        let wrong = |what: &str, hint: &str| Err(WanError::Settings { what: what.into(), hint: hint.into() });
        match self {
            Settings { delay, reorder_by, .. } if *delay > MOST_DELAY || *reorder_by > MOST_DELAY => {
                wrong("a delay of more than a minute", "shorten the delay (or half of the round trip)")
            }
            Settings { rate: Some(rate), .. } if *rate < LEAST_RATE => {
                wrong("a rate below 1 kbit/s", "use 1kbit or more, or cut the link")
            }
            Settings { queue: Queue::Bytes(bytes), .. } if *bytes < LEAST_GIVEN_QUEUE => {
                wrong("a queue that does not hold two packets", "use 3000 bytes or more")
            }
            Settings { jitter, delay, .. } if jitter > delay => {
                wrong("jitter larger than the delay", "the delay varies around its value: raise it as well")
            }
            Settings { loss, reorder, .. } if *loss > WHOLE || *reorder > WHOLE => {
                wrong("a share of more than 100 %", "use 0% to 100%")
            }
            _ => Ok(()),
        }
    }
}

/// Settings to change; None leaves one as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    pub delay: Option<Nanos>,
    /// See [`Settings::rate`]; the inner None removes the limit.
    pub rate: Option<Option<u64>>,
    pub queue: Option<Queue>,
    pub loss: Option<Share>,
    pub jitter: Option<Nanos>,
    pub reorder: Option<Share>,
    pub reorder_by: Option<Nanos>,
}

impl Change {
    /// Returns the changed settings, if they can be emulated.
    pub fn applied_to(&self, old: &Settings) -> Result<Settings> {
        let new = Settings {
            delay: self.delay.unwrap_or(old.delay),
            rate: self.rate.unwrap_or(old.rate),
            queue: self.queue.unwrap_or(old.queue),
            loss: self.loss.unwrap_or(old.loss),
            jitter: self.jitter.unwrap_or(old.jitter),
            reorder: self.reorder.unwrap_or(old.reorder),
            reorder_by: self.reorder_by.unwrap_or(old.reorder_by),
        };
        new.check().map(|()| new)
    }

    pub fn and(&self, other: &Change) -> Change {
        Change {
            delay: other.delay.or(self.delay),
            rate: other.rate.or(self.rate),
            queue: other.queue.or(self.queue),
            loss: other.loss.or(self.loss),
            jitter: other.jitter.or(self.jitter),
            reorder: other.reorder.or(self.reorder),
            reorder_by: other.reorder_by.or(self.reorder_by),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use standfast_types::Hint;

    #[test]
    fn default_queue_size_follows_rate_and_delay() {
        let gigabit = Settings { rate: Some(1_000_000_000), delay: 12_500_000, ..Settings::default() };
        assert_eq!(gigabit.queue_bytes(), 3_125_000);
        assert_eq!(Settings { queue: Queue::Time(10_000_000), ..gigabit }.queue_bytes(), 1_250_000);
        assert_eq!(Settings { queue: Queue::Bytes(5_000), ..gigabit }.queue_bytes(), 5_000);
        assert_eq!(Settings { rate: Some(1_000_000), ..gigabit }.queue_bytes(), 64 << 10);
        assert_eq!((gigabit.wire_time(1500), Settings::default().wire_time(1500)), (12_000, 0));
    }

    #[test]
    fn impossible_settings_are_refused_with_the_reason() {
        let old = Settings { delay: 1_000_000, ..Settings::default() };
        for (change, part) in [
            (Change { jitter: Some(1_000_001), ..Change::default() }, "jitter"),
            (Change { delay: Some(MOST_DELAY + 1), ..Change::default() }, "minute"),
            (Change { rate: Some(Some(999)), ..Change::default() }, "1 kbit/s"),
            (Change { queue: Some(Queue::Bytes(2_999)), ..Change::default() }, "two packets"),
            (Change { loss: Some(WHOLE + 1), ..Change::default() }, "100 %"),
        ] {
            let text = change.applied_to(&old).unwrap_err().for_terminal();
            assert!(text.contains(part) && text.contains("hint: "), "{text}");
        }
    }

    #[test]
    fn change_keeps_unnamed_settings_and_the_later_one_wins() {
        let first = Change { loss: Some(5), rate: Some(Some(8_000)), ..Change::default() };
        let second = Change { rate: Some(None), delay: Some(7), ..Change::default() };
        let old = Settings { reorder: 3, ..Settings::default() };
        let new = first.and(&second).applied_to(&old).unwrap();
        assert_eq!(new, Settings { loss: 5, rate: None, delay: 7, ..old });
    }
}
