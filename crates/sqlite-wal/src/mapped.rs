//! Mapped regions of wal-indexes, and what becomes of an access to one whose file was made shorter: the kernel answers
//! it with SIGBUS, which ends the process, and with it the instance and all its other databases.
//!
//! SQLite reads and writes the mapping itself, in the middle of checkpoints and recoveries, so reading the file instead
//! would protect our own accesses only. Here a handler puts a page of zeros in the place of the one that is gone and
//! notes that the index is lost. Zeros are no valid header, and a page number of 0 is that of no page; who has noted it
//! moves nothing more into the database file (`guard_vfs`) and takes the database out of service.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, Once};

/// Bytes of a region.
const REGION_BYTES: usize = 32 * 1024;
/// Regions that can be known at a time. One more is not protected: an access to it ends the process as before.
const REGIONS_MAX: usize = 16 * 1024;

/// A region, or an unused place for one. Read by the signal handler, hence atomics; changed under [`PLACES`].
struct Region {
    /// 0: unused.
    address: AtomicUsize,
    is_lost: AtomicBool,
}

static REGIONS: [Region; REGIONS_MAX] =
    [const { Region { address: AtomicUsize::new(0), is_lost: AtomicBool::new(false) } }; REGIONS_MAX];
/// Places in use begin below this.
static USED: AtomicUsize = AtomicUsize::new(0);
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(4096);
static ANY_LOST: AtomicBool = AtomicBool::new(false);
/// How many files use the region at each place.
static PLACES: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Whether a region of any wal-index was ever lost in this process: one load.
pub fn any_is_lost() -> bool {
    ANY_LOST.load(SeqCst)
}

/// The regions that one open file has mapped; dropped before they are unmapped.
#[derive(Default)]
pub(crate) struct MappedRegions(Vec<usize>);

impl MappedRegions {
    /// Notes a region that the file has mapped.
    pub fn add(&mut self, address: *mut c_void) {
        static HANDLER: Once = Once::new();
        HANDLER.call_once(install);
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

    /// Whether the file of one of them was made shorter and somebody has noticed.
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

fn install() {
    // SAFETY: sysconf has no preconditions. The action is zeroed but for the fields that are set; the handler does only
    // what a handler may: atomics and system calls.
    unsafe {
        PAGE_BYTES.store(usize::try_from(libc::sysconf(libc::_SC_PAGESIZE)).unwrap_or(4096), SeqCst);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_bus_error as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut());
    }
}

/// Puts a page of zeros where the file of a known region ends too early. For any other address the signal does what it
/// does by default when the access is repeated: it ends the process.
extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: the kernel passes the information about this signal, which has the address for SIGBUS.
    let address = unsafe { (*info).si_addr() } as usize;
    let places = REGIONS[..USED.load(SeqCst).min(REGIONS_MAX)].iter();
    for region in places {
        let begin = region.address.load(SeqCst);
        if begin == 0 || !(begin..begin + REGION_BYTES).contains(&address) {
            continue;
        }
        region.is_lost.store(true, SeqCst);
        ANY_LOST.store(true, SeqCst);
        let page_bytes = PAGE_BYTES.load(SeqCst);
        let page = address & !(page_bytes - 1);
        // SAFETY: the page is part of a shared mapping of a wal-index that the file behind `place` keeps mapped until it has
        // taken the place away; the whole region is unmapped at once later, whatever its pages are. Other processes see
        // nothing of it. errno is put back.
        let mapped = unsafe {
            let errno = *libc::__errno_location();
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let mapped = libc::mmap(page as *mut c_void, page_bytes, access, flags, -1, 0);
            *libc::__errno_location() = errno;
            mapped
        };
        if mapped != libc::MAP_FAILED {
            return;
        }
    }
    // SAFETY: as in `install`; the default action needs no handler.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = libc::SIG_DFL;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::scene::{Scene, total};

    #[test]
    fn a_truncated_wal_index_is_noted_and_nothing_more_is_moved() {
        let scene = Scene::moved(1);
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
        let moved =
            scene.instance.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| row.get::<_, i64>(0));
        assert!(!matches!(moved, Ok(0)), "{moved:?}");
        assert!(scene.file("") == before, "nothing was moved");
        assert!(scene.instance.execute("UPDATE t SET n = 7", []).is_err());
        let other = Scene::moved(1);
        assert!(!other.guard().is_index_lost());
        assert_eq!(total(&other.application()), 50);
    }
}
