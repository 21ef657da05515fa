//! Map from a page number to the frame of the current WAL generation that holds the page.

use standfast_types::PageNo;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Multiplicative hash of one u32: page numbers need spreading, not protection against attackers.
#[derive(Default)]
pub struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.write_u32(u32::from(*byte));
        }
    }
    fn write_u32(&mut self, value: u32) {
        self.0 = (self.0.rotate_left(32) ^ u64::from(value)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
}

/// Maps a page number to its newest captured frame.
pub type PageMap = HashMap<PageNo, u32, BuildHasherDefault<PageHasher>>;
