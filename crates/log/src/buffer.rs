//! The log buffer: redo between capture and the log writer and senders.
//!
//! It is a queue of immutable chunks, each of whole records. The log writer and every sender clone the reference, not
//! the bytes; a chunk lives until the last of them drops it. So a slow destination never holds up the log writer and
//! never reads bytes that have been overwritten. See `docs/decisions/0002-log-buffer-of-chunks.md`.

use standfast_types::Scn;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// Consecutive whole records of the redo stream.
#[derive(Debug)]
pub struct RedoChunk {
    /// SCN of `bytes[0]`, where a record begins.
    pub first: Scn,
    /// The records, without spare capacity: a chunk may stay for long.
    pub bytes: Box<[u8]>,
}

impl RedoChunk {
    /// Returns the SCN of the byte after the last.
    pub fn end(&self) -> Scn {
        self.first + self.bytes.len() as u64
    }
}

impl AsRef<[u8]> for RedoChunk {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Approximate size of a chunk besides its records: commits of single clients make many small chunks.
const CHUNK_OVERHEAD: usize = 96;

struct Chunks {
    queue: VecDeque<Arc<RedoChunk>>,
    bytes: usize,
}

pub struct LogBuffer {
    chunks: Mutex<Chunks>,
    bytes_max: usize,
    captured: AtomicU64,
    durable: AtomicU64,
    moved: Condvar,
    waiters: AtomicUsize,
}

impl LogBuffer {
    /// Creates an empty buffer at `start`; everything before `start` is durable. The buffer drops its oldest chunks
    /// once it holds more than `bytes_max` bytes, but never one that is not durable yet.
    pub fn new(start: Scn, bytes_max: usize) -> LogBuffer {
        LogBuffer {
            chunks: Mutex::new(Chunks { queue: VecDeque::new(), bytes: 0 }),
            bytes_max,
            captured: AtomicU64::new(start.0),
            durable: AtomicU64::new(start.0),
            moved: Condvar::new(),
            waiters: AtomicUsize::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Chunks> {
        self.chunks.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Appends whole records and returns their chunk; `None` for no bytes.
    pub fn append(&self, bytes: impl Into<Box<[u8]>>) -> Option<Arc<RedoChunk>> {
        let bytes: Box<[u8]> = bytes.into();
        let mut chunks = self.lock();
        let first = Scn(self.captured.load(SeqCst));
        if bytes.is_empty() {
            return None;
        }
        let end = first + bytes.len() as u64;
        chunks.bytes += CHUNK_OVERHEAD + bytes.len();
        let chunk = Arc::new(RedoChunk { first, bytes });
        chunks.queue.push_back(chunk.clone());
        self.captured.store(end.0, SeqCst);
        let durable = self.durable();
        while chunks.bytes > self.bytes_max
            && chunks.queue.front().is_some_and(|oldest| oldest.end() <= durable)
        {
            let dropped = chunks.queue.pop_front().map_or(0, |oldest| CHUNK_OVERHEAD + oldest.bytes.len());
            chunks.bytes -= dropped;
        }
        Some(chunk)
    }

    pub fn captured(&self) -> Scn {
        Scn(self.captured.load(SeqCst))
    }

    /// End of the redo that survives a power loss here.
    pub fn durable(&self) -> Scn {
        Scn(self.durable.load(SeqCst))
    }

    /// Bytes that are captured and not durable: what a full buffer would wait for.
    pub fn pending_bytes(&self) -> usize {
        self.captured().bytes_since(self.durable()) as usize
    }

    /// Advances the durable position; only the log writer calls this.
    pub fn set_durable(&self, durable: Scn) {
        debug_assert!(durable <= self.captured(), "durable at {durable}, beyond what was captured");
        self.durable.fetch_max(durable.0, SeqCst);
    }

    /// Returns the chunks from `from` on, which must be the start of a chunk or the end of the buffer, up to about
    /// `bytes_max` bytes, but at least one chunk if there is any. `None` when `from` is no longer in the buffer.
    pub fn chunks(&self, from: Scn, bytes_max: usize) -> Option<Vec<Arc<RedoChunk>>> {
        if from == self.captured() {
            return Some(Vec::new());
        }
        let chunks = self.lock();
        let start = chunks.queue.binary_search_by(|chunk| chunk.first.cmp(&from)).ok()?;
        let mut bytes = 0;
        let mut found = Vec::new();
        for chunk in chunks.queue.range(start..) {
            if !found.is_empty() && bytes + chunk.bytes.len() > bytes_max {
                break;
            }
            bytes += chunk.bytes.len();
            found.push(chunk.clone());
        }
        Some(found)
    }

    /// Start of the chunk that contains `at`; `None` when it is not in the buffer.
    pub fn chunk_start(&self, at: Scn) -> Option<Scn> {
        let chunks = self.lock();
        let index = chunks.queue.partition_point(|chunk| chunk.end() <= at);
        chunks.queue.get(index).map(|chunk| chunk.first).filter(|first| *first <= at)
    }

    /// Waits until redo is captured beyond `beyond` or `durable` has passed `durable_beyond`, at most `timeout`.
    /// Returns the captured SCN.
    pub fn wait(&self, beyond: Scn, durable_beyond: Scn, timeout: Duration) -> Scn {
        let ready = || self.captured() > beyond || self.durable() > durable_beyond;
        self.waiters.fetch_add(1, SeqCst);
        let mut chunks = self.lock();
        if !ready() {
            chunks = match self.moved.wait_timeout(chunks, timeout) {
                Ok((chunks, _)) => chunks,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        drop(chunks);
        self.waiters.fetch_sub(1, SeqCst);
        self.captured()
    }

    /// Wakes all waiters of [`LogBuffer::wait`]. Costs one load when there are none.
    pub fn notify(&self) {
        if self.waiters.load(SeqCst) > 0 {
            drop(self.lock());
            self.moved.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_found_by_position_and_dropped_only_when_durable() {
        let buffer = LogBuffer::new(Scn(100), 10);
        assert_eq!(buffer.append(vec![1; 6]).unwrap().end(), Scn(106));
        assert_eq!(buffer.append(vec![2; 6]).unwrap().end(), Scn(112));
        assert!(buffer.append(vec![]).is_none());
        assert_eq!(buffer.chunks(Scn(100), usize::MAX).unwrap().len(), 2);
        assert_eq!(buffer.chunks(Scn(100), 1).unwrap().len(), 1);
        assert!(buffer.chunks(Scn(103), 1).is_none());
        assert_eq!(buffer.chunk_start(Scn(107)), Some(Scn(106)));
        buffer.set_durable(Scn(106));
        buffer.append(vec![3; 1]);
        assert!(buffer.chunks(Scn(100), usize::MAX).is_none());
        assert_eq!(buffer.chunks(Scn(106), usize::MAX).unwrap().len(), 2);
        assert!(buffer.chunks(Scn(113), 1).unwrap().is_empty());
        assert_eq!(buffer.pending_bytes(), 7);
    }

    #[test]
    fn waiter_is_woken_by_appended_redo() {
        let buffer = Arc::new(LogBuffer::new(Scn(100), 1000));
        let waiter = {
            let buffer = buffer.clone();
            std::thread::spawn(move || buffer.wait(Scn(100), Scn(100), Duration::from_secs(60)))
        };
        while buffer.waiters.load(SeqCst) == 0 {
            std::thread::yield_now();
        }
        buffer.append(vec![0; 5]);
        buffer.notify();
        assert_eq!(waiter.join().unwrap(), Scn(105));
    }
}
