//! Waking a thread that waits for descriptors.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Can be read from the first [`Event::raise`] until [`Event::take`].
#[derive(Debug)]
pub struct Event(File);

impl Event {
    /// One that was not raised.
    pub fn new() -> io::Result<Event> {
        // SAFETY: eventfd takes two numbers and touches no memory.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and belongs to nobody else.
        Ok(Event(unsafe { OwnedFd::from_raw_fd(fd) }.into()))
    }

    /// Wakes who waits.
    pub fn raise(&self) {
        // Fails only when it has been raised 2^64 times.
        let _ = (&self.0).write_all(&1_u64.to_ne_bytes());
    }

    /// Whether it was raised since the last time.
    pub fn take(&self) -> bool {
        (&self.0).read(&mut [0; 8]).is_ok()
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
