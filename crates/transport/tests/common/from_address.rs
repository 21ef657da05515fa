//! Connections from chosen addresses of this machine.

use std::net::{SocketAddrV4, TcpStream};
use std::os::fd::FromRawFd;

/// All of 127.0.0.0/8 is this machine: a connection from another address of it. `None`: it cannot be had.
pub fn from_address(from: [u8; 4], to: SocketAddrV4) -> Option<TcpStream> {
    let name = |ip: [u8; 4], port: u16| libc::sockaddr_in {
        sin_family: libc::AF_INET as libc::sa_family_t,
        sin_port: port.to_be(),
        sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(ip) },
        sin_zero: [0; 8],
    };
    let bytes = size_of::<libc::sockaddr_in>() as libc::socklen_t;
    // SAFETY: a new descriptor that nobody else owns, and addresses that live during the calls.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        let stream = (fd >= 0).then(|| TcpStream::from_raw_fd(fd))?;
        let (own, other) = (name(from, 0), name(to.ip().octets(), to.port()));
        let bound = libc::bind(fd, (&raw const own).cast(), bytes) == 0;
        (bound && libc::connect(fd, (&raw const other).cast(), bytes) == 0).then_some(stream)
    }
}
