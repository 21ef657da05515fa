//! Wakes a thread that waits for descriptors.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Readable from the first [`Event::raise`] until [`Event::take`].
#[derive(Debug)]
pub struct Event(File);

impl Event {
    pub fn new() -> io::Result<Event> {
        // SAFETY: eventfd takes two numbers and touches no memory.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just created, and nothing else owns it.
        Ok(Event(unsafe { OwnedFd::from_raw_fd(fd) }.into()))
    }

    pub fn raise(&self) {
        // Fails only when the counter would overflow 2^64.
        let _ = (&self.0).write_all(&1_u64.to_ne_bytes());
    }

    /// Returns whether it was raised since the last call.
    pub fn take(&self) -> bool {
        (&self.0).read(&mut [0; 8]).is_ok()
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
