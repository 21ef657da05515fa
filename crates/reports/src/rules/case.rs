//! What the rules that need counts are given.

use crate::counters::Counters;
use crate::interval::Interval;
use crate::replication::StandbyFigures;

/// The input of rules that need counts.
pub(super) struct Case<'c> {
    pub(super) interval: &'c Interval,
    pub(super) counters: &'c Counters,
}

impl Case<'_> {
    /// Standbys that commits are meant to wait for.
    pub(super) fn sync_standbys(&self) -> impl Iterator<Item = &StandbyFigures> {
        self.interval.standbys.iter().filter(|standby| standby.is_sync())
    }
}
