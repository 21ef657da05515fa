//! Packets as a TUN device with `IFF_VNET_HDR` delivers them: a virtio header of ten bytes, then an IPv4 packet. With
//! segmentation offload one packet may carry 64 KiB of TCP payload, which a network card would send as many segments.
//! Loss, queue and rate must see those segments, so this module counts them and extracts segment trains of them. Pure;
//! every input is untrusted.

use std::net::Ipv4Addr;
use std::ops::Range;

pub const VNET: usize = 10;
/// Most bytes that a device delivers at once, rounded up.
pub const LARGEST: usize = VNET + (64 << 10) + 64;

const IPV4_HEADER: usize = 20;
const PROTOCOL_TCP: u8 = 6;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
/// The segments carry the congestion mark; the kernel repeats it where it belongs.
const GSO_ECN: u8 = 0x80;
const FIN_AND_PSH: u8 = 0x09;
const CWR: u8 = 0x80;
const SEQUENCE: usize = 4;
const DATA_OFFSET: usize = 12;
const FLAGS: usize = 13;
const CHECKSUM: usize = 16;
const TCP_HEADER: usize = 20;

/// Destination of a packet, and its segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub destination: Ipv4Addr,
    ip_header: usize,
    /// Bytes of all headers after the virtio header; each segment repeats them.
    headers: usize,
    /// Bytes of all segments after the headers.
    payload: usize,
    /// Payload of each segment but the last.
    segment_payload: usize,
}

impl Shape {
    /// Parses a packet with its virtio header; None when it is not IPv4 or is inconsistent.
    pub fn of(buffer: &[u8]) -> Option<Shape> {
        let packet = buffer.get(VNET..)?;
        let ip_header = usize::from(packet.first()? & 0x0f) * 4;
        if packet[0] >> 4 != 4 || ip_header < IPV4_HEADER || packet.len() < ip_header {
            return None;
        }
        let destination = Ipv4Addr::from(<[u8; 4]>::try_from(packet.get(16..20)?).ok()?);
        let whole = Shape {
            destination,
            ip_header,
            headers: ip_header,
            payload: packet.len() - ip_header,
            segment_payload: packet.len(),
        };
        // No other kind of offload is announced to the kernel.
        if buffer[1] & !GSO_ECN != GSO_TCPV4 {
            return Some(whole);
        }
        let segment_payload = usize::from(u16::from_ne_bytes([buffer[4], buffer[5]]));
        let tcp_header = usize::from(packet.get(ip_header + DATA_OFFSET)? >> 4) * 4;
        let headers = ip_header + tcp_header;
        let sound = packet[9] == PROTOCOL_TCP
            && segment_payload > 0
            && tcp_header >= TCP_HEADER
            && packet.len() >= headers;
        sound.then(|| Shape { headers, payload: packet.len() - headers, segment_payload, ..whole })
    }

    /// Number of segments, at least one.
    pub fn segments(&self) -> usize {
        self.payload.div_ceil(self.segment_payload).max(1)
    }

    /// Bytes of one segment as an IP packet.
    pub fn segment_bytes(&self, index: usize) -> usize {
        self.headers + self.payload_of(index..index + 1).len()
    }

    fn payload_of(&self, segments: Range<usize>) -> Range<usize> {
        let at = |segment: usize| (segment * self.segment_payload).min(self.payload);
        at(segments.start)..at(segments.end)
    }

    /// Length of a packet that carries only these segments, with its virtio header.
    pub fn train_bytes(&self, segments: Range<usize>) -> usize {
        VNET + self.headers + self.payload_of(segments).len()
    }

    /// Writes these segments of `buffer`, the packet with this shape, to `out` as a packet of their own; `out` has room
    /// for [`Shape::train_bytes`].
    pub fn cut_out(&self, buffer: &[u8], segments: Range<usize>, out: &mut [u8]) {
        let payload = self.payload_of(segments.clone());
        let headers = VNET + self.headers;
        let length = headers + payload.len();
        out[..headers].copy_from_slice(&buffer[..headers]);
        out[headers..length].copy_from_slice(&buffer[headers + payload.start..headers + payload.end]);
        if segments.len() == self.segments() {
            return;
        }
        let (vnet, packet) = out[..length].split_at_mut(VNET);
        fix_vnet(vnet, self.headers, segments.len());
        let (ip, tcp) = packet.split_at_mut(self.ip_header);
        let last = segments.end == self.segments();
        fix_ip(ip, tcp.len(), segments.start);
        fix_tcp(ip, tcp, payload.start, segments.start == 0, last);
    }
}

fn fix_vnet(vnet: &mut [u8], headers: usize, segments: usize) {
    vnet[2..4].copy_from_slice(&(headers as u16).to_ne_bytes());
    if segments == 1 {
        vnet[1] = GSO_NONE;
        vnet[4..6].fill(0);
    }
}

/// Sets the total length, the identification as if the segments had been sent one by one, and the header checksum.
fn fix_ip(ip: &mut [u8], behind: usize, first: usize) {
    let total = ip.len() + behind;
    ip[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    let identification = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(first as u16);
    ip[4..6].copy_from_slice(&identification.to_be_bytes());
    ip[10..12].fill(0);
    let sum = !folded(sum(ip));
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
}

/// Sets the sequence number, the flags that belong to the first or last segment only, and the part of the checksum that
/// a sender with checksum offload computes: the one over the pseudo header.
fn fix_tcp(ip: &[u8], tcp: &mut [u8], skipped: usize, first: bool, last: bool) {
    let old = u32::from_be_bytes([tcp[SEQUENCE], tcp[SEQUENCE + 1], tcp[SEQUENCE + 2], tcp[SEQUENCE + 3]]);
    let sequence = old.wrapping_add(skipped as u32);
    tcp[SEQUENCE..SEQUENCE + 4].copy_from_slice(&sequence.to_be_bytes());
    if !last {
        tcp[FLAGS] &= !FIN_AND_PSH;
    }
    if !first {
        tcp[FLAGS] &= !CWR;
    }
    let pseudo = folded(sum(&ip[12..20]) + u32::from(PROTOCOL_TCP) + tcp.len() as u32);
    tcp[CHECKSUM..CHECKSUM + 2].copy_from_slice(&pseudo.to_be_bytes());
}

fn sum(bytes: &[u8]) -> u32 {
    bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum()
}

fn folded(mut sum: u32) -> u16 {
    while sum >> 16 != 0 {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A packet with TCP payload as the kernel delivers it, with options in both headers.
    fn super_packet(payload: &[u8], segment: u16, flags: u8, sequence: u32) -> Vec<u8> {
        let (ip_header, tcp_header) = (24, 32);
        let mut out = vec![1, GSO_TCPV4, 0, 0, 0, 0, ip_header, 0, CHECKSUM as u8, 0];
        out[2..4].copy_from_slice(&u16::from(ip_header + tcp_header).to_ne_bytes());
        out[4..6].copy_from_slice(&segment.to_ne_bytes());
        out[6..8].copy_from_slice(&u16::from(ip_header).to_ne_bytes());
        let mut ip =
            vec![0x46, 0, 0, 0, 0xff, 0xfe, 0x40, 0, 64, PROTOCOL_TCP, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2];
        ip.extend([1, 1, 1, 1]);
        let mut tcp = vec![0; usize::from(tcp_header)];
        tcp[..4].copy_from_slice(&[0x1d, 0x24, 0xc0, 0x01]);
        tcp[SEQUENCE..SEQUENCE + 4].copy_from_slice(&sequence.to_be_bytes());
        tcp[DATA_OFFSET] = (tcp_header / 4) << 4;
        tcp[FLAGS] = flags;
        tcp.extend(payload);
        fix_ip(&mut ip, tcp.len(), 0);
        fix_tcp(&ip, &mut tcp, 0, true, true);
        out.extend(ip);
        out.extend(tcp);
        out
    }

    /// Checks both checksums over everything, as a receiver does, after completing the checksum offload.
    fn check_sums(packet: &[u8], ip_header: usize) {
        let (ip, tcp) = packet.split_at(ip_header);
        assert_eq!(folded(sum(ip)), 0xffff, "IP header sum");
        assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), packet.len());
        let mut tcp = tcp.to_vec();
        let done = !folded(sum(&tcp));
        tcp[CHECKSUM..CHECKSUM + 2].copy_from_slice(&done.to_be_bytes());
        let pseudo = sum(&ip[12..20]) + u32::from(PROTOCOL_TCP) + tcp.len() as u32;
        assert_eq!(folded(pseudo + sum(&tcp)), 0xffff, "TCP sum");
    }

    #[test]
    fn a_packet_without_offload_is_one_segment() {
        let mut packet = super_packet(&[7; 100], 0, 0x18, 1);
        packet[1] = GSO_NONE;
        let shape = Shape::of(&packet).unwrap();
        assert_eq!((shape.segments(), shape.segment_bytes(0)), (1, packet.len() - VNET));
        assert_eq!(shape.destination, Ipv4Addr::new(10, 77, 0, 2));
    }

    #[test]
    fn cwr_stays_on_the_first_and_fin_psh_on_the_last_segment() {
        let packet = super_packet(&[7; 250], 100, CWR | FIN_AND_PSH | 0x10, 1);
        let shape = Shape::of(&packet).unwrap();
        let mut out = vec![0; packet.len()];
        let flags: Vec<u8> = (0..3)
            .map(|index| {
                shape.cut_out(&packet, index..index + 1, &mut out);
                out[VNET + shape.ip_header + FLAGS]
            })
            .collect();
        assert_eq!(flags, [0x10 | CWR, 0x10, 0x10 | FIN_AND_PSH]);
    }

    #[test]
    fn packets_with_contradictory_headers_are_refused() {
        let good = super_packet(&[7; 250], 100, 0x10, 1);
        let with = |place: usize, value: u8| {
            let mut bad = good.clone();
            bad[place] = value;
            Shape::of(&bad)
        };
        assert!(Shape::of(&good).is_some());
        assert_eq!(with(4, 0), None, "segments without payload");
        assert_eq!(with(VNET, 0x66), None, "IPv6");
        assert_eq!(with(VNET, 0x44), None, "an IP header of 16 bytes");
        assert_eq!(with(VNET + 9, 17), None, "UDP with TCP offload");
        assert_eq!(with(VNET + 24 + DATA_OFFSET, 0x10), None, "a TCP header of 4 bytes");
        assert_eq!(Shape::of(&good[..VNET + 40]), None, "cut off");
    }

    proptest! {
        #[test]
        fn segment_trains_are_valid_packets_that_carry_the_stream(
            payload in proptest::collection::vec(any::<u8>(), 1..6000),
            segment in 1_u16..1500,
            sequence: u32,
            cuts in proptest::collection::vec(1_usize..9, 1..5),
        ) {
            let packet = super_packet(&payload, segment, 0x19, sequence);
            let shape = Shape::of(&packet).unwrap();
            let mut out = vec![0; packet.len()];
            let (mut from, mut carried) = (0, Vec::<u8>::new());
            for step in cuts.iter().cycle() {
                let to = (from + step).min(shape.segments());
                let length = shape.train_bytes(from..to);
                shape.cut_out(&packet, from..to, &mut out);
                let train = &out[..length];
                let found = Shape::of(train).unwrap();
                prop_assert_eq!(found.segments(), to - from);
                let bytes: usize = (from..to).map(|index| shape.segment_bytes(index)).sum();
                prop_assert_eq!(bytes, length - VNET + (to - from - 1) * shape.headers);
                check_sums(&train[VNET..], shape.ip_header);
                let place = VNET + shape.ip_header + SEQUENCE;
                let at = u32::from_be_bytes(train[place..place + 4].try_into().unwrap());
                prop_assert_eq!(at, sequence.wrapping_add(carried.len() as u32));
                carried.extend(&train[VNET + shape.headers..]);
                from = to;
                if from == shape.segments() {
                    break;
                }
            }
            prop_assert_eq!(carried, payload);
        }

        #[test]
        fn arbitrary_packet_bytes_never_cause_a_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), offload: bool) {
            if offload && bytes.len() > VNET {
                (bytes[1], bytes[VNET]) = (GSO_TCPV4, 0x45);
            }
            if let Some(shape) = Shape::of(&bytes) {
                let mut out = vec![0; bytes.len()];
                for index in 0..shape.segments() {
                    prop_assert!(shape.train_bytes(index..index + 1) <= bytes.len());
                    shape.cut_out(&bytes, index..index + 1, &mut out);
                }
            }
        }
    }
}
