//! Which new connections are served: bounds on those that have not yet said who they are. No clock and no sockets.
//!
//! What a stranger can take is limited per address before it is limited in all, so that one address cannot keep the
//! others out. An address from which a peer has introduced itself is *known*: bounds in all, which strangers from many
//! addresses can reach together, do not count for it.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Bounds. Rates are in connections a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at a time that have not introduced themselves.
    pub strangers_max: usize,
    /// The same, of one address.
    pub strangers_per_address: usize,
    /// New connections of one address, on average.
    pub rate_per_address: u32,
    /// New connections in all, on average.
    pub rate: u32,
    /// Seconds of either rate that may come at once.
    pub burst_seconds: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            strangers_max: 64,
            strangers_per_address: 24,
            rate_per_address: 50,
            rate: 200,
            burst_seconds: 4,
        }
    }
}

/// Addresses about which something is remembered; others share one entry.
const ADDRESSES_MAX: usize = 1024;
/// By how much a wrong guess delays what its address may do next.
const PENALTY: Duration = Duration::from_secs(1);
/// Addresses that are known.
const KNOWN_MAX: usize = 64;

/// Why a connection is closed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnedAway {
    /// Too many that have not introduced themselves.
    Strangers,
    /// Too many in too short a time.
    Rate,
}

/// See the module. Times are since any fixed moment.
pub(crate) struct Admission {
    limits: Limits,
    strangers: usize,
    pace: Pace,
    addresses: HashMap<IpAddr, Address>,
    /// Newest last.
    known: VecDeque<IpAddr>,
}

#[derive(Default)]
struct Address {
    strangers: usize,
    pace: Pace,
}

impl Admission {
    pub fn new(limits: Limits) -> Admission {
        Admission {
            limits,
            strangers: 0,
            pace: Pace::default(),
            addresses: HashMap::new(),
            known: VecDeque::new(),
        }
    }

    /// Whether a connection from `from` is served. If so, it counts as a stranger until `introduced` or `left`.
    pub fn admit(&mut self, now: Duration, from: IpAddr) -> Result<Stranger, TurnedAway> {
        let limits = self.limits;
        let own = network(from);
        let known = self.known.contains(&own);
        let counted_as = if known { own } else { self.place(now, own) };
        if !known && self.strangers >= limits.strangers_max {
            return Err(TurnedAway::Strangers);
        }
        let address = self.addresses.entry(counted_as).or_default();
        if address.strangers >= limits.strangers_per_address {
            return Err(TurnedAway::Strangers);
        }
        let (each, all) = (limits.rate_per_address, limits.rate);
        if !address.pace.allows(now, each, limits.burst_seconds)
            || !known && !self.pace.allows(now, all, limits.burst_seconds)
        {
            return Err(TurnedAway::Rate);
        }
        address.pace.count(now, each);
        address.strangers += 1;
        self.pace.count(now, all);
        self.strangers += 1;
        Ok(Stranger { own, counted_as })
    }

    /// It has said who it is, and that was accepted.
    pub fn introduced(&mut self, stranger: Stranger) {
        let own = stranger.own;
        self.left(stranger);
        self.known.retain(|known| *known != own);
        if self.known.len() == KNOWN_MAX {
            self.known.pop_front();
        }
        self.known.push_back(own);
    }

    /// It is gone.
    pub fn left(&mut self, stranger: Stranger) {
        self.strangers -= 1;
        if let Some(address) = self.addresses.get_mut(&stranger.counted_as) {
            address.strangers -= 1;
        }
    }

    /// Somebody there tried something that only a guess leads to: the next attempts have to wait.
    pub fn penalise(&mut self, now: Duration, from: IpAddr) {
        if let Some(address) = self.addresses.get_mut(&network(from)) {
            address.pace.paid_off = address.pace.paid_off.max(now) + PENALTY;
        }
    }

    /// Strangers at the moment.
    #[cfg(test)]
    pub fn strangers(&self) -> usize {
        self.strangers
    }

    /// Under which address `own` is counted.
    fn place(&mut self, now: Duration, own: IpAddr) -> IpAddr {
        if self.addresses.contains_key(&own) {
            return own;
        }
        if self.addresses.len() >= ADDRESSES_MAX {
            self.addresses.retain(|_, address| address.strangers > 0 || !address.pace.is_rested(now));
        }
        if self.addresses.len() >= ADDRESSES_MAX { OTHERS } else { own }
    }
}

/// A connection that has not introduced itself; given back with `introduced` or `left`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Stranger {
    own: IpAddr,
    counted_as: IpAddr,
}

/// Stands for all addresses for which there is no entry.
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// What one host has: an address of version 4, a network of 64 bits of version 6.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) if !v6.is_loopback() => {
            let mut parts = v6.segments();
            parts[4..].fill(0);
            IpAddr::V6(parts.into())
        }
        other => other,
    }
}

/// A rate with bursts: when everything counted so far is paid off.
#[derive(Default)]
struct Pace {
    paid_off: Duration,
}

impl Pace {
    fn allows(&self, now: Duration, rate: u32, burst_seconds: u32) -> bool {
        self.paid_off.saturating_sub(now) + each(rate) <= Duration::from_secs(burst_seconds.into())
    }

    fn count(&mut self, now: Duration, rate: u32) {
        self.paid_off = self.paid_off.max(now) + each(rate);
    }

    fn is_rested(&self, now: Duration) -> bool {
        self.paid_off <= now
    }
}

fn each(rate: u32) -> Duration {
    Duration::from_secs(1) / rate.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        strangers_max: 4,
        strangers_per_address: 2,
        rate_per_address: 10,
        rate: 1000,
        burst_seconds: 1,
    };

    fn host(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    fn at(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn one_address_cannot_keep_another_one_out() {
        let mut admission = Admission::new(LIMITS);
        let first = admission.admit(at(0.), host(1)).unwrap();
        admission.admit(at(0.), host(1)).unwrap();
        assert_eq!(admission.admit(at(0.), host(1)), Err(TurnedAway::Strangers));
        admission.admit(at(0.), host(2)).unwrap();
        admission.left(first);
        admission.admit(at(0.), host(1)).unwrap();
        assert_eq!(admission.strangers(), 3);
    }

    #[test]
    fn a_known_address_gets_in_whatever_strangers_do() {
        let mut admission = Admission::new(LIMITS);
        let peer = admission.admit(at(0.), host(9)).unwrap();
        admission.introduced(peer);
        for last in 1..=4 {
            admission.admit(at(0.), host(last)).unwrap();
        }
        assert_eq!(admission.admit(at(0.), host(5)), Err(TurnedAway::Strangers));
        admission.admit(at(0.), host(9)).unwrap();
        assert_eq!(admission.strangers(), 5);
    }

    #[test]
    fn an_address_gets_its_rate_and_a_burst() {
        let mut admission = Admission::new(LIMITS);
        let mut served = |now| admission.admit(now, host(1)).map(|stranger| admission.left(stranger)).is_ok();
        assert_eq!((0..100).filter(|_| served(at(0.))).count(), 10, "one second at once");
        assert_eq!((1..=100).filter(|n| served(at(f64::from(*n) / 20.))).count(), 50, "then the rate");
    }

    #[test]
    fn all_addresses_together_have_a_rate_too() {
        let mut admission = Admission::new(Limits { strangers_max: 1000, rate: 20, ..LIMITS });
        let served = (1..=200).filter(|last| admission.admit(at(0.), host(*last)).is_ok()).count();
        assert_eq!(served, 20);
    }

    #[test]
    fn what_is_remembered_of_addresses_is_bounded_and_old_entries_make_room() {
        let mut admission = Admission::new(Limits { strangers_max: 1000, rate: 1_000_000, ..LIMITS });
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        for n in 1..=ADDRESSES_MAX as u32 * 4 {
            if let Ok(stranger) = admission.admit(at(0.), address(n)) {
                admission.left(stranger);
            }
        }
        assert!(admission.addresses.len() <= ADDRESSES_MAX + 1);
        assert!(admission.admit(at(0.), address(1 << 20)).is_err(), "those without an entry share one");
        assert!(admission.admit(at(60.), address(1 << 20)).is_ok());
        assert!(admission.addresses.len() <= 2, "rested entries are forgotten when room is needed");
    }

    #[test]
    fn a_host_of_version_6_cannot_multiply_itself() {
        let mut admission = Admission::new(LIMITS);
        let host = |n: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, n]);
        let served = (0..10).filter(|n| admission.admit(at(0.), host(*n)).is_ok()).count();
        assert_eq!(served, LIMITS.strangers_per_address);
    }
}
