/// A small generator (splitmix64): the same seed gives the same numbers on every machine and in every version. Not for
/// secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Makes a generator; `seed` determines its whole sequence.
    pub fn new(seed: u64) -> Rng {
        Rng { state: seed }
    }

    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in `0..bound`; 0 when `bound` is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The high half of a 128-bit product: its bias (bound / 2^64) does not matter in tests.
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low).saturating_add(1))
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Returns a random element of `items`; None when `items` is empty.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len() as u64) as usize)
    }

    pub fn fill(&mut self, out: &mut [u8]) {
        for target in out.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            target.copy_from_slice(&word[..target.len()]);
        }
    }

    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut out = vec![0; count];
        self.fill(&mut out);
        out
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last as u64 + 1) as usize);
        }
    }

    /// Makes an independent generator, for a part of a test whose number of draws must not shift the other parts.
    pub fn fork(&mut self) -> Rng {
        Rng::new(self.next_u64())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_of_a_seed_never_changes() {
        let mut rng = Rng::new(1234567);
        let first: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(first, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_every_value() {
        let mut rng = Rng::new(1);
        let mut seen = [0; 7];
        (0..1000).for_each(|_| seen[rng.below(7) as usize] += 1);
        assert!(seen.iter().all(|times| *times > 50), "{seen:?}");
        assert_eq!(rng.below(0), 0);
        assert!((0..100).all(|_| (3..=5).contains(&rng.between(3, 5))));
        assert!((0..100).all(|_| rng.chance(100) && !rng.chance(0)));
    }

    #[test]
    fn a_shuffle_keeps_every_element() {
        let mut items: Vec<u32> = (0..50).collect();
        Rng::new(2).shuffle(&mut items);
        assert_ne!(items, (0..50).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..50).collect::<Vec<_>>());
    }

    #[test]
    fn odd_lengths_are_filled_to_the_end() {
        assert_eq!(Rng::new(3).bytes(13).len(), 13);
        assert_ne!(Rng::new(3).bytes(13)[8..], [0; 5]);
    }
}
