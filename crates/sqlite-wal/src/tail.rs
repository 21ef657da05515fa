//! What a log has behind the frames that the database file holds durably: the tail. It stays where it is: it is worth a
//! place on the disk only when the log is written anew (see [`crate::rewrite`]), in the newest version of each page. For that
//! the frames that were moved give the room, so that a log whose tail has pages for two thirds of it is written anew now, long
//! or not, because what changes while the next log is put together is in that twice. One whose tail hardly has a page twice
//! gets more room first.

use crate::WalIndexHeader;
use crate::guard::Guard;
use crate::rewrite::most_frames;
use standfast_types::{PageSize, Scn};

/// Where a page is in a tail so few times when the room is full, it is not worth to write the log anew.
const GAIN_LEAST: u32 = 3;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tail {
    raw_salts: [u32; 2],
    moved: u32,
    scn: Scn,
    /// When the log has so many frames it is asked again whether its room is full.
    look_at: u32,
}

/// A log as it was once.
#[derive(Clone, Copy, Debug)]
pub struct Mark {
    /// What it had.
    pub header: WalIndexHeader,
    /// Everything before is in that.
    pub scn: Scn,
}

/// How a tail stands to its room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Enough.
    Enough,
    /// The log is to be written anew now.
    Full,
    /// More frames are to be moved first.
    TooLittle,
}

impl Tail {
    /// What is behind the frames that a checkpoint has moved which came to its end and was followed by a sync. `None` when
    /// those are not all of one of `marks`, which are in order, or more than `longest`, or when somebody has begun the log anew.
    /// The next writer would do that with a log that is moved to its last frame: the index says that this frame is not. The
    /// caller holds the checkpoint lock, and has made a state of what was moved ([`Guard::complete_moved`]).
    pub fn behind(guard: &Guard<'_>, marks: &[Mark], longest: u32) -> Option<Tail> {
        let now = guard.settled_wal_header().ok()?;
        let mut moved = guard.wal_index().ok()?.backfilled();
        let reached = |mark: &&Mark| mark.header.frames() > 0 && mark.header.frames() <= moved;
        let Mark { header: then, scn } = *marks.iter().rev().find(reached)?;
        if moved > longest || now.raw_salts() != then.raw_salts() || now.frames() < moved {
            return None;
        }
        if now.frames() == moved {
            moved -= 1;
            // Who begins the log anew holds the write lock.
            if !guard.with_write_lock(|| guard.set_moved(&now, moved)).ok()? {
                return None;
            }
        }
        Some(Tail { raw_salts: then.raw_salts(), moved, scn, look_at: moved + moved / 2 })
    }

    /// Of the log, in the byte order of the file.
    pub fn raw_salts(&self) -> [u32; 2] {
        self.raw_salts
    }

    /// Frames before it.
    pub fn moved(&self) -> u32 {
        self.moved
    }

    /// Everything before is in the database file, durably.
    pub fn scn(&self) -> Scn {
        self.scn
    }

    /// Frames at which its log is long, of `reset_frames` for one without a tail: what was moved first does not count while
    /// the log grows.
    pub fn long_at(&self, grows: bool, reset_frames: u32) -> u32 {
        reset_frames + if grows { self.moved } else { 0 }
    }

    /// Whether a log of `frames` frames that was long at `long_at` has grown on for so long, because somebody reads all the
    /// time, that it is to get as short as it can without being written anew.
    pub fn is_out_of_hand(frames: u32, long_at: u32) -> bool {
        frames >= long_at / 2 * 3
    }

    /// How a log of `frames` frames stands to the room of its tail. To be asked often: it looks seldom.
    pub fn room(&mut self, guard: &Guard<'_>, page_size: PageSize, frames: u32) -> Room {
        if frames < self.look_at {
            return Room::Enough;
        }
        let behind = frames - self.moved.min(frames);
        let room = self.moved.min(most_frames(page_size));
        let full = room / 3 * 2;
        let newest = guard.newest_frames(self.moved).map_or(0, |newest| newest.len() as u32);
        if newest < full {
            // It is full no sooner; and a look goes over all of it, but must not come when there is no room any more.
            self.look_at = frames + (full - newest).max((behind / 8).min((room - newest) / 2));
            Room::Enough
        } else if behind < GAIN_LEAST * newest {
            Room::TooLittle
        } else {
            Room::Full
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::scene::{Scene, size};

    #[test]
    fn a_tail_with_almost_as_many_pages_as_there_is_room_for_is_written_anew_or_gets_more_room() {
        let mut few = Scene::moved(1);
        few.change_all(&few.application(), 1);
        let mut tail = few.move_frames().unwrap();
        let room = |scene: &Scene, tail: &mut Tail| tail.room(&scene.guard(), size(), scene.frames());
        assert_eq!(room(&few, &mut tail), Room::Enough, "nothing came yet");
        few.change_all(&few.application(), 20);
        assert_eq!(room(&few, &mut tail), Room::Enough, "half as many pages as frames were moved");

        let scene = Scene::moved(0);
        scene.change_all(&scene.application(), 1);
        let mut scene = scene;
        let tail = scene.move_frames().unwrap();
        scene.change_all(&scene.application(), 1);
        assert_eq!(room(&scene, &mut tail.clone()), Room::TooLittle, "each page once");
        scene.change_all(&scene.application(), 2);
        assert_eq!(room(&scene, &mut tail.clone()), Room::Full);
    }

    #[test]
    fn however_long_a_tail_is_it_is_looked_at_before_its_room_is_used_up() {
        let mut scene = Scene::moved(0);
        let application = scene.application();
        scene.change_all(&application, 1);
        let mut tail = scene.move_frames().unwrap();
        let change = |pages: u32, times: u32| {
            let sql = format!("UPDATE t SET n = n + 1 WHERE id <= {pages};");
            (0..times).for_each(|_| application.execute_batch(&sql).unwrap());
        };
        change(1, 1500);
        let room = |tail: &mut Tail| tail.room(&scene.guard(), size(), scene.frames());
        assert_eq!(room(&mut tail), Room::Enough, "hardly a page");
        let left = tail.moved() / 4 * 3 - 2;
        change(left, 1);
        assert_eq!([(); 2].map(|()| room(&mut tail)), [Room::Full; 2], "{left} of {}", tail.moved());
    }
}
