//! Publishing: the instance writes its own copy, then the shared memory, and corrects there what others have changed.

use crate::layout::Published;
use crate::published::{packed, unpacked};
use crate::segment::Segment;
use std::io;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// What was wrong in the published files, and was corrected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repaired {
    /// A file was truncated; sessions map it again.
    pub truncated: bool,
    /// Number of words that differed from what the instance had written.
    pub changed_words: usize,
}

/// Longest time between a thread's write to the instance's own copy and its write to the published one, unless the
/// thread was interrupted just there.
const BETWEEN: Duration = Duration::from_millis(20);

/// Gives the words of `$shown` their value of `$own` where they differ and still differ after [`BETWEEN`]; returns the
/// number of these words. The instance writes its own copy first.
macro_rules! put_right {
    ($word:ty, $own:expr, $shown:expr) => {{
        let differ = |(own, shown): &(&$word, &$word)| own.load(SeqCst) != shown.load(SeqCst);
        let mut wrong: Vec<_> = $own.zip($shown).filter(differ).collect();
        if !wrong.is_empty() {
            std::thread::sleep(BETWEEN);
            wrong.retain(differ);
        }
        for (own, shown) in &wrong {
            loop {
                let value = own.load(SeqCst);
                shown.store(value, SeqCst);
                // Otherwise the word was published meanwhile, and perhaps before the store above.
                if own.load(SeqCst) == value {
                    break;
                }
            }
        }
        wrong.len()
    }};
}

impl Segment {
    /// Publishes through `write`, which is called with the copy of the instance first. Does nothing in sessions.
    pub(crate) fn publish(&self, write: impl Fn(&Published)) {
        if let Some(own) = &self.mapping.own {
            write(&own.truth);
            write(self.published);
        }
    }

    /// Epoch and salts of the last published generation of a database.
    pub fn epoch(&self, database: u16) -> (u32, [u32; 2]) {
        let (epoch, salts) = self.published_of(database).generation().unwrap_or_default();
        (epoch, unpacked(salts))
    }

    /// Starts the next epoch for `salts`, if `is_due` returns true for the newest one, which does not change meanwhile.
    /// Returns the newest epoch.
    fn next_generation(&self, database: u16, salts: u64, is_due: impl Fn(u32, u64) -> bool) -> u32 {
        let Some(own) = &self.mapping.own else { return 0 };
        let _changes = own.generations.lock().unwrap_or_else(PoisonError::into_inner);
        let (epoch, known) = own.truth.of(database).generation().unwrap_or_default();
        if !is_due(epoch, known) {
            return epoch;
        }
        let next = epoch.wrapping_add(1);
        self.publish(|published| published.of(database).begin_generation(next, salts));
        next
    }

    /// Moves the epoch for a generation that the instance has begun or found. The caller holds the WAL write lock.
    /// Returns the epoch of that generation.
    pub fn announce_generation(&self, database: u16, salts: [u32; 2]) -> u32 {
        let packed = packed(salts);
        let epoch = self.next_generation(database, packed, |_, known| known != packed);
        let line = &self.database(database).lock;
        line.salts[0].store(salts[0], SeqCst);
        line.salts[1].store(salts[1], SeqCst);
        line.foreign.store(0, SeqCst);
        epoch
    }

    /// Moves the epoch for the generation with `salts`, which was found published, with a commit in it, after
    /// [`Segment::epoch`] had returned `seen`. The caller holds no lock: if the epoch is another one by now, what was
    /// found is out of date, and nothing is done.
    ///
    /// No commit of the generation `seen` is missing then, because the WAL was reset only when all of that was
    /// captured. No session takes the new epoch for another generation, because a commit in the new one was there
    /// before this call, so its header is in the WAL, and no earlier generation comes back.
    pub fn adopt_generation(&self, database: u16, seen: (u32, [u32; 2]), salts: [u32; 2]) {
        let seen = (seen.0, packed(seen.1));
        self.next_generation(database, packed(salts), |epoch, known| (epoch, known) == seen);
    }

    /// Called when the number stands for another file from now on, and no session of the former one is left: the former
    /// generation is not one of the new file, whatever the salts of that are.
    pub fn forget_generation(&self, database: u16) {
        self.next_generation(database, 0, |_, _| true);
        let line = &self.database(database).lock;
        line.salts[0].store(0, SeqCst);
        line.salts[1].store(0, SeqCst);
        line.foreign.store(0, SeqCst);
        line.orphans.store(0, SeqCst);
    }

    /// Compares what is published with what the instance has written, and the files with their lengths, and corrects
    /// differences. One thread calls it now and then. Does nothing in sessions.
    ///
    /// # Errors
    /// When a truncated file cannot be made as long as it was.
    pub fn repair(&self) -> io::Result<Repaired> {
        let Some(own) = &self.mapping.own else { return Ok(Repaired::default()) };
        let truncated = self.mapping.restore(own)?;
        let ((own_short, own_long), (short, long)) = (own.truth.words(), self.published.words());
        let changed_words = put_right!(AtomicU32, own_short, short) + put_right!(AtomicU64, own_long, long);
        // What was lost with the end of the file does not count as changed by another process.
        Ok(Repaired { truncated, changed_words: if truncated { 0 } else { changed_words } })
    }
}
