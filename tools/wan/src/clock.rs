//! The emulator's clock, and waits on it that are more exact than a sleep.

use crate::settings::Nanos;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Instant;

/// Clock that counts nanoseconds since [`Clock::start`].
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    pub fn now(&self) -> Nanos {
        self.0.elapsed().as_nanos() as Nanos
    }
}

/// Ends timeouts of this thread on time, not up to 50 us later to save interrupts (timer slack).
pub fn sharpen_timeouts() {
    // SAFETY: prctl with this option takes one number and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

/// Gives this thread real-time priority (SCHED_RR), like the hardware that it stands for. Next to programs that use all
/// processors a link would otherwise be late by many milliseconds. Returns whether the system allows it.
pub fn run_first() -> bool {
    let priority = libc::sched_param { sched_priority: 1 };
    // SAFETY: concerns this thread; the parameter lives across the call.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &priority) == 0 }
}

/// Waits until one of the descriptors can be read, or until the timeout; None waits forever.
pub fn wait_readable(descriptors: &[BorrowedFd<'_>], timeout: Option<Nanos>) -> io::Result<()> {
    let watch = |fd: &BorrowedFd<'_>| libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let mut watched: Vec<libc::pollfd> = descriptors.iter().map(watch).collect();
    let timeout = timeout.map(|time| libc::timespec {
        tv_sec: (time / 1_000_000_000) as libc::time_t,
        tv_nsec: (time % 1_000_000_000) as libc::c_long,
    });
    let timeout = timeout.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the array and the time live across the call, the length is that of the array, and the descriptors are
    // borrowed. Without a signal mask the current one stays.
    let ready = unsafe {
        libc::ppoll(watched.as_mut_ptr(), watched.len() as libc::nfds_t, timeout, std::ptr::null())
    };
    match ready {
        -1 => Err(io::Error::last_os_error()).or_else(|error| match error.kind() {
            io::ErrorKind::Interrupted => Ok(()),
            _ => Err(error),
        }),
        _ => Ok(()),
    }
}
