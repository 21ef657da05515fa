//! Polls for a moment before sleeping. Waking a waiter takes a system call and, when its processor idles, tens of
//! microseconds: as long as a write of the redo log. Where the wait is short and there is no other waiter, polling is
//! faster. Where polling does not pay off, it stops soon and is tried again only now and then.

use crate::monotonic_ns;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A poll without success costs this much of the credit that successful ones earn: polling continues while four of five
/// succeed.
const COST: u32 = 8;
const EARNED: u32 = 2;
const CREDIT_MAX: u32 = 32;
/// Without credit one wait in this many polls, to find out whether polling pays off again.
const PROBE_EVERY: u32 = 64;
/// The interval doubles each time that the credit is used up, at most this many times, until polling has earned all of
/// the credit.
const RARER_MAX: u32 = 4;
/// Fields of the word: the credit, the number of doublings, and in the rest the waits without credit.
const CREDIT_BITS: u32 = 6;
const RARER_BITS: u32 = 3;
const ONE_WAIT: u32 = 1 << (CREDIT_BITS + RARER_BITS);

/// Polls until `there` returns true or `most_us` are over; returns whether it did. `word` holds the history.
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

/// The credit, and the number of doublings.
fn parts(state: u32) -> (u32, u32) {
    (state & ((1 << CREDIT_BITS) - 1), state >> CREDIT_BITS & ((1 << RARER_BITS) - 1))
}

fn is_worth_while(state: u32) -> bool {
    let ((credit, rarer), waits) = (parts(state), state / ONE_WAIT);
    let every = PROBE_EVERY << rarer;
    credit > 0 || waits % every == every - 1
}

fn after(state: u32, found: bool) -> u32 {
    let (credit, rarer) = match (found, parts(state)) {
        // A probe with success is trusted for a while.
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
    fn polling_starts_with_a_probe_and_stops_soon_without_success() {
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
    fn occasional_failed_polls_do_not_stop_polling() {
        let mut state = after(0, true);
        for round in 0..1_000 {
            state = after(state, round % 6 != 5);
            assert!(is_worth_while(state), "round {round}");
        }
    }
}
