//! What a redo log consists of at present: groups, archived logs, and what recovery has left to do.

use crate::archived_logs::ArchivedLog;
use crate::groups::Group;
use crate::header::order_begun;
use crate::hole::{Hole, Leftover};
use crate::layout::Layout;
use crate::unreachable::Unreachable;
use standfast_types::Scn;

pub(crate) struct Catalog {
    pub groups: Vec<Group>,
    pub current: usize,
    pub archived: Vec<ArchivedLog>,
    /// The open gap: redo that is not held although later redo is.
    pub hole: Option<Hole>,
    /// Work that is left on disk before anything is written.
    pub leftover: Leftover,
    /// Findings of recovery beyond the end of the redo; the log writer takes them.
    pub unreachable: Option<Unreachable>,
    /// Groups and members. A group has the slot of its number; an unused number has an empty slot.
    pub layout: Layout,
}

impl Catalog {
    pub fn new(groups: Vec<Group>, current: usize, archived: Vec<ArchivedLog>) -> Catalog {
        let (leftover, layout) = (Leftover::default(), Layout::default());
        Catalog { groups, current, archived, hole: None, leftover, unreachable: None, layout }
    }

    /// Index of the group that holds the newest log.
    pub fn newest(&self) -> Option<usize> {
        let held = self.groups.iter().enumerate().filter_map(|(index, group)| {
            let header = group.header?;
            Some(((header.incarnation, header.sequence), index))
        });
        held.max().map(|(_, index)| index)
    }

    /// Returns whether the redo before the gap ends in this group. The group is not reused until the gap is closed, so
    /// that there is always a group to return to.
    pub fn is_last_before_hole(&self, group: usize) -> bool {
        self.hole.is_some_and(|hole| {
            // Of the logs that begin at one position, all but the last are empty.
            let last = self.groups.iter().enumerate().filter_map(|(index, group)| {
                let header = group.header.filter(|header| header.first_scn < hole.to)?;
                Some((order_begun(&header), index))
            });
            last.max().is_some_and(|(_, index)| index == group)
        })
    }

    /// Adds an archived log to the list, in order; replaces one with the same path.
    pub fn add_archived(&mut self, log: ArchivedLog) {
        self.archived.retain(|other| other.path != log.path);
        let key = |log: &ArchivedLog| (log.header.incarnation, log.header.sequence, log.header.first_scn);
        let at = self.archived.partition_point(|other| key(other) < key(&log));
        self.archived.insert(at, log);
    }

    /// Returns the first position from `from` to `upto` that no archived log holds.
    pub fn not_archived(&self, from: Scn, upto: Scn) -> Option<Scn> {
        let mut at = from;
        while at < upto {
            let ends = |log: &ArchivedLog| {
                log.header.next_scn.filter(|next| log.header.first_scn <= at && at < *next)
            };
            match self.archived.iter().find_map(ends) {
                Some(next) => at = next,
                None => return Some(at),
            }
        }
        None
    }
}
