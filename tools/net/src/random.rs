//! Pseudo-random numbers for lengths, pauses and payloads: fast and seedable, not for secrets.

#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// Starts the sequence of a seed.
    pub fn new(seed: u64) -> Random {
        Random(seed)
    }

    /// Returns a seed that differs from process to process.
    pub fn fresh_seed() -> u64 {
        use std::hash::{BuildHasher, RandomState};
        RandomState::new().hash_one(std::process::id())
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a uniformly distributed number from `least` to `most`, both inclusive.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        let span = u128::from(most.saturating_sub(least)) + 1;
        least + ((u128::from(self.draw()) * span) >> 64) as u64
    }

    pub fn fill(&mut self, out: &mut [u8]) {
        for word in out.chunks_mut(8) {
            word.copy_from_slice(&self.draw().to_le_bytes()[..word.len()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_values_cover_the_range_including_both_ends() {
        let mut random = Random::new(1);
        let drawn: Vec<u64> = (0..1000).map(|_| random.between(3, 6)).collect();
        assert!((3..=6).all(|value| drawn.contains(&value)));
        assert!(drawn.iter().all(|value| (3..=6).contains(value)));
        assert_eq!(random.between(5, 5), 5);
    }
}
