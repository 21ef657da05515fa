//! Opens a database within the caller's time limit, whatever other processes do with its files.
//!
//! Two things make SQLite wait for other processes whatever the busy timeout is:
//! - `open` of a file on which another process has a lease returns only when that process gives the lease up, or when
//!   the kernel breaks it, after 45 s by default (open(2); fcntl(2), `F_SETLEASE`; `/proc/sys/fs/lease-break-time`).
//!   The owner of a file may take a lease. So the instance opens the files of databases with `O_NONBLOCK`, which has no
//!   other effect on regular files, and records the leased file for the caller. The refused open makes the kernel begin
//!   to break the lease, so a later attempt succeeds.
//! - SQLite retries for up to ten seconds to find a snapshot while another process holds the locks of a process that
//!   recovers the database (`walTryBeginRead` in wal.c). Once the caller's time is over, SQLite's sleeps return
//!   immediately, so it gives up immediately.

use rusqlite::ffi;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::mem::transmute;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

thread_local! {
    /// When SQLite's sleeps in this thread end; `None`: no limit.
    static END: Cell<Option<Instant>> = const { Cell::new(None) };
    /// The file whose lease refused an open in this thread.
    static LEASED: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// Runs `work`; SQLite sleeps for at most `limit` in total during it.
pub fn within<T>(limit: Duration, work: impl FnOnce() -> T) -> T {
    /// Restores the previous limit, also when `work` panics.
    struct Before(Option<Instant>);
    impl Drop for Before {
        fn drop(&mut self) {
            END.set(self.0);
        }
    }
    let _before = Before(END.replace(Some(Instant::now() + limit)));
    work()
}

/// Returns the file whose lease refused an open in this thread since the last call.
pub fn take_leased() -> Option<PathBuf> {
    LEASED.take()
}

/// Whether a lease refused an open; does not clear the record.
pub(crate) fn is_leased() -> bool {
    LEASED.with_borrow(Option::is_some)
}

/// Limits a sleep, in microseconds, to the time that is left.
pub(crate) fn cut_short(microseconds: c_int) -> c_int {
    let Some(end) = END.get() else { return microseconds };
    let left = end.saturating_duration_since(Instant::now()).as_micros();
    microseconds.min(c_int::try_from(left).unwrap_or(c_int::MAX))
}

/// Makes SQLite's own VFS for Unix open files without waiting; all its variants share their system calls.
///
/// # Safety
/// `vfs` is one of SQLite's own VFSs for Unix, and registered.
pub(crate) unsafe fn never_wait(vfs: *mut ffi::sqlite3_vfs) -> Result<(), c_int> {
    // SAFETY: a registered VFS lives for ever; the name is NUL-terminated; SQLite calls the function set under this
    // name with the arguments of `open_now`.
    let code = unsafe {
        let open = transmute::<SystemOpen, unsafe extern "C" fn()>(open_now);
        (*vfs).xSetSystemCall.map_or(ffi::SQLITE_NOTFOUND, |set| set(vfs, c"open".as_ptr(), Some(open)))
    };
    if code == ffi::SQLITE_OK { Ok(()) } else { Err(code) }
}

type SystemOpen = unsafe extern "C" fn(*const c_char, c_int, c_int) -> c_int;

unsafe extern "C" fn open_now(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    // SAFETY: SQLite passes a NUL-terminated path; errno is that of this thread.
    unsafe {
        let descriptor = libc::open(path, flags | libc::O_NONBLOCK, mode);
        if descriptor < 0 && *libc::__errno_location() == libc::EWOULDBLOCK {
            let path = OsStr::from_bytes(CStr::from_ptr(path).to_bytes());
            LEASED.set(Some(path.into()));
            *libc::__errno_location() = libc::EWOULDBLOCK;
        }
        descriptor
    }
}
