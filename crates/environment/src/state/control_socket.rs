//! The control socket, which never has wider permissions than configured.

use std::fs::Permissions;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::path::Path;

/// Connections that may wait to be accepted.
const BACKLOG: libc::c_int = 128;

/// Listens at `path`, which must not exist yet, with the permissions `mode`.
///
/// # Errors
/// The system's; the path of a socket has at most 107 bytes.
pub fn listen(path: &Path, mode: u32) -> io::Result<UnixListener> {
    let socket = bind(path, libc::SOCK_STREAM)?;
    std::fs::set_permissions(path, Permissions::from_mode(mode))?;
    // SAFETY: an open, bound socket.
    check(unsafe { libc::listen(socket.as_raw_fd(), BACKLOG) })?;
    Ok(UnixListener::from(socket))
}

/// Binds a socket of this type at `path`, accessible to its owner only. No client can connect to it yet.
///
/// # Errors
/// Those of [`listen`].
pub fn bind(path: &Path, kind: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: a structure of integers, for which zeros are valid.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        let why =
            "the path of the control socket may have at most 107 bytes: choose a shorter instance directory";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    for (place, byte) in address.sun_path.iter_mut().zip(bytes) {
        *place = *byte as libc::c_char;
    }
    // SAFETY: a plain system call; a result that is not negative is a new descriptor that nothing else owns.
    let socket = unsafe {
        let descriptor = libc::socket(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0);
        check(descriptor)?;
        OwnedFd::from_raw_fd(descriptor)
    };
    // The file that bind makes gets the permissions of the descriptor. A umask would apply to all threads.
    // SAFETY: an open descriptor.
    check(unsafe { libc::fchmod(socket.as_raw_fd(), 0o600) })?;
    // SAFETY: an open socket, and an address of the size given that lives during the call.
    check(unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_un>() as libc::socklen_t,
        )
    })?;
    Ok(socket)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn control_socket_accepts_no_client_before_its_mode_is_set() {
        let path = std::env::temp_dir().join(format!("standfast-socket-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let early = bind(&path, libc::SOCK_STREAM).unwrap();
        assert_eq!(mode(&path), 0o600);
        UnixStream::connect(&path).unwrap_err();
        drop(early);
        std::fs::remove_file(&path).unwrap();
        let listener = listen(&path, 0o660).unwrap();
        assert_eq!(mode(&path), 0o660);
        UnixStream::connect(&path).unwrap();
        listener.accept().unwrap();
        assert_eq!(listen(&path, 0o660).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        std::fs::remove_file(&path).unwrap();
        let long = Path::new("/tmp").join("x".repeat(120));
        assert!(listen(&long, 0o660).unwrap_err().to_string().contains("shorter instance directory"));
    }
}
