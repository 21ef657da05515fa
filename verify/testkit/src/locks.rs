//! Lock states of one database file between the connections of a machine. Pure decisions: nothing waits here, the
//! answer is granted or busy, and SQLite retries.

use std::collections::BTreeMap;

/// One open file of one connection.
pub(crate) type HandleId = u64;

/// Levels of a database lock, in SQLite's numbering.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LockLevel {
    #[default]
    None,
    Shared,
    Reserved,
    Pending,
    Exclusive,
}

impl LockLevel {
    /// Converts SQLite's number, 0 to 4.
    pub(crate) fn from_number(number: i32) -> Option<LockLevel> {
        [LockLevel::None, LockLevel::Shared, LockLevel::Reserved, LockLevel::Pending, LockLevel::Exclusive]
            .get(usize::try_from(number).ok()?)
            .copied()
    }
}

/// SHARED, RESERVED, PENDING and EXCLUSIVE of one database file.
#[derive(Debug, Default)]
pub(crate) struct FileLocks {
    held: BTreeMap<HandleId, LockLevel>,
}

impl FileLocks {
    /// Raises the lock of `handle`; false means busy. A failed attempt at EXCLUSIVE leaves PENDING, which keeps new
    /// readers out while the present readers finish.
    pub(crate) fn lock(&mut self, handle: HandleId, wanted: LockLevel) -> bool {
        let own = self.held.get(&handle).copied().unwrap_or_default();
        if wanted <= own {
            return true;
        }
        let others = self
            .held
            .iter()
            .filter(|(other, _)| **other != handle)
            .map(|(_, level)| *level)
            .max()
            .unwrap_or_default();
        let limit = if wanted == LockLevel::Shared { LockLevel::Pending } else { LockLevel::Reserved };
        if others >= limit {
            return false;
        }
        let granted = match wanted {
            LockLevel::Exclusive if others >= LockLevel::Shared => LockLevel::Pending,
            _ => wanted,
        };
        self.held.insert(handle, granted);
        granted == wanted
    }

    pub(crate) fn unlock(&mut self, handle: HandleId, level: LockLevel) {
        match self.held.get_mut(&handle) {
            Some(_) if level == LockLevel::None => _ = self.held.remove(&handle),
            Some(own) => *own = level.min(*own),
            None => {}
        }
    }

    /// Whether any handle holds RESERVED or higher.
    pub(crate) fn reserved(&self) -> bool {
        self.held.values().any(|level| *level >= LockLevel::Reserved)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Slots {
    shared: u8,
    exclusive: u8,
}

/// The eight lock bytes of a wal-index, as bit sets.
#[derive(Debug, Default)]
pub(crate) struct ShmLocks {
    held: BTreeMap<HandleId, Slots>,
}

impl ShmLocks {
    /// Takes all slots of `mask` or none; false means busy.
    pub(crate) fn lock(&mut self, handle: HandleId, mask: u8, exclusive: bool) -> bool {
        let conflicts = self.held.iter().filter(|(other, _)| **other != handle).any(|(_, slots)| {
            let in_the_way = if exclusive { slots.shared | slots.exclusive } else { slots.exclusive };
            in_the_way & mask != 0
        });
        if !conflicts {
            let own = self.held.entry(handle).or_default();
            if exclusive {
                own.exclusive |= mask;
            } else {
                own.shared |= mask;
            }
        }
        !conflicts
    }

    /// Releases the slots of `mask`, shared or exclusive.
    pub(crate) fn unlock(&mut self, handle: HandleId, mask: u8) {
        if let Some(own) = self.held.get_mut(&handle) {
            own.shared &= !mask;
            own.exclusive &= !mask;
        }
    }

    /// Releases all slots of a handle.
    pub(crate) fn forget(&mut self, handle: HandleId) {
        self.held.remove(&handle);
    }
}

#[cfg(test)]
mod tests {
    use super::LockLevel::*;
    use super::*;

    #[test]
    fn one_writer_coexists_with_readers_until_it_locks_exclusively() {
        let mut locks = FileLocks::default();
        assert!(locks.lock(1, Shared) && locks.lock(2, Shared) && locks.lock(1, Reserved));
        assert!(!locks.lock(2, Reserved), "a second writer");
        assert!(locks.lock(3, Shared), "readers still enter");
        assert!(!locks.lock(1, Exclusive), "readers are inside");
        assert!(!locks.lock(4, Shared), "the attempt left PENDING behind");
        locks.unlock(2, None);
        locks.unlock(3, None);
        assert!(locks.lock(1, Exclusive));
        assert!(!locks.lock(2, Shared) && locks.reserved());
        locks.unlock(1, Shared);
        assert!(locks.lock(2, Shared) && !locks.reserved());
    }

    #[test]
    fn only_one_of_two_journal_rollbacks_gets_the_lock() {
        let mut locks = FileLocks::default();
        assert!(locks.lock(1, Shared) && locks.lock(2, Shared));
        assert!(!locks.lock(1, Exclusive) && !locks.lock(2, Exclusive));
        locks.unlock(2, None);
        assert!(locks.lock(1, Exclusive));
    }

    #[test]
    fn shm_slots_are_shared_or_exclusive_and_ranges_are_all_or_none() {
        let mut locks = ShmLocks::default();
        assert!(locks.lock(1, 0b1000, false) && locks.lock(2, 0b1000, false));
        assert!(!locks.lock(3, 0b1111_1000, true), "one slot of the range is read");
        assert!(locks.lock(3, 0b0011_0000, true), "nothing of the failed range stayed behind");
        assert!(!locks.lock(1, 0b0001_0000, false));
        locks.unlock(1, 0b1000);
        assert!(!locks.lock(3, 0b1000, true));
        locks.forget(2);
        assert!(locks.lock(3, 0b1000, true));
    }
}
