//! The queue of commits between capture and the waiting sessions.

use standfast_sqlite_wal::capture::CommitMark;
use standfast_types::{DatabaseId, ReleasePosition, Scn};
use std::collections::{HashMap, VecDeque};

#[derive(Clone, Copy)]
struct Commit {
    end: Scn,
    database: DatabaseId,
    position: ReleasePosition,
    batch: u64,
}

/// Captured commits that are not released, in stream order. Pure: the caller publishes.
#[derive(Default)]
pub struct ReleaseQueue {
    commits: VecDeque<Commit>,
    /// Kept between calls to reuse its memory.
    newest: HashMap<DatabaseId, ReleasePosition>,
}

impl ReleaseQueue {
    /// Adds the commits of one chunk that begins at `first`, captured in the batch `batch` of the log writer.
    pub fn push(&mut self, first: Scn, marks: &[CommitMark], batch: u64) {
        for mark in marks {
            let end = first + mark.end as u64;
            debug_assert!(self.commits.back().is_none_or(|last| last.end <= end), "commits out of order");
            self.commits.push_back(Commit { end, database: mark.database, position: mark.release, batch });
        }
    }

    /// Takes all commits up to `upto` and passes the newest position of each database in each batch to `publish`,
    /// with the number of the batch, batches in order.
    pub fn release(&mut self, upto: Scn, mut publish: impl FnMut(DatabaseId, ReleasePosition, u64)) {
        let mut batch = None;
        while let Some(commit) = self.commits.front().copied().filter(|commit| commit.end <= upto) {
            if let Some(ended) = batch.filter(|batch| *batch != commit.batch) {
                self.newest.drain().for_each(|(database, position)| publish(database, position, ended));
            }
            batch = Some(commit.batch);
            self.newest.insert(commit.database, commit.position);
            self.commits.pop_front();
        }
        if let Some(batch) = batch {
            self.newest.drain().for_each(|(database, position)| publish(database, position, batch));
        }
    }

    pub fn len(&self) -> usize {
        self.commits.len()
    }

    pub fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(database: u16, end: usize, frame: u32) -> CommitMark {
        CommitMark { database: DatabaseId(database), end, release: ReleasePosition::new(1, frame) }
    }

    /// Returns database, frame and batch of each published position.
    fn release(queue: &mut ReleaseQueue, upto: u64) -> Vec<(u16, u32, u64)> {
        let mut released = Vec::new();
        queue.release(Scn(upto), |database, position, batch| {
            released.push((database.0, position.frame(), batch));
        });
        released
    }

    #[test]
    fn commit_is_released_only_once_redo_covers_its_record() {
        let mut queue = ReleaseQueue::default();
        queue.push(Scn(1000), &[mark(1, 10, 2), mark(2, 20, 9), mark(1, 30, 4)], 0);
        assert!(release(&mut queue, 1009).is_empty());
        let mut released = release(&mut queue, 1029);
        released.sort_unstable();
        assert_eq!(released, [(1, 2, 0), (2, 9, 0)]);
        assert_eq!(queue.len(), 1);
        assert_eq!(release(&mut queue, 9999), [(1, 4, 0)]);
    }

    #[test]
    fn commits_of_different_batches_are_released_apart_in_order() {
        let mut queue = ReleaseQueue::default();
        queue.push(Scn(1000), &[mark(1, 10, 2), mark(1, 20, 3)], 7);
        queue.push(Scn(1100), &[mark(1, 10, 5)], 8);
        queue.push(Scn(1200), &[mark(1, 10, 6)], 9);
        assert_eq!(release(&mut queue, 1199), [(1, 3, 7), (1, 5, 8)]);
        assert_eq!(release(&mut queue, 9999), [(1, 6, 9)]);
    }
}
