//! Mapped files of the shared memory. A mapping in use is never unmapped, because sessions keep plain references to it,
//! and a process maps a segment once.

use crate::bus_error::Watched;
use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Content of a file that other processes write to.
///
/// # Safety
/// The type is `repr(C)` and consists of atomics only, for which every bit pattern is valid.
pub(crate) unsafe trait Shared: Sync + 'static {}

/// A mapping of a whole file, for the life of the process.
pub(crate) struct Mapped<T: Shared> {
    pub content: &'static T,
    watched: Watched,
}

impl<T: Shared> Clone for Mapped<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Shared> Copy for Mapped<T> {}

impl<T: Shared> Mapped<T> {
    /// Maps `file`, which must be at least as long as `T`. Without `writable` a write to the mapping ends the process.
    pub fn of(file: &File, writable: bool) -> io::Result<Mapped<T>> {
        if file.metadata()?.len() < size_of::<T>() as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let access = if writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        let address = map(file, size_of::<T>(), access, None)?;
        let watched = Watched::mapping(address as usize, size_of::<T>());
        // SAFETY: page-aligned, long enough, never unmapped, and of a type for which every content is valid; if the
        // file is truncated, pages of zeros replace those that are gone.
        Ok(Mapped { content: unsafe { &*address.cast::<T>() }, watched })
    }

    /// Whether an access found the file shorter than it was.
    pub fn is_lost(&self) -> bool {
        self.watched.is_lost()
    }

    /// Maps `file`, the same as before, again at the same place. What was lost reads as zeros then.
    pub fn map_again(&self, file: &File) -> io::Result<()> {
        let bytes = size_of::<T>();
        if file.metadata()?.len() < bytes as u64 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // Before the mapping: a loss meanwhile is recorded again.
        self.watched.found();
        let place = (self.content as *const T).cast_mut().cast();
        map(file, bytes, libc::PROT_READ | libc::PROT_WRITE, Some(place))?;
        Ok(())
    }
}

fn map(file: &File, bytes: usize, access: c_int, place: Option<*mut c_void>) -> io::Result<*mut c_void> {
    let fixed = if place.is_some() { libc::MAP_FIXED } else { 0 };
    let place = place.unwrap_or(std::ptr::null_mut());
    // SAFETY: the kernel chooses the address, or it is that of a mapping of the same length that is ours for good:
    // other threads see the one or the other content, both of them valid.
    let address = unsafe { libc::mmap(place, bytes, access, libc::MAP_SHARED | fixed, file.as_raw_fd(), 0) };
    if address == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(address) }
}
