//! Signals as a descriptor that can be waited for together with others.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// SIGINT, SIGTERM, SIGHUP and SIGCHLD of this process since [`Signals::catch`].
pub struct Signals(OwnedFd);

#[derive(Clone, Copy, Debug)]
pub struct Signal {
    pub number: i32,
    /// The terminal sent it, to all processes in the foreground.
    from_terminal: bool,
}

impl Signals {
    /// Begins to collect signals. Threads that start afterwards block them as well; commands start without this mask.
    pub fn catch() -> io::Result<Signals> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: sigemptyset fills the set, the others only add to it or read it; it lives across the calls.
        let fd = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            for number in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGCHLD] {
                libc::sigaddset(set.as_mut_ptr(), number);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), std::ptr::null_mut());
            libc::signalfd(-1, set.as_ptr(), libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just created, and nothing else owns it.
        Ok(Signals(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Returns the next signal, if one has arrived.
    pub fn take(&self) -> Option<Signal> {
        let mut info = MaybeUninit::<libc::signalfd_siginfo>::uninit();
        let size = size_of::<libc::signalfd_siginfo>();
        // SAFETY: the buffer has the size that is given; the descriptor is open.
        let bytes = unsafe { libc::read(self.0.as_raw_fd(), info.as_mut_ptr().cast(), size) };
        if bytes != size as isize {
            return None;
        }
        // SAFETY: all of it was filled.
        let info = unsafe { info.assume_init() };
        // SI_KERNEL of asm-generic/siginfo.h.
        Some(Signal { number: info.ssi_signo as i32, from_terminal: info.ssi_code == 0x80 })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Signal {
    /// Sends it to a child that was not waited for yet, unless the terminal has done so.
    pub fn forward(&self, child: u32) {
        if !self.from_terminal {
            // SAFETY: takes two numbers.
            unsafe { libc::kill(child as libc::pid_t, self.number) };
        }
    }
}
