use rusqlite::ffi;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// While this value lives, SQLite draws its random numbers (WAL salts, random()) from a seed, so that the same history
/// writes the same bytes. SQLite has one generator per process: holders wait for each other, and connections of tests
/// that hold none disturb the sequence. Decisions never depend on salts; only comparisons of bytes need this.
#[derive(Debug)]
pub struct SqliteSeed {
    _alone: MutexGuard<'static, ()>,
}

impl SqliteSeed {
    /// Waits for other holders, then seeds SQLite's generator.
    pub fn hold(seed: u32) -> SqliteSeed {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        // Zero would make SQLite ask the VFS.
        set_seed(seed.max(1) as i32);
        SqliteSeed { _alone: alone }
    }
}

impl Drop for SqliteSeed {
    fn drop(&mut self) {
        set_seed(0);
    }
}

fn set_seed(seed: i32) {
    // SAFETY: PRNG_SEED takes an int and a connection; without a connection SQLite uses only the int. The seed and the
    // generator reset below it are guarded by SQLite's own mutex or written as one int.
    unsafe {
        ffi::sqlite3_initialize();
        ffi::sqlite3_test_control(ffi::SQLITE_TESTCTRL_PRNG_SEED, seed, std::ptr::null_mut::<ffi::sqlite3>());
    }
}
