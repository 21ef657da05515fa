//! Commits that may go on and sleep: who they are, so that they are woken together.

use crate::bits::set_bits;
use crate::layout::{BED_SESSIONS, BEDS, Slot};
use crate::session::{WORD_ASLEEP, WORD_IDLE};
use std::sync::atomic::Ordering::SeqCst;

/// Sleepers by where they sleep.
pub struct Sleepers {
    /// Bit n: there are some in bed n.
    occupied: u64,
    beds: [Bed; BEDS],
}

#[derive(Clone, Copy)]
struct Bed {
    bits: u32,
    /// When the first of them gave notice of its commit.
    oldest_ns: u64,
}

const NOBODY: Bed = Bed { bits: 0, oldest_ns: u64::MAX };
const _: () = assert!(BEDS <= u64::BITS as usize);

impl Default for Sleepers {
    fn default() -> Sleepers {
        Sleepers { occupied: 0, beds: [NOBODY; BEDS] }
    }
}

impl Slot {
    pub(crate) fn waits_for(&self, position: u64) -> bool {
        self.target.load(SeqCst) <= position && self.commit_word.load(SeqCst) != WORD_IDLE
    }
}

impl Sleepers {
    /// Lets the session in `slot`, of that index, look again at what it waits for; it joins if it sleeps.
    pub(crate) fn call(&mut self, index: usize, slot: &Slot) {
        if slot.commit_word.swap(WORD_IDLE, SeqCst) == WORD_ASLEEP {
            self.join(index, slot.noticed_ns.load(SeqCst));
        }
    }

    fn join(&mut self, index: usize, noticed_ns: u64) {
        let nth = index / BED_SESSIONS;
        let bed = &mut self.beds[nth];
        bed.bits |= 1 << (index % BED_SESSIONS);
        bed.oldest_ns = bed.oldest_ns.min(noticed_ns);
        self.occupied |= 1 << nth;
    }

    /// Beds with their sleepers, the bed of the one who has waited longest first: who runs first is ahead at the write lock,
    /// and in the order of slots that would always be the same sessions. Nobody is left.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = (usize, u32)> {
        let mut order = [(u64::MAX, 0, 0); BEDS];
        let mut taken = 0;
        for nth in set_bits([std::mem::take(&mut self.occupied)]) {
            let bed = std::mem::replace(&mut self.beds[nth], NOBODY);
            order[taken] = (bed.oldest_ns, nth, bed.bits);
            taken += 1;
        }
        order[..taken].sort_unstable();
        order.into_iter().take(taken).map(|(_, nth, bits)| (nth, bits))
    }

    /// How many.
    pub fn len(&self) -> usize {
        set_bits([self.occupied]).map(|nth| self.beds[nth].bits.count_ones() as usize).sum()
    }

    /// Whether nobody is to be woken.
    pub fn is_empty(&self) -> bool {
        self.occupied == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_a_bed_are_woken_together_and_first_the_bed_of_the_one_who_has_waited_longest() {
        let mut sleepers = Sleepers::default();
        for (index, noticed_ns) in [(0, 30), (33, 20), (31, 10), (1023, 5), (32, 40)] {
            sleepers.join(index, noticed_ns);
        }
        assert_eq!((sleepers.len(), sleepers.is_empty()), (5, false));
        let woken: Vec<_> = sleepers.take().collect();
        assert_eq!(woken, [(31, 1 << 31), (0, 1 << 31 | 1), (1, 0b11)]);
        assert_eq!((sleepers.len(), sleepers.is_empty(), sleepers.take().count()), (0, true, 0));
        sleepers.join(32, 7);
        assert_eq!(sleepers.take().collect::<Vec<_>>(), [(1, 1)], "nobody is woken twice");
    }
}
