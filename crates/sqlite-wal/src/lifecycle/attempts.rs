//! When the next backfill, and the next attempt to shorten the WAL, are due: from the growth of the WAL, and after pauses
//! that keep what readers prevent from being tried all the time. A primary and a standby differ in this.

use super::dialogue::{Action, Look};
use crate::rewriting::{WalSnapshot, room_for};
use std::time::Duration;

/// Snapshots of (mxFrame, SCN) taken per backfill interval, about.
const SNAPSHOTS: u32 = 16;

/// Factor on the back-off where the WAL is only longer than its share.
const SHARE_BACK_OFF: u32 = 25;

/// A WAL that was not handed to the disk as it grew is handed over within this many back-offs: 512 MB/s at most.
const HAND_OVER_BACK_OFFS: u32 = 3;

/// How the work on a WAL is timed.
#[derive(Clone, Copy, Debug)]
pub enum Rhythm {
    /// At a primary: others write meanwhile. A WAL is shortened behind the checkpoint gate, and after a failure not
    /// again for `back_off`.
    BehindGate { back_off: Duration },
    /// At a standby: the only writer works on the WAL between its batches.
    BetweenBatches,
}

#[derive(Debug)]
pub(super) enum Attempts {
    Gated(Gated),
    Batched(Batched),
}

/// What is to be done before the WAL grows further.
pub(super) enum Backfill {
    NotYet,
    /// Transactions that are open during the backfill hold back frames newer than their read mark; an earlier snapshot
    /// is still reached.
    SnapshotFirst,
    Now,
}

#[derive(Debug)]
pub(super) struct Gated {
    back_off: Duration,
    /// Earliest time of the next checkpoint gate.
    not_before: Duration,
    /// Length of the WAL at the last backfill.
    tried_at: u32,
    /// In order. The next backfill is to reach at least one of them.
    snapshots: Vec<WalSnapshot>,
    /// Salts and number of frames that the WAL began with, if this instance has rewritten it.
    first: Option<([u32; 2], u32)>,
}

impl Gated {
    pub fn new(back_off: Duration) -> Gated {
        Gated { back_off, not_before: Duration::ZERO, tried_at: 0, snapshots: Vec::new(), first: None }
    }

    pub fn forget_other_wals(&mut self, raw_salts: [u32; 2]) {
        self.first.take_if(|(first, _)| *first != raw_salts);
        self.snapshots.retain(|snapshot| snapshot.header.raw_salts() == raw_salts);
    }

    /// The WAL has `frames` frames; fewer than before: it was restarted.
    pub fn saw(&mut self, frames: u32) {
        if frames < self.tried_at {
            self.tried_at = 0;
        }
    }

    pub fn next(&self, look: &Look, rewrites: bool) -> Backfill {
        let interval = self.interval(look, rewrites);
        let since = look.frames - self.tried_at;
        if !rewrites {
            return if since >= interval { Backfill::Now } else { Backfill::NotYet };
        }
        let newest = self.snapshots.last().map_or(0, |snapshot| snapshot.header.frames());
        let is_snapshot_due = since >= interval || look.frames.saturating_sub(newest) >= interval / SNAPSHOTS;
        if since >= interval / 2 && is_snapshot_due { Backfill::SnapshotFirst } else { Backfill::NotYet }
    }

    pub fn is_backfill_due(&self, look: &Look, rewrites: bool) -> bool {
        look.frames - self.tried_at >= self.interval(look, rewrites)
    }

    /// Frames after which the next backfill is due: the longer the WAL already is, the more it has to grow. Before it
    /// can be rewritten, its prefix needs the space for that.
    fn interval(&self, look: &Look, rewrites: bool) -> u32 {
        let prefix = match self.first {
            _ if !rewrites => look.backfill_frames,
            Some((_, frames)) => room_for(frames),
            None => room_for(look.database_pages).min(look.backfill_frames),
        };
        prefix.max(self.tried_at.min(look.backfill_frames))
    }

    pub fn add_snapshot(&mut self, snapshot: Option<WalSnapshot>) {
        self.snapshots.extend(snapshot);
    }

    pub fn take_snapshots(&mut self) -> Vec<WalSnapshot> {
        std::mem::take(&mut self.snapshots)
    }

    pub fn tried_at(&mut self, frames: u32) {
        self.tried_at = frames;
    }

    pub fn rewritten(&mut self, raw_salts: [u32; 2], frames: u32) {
        self.tried_at = 0;
        self.first = Some((raw_salts, frames));
    }

    pub fn restarted(&mut self) {
        self.tried_at = 0;
    }

    pub fn may_shorten(&self, now: Duration) -> bool {
        now >= self.not_before
    }

    pub fn back_off(&mut self, look: &Look, now: Duration) {
        let is_of_share = look.frames < look.reset_frames_alone;
        self.not_before = now + self.back_off * if is_of_share { SHARE_BACK_OFF } else { 1 };
    }

    pub fn hand_over(&mut self, frames: u32, now: Duration) {
        self.tried_at = frames;
        self.not_before = now + self.back_off * HAND_OVER_BACK_OFFS;
    }
}

/// Remembers the last attempts, so that a checkpoint that readers prevent is not tried at every batch.
#[derive(Debug, Default)]
pub(super) struct Batched {
    /// Length of the WAL at the last check; 0 once a reset was due.
    frames: u32,
    tried_passive: u32,
    tried_reset: u32,
}

impl Batched {
    /// Returns the length of the WAL at the last check; 0 once a reset was due.
    pub fn frames(&self) -> u32 {
        self.frames
    }

    /// The WAL is about to be restarted.
    pub fn restarts(&mut self) {
        *self = Batched::default();
    }

    /// Returns the checkpoint that is due: a backfill when as many frames as its interval are not in the file, and
    /// again after as many. From `long_at` frames on (a reader that never leaves) a reset is tried, and again after as
    /// many further frames. `first`: the WAL was rewritten with so many frames, which are not backfilled yet.
    pub fn due(&mut self, look: &Look, first: Option<u32>, rewrites: bool, long_at: u32) -> Action {
        let interval = match first {
            _ if !rewrites => look.backfill_frames,
            Some(frames) => room_for(frames),
            None => room_for(look.database_pages).min(look.backfill_frames),
        };
        if look.frames < self.tried_passive.max(self.tried_reset) {
            // The WAL was restarted.
            self.restarts();
        }
        self.frames = look.frames;
        let since = |tried: u32| look.frames - tried;
        if look.frames >= long_at && (self.tried_reset == 0 || since(self.tried_reset) >= interval) {
            (self.tried_reset, self.tried_passive) = (look.frames, look.frames);
            self.frames = 0;
            return Action::Reset;
        }
        if since(look.backfilled.min(look.frames)) >= interval && since(self.tried_passive) >= interval {
            self.tried_passive = look.frames;
            return Action::Backfill { may_pause: true, defers: rewrites };
        }
        Action::Rest
    }
}
