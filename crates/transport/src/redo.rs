//! Redo in memory, and the begin of a log in the stream.

use serde::{Deserialize, Serialize};
use standfast_types::Scn;
use std::fmt;
use std::sync::Arc;

/// A slice of the redo stream in memory that other holders share. Cheap to clone.
#[derive(Clone)]
pub struct RedoSlice {
    first: Scn,
    memory: Arc<dyn AsRef<[u8]> + Send + Sync>,
    from: usize,
    upto: usize,
}

impl RedoSlice {
    /// A slice of all of `memory`, whose first byte is at `first`.
    pub fn new(first: Scn, memory: Arc<dyn AsRef<[u8]> + Send + Sync>) -> RedoSlice {
        let upto = (*memory).as_ref().len();
        RedoSlice { first, memory, from: 0, upto }
    }

    /// Position of the first byte.
    pub fn first(&self) -> Scn {
        self.first
    }

    /// Position after the last byte.
    pub fn end(&self) -> Scn {
        self.first + (self.upto - self.from) as u64
    }

    pub fn bytes(&self) -> &[u8] {
        &(*self.memory).as_ref()[self.from..self.upto]
    }

    /// Returns the part at or after `from` and before `upto`; may be empty.
    #[must_use]
    pub fn clip(&self, from: Scn, upto: Scn) -> RedoSlice {
        let start = from.max(self.first).min(self.end());
        let end = upto.min(self.end()).max(start);
        RedoSlice {
            first: start,
            memory: self.memory.clone(),
            from: self.from + start.bytes_since(self.first) as usize,
            upto: self.from + end.bytes_since(self.first) as usize,
        }
    }
}

impl fmt::Debug for RedoSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedoSlice({}..{})", self.first, self.end())
    }
}

/// The begin of a log sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSwitch {
    /// Number of the log within its incarnation.
    pub sequence: u64,
    /// Position of its first byte.
    pub first_scn: Scn,
    /// Time of the switch, microseconds since the Unix epoch.
    pub time_us: u64,
    /// Bytes from `first_scn` to the first record that starts in the log.
    pub first_record: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redo_chunk_is_clipped_without_copying() {
        let slice = RedoSlice::new(Scn(100), Arc::new(b"0123456789".to_vec()));
        let middle = slice.clip(Scn(103), Scn(106));
        assert_eq!((middle.first(), middle.bytes(), middle.end()), (Scn(103), &b"345"[..], Scn(106)));
        assert_eq!(middle.clip(Scn(0), Scn(104)).bytes(), b"3");
        assert_eq!(slice.clip(Scn(110), Scn(200)).bytes(), b"");
        assert_eq!(slice.clip(Scn(0), Scn(50)).bytes(), b"");
        assert_eq!(slice.clip(Scn(0), Scn(500)).bytes().len(), 10);
    }
}
