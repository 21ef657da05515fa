//! The extents of a large write, and the buffers in which they are formatted.

use standfast_io::AlignedBuf;
use std::sync::Arc;

/// Bytes of redo in an extent of a large write: enough for the device's full speed.
pub(super) const EXTENT_BYTES: usize = 1 << 20;

/// The first extent is smaller, because nothing is being written while it is formatted.
const FIRST_EXTENT_BYTES: usize = EXTENT_BYTES / 4;

/// Growth step of the buffers: an idle instance holds little, and a busy one seldom grows them.
const BUFFER_STEP: usize = 256 << 10;

/// Returns the content of a buffer that no write uses any more, since every write is awaited before its buffer is used
/// again. The buffer grows to at least `bytes` bytes if necessary.
pub(super) fn sole(buffer: &mut Arc<AlignedBuf>, bytes: usize) -> &mut AlignedBuf {
    if buffer.len() < bytes || Arc::get_mut(buffer).is_none() {
        *buffer = Arc::new(AlignedBuf::new(bytes.next_multiple_of(BUFFER_STEP).max(buffer.len())));
    }
    match Arc::get_mut(buffer) {
        Some(buffer) => buffer,
        None => unreachable!("the buffer was just created"),
    }
}

pub(super) fn total(slices: &[&[u8]]) -> usize {
    slices.iter().map(|slice| slice.len()).sum()
}

/// Splits the slices into extents to be written one after the other; a small batch is one extent.
pub(super) fn extents_of<'p, 's>(slices: &'p [&'s [u8]]) -> Vec<&'p [&'s [u8]]> {
    if total(slices) <= EXTENT_BYTES {
        return vec![slices];
    }
    let (mut extents, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for (end, slice) in slices.iter().enumerate() {
        let enough = if extents.is_empty() { FIRST_EXTENT_BYTES } else { EXTENT_BYTES };
        if bytes > 0 && bytes + slice.len() > enough {
            extents.push(&slices[begin..end]);
            (begin, bytes) = (end, 0);
        }
        bytes += slice.len();
    }
    extents.push(&slices[begin..]);
    extents
}
