//! Sets of small numbers as words of bits, as they lie in the shared memory.

/// Returns the numbers of the set bits, ascending. Each word is read when the iteration reaches it.
pub(crate) fn set_bits(words: impl IntoIterator<Item = u64>) -> impl Iterator<Item = usize> {
    words.into_iter().enumerate().flat_map(|(word, mut bits)| {
        std::iter::from_fn(move || {
            (bits != 0).then(|| {
                let bit = bits.trailing_zeros() as usize;
                bits &= bits - 1;
                word * 64 + bit
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::set_bits;

    #[test]
    fn the_bits_of_all_words_come_ascending() {
        assert_eq!(set_bits([1 << 63 | 1, 0, 0b110]).collect::<Vec<_>>(), [0, 63, 129, 130]);
        assert_eq!(set_bits([0, 0]).next(), None);
    }
}
