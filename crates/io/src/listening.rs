//! Connections that wait to be accepted.

use std::io::{Error, Result};
use std::net::TcpListener;
use std::os::fd::AsRawFd;

/// Length of the accept queue. The standard library asks for 128, which some thousand hostile connections per second
/// fill within the time that a thread waits for a processor.
const QUEUE: libc::c_int = 4096;

/// Lets 4,096 connections wait to be accepted, or as many as the system allows (`net.core.somaxconn`). A client that
/// comes while the queue is full retries a second later.
///
/// # Errors
/// The error of the system call.
pub fn lengthen_queue(listener: &TcpListener) -> Result<()> {
    // SAFETY: the descriptor is borrowed for the call; listening again only changes the length of the queue.
    match unsafe { libc::listen(listener.as_raw_fd(), QUEUE) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use std::time::Duration;

    #[test]
    fn listen_backlog_exceeds_the_standard_library_default() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        lengthen_queue(&listener).unwrap();
        let address = listener.local_addr().unwrap();
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_millis(500));
        let waiting: Result<Vec<TcpStream>> = (0..400).map(connect).collect();
        assert_eq!(waiting.unwrap().len(), 400);
    }
}
