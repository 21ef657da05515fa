//! Waiters: commits that may continue and sleep, collected so that they are woken together.

use crate::layout::{BUCKET_SESSIONS, Slot, WORD_ASLEEP, WORD_IDLE};
use std::sync::atomic::Ordering::SeqCst;

#[derive(Debug, Default)]
pub struct Waiters {
    all: Vec<Waiter>,
    /// Rank of the first waiter of each database that joins from now on.
    first_turn: usize,
}

#[derive(Clone, Copy, Debug)]
struct Waiter {
    /// Rank: the number of waiters of the same database before it.
    turn: usize,
    /// When its session notified of the commit.
    noticed_ns: u64,
    slot: usize,
}

impl Waiters {
    /// Lets sessions of one database, with the indices of their slots, check again what they wait for, in this order;
    /// those that sleep join.
    pub(crate) fn call<'s>(&mut self, sessions: impl IntoIterator<Item = (usize, &'s Slot)>) {
        let asleep = |(_, slot): &(usize, &Slot)| slot.commit_word.swap(WORD_IDLE, SeqCst) == WORD_ASLEEP;
        for (turn, (index, slot)) in sessions.into_iter().filter(asleep).enumerate() {
            let turn = self.first_turn + turn;
            self.all.push(Waiter { turn, noticed_ns: slot.noticed_ns.load(SeqCst), slot: index });
        }
    }

    /// Commits of the log writer's next batch follow: waiters that join from here on are woken after all that have
    /// joined.
    pub fn next_batch(&mut self) {
        self.first_turn = self.all.iter().map(|waiter| waiter.turn + 1).max().unwrap_or(0);
    }

    /// Returns the wakes, one call after the other: wait buckets, with the bits of the waiters in them. The first
    /// waiters of all databases come first, all of a bucket in one call; then the second of each, and so on, because
    /// the waiters of a database are going to want the same write lock. The longest waits come first. Leaves no waiter
    /// behind.
    pub(crate) fn take(&mut self) -> Vec<(usize, u32)> {
        self.all.sort_unstable_by_key(|waiter| (waiter.turn, waiter.noticed_ns));
        let mut calls: Vec<(usize, u32)> = Vec::new();
        for turn in self.all.chunk_by(|one, next| one.turn == next.turn) {
            let first = calls.len();
            for waiter in turn {
                let (bucket, bit) = (waiter.slot / BUCKET_SESSIONS, 1 << (waiter.slot % BUCKET_SESSIONS));
                match calls[first..].iter_mut().find(|(of, _)| *of == bucket) {
                    Some((_, bits)) => *bits |= bit,
                    None => calls.push((bucket, bit)),
                }
            }
        }
        self.all.clear();
        self.first_turn = 0;
        calls
    }

    pub fn len(&self) -> usize {
        self.all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_waiter_per_database_wakes_at_a_time_grouped_by_bucket() {
        let all = [(0, 30, 0), (1, 31, 1), (0, 20, 33), (1, 5, 34), (2, 6, 35), (0, 10, 31), (0, 40, 32)]
            .map(|(turn, noticed_ns, slot)| Waiter { turn, noticed_ns, slot });
        let mut waiters = Waiters { all: all.to_vec(), first_turn: 0 };
        assert_eq!((waiters.len(), waiters.is_empty()), (7, false));
        assert_eq!(waiters.take(), [(0, 1 << 31 | 1), (1, 0b11), (1, 1 << 2), (0, 1 << 1), (1, 1 << 3)]);
        assert_eq!((waiters.len(), waiters.is_empty(), waiters.take()), (0, true, vec![]));
    }
}
