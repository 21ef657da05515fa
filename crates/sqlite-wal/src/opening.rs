//! Opening a database without waiting longer than the caller will, whatever other processes do with its files.
//!
//! Two things make SQLite wait for others whatever the busy timeout is:
//! - `open` of a file on which another process has a lease returns when the lease is given up, or when the kernel breaks it, after 45 s
//!   by default (open(2); fcntl(2), `F_SETLEASE`; `/proc/sys/fs/lease-break-time`). The owner of a file may take one. So
//!   the files of databases are opened with `O_NONBLOCK`, which means nothing else for regular files, and a lease is noted for the
//!   caller. The refusal makes the kernel begin to break the lease, so a later attempt succeeds.
//! - SQLite tries for up to ten seconds to find a snapshot while another process holds locks as one does that recovers the database
//!   (`walTryBeginRead` in wal.c). Once the caller's time is over nothing sleeps any more, and it gives up at once.

use rusqlite::ffi;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::mem::transmute;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

thread_local! {
    /// Until when SQLite may sleep in this thread.
    static END: Cell<Option<Instant>> = const { Cell::new(None) };
    /// The file whose lease was in the way of this thread.
    static LEASED: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// Does `work`, in which SQLite sleeps for no longer than `limit` altogether.
pub fn within<T>(limit: Duration, work: impl FnOnce() -> T) -> T {
    /// Puts back what was before, also when `work` panics.
    struct Before(Option<Instant>);
    impl Drop for Before {
        fn drop(&mut self) {
            END.set(self.0);
        }
    }
    let _before = Before(END.replace(Some(Instant::now() + limit)));
    work()
}

/// The file whose lease was in the way since this was last asked in this thread.
pub fn take_leased() -> Option<PathBuf> {
    LEASED.take()
}

/// Whether a lease was in the way. It stays noted.
pub(crate) fn is_leased() -> bool {
    LEASED.with_borrow(Option::is_some)
}

/// What is left of a time to sleep, microseconds.
pub(crate) fn cut_short(microseconds: c_int) -> c_int {
    let Some(end) = END.get() else { return microseconds };
    let left = end.saturating_duration_since(Instant::now()).as_micros();
    microseconds.min(c_int::try_from(left).unwrap_or(c_int::MAX))
}

/// Makes SQLite's own VFS for Unix, of which all variants share their system calls, open files without waiting.
///
/// # Safety
/// `vfs` is a registered VFS of SQLite's own for Unix.
pub(crate) unsafe fn never_wait(vfs: *mut ffi::sqlite3_vfs) -> Result<(), c_int> {
    // SAFETY: a registered VFS lives for ever; the name is NUL-terminated; SQLite calls what is set under this name with the
    // arguments of `open_now`.
    let code = unsafe {
        let open = transmute::<SystemOpen, unsafe extern "C" fn()>(open_now);
        (*vfs).xSetSystemCall.map_or(ffi::SQLITE_NOTFOUND, |set| set(vfs, c"open".as_ptr(), Some(open)))
    };
    if code == ffi::SQLITE_OK { Ok(()) } else { Err(code) }
}

type SystemOpen = unsafe extern "C" fn(*const c_char, c_int, c_int) -> c_int;

/// Takes the place of `open`.
unsafe extern "C" fn open_now(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
    // SAFETY: SQLite gives a NUL-terminated path; errno is that of this thread.
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
