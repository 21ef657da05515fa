//! A TUN device: the network card of a node, whose cable ends in this process. Needs root.

use crate::error::Doing;
use crate::{Result, WanError};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

const DEVICE: &str = "/dev/net/tun";
/// Name of the interface in each node.
pub const INTERFACE: &str = "wan0";
/// Full packets are as on the usual network.
pub const MTU: i32 = 1500;
/// Packets that queue for this process before the kernel drops some: more than a window of 16 MiB.
const QUEUE_LENGTH: i32 = 20_000;

/// This process's end of the cable. The interface exists while this is open.
#[derive(Debug)]
pub struct Tun {
    file: File,
    /// The interfaces of the node, as /proc shows them in its namespace.
    counters: File,
}

/// Checks that devices can be created at all.
pub fn check() -> Result<()> {
    match File::options().read(true).write(true).open(Path::new(DEVICE)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(WanError::refused(
            format!("{DEVICE} cannot be opened: {error}"),
            "run it as root; in a container, allow the device (--device /dev/net/tun)",
        )),
        Err(error) => Err(WanError::refused(
            format!("{DEVICE} cannot be opened: {error}"),
            "load the module (modprobe tun); in a container, pass the device in (--device /dev/net/tun)",
        )),
    }
}

impl Tun {
    /// Creates the interface in the namespace of this thread, with this address in a /24 network.
    pub fn open(address: Ipv4Addr) -> Result<Tun> {
        check()?;
        let file = File::options().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE);
        let file = file.doing(|| format!("open {DEVICE}"))?;
        let flags = libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_VNET_HDR;
        let mut request = request(INTERFACE);
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        control(&file, libc::TUNSETIFF, &mut request).doing(|| format!("make the device {INTERFACE}"))?;
        let offload = libc::c_ulong::from(libc::TUN_F_CSUM | libc::TUN_F_TSO4);
        // SAFETY: this request takes a number; the descriptor is open.
        match unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, offload) } {
            0 => {}
            _ => return Err(io::Error::last_os_error()).doing(|| "turn on segmentation offload".into()),
        }
        set_up(address).doing(|| format!("set up the device {INTERFACE}"))?;
        let counters = "/proc/thread-self/net/dev";
        let counters = File::open(counters).doing(|| format!("open {counters}"))?;
        Ok(Tun { file, counters })
    }

    /// Reads a packet with its virtio header; `None` when there is none.
    pub fn receive(&self, room: &mut [u8]) -> io::Result<Option<usize>> {
        match (&self.file).read(room) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Delivers a packet with its virtio header to the node.
    pub fn deliver(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(|_| ())
    }

    /// Packets that the node sent and the kernel dropped, because this process did not read them in time.
    pub fn dropped_before(&self) -> io::Result<u64> {
        use std::os::unix::fs::FileExt;
        let mut room = vec![0; 8 << 10];
        let bytes = self.counters.read_at(&mut room, 0)?;
        let text = String::from_utf8_lossy(&room[..bytes]);
        sent_and_dropped(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Parses the table of interfaces: eight columns about received data, then bytes, packets, errors, drops.
fn sent_and_dropped(table: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix(INTERFACE)?.strip_prefix(':'))?;
    line.split_whitespace().nth(11)?.parse().ok()
}

fn set_up(address: Ipv4Addr) -> io::Result<()> {
    // Any socket of the namespace is a handle to its interfaces.
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let set = |name: &str, what: libc::c_ulong, fill: &dyn Fn(&mut libc::ifreq)| {
        let mut request = request(name);
        fill(&mut request);
        control(&socket, what, &mut request)
    };
    let address_is = |address: Ipv4Addr| {
        move |request: &mut libc::ifreq| request.ifr_ifru.ifru_addr = internet_address(address)
    };
    let up = |request: &mut libc::ifreq| {
        request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    };
    set("lo", libc::SIOCSIFFLAGS, &up)?;
    set(INTERFACE, libc::SIOCSIFADDR, &address_is(address))?;
    set(INTERFACE, libc::SIOCSIFNETMASK, &address_is(Ipv4Addr::new(255, 255, 255, 0)))?;
    set(INTERFACE, libc::SIOCSIFMTU, &|request| request.ifr_ifru.ifru_mtu = MTU)?;
    // This request passes the number in the field of the metric.
    set(INTERFACE, libc::SIOCSIFTXQLEN, &|request| request.ifr_ifru.ifru_metric = QUEUE_LENGTH)?;
    set(INTERFACE, libc::SIOCSIFFLAGS, &up)
}

fn request(name: &str) -> libc::ifreq {
    // SAFETY: a request is plain bytes, for which zeros are a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes().take(libc::IFNAMSIZ - 1)) {
        *place = byte as libc::c_char;
    }
    request
}

fn internet_address(address: Ipv4Addr) -> libc::sockaddr {
    let [a, b, c, d] = address.octets().map(|octet| octet as libc::c_char);
    // Port, then address, then zeros: the layout of sockaddr_in.
    let sa_data = [0, 0, a, b, c, d, 0, 0, 0, 0, 0, 0, 0, 0];
    libc::sockaddr { sa_family: libc::AF_INET as libc::sa_family_t, sa_data }
}

fn control(descriptor: &impl AsRawFd, what: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: every request used here takes a pointer to one ifreq, which is valid and exclusive for the call.
    match unsafe { libc::ioctl(descriptor.as_raw_fd(), what, std::ptr::from_mut(request)) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernel_drop_count_is_read_from_the_device_table() {
        let table = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       1       2    0    3    0     0          0         0        4       5    0    6    0     0       0          0
  wan0:      11      12    0   13    0     0          0         0       14      15    0   16    0     0       0          0
";
        assert_eq!(sent_and_dropped(table), Some(16));
        assert_eq!(sent_and_dropped("nothing"), None);
    }
}
