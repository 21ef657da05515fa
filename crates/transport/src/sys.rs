//! System calls that the standard library does not offer. All `unsafe` code of this crate is here.

use std::io::{Error, ErrorKind, IoSlice, Result};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Most slices per [`send_now`]; the rest is left for the next call.
pub const SLICES_MAX: usize = 64;

/// Hands as many bytes of `slices` to the socket as it takes without waiting.
///
/// # Errors
/// `WouldBlock` when the socket takes none; any other error means that the connection is lost.
pub fn send_now(stream: &TcpStream, slices: &[IoSlice<'_>]) -> Result<usize> {
    let slices = &slices[..slices.len().min(SLICES_MAX)];
    // SAFETY: msghdr is plain data, for which all zeroes is a valid value.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = slices.as_ptr().cast_mut().cast();
    message.msg_iovlen = slices.len() as _;
    loop {
        // SAFETY: IoSlice has the layout of iovec by its contract. The kernel only reads the slices, which outlive the
        // call. The descriptor is open as long as `stream` is borrowed.
        let sent =
            unsafe { libc::sendmsg(stream.as_raw_fd(), &message, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) };
        if sent >= 0 {
            return Ok(sent as usize);
        }
        let error = Error::last_os_error();
        if error.kind() != ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Waits until the socket takes bytes or the connection has ended. False when `timeout` has passed.
pub fn wait_writable(stream: &TcpStream, timeout: Duration) -> Result<bool> {
    let mut poll = libc::pollfd { fd: stream.as_raw_fd(), events: libc::POLLOUT, revents: 0 };
    let millis = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the pointer is to one pollfd that outlives the call.
    match unsafe { libc::poll(&mut poll, 1, millis) } {
        0 => Ok(false),
        1.. => Ok(true),
        _ => match Error::last_os_error() {
            error if error.kind() == ErrorKind::Interrupted => Ok(false),
            error => Err(error),
        },
    }
}

/// Sets the options of every connection of this crate: no Nagle delay, and detection of a dead peer within `timeout`,
/// both with unacknowledged data (`TCP_USER_TIMEOUT`) and without (keepalive).
pub fn prepare(stream: &TcpStream, timeout: Duration) -> Result<()> {
    stream.set_nodelay(true)?;
    let millis = libc::c_int::try_from(timeout.as_millis()).unwrap_or(libc::c_int::MAX);
    let probe_seconds = libc::c_int::try_from(timeout.as_secs() / 4).unwrap_or(libc::c_int::MAX).clamp(1, 60);
    set_option(stream, libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)?;
    set_option(stream, libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, probe_seconds)?;
    set_option(stream, libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, probe_seconds)?;
    set_option(stream, libc::IPPROTO_TCP, libc::TCP_KEEPCNT, 3)?;
    set_option(stream, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, millis)
}

/// Sets the buffers of the socket; 0 leaves a buffer to the system. The system may grant less.
pub fn set_buffers(stream: &TcpStream, send_bytes: u32, receive_bytes: u32) -> Result<()> {
    for (name, bytes) in [(libc::SO_SNDBUF, send_bytes), (libc::SO_RCVBUF, receive_bytes)] {
        if bytes > 0 {
            // The system doubles the value for its own bookkeeping.
            set_option(
                stream,
                libc::SOL_SOCKET,
                name,
                libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX),
            )?;
        }
    }
    Ok(())
}

/// Segments of a connection that carried data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    pub sent: u64,
    /// Retransmissions of segments that the system took for lost.
    pub resent: u64,
}

impl std::ops::Add for Segments {
    type Output = Segments;

    fn add(self, other: Segments) -> Segments {
        Segments { sent: self.sent + other.sent, resent: self.resent + other.resent }
    }
}

/// Returns the segments that this end has sent over a connection, also after its end (tcp(7), TCP_INFO); zeroes if the
/// system does not report them.
pub fn segments(stream: &TcpStream) -> Segments {
    // SAFETY: tcp_info is plain data, for which all zeroes is a valid value.
    let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
    let mut bytes = size_of::<libc::tcp_info>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `bytes` bytes of plain numbers to a value of that size that outlives the call;
    // an older kernel writes less and leaves zeroes. The descriptor is open as long as `stream` is borrowed.
    let rc = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut info).cast(),
            &mut bytes,
        )
    };
    if rc != 0 {
        return Segments::default();
    }
    Segments { sent: info.tcpi_data_segs_out.into(), resent: info.tcpi_total_retrans.into() }
}

fn set_option(stream: &TcpStream, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> Result<()> {
    let bytes = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the kernel reads one c_int that outlives the call.
    let rc = unsafe { libc::setsockopt(stream.as_raw_fd(), level, name, (&raw const value).cast(), bytes) };
    if rc == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Wakes a thread that is blocked in `accept` of this listener, permanently.
pub fn stop_accepting(listener: &TcpListener) {
    // SAFETY: shutdown has no memory preconditions; the descriptor is open as long as `listener` is borrowed.
    unsafe { libc::shutdown(listener.as_raw_fd(), libc::SHUT_RDWR) };
}

/// Makes sleeps of the calling thread end within a microsecond of their time instead of 50.
pub fn precise_sleeps() {
    // SAFETY: PR_SET_TIMERSLACK takes one integer and affects the calling thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

/// Connects within `timeout`. Unlike `TcpStream::connect_timeout` it calls `give_up` every 50 ms, so that a stop need
/// not wait for a host that does not answer.
///
/// # Errors
/// `TimedOut`, `Interrupted` when `give_up` returns true, or the network's error.
pub fn connect(address: SocketAddr, timeout: Duration, give_up: &dyn Fn() -> bool) -> Result<TcpStream> {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    // SAFETY: socket has no memory preconditions.
    let fd = unsafe { libc::socket(family, libc::SOCK_STREAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(Error::last_os_error());
    }
    // SAFETY: the descriptor was just opened and has no other owner.
    let stream = TcpStream::from(unsafe { OwnedFd::from_raw_fd(fd) });
    start_connect(&stream, address)?;
    let deadline = Instant::now() + timeout;
    while !wait_writable(&stream, Duration::from_millis(50))? {
        if give_up() {
            return Err(ErrorKind::Interrupted.into());
        }
        if Instant::now() >= deadline {
            return Err(ErrorKind::TimedOut.into());
        }
    }
    if let Some(error) = stream.take_error()? {
        return Err(error);
    }
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn start_connect(stream: &TcpStream, address: SocketAddr) -> Result<()> {
    let fd = stream.as_raw_fd();
    let rc = match address {
        SocketAddr::V4(v4) => {
            let name = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: v4.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(v4.ip().octets()) },
                sin_zero: [0; 8],
            };
            let bytes = size_of_val(&name) as libc::socklen_t;
            // SAFETY: the kernel reads `bytes` bytes of `name`, which outlives the call.
            unsafe { libc::connect(fd, (&raw const name).cast(), bytes) }
        }
        SocketAddr::V6(v6) => {
            let name = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: v6.port().to_be(),
                sin6_flowinfo: v6.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: v6.ip().octets() },
                sin6_scope_id: v6.scope_id(),
            };
            let bytes = size_of_val(&name) as libc::socklen_t;
            // SAFETY: the kernel reads `bytes` bytes of `name`, which outlives the call.
            unsafe { libc::connect(fd, (&raw const name).cast(), bytes) }
        }
    };
    match Error::last_os_error() {
        _ if rc == 0 => Ok(()),
        error if error.raw_os_error() == Some(libc::EINPROGRESS) => Ok(()),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn full_socket_accepts_a_part_and_then_nothing() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = connect(listener.local_addr().unwrap(), Duration::from_secs(5), &|| false).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        prepare(&stream, Duration::from_secs(10)).unwrap();
        let block = vec![7u8; 1 << 20];
        let mut sent = 0;
        let error = loop {
            match send_now(&stream, &[IoSlice::new(&block), IoSlice::new(&block)]) {
                Ok(bytes) => sent += bytes,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::WouldBlock);
        assert!(!wait_writable(&stream, Duration::ZERO).unwrap());
        let mut got = vec![0; sent];
        peer.read_exact(&mut got).unwrap();
        assert!(wait_writable(&stream, Duration::from_secs(5)).unwrap());
        assert!(got.iter().all(|byte| *byte == 7));
    }

    #[test]
    fn connect_to_a_closed_port_is_refused() {
        let listener = TcpListener::bind("[::1]:0").or_else(|_| TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let error = connect(address, Duration::from_secs(5), &|| false).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }
}
