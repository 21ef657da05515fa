//! Mapped regions of wal-indexes, and accesses to a region whose file was truncated: the kernel answers such an access
//! with SIGBUS, which ends the process, and with it the instance and all its other databases.
//!
//! SQLite reads and writes the mapping itself, in the middle of checkpoints and recoveries, so reading the file instead
//! would protect our own accesses only. Here a handler maps a page of zeros over the lost one and records that the
//! index is lost. Zeros are no valid header, and page number 0 is that of no page. Once the loss is recorded, the guard
//! backfills nothing more (`guard_vfs`), and the instance takes the database offline.

use standfast_session::{map_zeros, on_bus_error};
use std::ffi::c_void;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

const REGION_BYTES: usize = 32 * 1024;
/// Most regions known at a time. One more is not protected: an access to it still ends the process.
const REGIONS_MAX: usize = 16 * 1024;

/// A region, or an unused entry. The signal handler reads it, hence atomics; changed under [`PLACES`].
struct Region {
    /// 0: unused.
    address: AtomicUsize,
    is_lost: AtomicBool,
}

static REGIONS: [Region; REGIONS_MAX] =
    [const { Region { address: AtomicUsize::new(0), is_lost: AtomicBool::new(false) } }; REGIONS_MAX];
/// Entries in use have an index below this.
static USED: AtomicUsize = AtomicUsize::new(0);
static ANY_LOST: AtomicBool = AtomicBool::new(false);
/// The number of files that use the region of each entry.
static PLACES: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Whether a region of any wal-index was ever lost in this process: one load.
pub fn any_is_lost() -> bool {
    ANY_LOST.load(SeqCst)
}

/// The regions that one open file has mapped; dropped before they are unmapped.
#[derive(Default)]
pub(crate) struct MappedRegions(Vec<usize>);

impl MappedRegions {
    /// Records a region that the file has mapped.
    pub fn add(&mut self, address: *mut c_void) {
        on_bus_error(resolve);
        let address = address as usize;
        if self.0.iter().any(|place| REGIONS[*place].address.load(SeqCst) == address) {
            return;
        }
        let mut users = PLACES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let used = users.len();
        let known = (0..used).find(|place| REGIONS[*place].address.load(SeqCst) == address);
        let free = || (0..used).find(|place| users[*place] == 0).or((used < REGIONS_MAX).then_some(used));
        let Some(place) = known.or_else(free) else { return };
        if place == used {
            users.push(0);
        }
        if users[place] == 0 {
            REGIONS[place].is_lost.store(false, SeqCst);
            REGIONS[place].address.store(address, SeqCst);
            USED.fetch_max(place + 1, SeqCst);
        }
        users[place] += 1;
        self.0.push(place);
    }

    /// Whether the file of one of them was truncated and an access has hit the lost part.
    pub fn is_lost(&self) -> bool {
        any_is_lost() && self.0.iter().any(|place| REGIONS[*place].is_lost.load(SeqCst))
    }
}

impl Drop for MappedRegions {
    fn drop(&mut self) {
        let mut users = PLACES.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        for place in self.0.drain(..) {
            users[place] -= 1;
            if users[place] == 0 {
                REGIONS[place].address.store(0, SeqCst);
            }
        }
    }
}

/// Maps a page of zeros where the file of a known region ends too early; false when it cannot.
fn resolve(address: usize) -> bool {
    let places = REGIONS[..USED.load(SeqCst).min(REGIONS_MAX)].iter();
    for region in places {
        let begin = region.address.load(SeqCst);
        if begin == 0 || !(begin..begin + REGION_BYTES).contains(&address) {
            continue;
        }
        region.is_lost.store(true, SeqCst);
        ANY_LOST.store(true, SeqCst);
        // SAFETY: the page is part of a shared mapping of a wal-index. The file that registered the region keeps it
        // mapped until it has removed the entry. The whole region is unmapped in one call later, whatever its pages
        // are.
        if unsafe { map_zeros(address, libc::PROT_READ | libc::PROT_WRITE) } {
            return true;
        }
    }
    false
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::scene::{Scene, total};

    #[test]
    fn truncated_wal_index_is_detected_and_stops_backfill() {
        let scene = Scene::backfilled(1);
        {
            let application = scene.application();
            scene.change_all(&application, 1);
        }
        let before = scene.file("");
        let view = scene.guard().wal_index().unwrap();
        assert!(view.header().is_some() && !scene.guard().is_index_lost());
        let shm = scene.directory.join("app.db-shm");
        std::fs::File::options().write(true).open(&shm).unwrap().set_len(0).unwrap();
        assert_eq!(view.header(), None, "zeros are no header");
        assert!(scene.guard().is_index_lost());
        let backfilled =
            scene.instance.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(0));
        assert!(!matches!(backfilled, Ok(0)), "{backfilled:?}");
        assert!(scene.file("") == before, "nothing was backfilled");
        assert!(scene.instance.execute("UPDATE t SET n = 7", []).is_err());
        let other = Scene::backfilled(1);
        assert!(!other.guard().is_index_lost());
        assert_eq!(total(&other.application()), 50);
    }
}
