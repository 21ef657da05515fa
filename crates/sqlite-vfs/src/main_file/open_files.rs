//! The protected files that are open in this process, by which rollback journals and WALs find their database.

use super::MainFile;
use crate::turn;
use std::cell::Cell;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// Open protected files: number and address.
static OPEN: Mutex<Vec<(u64, usize)>> = Mutex::new(Vec::new());

thread_local! {
    /// Number of the shim's file whose lock SQLite requested last on this thread; 0 is none.
    static LOCKED_LAST: Cell<u64> = const { Cell::new(0) };
}

impl MainFile {
    /// Gives a file that is being opened an address that does not change; journals and WALs find it from now on.
    pub fn opened(self) -> *mut MainFile {
        let id = self.id;
        let place = Box::into_raw(Box::new(self));
        OPEN.lock().unwrap_or_else(PoisonError::into_inner).push((id, place as usize));
        place
    }

    /// Records that SQLite requests a lock of the file itself (`xLock`).
    pub fn lock_asked(&self) {
        LOCKED_LAST.set(self.id);
    }

    /// Returns the shim's file to which the WAL or journal belongs that is opened now; `database` is the path without
    /// the `-wal` or `-journal` ending. Each lock finds one WAL: other connections to the same path may not be the
    /// shim's, because they were opened before the database was protected.
    ///
    /// Right before, SQLite takes a lock of the database file on the same thread. SQLite has a function that finds the
    /// file by the name of its journal, but only for names that SQLite has made; a VFS stacked on the shim may open
    /// journals under names of its own.
    pub fn of_journal(database: &Path, is_log: bool, below: bool) -> Option<*const MainFile> {
        let last = LOCKED_LAST.get();
        if last == 0 {
            return None;
        }
        let open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        let place = open.iter().find(|(id, _)| *id == last)?.1 as *const MainFile;
        // SAFETY: the entry is removed from the list before the file is freed, which needs the lock that is held here.
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
