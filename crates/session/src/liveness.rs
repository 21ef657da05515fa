//! Whether an instance runs, for any process that can reach its directory: of any user, in any PID or mount namespace.
//!
//! An instance binds the socket `alive` in its directory once it has locked the directory, and never listens there.
//! When a process connects to it with a socket of another type, the kernel reports, without involving the instance,
//! whether anything is bound: `EPROTOTYPE` if so, `ECONNREFUSED` if the instance has ended. No lock that another user
//! can take and no process number is involved.

use std::io::Error;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Name of the socket in the instance directory.
pub const ALIVE: &str = "alive";

/// Whether the instance in `directory` runs; `None` when that cannot be determined: there is no socket, or access to it
/// is denied.
pub fn probe(directory: &Path) -> Option<bool> {
    let path = directory.join(ALIVE);
    // SAFETY: a structure of integers, for which zeros are valid.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return None;
    }
    for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = *byte as libc::c_char;
    }
    // SAFETY: plain system calls; a result that is not negative is a new descriptor that nothing else owns.
    let socket = unsafe {
        let descriptor = libc::socket(libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0);
        if descriptor < 0 {
            return None;
        }
        OwnedFd::from_raw_fd(descriptor)
    };
    // SAFETY: an open socket, and an address of the size given that lives during the call. A datagram socket does not
    // wait.
    let connected = unsafe {
        libc::connect(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_un>() as libc::socklen_t,
        )
    };
    if connected == 0 {
        return Some(true);
    }
    match Error::last_os_error().raw_os_error() {
        Some(libc::EPROTOTYPE) => Some(true),
        Some(libc::ECONNREFUSED) => Some(false),
        _ => None,
    }
}
