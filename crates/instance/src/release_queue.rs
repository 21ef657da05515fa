//! Which commits may return: the queue between capture and the sessions that wait.

use standfast_sqlite_wal::capture::CommitMark;
use standfast_types::{DatabaseId, ReleasePosition, Scn};
use std::collections::{HashMap, VecDeque};

/// Captured commits that are not released, in the order of the stream. Pure: the caller publishes.
#[derive(Default)]
pub struct ReleaseQueue {
    commits: VecDeque<(Scn, DatabaseId, ReleasePosition)>,
    /// Kept between calls for its memory.
    newest: HashMap<DatabaseId, ReleasePosition>,
}

impl ReleaseQueue {
    /// Adds the commits of one chunk that begins at `first`.
    pub fn push(&mut self, first: Scn, marks: &[CommitMark]) {
        for mark in marks {
            self.commits.push_back((first + mark.end as u64, mark.database, mark.release));
        }
    }

    /// Takes all commits up to `upto` and hands the newest position of each database among them to `publish`.
    pub fn release(&mut self, upto: Scn, mut publish: impl FnMut(DatabaseId, ReleasePosition)) {
        while let Some((scn, database, position)) = self.commits.front().copied() {
            if scn > upto {
                break;
            }
            self.newest.insert(database, position);
            self.commits.pop_front();
        }
        for (database, position) in self.newest.drain() {
            publish(database, position);
        }
    }

    /// Commits that wait.
    pub fn len(&self) -> usize {
        self.commits.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.commits.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_released_when_its_record_is_covered_and_not_before() {
        let mut queue = ReleaseQueue::default();
        let mark = |database, end, frame| CommitMark {
            database: DatabaseId(database),
            end,
            release: ReleasePosition::new(1, frame),
        };
        queue.push(Scn(1000), &[mark(1, 10, 2), mark(2, 20, 9), mark(1, 30, 4)]);
        let release = |queue: &mut ReleaseQueue, upto| {
            let mut released = HashMap::new();
            queue.release(Scn(upto), |database, position| {
                released.insert(database, position);
            });
            released
        };
        assert!(release(&mut queue, 1009).is_empty());
        let released = release(&mut queue, 1029);
        assert_eq!(released[&DatabaseId(1)].frame(), 2);
        assert_eq!(released[&DatabaseId(2)].frame(), 9);
        assert_eq!(queue.len(), 1);
        assert_eq!(release(&mut queue, 9999)[&DatabaseId(1)].frame(), 4);
    }
}
