//! Looking for a moment before sleeping. To wake a sleeper takes a system call and, when its processor idles, tens of
//! microseconds: as long as a write of the log. Where the wait is short and nobody else waits, looking is faster; where
//! it was not worth while, it is given up quickly and tried again only now and then.

use crate::monotonic_ns;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Looks that were in vain cost this much of the credit that the others earn: looking goes on while four of five are
/// worth while.
const COST: u32 = 8;
const EARNED: u32 = 2;
const CREDIT_MAX: u32 = 32;
/// Without credit every so-manieth wait is looked at, to find out whether that has become worth while.
const PROBE_EVERY: u32 = 64;
/// So often at most that is doubled, each time that the credit is used up, until looking has earned all of it.
const RARER_MAX: u32 = 4;
/// The word: the credit, how often probes have become rarer, and waits without credit in the rest.
const CREDIT_BITS: u32 = 6;
const RARER_BITS: u32 = 3;
const ONE_WAIT: u32 = 1 << (CREDIT_BITS + RARER_BITS);

/// Looks until `there` or `most_us` are over; true when it was there. `word` remembers how it went before.
pub(crate) fn look(word: &AtomicU32, most_us: u64, there: impl Fn() -> bool) -> bool {
    let state = word.load(Relaxed);
    if !is_worth_while(state) {
        word.store(state.wrapping_add(ONE_WAIT), Relaxed);
        return false;
    }
    let end = monotonic_ns() + most_us * 1_000;
    let found = loop {
        if (0..8).any(|_| {
            std::hint::spin_loop();
            there()
        }) {
            break true;
        }
        if monotonic_ns() >= end {
            break false;
        }
        std::thread::yield_now();
    };
    word.store(after(state, found), Relaxed);
    found
}

/// Credit, and how often probes have become rarer.
fn parts(state: u32) -> (u32, u32) {
    (state & ((1 << CREDIT_BITS) - 1), state >> CREDIT_BITS & ((1 << RARER_BITS) - 1))
}

fn is_worth_while(state: u32) -> bool {
    let ((credit, rarer), waits) = (parts(state), state / ONE_WAIT);
    let every = PROBE_EVERY << rarer;
    credit > 0 || waits % every == every - 1
}

/// The state after a look.
fn after(state: u32, found: bool) -> u32 {
    let (credit, rarer) = match (found, parts(state)) {
        // A probe that finds something is believed for a while.
        (true, (0, rarer)) => (COST, rarer),
        (true, (credit, _)) if credit + EARNED >= CREDIT_MAX => (CREDIT_MAX, 0),
        (true, (credit, rarer)) => (credit + EARNED, rarer),
        (false, (credit, rarer)) if credit <= COST => (0, (rarer + 1).min(RARER_MAX)),
        (false, (credit, rarer)) => (credit - COST, rarer),
    };
    credit | rarer << CREDIT_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_begins_with_a_probe_and_ends_soon_when_it_is_in_vain() {
        let word = AtomicU32::new(0);
        let looks = |found: bool, waits: u32| {
            (0..waits)
                .filter(|_| {
                    let looked = is_worth_while(word.load(Relaxed));
                    assert_eq!(look(&word, 0, || found), looked && found);
                    looked
                })
                .count()
        };
        assert_eq!(looks(true, 63), 0);
        assert_eq!(looks(true, 100), 100, "from the 64th wait on");
        assert_eq!(looks(false, 4), 4, "the credit lasts four times");
        assert_eq!(looks(false, 128 + 256 + 512 + 1024), 4, "ever rarer");
        assert_eq!(looks(false, 2048), 2, "but not never");
        assert_eq!(looks(true, 1023), 0);
        assert_eq!(looks(true, 20), 20);
        assert_eq!(looks(false, 4 + 128), 4 + 1, "what has paid for long is soon tried again");
    }

    #[test]
    fn now_and_then_in_vain_does_not_end_it() {
        let mut state = after(0, true);
        for round in 0..1_000 {
            state = after(state, round % 6 != 5);
            assert!(is_worth_while(state), "round {round}");
        }
    }
}
