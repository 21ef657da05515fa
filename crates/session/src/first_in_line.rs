//! Who is first in line for the write lock of a database, and is woken when it is released.

use crate::bits::set_bits;
use crate::futex;
use crate::layout::{RequestedDatabase, SESSIONS_MAX, WORD_ASLEEP, WORD_IDLE};
use crate::monotonic_ns;
use crate::segment::Segment;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

/// How often other sessions may overtake the first in line.
pub(crate) const BYPASSES_MAX: u32 = 32;

impl Segment {
    pub(crate) fn wake_first(&self, database: u16) {
        let entry = self.database(database);
        // Bounded, whatever is written there meanwhile.
        for _ in 0..SESSIONS_MAX {
            let Some(first) = self.first_in_line(entry) else { return };
            let slot = self.slot(first);
            // Removed from the bitmap before the wake, so that one wake meets one sleep: a session that still wants the
            // lock sets the bit again and keeps its ticket; one that gave up does not stay first in line.
            entry.lock_waiters[first / 64].fetch_and(!(1u64 << (first % 64)), SeqCst);
            let word = slot.lock.word.swap(WORD_IDLE, SeqCst);
            if word == WORD_IDLE {
                continue;
            }
            if slot.lock.bypassed.fetch_add(1, SeqCst) >= BYPASSES_MAX
                && entry.lock.reserved.load(SeqCst) == 0
            {
                entry.lock.reserved_at_ns.store(monotonic_ns(), SeqCst);
                entry.lock.reserved.store(first as u32 + 1, SeqCst);
                self.requests.counters.reservations.fetch_add(1, Relaxed);
            }
            if word == WORD_ASLEEP {
                futex::wake_one(&slot.lock.word);
                return;
            }
            // Waiting but not asleep: the session is about to check by itself, or is gone. So the next one is woken as
            // well, because otherwise perhaps none would be.
        }
    }

    fn first_in_line(&self, entry: &RequestedDatabase) -> Option<usize> {
        set_bits(entry.lock_waiters.iter().map(|word| word.load(SeqCst)))
            .min_by_key(|index| self.slot(*index).lock.ticket.load(SeqCst))
    }
}
