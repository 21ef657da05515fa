//! Ports for servers under test.

use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{Error, Result};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Mutex;

/// A port of the loopback interface that the system gives to nobody else until this process ends: who names it can
/// listen on it, again and again, and no connection that some other test opens meanwhile begins there.
///
/// # Errors
/// When there is none.
pub fn reserved_port() -> Result<u16> {
    // Bound with SO_REUSEADDR and never listened on: in the way of those who ask for any port, and of nobody who also sets
    // it, as servers do (ip(7), and bind(2) of the kernel's TCP).
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
    fn a_reserved_port_can_be_listened_on_again_and_again_and_no_connection_takes_it_meanwhile() {
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
