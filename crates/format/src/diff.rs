//! Change vectors: the byte ranges of a page that differ from its previous committed image.
//!
//! They are encoded as repeated `varint gap, varint length, length bytes`, where `gap` counts from the end of the
//! previous range (from 0 for the first). The bytes are those of the image after the change, so applying a range twice,
//! or again from an earlier position, ends in the same page.

use crate::{DecodeError, malformed, varint};

/// Largest number of equal bytes between two differences that is cheaper to repeat than to start another range.
const MERGE_GAP: usize = 3;
const CHUNK: usize = 64;

/// Appends to `out` the ranges in which `after` differs from `before`. Both have the size of the page.
pub fn encode_ranges(before: &[u8], after: &[u8], out: &mut Vec<u8>) {
    debug_assert_eq!(before.len(), after.len());
    let size = after.len();
    let mut at = 0;
    let mut end_of_previous = 0;
    while let Some(start) = next_difference(before, after, at) {
        let mut last = start;
        let mut probe = start + 1;
        while probe < size && probe - last <= MERGE_GAP + 1 {
            if before[probe] != after[probe] {
                last = probe;
            }
            probe += 1;
        }
        varint::put(out, (start - end_of_previous) as u64);
        varint::put(out, (last + 1 - start) as u64);
        out.extend_from_slice(&after[start..=last]);
        end_of_previous = last + 1;
        at = probe;
    }
}

/// Returns the first index at or after `at` where the images differ.
fn next_difference(before: &[u8], after: &[u8], at: usize) -> Option<usize> {
    let (before_chunks, before_rest) = before[at..].as_chunks::<CHUNK>();
    let (after_chunks, after_rest) = after[at..].as_chunks::<CHUNK>();
    // The loop has no branch per byte, so the compiler turns it into vector instructions.
    let differs = |(b, a): (&[u8; CHUNK], &[u8; CHUNK])| {
        let (b, a) = (b.as_chunks::<8>().0, a.as_chunks::<8>().0);
        b.iter().zip(a).fold(0, |bits, (b, a)| bits | (u64::from_ne_bytes(*b) ^ u64::from_ne_bytes(*a))) != 0
    };
    let chunk = before_chunks.iter().zip(after_chunks).position(differs);
    let (start, b, a) = match chunk {
        Some(index) => (at + index * CHUNK, &before_chunks[index][..], &after_chunks[index][..]),
        None => (at + before_chunks.len() * CHUNK, before_rest, after_rest),
    };
    b.iter().zip(a).position(|(b, a)| b != a).map(|offset| start + offset)
}

/// Decoded ranges of one change vector, as (offset in the page, bytes after the change).
#[derive(Clone, Debug)]
pub struct Ranges<'a> {
    bytes: &'a [u8],
    at: usize,
    page_offset: usize,
}

impl<'a> Ranges<'a> {
    /// Iterates over the encoded ranges of one vector.
    pub fn new(bytes: &'a [u8]) -> Self {
        Ranges { bytes, at: 0, page_offset: 0 }
    }

    fn decode_next(&mut self) -> Result<(usize, &'a [u8]), DecodeError> {
        let gap = varint::take_u32(self.bytes, &mut self.at)? as usize;
        let length = varint::take_u32(self.bytes, &mut self.at)? as usize;
        let start = self.page_offset + gap;
        if length == 0 || start + length > 65_536 {
            return Err(malformed("change vector", "range outside any page"));
        }
        let data = self
            .bytes
            .get(self.at..self.at + length)
            .ok_or(malformed("change vector", "range runs past the end"))?;
        self.at += length;
        self.page_offset = start + length;
        Ok((start, data))
    }
}

impl<'a> Iterator for Ranges<'a> {
    type Item = Result<(usize, &'a [u8]), DecodeError>;
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.bytes.len() {
            return None;
        }
        let item = self.decode_next();
        if item.is_err() {
            self.at = self.bytes.len();
        }
        Some(item)
    }
}

/// Writes the encoded `ranges` into `page`.
///
/// # Errors
/// When the ranges are malformed or reach beyond the page; the page may then be partly changed.
pub fn apply_ranges(ranges: &[u8], page: &mut [u8]) -> Result<(), DecodeError> {
    for range in Ranges::new(ranges) {
        let (start, data) = range?;
        page.get_mut(start..start + data.len())
            .ok_or(malformed("change vector", "range outside the page"))?
            .copy_from_slice(data);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn unchanged_page_has_no_ranges_and_new_one_its_nonzero_bytes() {
        let page = vec![7u8; 512];
        let mut out = Vec::new();
        encode_ranges(&page, &page, &mut out);
        assert!(out.is_empty());
        encode_ranges(&[0; 512], &page, &mut out);
        assert_eq!(out.len(), 1 + 2 + 512);
    }

    #[test]
    fn near_differences_share_a_range() {
        let before = vec![0u8; 512];
        let mut after = before.clone();
        after[10] = 1;
        after[14] = 1;
        after[300] = 1;
        let mut out = Vec::new();
        encode_ranges(&before, &after, &mut out);
        let ranges: Vec<_> = Ranges::new(&out).map(|r| r.unwrap().0).collect();
        assert_eq!(ranges, [10, 300]);
    }

    proptest! {
        #[test]
        fn applying_the_difference_gives_the_page(
            base in proptest::collection::vec(any::<u8>(), 1024),
            edits in proptest::collection::vec((0usize..1024, any::<u8>()), 0..60),
        ) {
            let mut after = base.clone();
            for (at, byte) in edits { after[at] = byte; }
            let mut out = Vec::new();
            encode_ranges(&base, &after, &mut out);
            let mut page = base;
            apply_ranges(&out, &mut page).unwrap();
            prop_assert_eq!(&page, &after);
            apply_ranges(&out, &mut page).unwrap();
            prop_assert_eq!(page, after);
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = apply_ranges(&bytes, &mut [0u8; 512]);
        }
    }
}
