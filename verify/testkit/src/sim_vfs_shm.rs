use crate::locks::ShmLocks;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Mutex, PoisonError};

/// The shared memory of one database file: the wal-index and its locks. It lives as long as a connection has it mapped,
/// also through a power loss, because SQLite still reads its mappings while it shuts down.
#[derive(Debug, Default)]
pub(crate) struct Shm {
    /// Atomics only because several connections write through raw pointers; their values are never used as numbers.
    regions: Mutex<Vec<Box<[AtomicU64]>>>,
    locks: Mutex<ShmLocks>,
}

impl Shm {
    /// Address of region `index` of `bytes` bytes, zeroed when it is new; None when the region does not exist and
    /// `extend` is false. The address stays valid while this `Shm` lives.
    pub(crate) fn region(&self, index: usize, bytes: usize, extend: bool) -> Option<*mut c_void> {
        let mut regions = self.regions.lock().unwrap_or_else(PoisonError::into_inner);
        while extend && regions.len() <= index {
            regions.push((0..bytes.div_ceil(8)).map(|_| AtomicU64::new(0)).collect());
        }
        regions.get(index).map(|region| region.as_ptr().cast_mut().cast())
    }

    /// Orders earlier writes of this thread before its later reads.
    pub(crate) fn barrier() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn locks<T>(&self, decide: impl FnOnce(&mut ShmLocks) -> T) -> T {
        // Taking and releasing the mutex also makes the writes of one connection visible to the next one.
        decide(&mut self.locks.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_appear_when_extended_and_stay_where_they_are() {
        let shm = Shm::default();
        assert_eq!(shm.region(1, 32768, false), None);
        let first = shm.region(1, 32768, true).unwrap();
        (2..50).for_each(|index| assert!(shm.region(index, 32768, true).is_some()));
        assert_eq!(shm.region(1, 32768, false), Some(first));
        assert_ne!(shm.region(0, 32768, false), Some(first));
    }
}
