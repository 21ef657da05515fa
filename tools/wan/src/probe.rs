//! Age of a packet when the emulator first sees it. A waiting thread is woken only when the packet is there, which
//! takes time on a sleeping processor. Packets that carry the time at which they were sent measure this age; the delay
//! of a link then begins when a packet was sent.

use crate::clock::Clock;
use crate::settings::Nanos;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

/// Destination of the probes. No node has this address, so no link sees them.
pub const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 254);
const COUNT: usize = 21;
/// Time in which the processor falls asleep again, as it does between the packets of a round trip.
const PAUSE: Duration = Duration::from_millis(1);
/// Upper limit of the age that is used. A higher value comes from other work on the machine, which varies, or from a
/// deeper sleep than between the packets of a round trip. Subtracting too much would make a link shorter than
/// configured.
const MOST: Nanos = 20_000;

/// The ages measured so far, sorted.
#[derive(Debug, Default)]
pub struct Probes(Vec<Nanos>);

impl Probes {
    /// Takes a probe that was read at `now`; its last eight bytes say when it was sent.
    pub fn saw(&mut self, now: Nanos, packet: &[u8]) {
        let Some(sent) = packet.last_chunk() else { return };
        // A node may send any number of packets to this address.
        if self.0.len() < COUNT {
            let age = now.saturating_sub(u64::from_ne_bytes(*sent));
            self.0.insert(self.0.partition_point(|other| *other < age), age);
        }
    }

    /// The median age, at most 20 us.
    pub fn age(&self) -> Nanos {
        self.0.get(self.0.len() / 2).copied().unwrap_or(0).min(MOST)
    }
}

/// Sends the probes of a node; must run on a thread in its namespace.
pub fn send(clock: Clock) -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    for _ in 0..COUNT {
        std::thread::sleep(PAUSE);
        socket.send_to(&clock.now().to_ne_bytes(), (ADDRESS, 9))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probe_age_is_the_median_and_capped_on_a_busy_machine() {
        let mut probes = Probes::default();
        assert_eq!(probes.age(), 0);
        for age in [9_000, 8_000_000, 12_000] {
            probes.saw(10_000_000, &(10_000_000_u64 - age).to_ne_bytes());
        }
        assert_eq!(probes.age(), 12_000);
        (0..100).for_each(|_| probes.saw(10_000_000, &0_u64.to_ne_bytes()));
        assert_eq!(probes.age(), MOST);
    }

    #[test]
    fn malformed_probe_replies_are_ignored() {
        let mut probes = Probes::default();
        probes.saw(5, &[1, 2]);
        probes.saw(5, &[0xff; 40]);
        assert_eq!(probes.age(), 0);
    }
}
