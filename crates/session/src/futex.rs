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

/// Sleeps like [`wait`] until [`wake_those`] is called with a set that has one of `bits`, or until `end_ns`, by
/// [`monotonic_ns`](crate::monotonic_ns).
pub fn wait_as(word: &AtomicU32, expected: u32, bits: u32, end_ns: u64) -> bool {
    let time = libc::timespec {
        tv_sec: (end_ns / 1_000_000_000) as libc::time_t,
        tv_nsec: (end_ns % 1_000_000_000) as libc::c_long,
    };
    // SAFETY: the word is mapped for the life of the process and time is valid; the kernel only reads both.
    let rc = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET,
            expected,
            &time as *const libc::timespec,
            std::ptr::null::<u32>(),
            bits,
        )
    };
    rc != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::ETIMEDOUT)
}

/// Wakes all waiters of `word` that wait with one of `bits`, in the order in which they fell asleep.
pub fn wake_those(word: &AtomicU32, bits: u32) {
    // SAFETY: the word is mapped for the life of the process; the time is not used.
    unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAKE_BITSET,
            i32::MAX,
            std::ptr::null::<libc::timespec>(),
            std::ptr::null::<u32>(),
            bits,
        )
    };
}

pub fn wake_one(word: &AtomicU32) {
    // SAFETY: the word is mapped for the life of the process.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, 1) };
}

pub fn wake_all(word: &AtomicU32) {
    // SAFETY: the word is mapped for the life of the process.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
}
