//! The protected files that are open in this process: how journals and logs find the database that they belong to.

use super::MainFile;
use crate::turn;
use std::cell::Cell;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Open protected files, by their numbers.
static OPEN: Mutex<Vec<(u64, usize)>> = Mutex::new(Vec::new());

thread_local! {
    /// Number of the file of ours whose lock SQLite asked for last on this thread; 0 is none.
    static LOCKED_LAST: Cell<u64> = const { Cell::new(0) };
}

impl MainFile {
    /// The file that is being opened gets a place that does not change: journals and logs find it from now on.
    pub fn opened(self) -> *mut MainFile {
        let id = self.id;
        let place = Box::into_raw(Box::new(self));
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).push((id, place as usize));
        place
    }

    /// SQLite asks for a lock of the file itself (`xLock`).
    pub fn lock_asked(&self) {
        LOCKED_LAST.set(self.id);
    }

    /// The file of ours to which the log belongs that is opened now, or the journal; `database` is the path without its ending.
    /// Each lock finds one log: there may be other connections to the same path that are not ours, because they were opened
    /// before the database was protected.
    ///
    /// SQLite takes a lock of the database file right before, on the same thread. It has a function that finds the file by the
    /// name of its journal, but that is defined only for names that SQLite has made, and a VFS on top of ours may open
    /// journals under names of its own.
    pub fn of_journal(database: &Path, is_log: bool, below: bool) -> Option<*const MainFile> {
        let last = LOCKED_LAST.get();
        if last == 0 {
            return None;
        }
        let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let place = open.iter().find(|(id, _)| *id == last)?.1 as *const MainFile;
        // SAFETY: it is taken off the list before it is freed, which needs the lock that is held here.
        let main = unsafe { &*place };
        let same = main.database.file == database && main.below == below;
        if same && is_log {
            LOCKED_LAST.set(0);
        }
        same.then_some(place)
    }
}

impl Drop for MainFile {
    fn drop(&mut self) {
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).retain(|(id, _)| *id != self.id);
        turn::forget(self.id);
        self.detach();
    }
}
