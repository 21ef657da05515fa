//! The extents of a large write, and the buffers in which they are formatted.

use standfast_io::AlignedBuf;
use std::sync::Arc;

/// Bytes of redo in an extent of a large write: enough for the device's full speed.
pub(super) const PIECE_BYTES: usize = 1 << 20;

/// The first extent is smaller, because nothing is being written while it is formatted.
const FIRST_PIECE_BYTES: usize = PIECE_BYTES / 4;

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
pub(super) fn pieces<'p, 's>(slices: &'p [&'s [u8]]) -> Vec<&'p [&'s [u8]]> {
    if total(slices) <= PIECE_BYTES {
        return vec![slices];
    }
    let (mut pieces, mut begin, mut bytes) = (Vec::new(), 0, 0);
    for (end, slice) in slices.iter().enumerate() {
        let enough = if pieces.is_empty() { FIRST_PIECE_BYTES } else { PIECE_BYTES };
        if bytes > 0 && bytes + slice.len() > enough {
            pieces.push(&slices[begin..end]);
            (begin, bytes) = (end, 0);
        }
        bytes += slice.len();
    }
    pieces.push(&slices[begin..]);
    pieces
}
