use crate::ALIGNMENT;
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::{Deref, DerefMut};

/// A zeroed byte buffer that starts at a multiple of [`ALIGNMENT`], as direct I/O requires.
pub struct AlignedBuf {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the buffer is uniquely owned memory, like a Vec<u8>.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads, like a Vec<u8>.
unsafe impl Sync for AlignedBuf {}

impl AlignedBuf {
    /// Allocates a buffer of at least `bytes` bytes, rounded up to the alignment.
    pub fn new(bytes: usize) -> AlignedBuf {
        let bytes = bytes.max(1).next_multiple_of(ALIGNMENT);
        let layout = Self::layout(bytes);
        // SAFETY: the layout has a size above zero.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        AlignedBuf { start, bytes }
    }

    fn layout(bytes: usize) -> Layout {
        match Layout::from_size_align(bytes, ALIGNMENT) {
            Ok(layout) => layout,
            Err(_) => handle_alloc_error(Layout::new::<u8>()),
        }
    }
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: start points to `bytes` initialised bytes owned by self.
        unsafe { std::slice::from_raw_parts(self.start, self.bytes) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in deref; &mut self makes the access unique.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.bytes) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: allocated in new() with the same layout.
        unsafe { dealloc(self.start, Self::layout(self.bytes)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_is_aligned_and_zero() {
        let buffer = AlignedBuf::new(5000);
        assert_eq!(buffer.len(), 8192);
        assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
        assert!(buffer.iter().all(|b| *b == 0));
    }
}
