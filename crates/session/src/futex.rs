//! Futexes on words in shared memory.

use std::sync::atomic::AtomicU32;
use std::time::Duration;

/// Sleeps while `word` holds `expected`, at most `timeout`. Returns true when the time ran out; spurious
/// returns are possible, callers loop.
pub fn wait(word: &AtomicU32, expected: u32, timeout: Duration) -> bool {
    let time = libc::timespec {
        tv_sec: timeout.as_secs() as libc::time_t,
        tv_nsec: libc::c_long::from(timeout.subsec_nanos()),
    };
    // SAFETY: the word is mapped for the life of the process and time is valid; the kernel only reads both.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT,
            expected,
            &time as *const libc::timespec,
        )
    };
    rc != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT)
}

/// Wakes one sleeper of `word`.
pub fn wake_one(word: &AtomicU32) {
    // SAFETY: the word is mapped for the life of the process.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

/// Wakes all sleepers of `word`.
pub fn wake_all(word: &AtomicU32) {
    // SAFETY: the word is mapped for the life of the process.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
