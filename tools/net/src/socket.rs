//! Socket options that the standard library does not offer, and the kernel's data about a connection.

use crate::stats::Sender;
use std::io::{Error, ErrorKind, Result};
use std::mem::{MaybeUninit, size_of};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Interval at which blocking calls return to check whether the test was ended.
pub const SLICE: Duration = Duration::from_millis(100);

/// The kernel's counters of a connection, `struct tcp_info` of `linux/tcp.h` (v4.19 and later; an older kernel leaves
/// the end zero).
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct TcpInfo {
    state: [u8; 5],
    options: u8,
    scales: [u8; 2],
    rto: u32,
    ato: u32,
    /// Bytes of payload of a segment.
    pub segment: u32,
    since_segment: [u32; 12],
    rtt_us: u32,
    rtt_variation_us: u32,
    ssthresh: u32,
    cwnd_segments: u32,
    advertised_segment: u32,
    reordering: u32,
    receive: [u32; 2],
    /// Segments retransmitted since the connection began.
    pub retransmissions: u32,
    pacing: [u64; 2],
    /// Bytes that the other side has acknowledged.
    pub bytes_acknowledged: u64,
    bytes_received: u64,
    segments: [u32; 2],
    unsent_bytes: u32,
    min_rtt_us: u32,
    data_segments: [u32; 2],
    delivery_rate: u64,
    /// Time with data waiting or in flight, microseconds.
    pub busy_us: u64,
    /// Part of `busy_us` in which the receiver's window held the sender back.
    pub receiver_window_us: u64,
    /// Part of `busy_us` in which the send buffer held the sender back.
    pub send_buffer_us: u64,
    delivered: [u32; 2],
    sent_bytes: [u64; 2],
    order: [u32; 3],
    /// Bytes that the receiver has room for beyond the last acknowledged one; 0 before Linux 5.4.
    pub window: u32,
}

impl TcpInfo {
    /// Returns the congestion window in bytes.
    pub fn congestion_window(&self) -> u64 {
        u64::from(self.cwnd_segments) * u64::from(self.segment)
    }

    /// Returns the shortest round trip seen; None before the first.
    pub fn min_rtt(&self) -> Option<Duration> {
        // The kernel reports ~0 while it has no sample.
        let seen = self.min_rtt_us != 0 && self.min_rtt_us != u32::MAX;
        seen.then(|| Duration::from_micros(self.min_rtt_us.into()))
    }

    /// Returns whether both sides agreed on selective acknowledgements.
    pub fn sack_negotiated(&self) -> bool {
        self.options & 2 != 0
    }
}

fn get_option<T: Copy>(socket: &impl AsFd, level: i32, name: i32, value: &mut T) -> Result<usize> {
    let mut length = size_of::<T>() as libc::socklen_t;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: value is writable for `length` bytes, of a plain type for which the caller guarantees that every bit
    // pattern is a value; the descriptor is borrowed for the call.
    let done = unsafe { libc::getsockopt(fd, level, name, std::ptr::from_mut(value).cast(), &mut length) };
    if done == 0 { Ok(length as usize) } else { Err(Error::last_os_error()) }
}

fn set_option(socket: &impl AsFd, level: i32, name: i32, value: &[u8]) -> Result<()> {
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: value is readable for its length; the descriptor is borrowed for the call.
    let done =
        unsafe { libc::setsockopt(fd, level, name, value.as_ptr().cast(), value.len() as libc::socklen_t) };
    if done == 0 { Ok(()) } else { Err(Error::last_os_error()) }
}

/// Returns the kernel's counters; None when the system has none.
pub fn tcp_info(socket: &TcpStream) -> Option<TcpInfo> {
    let mut info = TcpInfo::default();
    get_option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, &mut info).ok().map(|_| info)
}

/// Returns the counters of a sender; None when the system has none.
pub fn sender(socket: &TcpStream) -> Option<Sender> {
    let info = tcp_info(socket)?;
    let mut congestion_name = [0; 15];
    let name = congestion(socket).unwrap_or_default();
    let length = name.len().min(congestion_name.len());
    congestion_name[..length].copy_from_slice(&name.as_bytes()[..length]);
    Some(Sender {
        busy_us: info.busy_us,
        receiver_window_us: info.receiver_window_us,
        send_buffer_us: info.send_buffer_us,
        acknowledged: info.bytes_acknowledged,
        congestion_window: u32::try_from(info.congestion_window()).unwrap_or(u32::MAX),
        retransmissions: info.retransmissions,
        min_rtt_us: info.min_rtt().map_or(0, |rtt| rtt.as_micros() as u32),
        offered_window: info.window,
        send_buffer: send_buffer(socket),
        sack: info.sack_negotiated(),
        congestion: congestion_name,
    })
}

/// Requests buffers of `bytes` in both directions; 0 leaves them to the system, which adapts them.
pub fn request_buffers(socket: &impl AsFd, bytes: u32) -> Result<()> {
    if bytes == 0 {
        return Ok(());
    }
    let value = i32::try_from(bytes).unwrap_or(i32::MAX).to_ne_bytes();
    set_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &value)?;
    set_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &value)?;
    // A connection keeps the window limit it was created with; the larger buffer is used only once that limit is
    // raised.
    let granted = receive_buffer(socket);
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_WINDOW_CLAMP, &granted.to_ne_bytes())
}

/// Returns the send buffer in force, bytes as the kernel counts them: twice the request, or less when clamped.
pub fn send_buffer(socket: &impl AsFd) -> u32 {
    let mut bytes = 0_u32;
    get_option(socket, libc::SOL_SOCKET, libc::SO_SNDBUF, &mut bytes).map_or(0, |_| bytes)
}

/// Returns the receive buffer in force, bytes as the kernel counts them.
pub fn receive_buffer(socket: &impl AsFd) -> u32 {
    let mut bytes = 0_u32;
    get_option(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &mut bytes).map_or(0, |_| bytes)
}

/// Makes close discard unsent data, so that it does not continue to fill the link.
pub fn discard_at_close(socket: &TcpStream) -> Result<()> {
    // struct linger: on, for zero seconds.
    let linger = [1_i32.to_ne_bytes(), 0_i32.to_ne_bytes()].concat();
    set_option(socket, libc::SOL_SOCKET, libc::SO_LINGER, &linger)
}

/// Limits the kernel to sending this rate, evenly (SO_MAX_PACING_RATE of socket(7)).
pub fn limit_rate(socket: &impl AsFd, bytes_per_second: u64) -> Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &bytes_per_second.to_ne_bytes())
}

/// Sets the congestion control, e.g. `cubic`.
pub fn set_congestion(socket: &impl AsFd, name: &str) -> Result<()> {
    set_option(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, name.as_bytes())
}

/// Returns the congestion control in force.
pub fn congestion(socket: &impl AsFd) -> Option<String> {
    let mut name = [0_u8; 16];
    let length = get_option(socket, libc::IPPROTO_TCP, libc::TCP_CONGESTION, &mut name).ok()?;
    let name = name[..length].split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(name).into_owned()).filter(|name| !name.is_empty())
}

/// Prepares a connection for a test: no delay for small messages, blocking calls that return every [`SLICE`].
pub fn prepare(socket: &TcpStream) -> Result<()> {
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(SLICE))?;
    socket.set_write_timeout(Some(SLICE))
}

/// Receives without waiting. `Ok(None)`: nothing has arrived; `Ok(Some(0))`: the other side has closed.
pub fn receive_now(socket: &TcpStream, out: &mut [u8]) -> Result<Option<usize>> {
    // SAFETY: out is writable for its length; the descriptor is borrowed for the call.
    let got =
        unsafe { libc::recv(socket.as_raw_fd(), out.as_mut_ptr().cast(), out.len(), libc::MSG_DONTWAIT) };
    match usize::try_from(got) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(_) => match Error::last_os_error() {
            error if is_pause(&error) => Ok(None),
            error => Err(error),
        },
    }
}

/// Asks the kernel to timestamp arriving data, for [`receive_waking`].
pub fn note_arrivals(socket: &TcpStream) -> Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &1_i32.to_ne_bytes())
}

/// Room for the one control message that is asked for, aligned as its header requires.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Receives like a plain read. Also returns how long the last of these bytes had been at this host, nanoseconds: 0 when
/// the kernel does not say, or when its timestamp and this clock cannot both be right.
pub fn receive_waking(socket: &TcpStream, out: &mut [u8]) -> Result<(usize, u64)> {
    let mut control = MaybeUninit::<Control>::uninit();
    let mut buffer = libc::iovec { iov_base: out.as_mut_ptr().cast(), iov_len: out.len() };
    // SAFETY: zeroes are a valid msghdr: no name, no buffers, no control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &mut buffer;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of::<Control>() as _;
    // SAFETY: the message points to `out` and `control`, which are writable for their lengths and outlive the call; the
    // descriptor is borrowed for it.
    let got = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut message, 0) };
    let bytes = usize::try_from(got).map_err(|_| Error::last_os_error())?;
    Ok((bytes, arrival(&message).map_or(0, |arrived| age(arrived, SystemTime::now()))))
}

/// Returns when the kernel received the last of the bytes, since 1970.
fn arrival(message: &libc::msghdr) -> Option<Duration> {
    // SAFETY: recvmsg has filled the message, so that its control messages lie within its control buffer.
    let header = unsafe { libc::CMSG_FIRSTHDR(message).as_ref()? };
    let expected = size_of::<libc::timespec>() <= header.cmsg_len as usize;
    if !expected || (header.cmsg_level, header.cmsg_type) != (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) {
        return None;
    }
    // SAFETY: the kernel has written a timespec after the header, at any alignment.
    let time = unsafe { libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned() };
    Some(Duration::new(time.tv_sec.try_into().ok()?, time.tv_nsec.try_into().ok()?))
}

/// Returns the age of an arrival. The kernel timestamps by the wall clock, which may have stepped since: a negative age
/// counts as 0. The caller, which knows how long it has waited, must detect an age that is too large.
fn age(arrived: Duration, now: SystemTime) -> u64 {
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    now.checked_sub(arrived).map_or(0, |age| age.as_nanos() as u64)
}

/// Returns whether an error only means that a [`SLICE`] has passed or a signal arrived.
pub fn is_pause(error: &Error) -> bool {
    // TimedOut is not a pause: the kernel reports it when it abandons a connection.
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

/// Returns the error of a connection that the other side has closed.
pub fn closed() -> Error {
    Error::new(ErrorKind::UnexpectedEof, "closed by the other side")
}

/// Raises this process's limit on descriptors to `wanted`, or as far as the system allows. Never lowers it.
pub fn allow_descriptors(wanted: usize) -> Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: limit is valid for the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(Error::last_os_error());
    }
    let raised = limit.rlim_max.min(wanted as libc::rlim_t);
    if raised <= limit.rlim_cur {
        return Ok(());
    }
    limit.rlim_cur = raised;
    // SAFETY: limit is valid for the call.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}

/// Returns which of the sockets can be read; waits at most `timeout`.
pub fn readable(sockets: &[i32], timeout: Duration) -> Result<Vec<bool>> {
    let watch = |fd: &i32| libc::pollfd { fd: *fd, events: libc::POLLIN, revents: 0 };
    let mut polled: Vec<libc::pollfd> = sockets.iter().map(watch).collect();
    // SAFETY: polled is a valid array of its length. A stale descriptor would only be reported as such.
    let done = unsafe {
        libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, timeout.as_millis() as libc::c_int)
    };
    match (done, Error::last_os_error()) {
        (0.., _) => Ok(polled.iter().map(|polled| polled.revents != 0).collect()),
        (_, error) if error.kind() == ErrorKind::Interrupted => Ok(vec![false; sockets.len()]),
        (_, error) => Err(error),
    }
}

/// Returns the first number of a kernel setting under `/proc/sys`; None when it cannot be read.
pub fn sysctl(name: &str) -> Option<u64> {
    sysctl_numbers(name).first().copied()
}

/// Returns all numbers of a kernel setting, e.g. the three of `net.ipv4.tcp_rmem`.
pub fn sysctl_numbers(name: &str) -> Vec<u64> {
    let text = std::fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/"))).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// Returns how often this host (or network namespace) has recovered lost segments by selective acknowledgements since
/// it started; None when the kernel does not say.
pub fn sack_recoveries() -> Option<u64> {
    counter(&std::fs::read_to_string("/proc/net/netstat").ok()?, "TcpExt:", "TCPSackRecovery")
}

/// Finds a counter in a file of line pairs: names, then numbers, each after the name of the group.
fn counter(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let at = lines.next()?.split_whitespace().position(|word| word == name)?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}

/// Returns hour, minute and second of the local clock, for labels only: every measurement uses the monotonic clock.
pub fn wall_clock() -> (u8, u8, u8) {
    let mut broken_down = MaybeUninit::<libc::tm>::zeroed();
    // SAFETY: both pointers are valid for the calls; zeroes are a valid tm should the call fail.
    let now = unsafe {
        let seconds = libc::time(std::ptr::null_mut());
        libc::localtime_r(&seconds, broken_down.as_mut_ptr());
        broken_down.assume_init()
    };
    (now.tm_hour as u8, now.tm_min as u8, now.tm_sec as u8)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    #[test]
    fn kernel_counter_is_found_by_group_and_name() {
        let text = "IpExt: A TCPSackRecovery\nIpExt: 1 2\nTcpExt: B TCPSackRecovery C\nTcpExt: 3 4 5\n";
        assert_eq!(counter(text, "TcpExt:", "TCPSackRecovery"), Some(4));
        assert_eq!(counter(text, "TcpExt:", "A"), None);
        assert_eq!(counter("TcpExt: B\n", "TcpExt:", "B"), None);
    }
    use std::mem::offset_of;
    use std::time::Instant;

    #[test]
    fn age_of_received_data_is_measured_from_its_arrival() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let mut out = [0; 8];
        std::io::Write::write_all(&mut near, b"abc").unwrap();
        assert_eq!(receive_waking(&far, &mut out).unwrap(), (3, 0), "no wake-up was requested");
        note_arrivals(&far).unwrap();
        // The age lies between the time since the send returned and the time since it began. The kernel starts to
        // timestamp after a delay, so that the first ages may be wrong.
        let mut ages = (0..100).map(|_| {
            let sending = Instant::now();
            std::io::Write::write_all(&mut near, b"abc").unwrap();
            let sent = Instant::now();
            for _ in 0..50 {
                drop(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
                listener.accept().unwrap();
            }
            let lain = sent.elapsed().as_nanos() as u64;
            let (bytes, age) = receive_waking(&far, &mut out).unwrap();
            bytes == 3 && (lain..=sending.elapsed().as_nanos() as u64).contains(&age)
        });
        assert!(ages.any(|right| right));
        drop(ages);
        drop(near);
        assert_eq!(receive_waking(&far, &mut out).unwrap(), (0, 0), "the end of the stream has no time");
    }

    #[test]
    fn socket_rate_limit_limits_the_throughput() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        limit_rate(&near, 10 << 20).unwrap();
        let bytes = 2 << 20;
        let receiving = std::thread::spawn(move || {
            let begun = Instant::now();
            std::io::Read::read_exact(&mut far, &mut vec![0; bytes]).unwrap();
            begun.elapsed()
        });
        std::io::Write::write_all(&mut near, &vec![7; bytes]).unwrap();
        let took = receiving.join().unwrap();
        assert!(
            took >= Duration::from_millis(100),
            "a fifth of a second, but for what a new connection may send: {took:?}"
        );
    }

    #[test]
    fn clock_set_back_yields_an_age_of_zero() {
        let arrived = Duration::from_secs(1_000_000);
        assert_eq!(age(arrived, UNIX_EPOCH + arrived + Duration::from_micros(40)), 40_000);
        assert_eq!(age(arrived, UNIX_EPOCH + arrived - Duration::from_secs(3600)), 0);
        assert_eq!(age(arrived, UNIX_EPOCH - arrived), 0);
    }

    #[test]
    fn tcp_info_fields_match_the_kernel_layout() {
        assert_eq!(offset_of!(TcpInfo, rtt_us), 68);
        assert_eq!(offset_of!(TcpInfo, cwnd_segments), 80);
        assert_eq!(offset_of!(TcpInfo, retransmissions), 100);
        assert_eq!(offset_of!(TcpInfo, bytes_acknowledged), 120);
        assert_eq!(offset_of!(TcpInfo, min_rtt_us), 148);
        assert_eq!(offset_of!(TcpInfo, busy_us), 168);
        assert_eq!(offset_of!(TcpInfo, window), 228);
    }

    #[test]
    fn socket_buffers_are_granted_and_tcp_counters_advance() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        request_buffers(&client, 64 << 10).unwrap();
        assert_eq!(send_buffer(&client), 128 << 10);
        std::io::Write::write_all(&mut client, &[7; 1000]).unwrap();
        std::io::Read::read_exact(&mut server, &mut [0; 1000]).unwrap();
        let info = tcp_info(&client).unwrap();
        assert!(info.congestion_window() > 0 && info.segment > 0);
        assert!(receive_now(&client, &mut [0; 8]).unwrap().is_none());
        drop(server);
        assert_eq!(readable(&[client.as_raw_fd()], Duration::from_secs(5)).unwrap(), [true]);
        assert_eq!(receive_now(&client, &mut [0; 8]).unwrap(), Some(0));
    }
}
