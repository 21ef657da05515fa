//! Repeatable chance: each decision is a function of the seed, the link and the number of the segment, independent of
//! how many other decisions were made before, and when. Pure.

use crate::settings::{Nanos, Share, WHOLE};
use standfast_net::random::Random;

/// Shortest time in which jitter runs linearly from one random point to the next.
const JITTER_PERIOD: Nanos = 20_000_000;

/// The random decisions of one direction of a link.
#[derive(Clone, Debug)]
pub struct Chance {
    loss: u64,
    reorder: u64,
    jitter: u64,
}

impl Chance {
    /// The decisions of the direction from one node to another, by their indices.
    pub fn new(seed: u64, from: usize, to: usize) -> Chance {
        let mut random = Random::new(seed ^ ((from as u64) << 32 | to as u64) << 8);
        // The first draw mixes seed and link; the following draws are unrelated keys.
        let mut keys = Random::new(random.draw());
        Chance { loss: keys.draw(), reorder: keys.draw(), jitter: keys.draw() }
    }

    /// Whether the segment with this number is lost.
    pub fn loses(&self, segment: u64, share: Share) -> bool {
        share > 0 && below(nth(self.loss, segment), WHOLE.into()) < share.into()
    }

    /// Whether the segment with this number is overtaken.
    pub fn reorders(&self, segment: u64, share: Share) -> bool {
        share > 0 && below(nth(self.reorder, segment), WHOLE.into()) < share.into()
    }

    /// Returns the delay at a moment, between `delay - jitter` and `delay + jitter`. It changes so slowly that packets
    /// in order do not push each other later: independent values would add up to a delay.
    pub fn delay(&self, moment: Nanos, delay: Nanos, jitter: Nanos) -> Nanos {
        if jitter == 0 {
            return delay;
        }
        let period = JITTER_PERIOD.max(4 * jitter);
        let (number, into) = (moment / period, moment % period);
        let point = |number: u64| u128::from(below(nth(self.jitter, number), 2 * jitter + 1));
        let (period, into) = (u128::from(period), u128::from(into));
        let offset = (point(number) * (period - into) + point(number + 1) * into) / period;
        delay - jitter.min(delay) + offset as Nanos
    }
}

/// The nth number of a key's sequence.
fn nth(key: u64, n: u64) -> u64 {
    Random::new(key.wrapping_add(n.wrapping_mul(0x9e37_79b9_7f4a_7c15))).draw()
}

fn below(drawn: u64, bound: u64) -> u64 {
    ((u128::from(drawn) * u128::from(bound)) >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lost(seed: u64, from: usize, to: usize) -> Vec<u64> {
        let chance = Chance::new(seed, from, to);
        (0..10_000).filter(|segment| chance.loses(*segment, WHOLE / 10)).collect()
    }

    #[test]
    fn seed_and_link_determine_which_tenth_is_lost() {
        assert!((900..1100).contains(&lost(1, 0, 1).len()), "{}", lost(1, 0, 1).len());
        assert_eq!(lost(1, 0, 1), lost(1, 0, 1));
        assert_ne!(lost(1, 0, 1), lost(2, 0, 1));
        assert_ne!(lost(1, 0, 1), lost(1, 1, 0));
    }

    #[test]
    fn loss_rates_of_0_and_100_percent_are_exact() {
        let chance = Chance::new(3, 0, 1);
        assert!((0..10_000).all(|segment| !chance.loses(segment, 0) && chance.loses(segment, WHOLE)));
    }

    #[test]
    fn jitter_uses_its_range_around_the_delay_and_changes_slowly() {
        let chance = Chance::new(4, 0, 1);
        for jitter in [500_000, 30_000_000] {
            let delay = 40_000_000;
            let step = 100_000;
            let delays: Vec<u64> = (0..200_000).map(|n| chance.delay(n * step, delay, jitter)).collect();
            let (least, most) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
            assert!(*least >= delay - jitter && *least < delay - jitter / 2, "{least}");
            assert!(*most <= delay + jitter && *most > delay + jitter / 2, "{most}");
            // A packet that is sent later never arrives earlier.
            assert!(delays.windows(2).all(|pair| pair[1] + step >= pair[0]));
        }
    }
}
