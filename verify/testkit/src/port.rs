//! Loopback ports for servers under test.

use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{Error, Result};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;

/// Reserves a port of the loopback interface until this process ends: the system gives it to no other socket. A test
/// can listen on it by its number any number of times, and no connection of another test uses it as its local port.
///
/// # Errors
/// When the system has no free port.
pub fn reserved_port() -> Result<u16> {
    // The socket is bound with SO_REUSEADDR and never listens. It blocks sockets that ask for any port, but not sockets
    // that also set SO_REUSEADDR, as servers do (ip(7), and bind(2) of the kernel's TCP).
    static RESERVED: Mutex<Vec<Socket>> = Mutex::new(Vec::new());
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&SockAddr::from(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))))?;
    let address = socket.local_addr()?.as_socket().ok_or_else(|| Error::other("no address of a socket"))?;
    RESERVED.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(socket);
    Ok(address.port())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn reserved_port_can_be_reused_and_no_connection_takes_it() {
        let port = reserved_port().unwrap();
        let other = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        assert!(other.bind(&SockAddr::from(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))).is_err());
        let server = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        for _ in 0..3 {
            let listener = TcpListener::bind(("127.0.0.1", port)).unwrap();
            drop(TcpStream::connect(("127.0.0.1", port)).unwrap());
            drop(listener);
            for _ in 0..100 {
                let connection = TcpStream::connect(server.local_addr().unwrap()).unwrap();
                server.accept().unwrap();
                assert_ne!(connection.local_addr().unwrap().port(), port);
            }
        }
        assert_ne!(reserved_port().unwrap(), port);
        TcpListener::bind(("::", port)).unwrap();
    }
}
