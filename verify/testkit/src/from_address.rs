//! TCP connections from chosen addresses of this machine.

use socket2::{Domain, SockAddr, Socket, Type};
use std::io::Result;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::time::Duration;

/// Connects to `to` within `limit`, from the address `from` of this machine, which has all of 127.0.0.0/8.
///
/// # Errors
/// When this machine does not have the address, or `to` does not accept.
pub fn connect_from(from: [u8; 4], to: SocketAddrV4, limit: Duration) -> Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SockAddr::from(SocketAddr::from((Ipv4Addr::from(from), 0))))?;
    socket.connect_timeout(&SockAddr::from(to), limit)?;
    Ok(socket.into())
}
