//! The images of a few pages as capture last saw them: pages that transactions change again and again need not be read
//! back from the WAL.

use standfast_types::PageNo;

/// Pages kept for each database; a power of two. At 4,096 bytes a page that is 64 KiB, and nothing before the first
/// capture.
const SLOTS: usize = 16;

/// Images by page and frame: an image is returned only for the frame that it was kept for. A page has one slot, which
/// the last page kept there owns.
pub struct RecentPages {
    page_bytes: usize,
    /// Page and frame of each slot; page 0: the slot is empty.
    keys: [(PageNo, u32); SLOTS],
    images: Vec<u8>,
}

impl RecentPages {
    pub fn new(page_bytes: usize) -> RecentPages {
        RecentPages { page_bytes, keys: [(0, 0); SLOTS], images: Vec::new() }
    }

    /// Forgets all images: frame numbers start over.
    pub fn clear(&mut self) {
        self.keys = [(0, 0); SLOTS];
    }

    /// Keeps `image`, that of `page_no` in `frame` of the current generation.
    pub fn keep(&mut self, page_no: PageNo, frame: u32, image: &[u8]) {
        if self.images.is_empty() {
            self.images = vec![0; SLOTS * self.page_bytes];
        }
        let slot = page_no as usize % SLOTS;
        self.keys[slot] = (page_no, frame);
        self.images[slot * self.page_bytes..][..self.page_bytes].copy_from_slice(image);
    }

    /// Returns the image of `page_no` in `frame`, if it is kept.
    pub fn get(&self, page_no: PageNo, frame: u32) -> Option<&[u8]> {
        let slot = page_no as usize % SLOTS;
        (page_no != 0 && self.keys[slot] == (page_no, frame))
            .then(|| &self.images[slot * self.page_bytes..][..self.page_bytes])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_image_is_returned_only_for_its_own_frame() {
        let mut recent = RecentPages::new(512);
        assert_eq!((recent.get(0, 0), recent.get(3, 7)), (None, None));
        recent.keep(3, 7, &[1; 512]);
        assert_eq!(recent.get(3, 7), Some([1; 512].as_slice()));
        assert_eq!((recent.get(3, 8), recent.get(3 + SLOTS as u32, 7)), (None, None));
        recent.keep(3, 9, &[2; 512]);
        assert_eq!((recent.get(3, 7), recent.get(3, 9)), (None, Some([2; 512].as_slice())));
        recent.keep(3 + SLOTS as u32, 10, &[3; 512]);
        assert_eq!(recent.get(3, 9), None);
        recent.clear();
        assert_eq!(recent.get(3 + SLOTS as u32, 10), None);
    }
}
