//! The dirty-page map: the pages that a batch changes, in memory. Used for one database at a time, reused for all.

use standfast_types::{PageNo, Scn};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Bytes allocated at a time; a multiple of every page size.
const CHUNK_BYTES: usize = 1 << 20;

/// Multiplicative hash for page numbers; it has no key, unlike the default hasher.
#[derive(Clone, Copy, Default)]
pub struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u32(u32::from(*byte)));
    }
    fn write_u32(&mut self, value: u32) {
        let mixed = (self.0 ^ u64::from(value)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = mixed ^ (mixed >> 32);
    }
}

pub type PageMap<V> = HashMap<PageNo, V, BuildHasherDefault<PageHasher>>;

#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub page_no: PageNo,
    /// Its checksum as of `scn`, from the redo.
    pub sum_after: u32,
    /// The commit that changed it last.
    pub scn: Scn,
    image: u32,
}

/// Images of changed pages. Memory is kept from batch to batch; the caller bounds it by when it clears the map.
#[derive(Default)]
pub struct DirtyPages {
    page_bytes: usize,
    index: PageMap<u32>,
    slots: Vec<Slot>,
    images: u32,
    chunks: Vec<Box<[u8]>>,
}

impl DirtyPages {
    /// Forgets all pages and takes pages of `page_bytes` from now on.
    pub fn clear(&mut self, page_bytes: usize) {
        self.page_bytes = page_bytes;
        self.index.clear();
        self.slots.clear();
        self.images = 0;
    }

    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Returns the bytes that the images use.
    pub fn bytes(&self) -> usize {
        self.images as usize * self.page_bytes
    }

    /// Returns the changed pages in no particular order.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// Sorts [`DirtyPages::slots`] by page number; the map can then only be read until it is cleared.
    pub fn sort(&mut self) {
        self.slots.sort_unstable_by_key(|slot| slot.page_no);
        for (at, slot) in self.slots.iter().enumerate() {
            self.index.insert(slot.page_no, at as u32);
        }
    }

    /// Returns the slot of a page, if the page is changed.
    pub fn find(&self, page_no: PageNo) -> Option<Slot> {
        self.index.get(&page_no).map(|at| self.slots[*at as usize])
    }

    pub fn image(&self, slot: Slot) -> &[u8] {
        let per_chunk = CHUNK_BYTES / self.page_bytes;
        let start = slot.image as usize % per_chunk * self.page_bytes;
        &self.chunks[slot.image as usize / per_chunk][start..start + self.page_bytes]
    }

    /// Returns the image that a vector changes; `Err` with a new image of undefined content when the page was not
    /// changed before.
    pub fn touch(&mut self, page_no: PageNo, sum_after: u32, scn: Scn) -> Result<&mut [u8], &mut [u8]> {
        let (at, known) = match self.index.entry(page_no) {
            std::collections::hash_map::Entry::Occupied(entry) => (*entry.get(), true),
            std::collections::hash_map::Entry::Vacant(entry) => {
                (*entry.insert(self.slots.len() as u32), false)
            }
        };
        if !known {
            self.slots.push(Slot { page_no, sum_after, scn, image: self.images });
            self.images += 1;
        }
        let slot = &mut self.slots[at as usize];
        slot.sum_after = sum_after;
        slot.scn = scn;
        let per_chunk = CHUNK_BYTES / self.page_bytes;
        let (chunk, start) =
            (slot.image as usize / per_chunk, slot.image as usize % per_chunk * self.page_bytes);
        while chunk >= self.chunks.len() {
            self.chunks.push(vec![0; CHUNK_BYTES].into_boxed_slice());
        }
        let image = &mut self.chunks[chunk][start..start + self.page_bytes];
        if known { Ok(image) } else { Err(image) }
    }

    /// Forgets the pages above `pages`, where the database was truncated.
    pub fn cut(&mut self, pages: u32) {
        let index = &mut self.index;
        self.slots.retain(|slot| slot.page_no <= pages || index.remove(&slot.page_no).is_none());
        for (at, slot) in self.slots.iter().enumerate() {
            index.insert(slot.page_no, at as u32);
        }
    }

    /// Returns memory beyond `bytes` to the system.
    pub fn shrink(&mut self, bytes: usize) {
        self.chunks.truncate(bytes.div_ceil(CHUNK_BYTES).max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_page_keeps_its_image_between_touches() {
        let mut dirty_pages = DirtyPages::default();
        for page_bytes in [512, 65_536] {
            dirty_pages.clear(page_bytes);
            for page_no in 1..=40u32 {
                let Err(image) = dirty_pages.touch(page_no, 0, Scn(1)) else { panic!("known") };
                image.fill(page_no as u8);
            }
            let Ok(image) = dirty_pages.touch(7, 70, Scn(2)) else { panic!("new") };
            assert!(image.iter().all(|byte| *byte == 7));
            let slot = dirty_pages.find(7).unwrap();
            assert_eq!((slot.sum_after, slot.scn), (70, Scn(2)));
            assert_eq!(dirty_pages.bytes(), 40 * page_bytes);
        }
    }

    #[test]
    fn truncation_drops_only_the_pages_beyond_it() {
        let mut dirty_pages = DirtyPages::default();
        dirty_pages.clear(512);
        for page_no in [5, 1, 9, 3, 7] {
            let Err(image) = dirty_pages.touch(page_no, 0, Scn(1)) else { panic!("known") };
            image.fill(page_no as u8);
        }
        dirty_pages.cut(6);
        assert!(dirty_pages.find(9).is_none() && dirty_pages.find(7).is_none());
        assert!(dirty_pages.touch(9, 0, Scn(2)).is_err(), "a truncated page has no image");
        dirty_pages.sort();
        let pages: Vec<_> =
            dirty_pages.slots().iter().map(|slot| (slot.page_no, dirty_pages.image(*slot)[0])).collect();
        assert_eq!(pages[..3], [(1, 1), (3, 3), (5, 5)]);
    }
}
