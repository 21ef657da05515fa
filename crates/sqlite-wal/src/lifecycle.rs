//! The life of a WAL: when it is handed to the disk, synced, backfilled, rewritten or reset. One machine decides it, at the
//! primary and at a standby. It takes events and returns the [`Action`] to carry out; it has no clock, no threads, and
//! touches no file. Its caller carries out the action and reports the outcome, which returns the next action.
//!
//! ```text
//!  a generation begins: the WAL was reset, or a writer restarts a WAL that is all in the database file
//!         |
//!         v
//!   +-----------+   backfilled up to a snapshot, and the file synced       +-----------------------------+
//!   |   Plain   | -------------------------------------------------------> |          Deferred           |
//!   |           |                                                          | the suffix stays in the     |
//!   | handed to | <------------------------------------------------------- | page cache: neither handed  |
//!   | the disk, |   out of hand; too little room; synced as it is;         | to the disk, nor synced,    |
//!   | synced,   |   a rewrite is impossible                                | nor backfilled              |
//!   | backfilled|                                                          +-----------------------------+
//!   | as it is  |                                                             |                       ^
//!   +-----------+                                                             | long, or no more      | backfilled up
//!     |  ^    ^                                                               | room, and no reader:  | to a snapshot,
//!     +--+    |                                                               | REWRITTEN             | file synced
//!    long,    |                                                               v                       |
//!    and no   |   backfilled up to no snapshot, or synced as it is       +-----------------------------+
//!    reader:  +--------------------------------------------------------- |          Rewritten          |
//!    RESET                                                               | handed to the disk          |
//!                                                                        +-----------------------------+
//! ```
//!
//! Without [`crate::rewriting`] (the setting `checkpoint.rewrite_wals`) a WAL is Plain all its life.
//!
//! Frames of a WAL in the order of their positions ([`Positions`]):
//!
//! ```text
//!   stored in the file <= backfilled <= synced <= written          a suffix begins where the file holds all before it
//! ```
//!
//! - A checkpoint syncs the WAL before it backfills, and backfills only frames that are durable in the redo.
//! - A suffix is deferred only behind frames that the database file holds durably.
//! - A WAL is rewritten only while it is Deferred, and only while recovery does not rely on its frames: it was not synced
//!   beyond what the file holds ([`WalLifecycle::synced_upto`]).
//! - A WAL is reset only after all of it is backfilled; SQLite sees to that. A deferred suffix would have to be synced for
//!   it, so the deferral ends first.

mod attempts;
mod dialogue;

use crate::positions::Positions;
use crate::rewriting::{Room, Suffix, WalSnapshot};
use attempts::{Attempts, Backfill, Batched, Gated};
use standfast_types::{PageSize, Scn};
use std::time::Duration;

pub use attempts::Rhythm;
pub use dialogue::{Action, Look, Rewrite};

/// See the drawing of the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Plain,
    /// Begins with a transaction of so many frames, which the instance has written and not synced.
    Rewritten {
        raw_salts: [u32; 2],
        frames: u32,
    },
    Deferred(Suffix),
}

/// The life of the WALs of one database.
#[derive(Debug)]
pub struct WalLifecycle {
    /// Whether WALs may be rewritten.
    rewrites: bool,
    page_size: PageSize,
    attempts: Attempts,
    state: State,
    /// Recovery relies on the WAL as it is for everything before this SCN.
    synced_scn: Scn,
    /// The last look, and the length at which the WAL is long.
    look: Look,
    long_at: u32,
    now: Duration,
}

impl WalLifecycle {
    /// Creates the machine of a database. `rewrites`: its WALs may be rewritten.
    pub fn new(rewrites: bool, page_size: PageSize, rhythm: Rhythm) -> WalLifecycle {
        let attempts = match rhythm {
            Rhythm::BehindGate { back_off } => Attempts::Gated(Gated::new(back_off)),
            Rhythm::BetweenBatches => Attempts::Batched(Batched::default()),
        };
        WalLifecycle {
            rewrites,
            page_size,
            attempts,
            state: State::Plain,
            synced_scn: Scn::ZERO,
            look: Look::default(),
            long_at: 0,
            now: Duration::ZERO,
        }
    }

    pub fn state(&self) -> State {
        self.state
    }

    /// Salts of the WAL whose suffix stays in the page cache: its frames are not handed to the disk. `None`: they are.
    pub fn deferred(&self) -> Option<[u32; 2]> {
        match self.state {
            State::Deferred(suffix) => Some(suffix.raw_salts()),
            _ => None,
        }
    }

    /// Length of the WAL for the count of long ones; 0 once it was found to be long, if attempts are
    /// [`Rhythm::BetweenBatches`].
    pub fn frames(&self) -> u32 {
        match &self.attempts {
            Attempts::Gated(_) => self.look.frames,
            Attempts::Batched(batched) => batched.frames(),
        }
    }

    /// SCN passed to [`WalLifecycle::synced_upto`].
    pub fn synced_scn(&self) -> Scn {
        self.synced_scn
    }

    /// Returns the SCN before which redo is not needed once the WAL is synced where the state says so. The WAL holds
    /// everything before `held`, and `durable` was durable before.
    pub fn durable_after_sync(&self, held: Scn, durable: Scn) -> Scn {
        match self.state {
            State::Plain => held,
            State::Rewritten { .. } => durable,
            State::Deferred(suffix) => suffix.scn().max(durable),
        }
    }

    /// Whether the WAL can be rewritten as things stand.
    pub fn may_rewrite(&self) -> bool {
        self.rewrites && matches!(self.state, State::Deferred(suffix) if self.synced_scn <= suffix.scn())
    }

    /// Reports the time of the events that follow: any time that does not go back. Only the pauses of
    /// [`Rhythm::BehindGate`] depend on it.
    pub fn tick(&mut self, now: Duration) {
        self.now = self.now.max(now);
    }

    /// The WAL was synced as it is, and recovery relies on it for everything before `scn`: unless that is in the database
    /// file, it is not rewritten any more.
    pub fn synced_upto(&mut self, scn: Scn) {
        self.synced_scn = self.synced_scn.max(scn);
    }

    /// The database has a WAL with these salts: what is known of other ones is over.
    pub fn forget_other_wals(&mut self, salts: [u32; 2]) {
        match self.state {
            State::Deferred(suffix) if suffix.raw_salts() != salts => self.state = State::Plain,
            State::Rewritten { raw_salts, .. } if raw_salts != salts => self.state = State::Plain,
            _ => {}
        }
        if let Attempts::Gated(gated) = &mut self.attempts {
            gated.forget_other_wals(salts);
        }
    }

    /// From now on the WAL is handed to the disk, synced and backfilled as it is.
    pub fn end_deferral(&mut self) {
        self.state = State::Plain;
    }

    /// Backfills the WAL as it is now, whatever its length.
    pub fn backfill_now(&mut self) -> Action {
        self.end_deferral();
        self.backfill()
    }

    /// Shortens the WAL now, whatever its length.
    pub fn shorten_now(&mut self) -> Action {
        self.shorten()
    }

    /// Looks at the WAL; to be called often.
    pub fn look(&mut self, look: Look) -> Action {
        self.look = look;
        self.forget_other_wals(look.raw_salts);
        self.long_at = match self.state {
            State::Deferred(suffix) => suffix.long_at(look.grows, look.reset_frames),
            _ => look.reset_frames,
        };
        if Suffix::is_out_of_hand(look.frames, self.long_at) {
            self.end_deferral();
        }
        match &mut self.attempts {
            Attempts::Gated(gated) => {
                gated.saw(look.frames);
                self.backfill_if_due()
            }
            Attempts::Batched(_) => self.count_if_due(),
        }
    }

    /// Takes the snapshot of [`Action::TakeSnapshot`], if there is one.
    pub fn snapshot(&mut self, snapshot: Option<WalSnapshot>) -> Action {
        let Attempts::Gated(gated) = &mut self.attempts else { return Action::Rest };
        gated.add_snapshot(snapshot);
        match gated.is_backfill_due(&self.look, self.rewrites) {
            true => self.backfill(),
            false => self.count_if_due(),
        }
    }

    /// Returns the snapshots of which the backfill is to reach one, in order, and forgets them.
    pub fn take_snapshots(&mut self) -> Vec<WalSnapshot> {
        match &mut self.attempts {
            Attempts::Gated(gated) => gated.take_snapshots(),
            Attempts::Batched(_) => Vec::new(),
        }
    }

    /// A pass has backfilled what it could. `positions`: where it has left the WAL, if known; `suffix`: the frames behind
    /// a snapshot that it has reached.
    pub fn backfilled(&mut self, positions: Option<Positions>, suffix: Option<Suffix>) -> Action {
        debug_assert!(suffix.is_none() || self.rewrites, "a suffix is deferred, but never rewritten");
        if let Some(positions) = positions {
            positions.assert_order();
            debug_assert!(
                suffix.is_none_or(|suffix| suffix.raw_salts() != positions.raw_salts
                    || suffix.backfilled() <= positions.stored),
                "a suffix behind frames that the file may lose: {suffix:?} {positions:?}"
            );
        }
        self.state = suffix.filter(|_| self.rewrites).map_or(State::Plain, State::Deferred);
        match &self.attempts {
            Attempts::Gated(_) => self.count_if_due(),
            Attempts::Batched(_) => Action::Rest,
        }
    }

    /// The suffix holds `pages` distinct pages.
    pub fn counted(&mut self, pages: u32) -> Action {
        let room = match &mut self.state {
            State::Deferred(suffix) => suffix.measured(self.look.frames, pages, self.page_size),
            _ => Room::Enough,
        };
        match room {
            Room::Enough => self.shorten_if_due(false),
            Room::Full => self.shorten_if_due(true),
            Room::TooLittle => self.hand_over(),
        }
    }

    /// An attempt to rewrite the WAL has ended.
    pub fn rewritten(&mut self, outcome: Rewrite) -> Action {
        match outcome {
            Rewrite::Done { raw_salts, frames } => {
                debug_assert!(self.may_rewrite(), "rewritten while {:?}", self.state);
                self.state = State::Rewritten { raw_salts, frames };
                if let Attempts::Gated(gated) = &mut self.attempts {
                    gated.rewritten(raw_salts, frames);
                }
                Action::Rest
            }
            Rewrite::Later => {
                self.back_off();
                Action::Rest
            }
            Rewrite::Impossible => self.cannot_rewrite(),
        }
    }

    /// An attempt to reset the WAL has ended.
    pub fn reset(&mut self, done: bool) -> Action {
        debug_assert!(self.deferred().is_none(), "a deferred suffix was synced for a reset");
        if let Attempts::Gated(gated) = &mut self.attempts {
            gated.restarted();
        }
        if !done {
            self.back_off();
        }
        Action::Rest
    }

    fn backfill_if_due(&mut self) -> Action {
        let Attempts::Gated(gated) = &self.attempts else { return Action::Rest };
        if self.deferred().is_some() {
            return self.count_if_due();
        }
        match gated.next(&self.look, self.rewrites) {
            Backfill::NotYet => self.count_if_due(),
            Backfill::SnapshotFirst => Action::TakeSnapshot,
            Backfill::Now => self.backfill(),
        }
    }

    fn backfill(&mut self) -> Action {
        if let Attempts::Gated(gated) = &mut self.attempts {
            gated.tried_at(self.look.frames);
        }
        Action::Backfill { may_pause: self.look.frames < self.long_at / 2, defers: self.rewrites }
    }

    /// Counts the pages of a suffix that may have filled its space.
    fn count_if_due(&mut self) -> Action {
        match self.state {
            State::Deferred(suffix) if suffix.is_to_be_measured(self.look.frames) => {
                Action::CountPages { after: suffix.backfilled() }
            }
            _ => self.shorten_if_due(false),
        }
    }

    /// Shortens a WAL that is long, or whose suffix is `full`.
    fn shorten_if_due(&mut self, full: bool) -> Action {
        let is_deferred = self.deferred().is_some();
        let first = match self.state {
            State::Rewritten { frames, .. } => Some(frames),
            _ => None,
        };
        match &mut self.attempts {
            Attempts::Gated(gated) => {
                let is_due = full || self.look.frames >= self.long_at;
                if is_due && gated.may_shorten(self.now) { self.shorten() } else { Action::Rest }
            }
            Attempts::Batched(batched) if full => {
                batched.restarts();
                self.shorten()
            }
            Attempts::Batched(batched) => match batched.due(&self.look, first, self.rewrites, self.long_at) {
                Action::Reset => self.shorten(),
                Action::Backfill { .. } if !is_deferred => self.backfill(),
                _ => Action::Rest,
            },
        }
    }

    fn shorten(&mut self) -> Action {
        match self.state {
            State::Deferred(_) if self.may_rewrite() => Action::Rewrite,
            State::Deferred(_) => self.cannot_rewrite(),
            _ => {
                self.end_deferral();
                Action::Reset
            }
        }
    }

    /// A primary first hands the suffix to the disk, chunk by chunk, for which it has time. A standby resets the WAL.
    fn cannot_rewrite(&mut self) -> Action {
        self.end_deferral();
        match &self.attempts {
            Attempts::Gated(_) => self.hand_over(),
            Attempts::Batched(_) => Action::Reset,
        }
    }

    /// Lets the WAL be synced and backfilled as it is. What of it is not on disk goes there first.
    fn hand_over(&mut self) -> Action {
        self.end_deferral();
        match &mut self.attempts {
            Attempts::Gated(gated) => {
                gated.hand_over(self.look.frames, self.now);
                Action::Rest
            }
            Attempts::Batched(_) => self.shorten_if_due(false),
        }
    }

    fn back_off(&mut self) {
        if let Attempts::Gated(gated) = &mut self.attempts {
            gated.back_off(&self.look, self.now);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
