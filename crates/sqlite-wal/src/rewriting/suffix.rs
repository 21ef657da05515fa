//! The suffix of a WAL that is not backfilled: the frames behind those that the database file holds durably. It is
//! worth writing only when the WAL is rewritten, in the newest version of each page. The
//! rewritten WAL must fit into the space of the backfilled frames. Rewrite once the suffix's distinct pages fill two
//! thirds of that space, whether the WAL is long or not; the last third is for pages that change while the new WAL is
//! built, which it then holds twice. When the suffix holds hardly any page twice, more frames are backfilled first.

use super::rewrite::most_frames;
use crate::WalIndexHeader;
use crate::guard::Guard;
use standfast_types::{PageSize, Scn};

/// A rewrite is worthwhile if the suffix holds each page at least this many times, on average, when the space is full.
const GAIN_LEAST: u32 = 3;

/// Frames backfilled beyond the space that a rewrite is likely to need.
const SPARE_FRAMES: u32 = 64;

/// A suffix that is not backfilled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suffix {
    raw_salts: [u32; 2],
    backfilled: u32,
    scn: Scn,
    /// The number of frames of the WAL at which its pages are counted again.
    look_at: u32,
}

/// A published state of a WAL, and the redo that it contains.
#[derive(Clone, Copy, Debug)]
pub struct WalSnapshot {
    /// The published header at that moment.
    pub header: WalIndexHeader,
    /// The snapshot holds everything before this SCN.
    pub scn: Scn,
}

/// How much of the space of the backfilled frames a suffix needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    Enough,
    /// The WAL is to be rewritten now.
    Full,
    /// More frames are to be backfilled first.
    TooLittle,
}

impl Suffix {
    /// Returns the suffix behind the frames that a completed checkpoint has backfilled, after a sync. `None` when these
    /// frames do not include all of one of `snapshots`, which are in order, when they are more than `longest`, or when
    /// the WAL was reset. The next writer would reset a WAL that is backfilled to its last frame, so the index is made
    /// to say that this frame is not. The caller holds the checkpoint lock, and has made a state of what was backfilled
    /// ([`Guard::complete_backfill`]).
    pub fn behind(guard: &Guard<'_>, snapshots: &[WalSnapshot], longest: u32) -> Option<Suffix> {
        let now = guard.settled_wal_header().ok()?;
        let mut backfilled = guard.wal_index().ok()?.backfilled();
        let reached =
            |snapshot: &&WalSnapshot| snapshot.header.frames() > 0 && snapshot.header.frames() <= backfilled;
        let WalSnapshot { header: then, scn } = *snapshots.iter().rev().find(reached)?;
        if backfilled > longest || now.raw_salts() != then.raw_salts() || now.frames() < backfilled {
            return None;
        }
        if now.frames() == backfilled {
            backfilled -= 1;
            // A writer that resets the WAL holds the write lock.
            if !guard.with_write_lock(|| guard.set_backfilled(&now, backfilled)).ok()? {
                return None;
            }
        }
        Some(Suffix::new(then.raw_salts(), backfilled, scn))
    }

    /// The suffix of the WAL with these salts after its first `backfilled` frames.
    pub(crate) fn new(raw_salts: [u32; 2], backfilled: u32, scn: Scn) -> Suffix {
        Suffix { raw_salts, backfilled, scn, look_at: backfilled + backfilled / 2 }
    }

    /// Salts of the WAL, in the byte order of the file.
    pub fn raw_salts(&self) -> [u32; 2] {
        self.raw_salts
    }

    /// Number of backfilled frames before the suffix.
    pub fn backfilled(&self) -> u32 {
        self.backfilled
    }

    /// Everything before this SCN is in the database file, durably.
    pub fn scn(&self) -> Scn {
        self.scn
    }

    /// The number of frames at which the WAL is long; `reset_frames` is that number for a WAL without a suffix. While
    /// the WAL grows, the frames backfilled first do not count.
    pub fn long_at(&self, grows: bool, reset_frames: u32) -> u32 {
        reset_frames + if grows { self.backfilled } else { 0 }
    }

    /// Whether a WAL of `frames` frames that was long at `long_at` has kept growing, because there is always a reader,
    /// until it must be shortened as far as it can be without a rewrite.
    pub fn is_out_of_hand(frames: u32, long_at: u32) -> bool {
        frames >= long_at / 2 * 3
    }

    /// Whether the suffix of a WAL of `frames` frames may have filled its space: [`Suffix::measured`] then says so.
    pub fn is_to_be_measured(&self, frames: u32) -> bool {
        frames >= self.look_at
    }

    /// Compares a suffix that holds `pages` distinct pages with its space.
    pub fn measured(&mut self, frames: u32, pages: u32, page_size: PageSize) -> Room {
        let behind = frames - self.backfilled.min(frames);
        let room = self.backfilled.min(most_frames(page_size));
        let full = room / 3 * 2;
        if pages < full {
            // The space is full no sooner than that. A check goes over all of the suffix, but must not come when no
            // space is left.
            self.look_at = frames + (full - pages).max((behind / 8).min((room - pages) / 2));
            Room::Enough
        } else if behind < GAIN_LEAST * pages {
            Room::TooLittle
        } else {
            Room::Full
        }
    }
}

impl Guard<'_> {
    /// Returns how many distinct pages are in the frames after `after`; 0 when the wal-index cannot be read.
    pub fn pages_behind(&self, after: u32) -> u32 {
        self.newest_frames(after).map_or(0, |newest| newest.len() as u32)
    }
}

/// Frames to backfill before the rest of a WAL stays where it is, for a WAL that has `pages` pages or may get so many:
/// three quarters more, and [`SPARE_FRAMES`]. Readers hold some frames back, space that is not needed now may be needed
/// next time, and pages that change while the next WAL is prepared are in it twice.
pub(crate) fn room_for(pages: u32) -> u32 {
    pages.saturating_add(pages / 4 * 3).saturating_add(SPARE_FRAMES)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::scene::{Scene, size};

    fn room(scene: &Scene, suffix: &mut Suffix) -> Room {
        let (guard, frames) = (scene.guard(), scene.frames());
        match suffix.is_to_be_measured(frames) {
            true => suffix.measured(frames, guard.pages_behind(suffix.backfilled()), size()),
            false => Room::Enough,
        }
    }

    #[test]
    fn wal_suffix_with_too_many_pages_is_rewritten_or_gets_room() {
        let mut few = Scene::backfilled(1);
        few.change_all(&few.application(), 1);
        let mut suffix = few.backfill().unwrap();
        assert_eq!(room(&few, &mut suffix), Room::Enough, "nothing came yet");
        few.change_all(&few.application(), 20);
        assert_eq!(room(&few, &mut suffix), Room::Enough, "half as many pages as frames were backfilled");

        let scene = Scene::backfilled(0);
        scene.change_all(&scene.application(), 1);
        let mut scene = scene;
        let suffix = scene.backfill().unwrap();
        scene.change_all(&scene.application(), 1);
        assert_eq!(room(&scene, &mut suffix.clone()), Room::TooLittle, "each page once");
        scene.change_all(&scene.application(), 2);
        assert_eq!(room(&scene, &mut suffix.clone()), Room::Full);
    }

    #[test]
    fn long_wal_suffix_is_checked_before_its_room_is_used_up() {
        let mut scene = Scene::backfilled(0);
        let application = scene.application();
        scene.change_all(&application, 1);
        let mut suffix = scene.backfill().unwrap();
        let change = |pages: u32, times: u32| {
            let sql = format!("UPDATE t SET n = n + 1 WHERE id <= {pages};");
            (0..times).for_each(|_| application.execute_batch(&sql).unwrap());
        };
        change(1, 1500);
        let room = |suffix: &mut Suffix| room(&scene, suffix);
        assert_eq!(room(&mut suffix), Room::Enough, "hardly a page");
        let left = suffix.backfilled() / 4 * 3 - 2;
        change(left, 1);
        assert_eq!([(); 2].map(|()| room(&mut suffix)), [Room::Full; 2], "{left} of {}", suffix.backfilled());
    }
}
