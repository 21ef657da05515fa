//! Which new connections are served: limits for unauthenticated peers. No clock and no sockets.
//!
//! Limits apply per address before they apply in all, so that one address cannot keep the others out. An address from
//! which a peer has authenticated is *known*: the limits in all, which unauthenticated peers from many addresses can
//! reach together, do not apply to it. Of the other addresses, one that has fewer unauthenticated connections than
//! another displaces one of that address. An address that seldom connects has a rate that frequently connecting
//! addresses cannot use up. So during a flood from fewer addresses than there are places, a peer that connects for the
//! first time gets in. Unauthenticated peers of this host, which have millions of loopback addresses, together get half
//! of the limits in all.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Limits. Rates are in connections per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub unauthenticated_max: usize,
    /// Unauthenticated connections at a time, per address.
    pub unauthenticated_per_address: usize,
    /// Mean rate of new connections, per address.
    pub rate_per_address: u32,
    /// Mean rate of new connections, in all.
    pub rate: u32,
    /// Size of a burst: this many seconds of either rate at once.
    pub burst_seconds: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            unauthenticated_max: 64,
            unauthenticated_per_address: 24,
            rate_per_address: 50,
            rate: 200,
            burst_seconds: 4,
        }
    }
}

/// Addresses with an entry of their own; all others share one entry.
const ADDRESSES_MAX: usize = 1024;
/// Delay of an address's next connections for each wrong guess.
const PENALTY: Duration = Duration::from_secs(1);
/// Most known addresses.
const KNOWN_MAX: usize = 64;
/// Rate, in connections per second, of an address that seldom connects, and its burst in seconds.
const SELDOM: u32 = 1;
const SELDOM_BURST_SECONDS: u32 = 3;

/// Why a connection is closed immediately.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnedAway {
    TooManyUnauthenticated,
    /// Too many connections in too short a time.
    Rate,
}

/// State of the limits. Times are since any fixed moment.
pub(crate) struct Admission {
    limits: Limits,
    all: Pool,
    /// Connections from loopback addresses; `all` counts them too.
    local: Pool,
    addresses: HashMap<IpAddr, Address>,
    /// Newest last.
    known: VecDeque<IpAddr>,
}

#[derive(Default)]
struct Address {
    unauthenticated: usize,
    pace: Pace,
    seldom: Pace,
}

/// Unauthenticated connections that share limits.
#[derive(Default)]
struct Pool {
    unauthenticated: usize,
    /// For addresses that often connect, and for addresses that seldom do.
    often: Pace,
    seldom: Pace,
}

impl Pool {
    fn pace(&mut self, seldom: bool) -> &mut Pace {
        if seldom { &mut self.seldom } else { &mut self.often }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// Must be returned to the [`Admission`] when the peer is authenticated or gone.
    pub unauthenticated: Unauthenticated,
    /// The oldest unauthenticated connection counted for this address must be closed, see [`Unauthenticated::is_of`].
    pub displaces: Option<IpAddr>,
}

impl Admission {
    pub fn new(limits: Limits) -> Admission {
        Admission {
            limits,
            all: Pool::default(),
            local: Pool::default(),
            addresses: HashMap::new(),
            known: VecDeque::new(),
        }
    }

    /// Decides whether a connection from `from` is served. If so, it counts as unauthenticated until `authenticated` or
    /// `left`.
    pub fn admit(&mut self, now: Duration, from: IpAddr) -> Result<Admitted, TurnedAway> {
        let limits = self.limits;
        let own = network(from);
        let known = self.known.contains(&own);
        let counted_as = if known { own } else { self.place(now, own) };
        let local = own.is_loopback();
        let full = !known && self.all.unauthenticated >= limits.unauthenticated_max;
        let local_full = !known && local && self.local.unauthenticated >= limits.unauthenticated_max / 2;
        let displaces = if full || local_full { self.heaviest(local_full) } else { None };
        let address = self.addresses.entry(counted_as).or_default();
        if (full || local_full) && displaces.is_none_or(|(_, most)| most <= address.unauthenticated + 1)
            || address.unauthenticated >= limits.unauthenticated_per_address
        {
            return Err(TurnedAway::TooManyUnauthenticated);
        }
        let seldom = address.seldom.allows(now, SELDOM, SELDOM_BURST_SECONDS);
        let pools = [(&mut self.all, limits.rate, true), (&mut self.local, limits.rate / 2, local)];
        let mut pools = pools.into_iter().filter(|(_, _, counts)| *counts).collect::<Vec<_>>();
        let allowed = |(pool, rate, _): &mut (&mut Pool, u32, bool)| {
            pool.pace(seldom).allows(now, *rate, limits.burst_seconds)
        };
        if !address.pace.allows(now, limits.rate_per_address, limits.burst_seconds)
            || !known && !pools.iter_mut().all(allowed)
        {
            return Err(TurnedAway::Rate);
        }
        for (pool, rate, _) in pools {
            pool.pace(seldom).count(now, rate);
            pool.unauthenticated += 1;
        }
        if seldom {
            address.seldom.count(now, SELDOM);
        }
        address.pace.count(now, limits.rate_per_address);
        address.unauthenticated += 1;
        let displaces = displaces.map(|(address, _)| address);
        Ok(Admitted { unauthenticated: Unauthenticated { own, counted_as }, displaces })
    }

    /// The peer is authenticated and accepted.
    pub fn authenticated(&mut self, unauthenticated: Unauthenticated) {
        let own = unauthenticated.own;
        self.left(unauthenticated);
        self.known.retain(|known| *known != own);
        if self.known.len() == KNOWN_MAX {
            self.known.pop_front();
        }
        self.known.push_back(own);
    }

    pub fn left(&mut self, unauthenticated: Unauthenticated) {
        self.all.unauthenticated -= 1;
        self.local.unauthenticated -= usize::from(unauthenticated.own.is_loopback());
        if let Some(address) = self.addresses.get_mut(&unauthenticated.counted_as) {
            address.unauthenticated -= 1;
        }
    }

    /// A peer at this address tried something that only a guess leads to: its next connections are delayed.
    pub fn penalise(&mut self, now: Duration, from: IpAddr) {
        if let Some(address) = self.addresses.get_mut(&network(from)) {
            address.pace.paid_off = address.pace.paid_off.max(now) + PENALTY;
        }
    }

    /// Whether a peer has authenticated from this address.
    pub fn is_known(&self, from: IpAddr) -> bool {
        self.known.contains(&network(from))
    }

    /// Returns the address with the most unauthenticated connections that is not known, and their number; `local`:
    /// among loopback addresses.
    fn heaviest(&self, local: bool) -> Option<(IpAddr, usize)> {
        let of_pool = |address: &IpAddr| !local || address.is_loopback();
        let strange =
            self.addresses.iter().filter(|(address, _)| of_pool(address) && !self.known.contains(address));
        strange
            .map(|(address, of)| (*address, of.unauthenticated))
            .max_by_key(|(address, most)| (*most, *address))
    }

    /// Number of unauthenticated connections.
    #[cfg(test)]
    pub fn unauthenticated(&self) -> usize {
        self.all.unauthenticated
    }

    /// Returns the address under which `own` is counted.
    fn place(&mut self, now: Duration, own: IpAddr) -> IpAddr {
        if self.addresses.contains_key(&own) {
            return own;
        }
        if self.addresses.len() >= ADDRESSES_MAX {
            self.addresses.retain(|_, address| address.unauthenticated > 0 || !address.pace.is_rested(now));
        }
        if self.addresses.len() >= ADDRESSES_MAX { OTHERS } else { own }
    }
}

/// An unauthenticated connection; returned with `authenticated` or `left`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unauthenticated {
    own: IpAddr,
    counted_as: IpAddr,
}

impl Unauthenticated {
    /// Whether the connection is counted for `address`.
    pub fn is_of(&self, address: IpAddr) -> bool {
        self.counted_as == address
    }
}

/// Stands for all addresses without an entry of their own.
const OTHERS: IpAddr = IpAddr::V6(Ipv6Addr::UNSPECIFIED);

/// Returns the address range of one host: an IPv4 address, or an IPv6 network of 64 bits.
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

/// A rate with bursts. `paid_off`: when everything counted so far is within the rate.
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
        unauthenticated_max: 4,
        unauthenticated_per_address: 2,
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
        let first = admission.admit(at(0.), host(1)).unwrap().unauthenticated;
        admission.admit(at(0.), host(1)).unwrap();
        assert_eq!(admission.admit(at(0.), host(1)), Err(TurnedAway::TooManyUnauthenticated));
        admission.admit(at(0.), host(2)).unwrap();
        admission.left(first);
        admission.admit(at(0.), host(1)).unwrap();
        assert_eq!(admission.unauthenticated(), 3);
    }

    #[test]
    fn known_address_is_admitted_despite_unauthenticated_peers() {
        let mut admission = Admission::new(LIMITS);
        let peer = admission.admit(at(0.), host(9)).unwrap().unauthenticated;
        admission.authenticated(peer);
        for last in 1..=4 {
            admission.admit(at(0.), host(last)).unwrap();
        }
        assert_eq!(admission.admit(at(0.), host(5)), Err(TurnedAway::TooManyUnauthenticated));
        admission.admit(at(0.), host(9)).unwrap();
        assert_eq!(admission.unauthenticated(), 5);
    }

    #[test]
    fn address_is_limited_to_its_rate_and_a_burst() {
        let mut admission = Admission::new(LIMITS);
        let mut served = |now| {
            admission.admit(now, host(1)).map(|admitted| admission.left(admitted.unauthenticated)).is_ok()
        };
        assert_eq!((0..100).filter(|_| served(at(0.))).count(), 10, "one second at once");
        assert_eq!((1..=100).filter(|n| served(at(f64::from(*n) / 20.))).count(), 50, "then the rate");
    }

    #[test]
    fn total_rate_of_all_addresses_is_limited() {
        let mut admission = Admission::new(Limits { unauthenticated_max: 1000, rate: 20, ..LIMITS });
        let served = (1..=200).filter(|last| admission.admit(at(0.), host(*last)).is_ok()).count();
        assert_eq!(served, 20);
    }

    #[test]
    fn address_table_is_bounded_and_evicts_rested_entries() {
        let mut admission = Admission::new(Limits { unauthenticated_max: 1000, rate: 1_000_000, ..LIMITS });
        let address = |n: u32| IpAddr::from(n.to_be_bytes());
        for n in 1..=ADDRESSES_MAX as u32 * 4 {
            if let Ok(admitted) = admission.admit(at(0.), address(n)) {
                admission.left(admitted.unauthenticated);
            }
        }
        assert!(admission.addresses.len() <= ADDRESSES_MAX + 1);
        assert!(admission.admit(at(0.), address(1 << 20)).is_err(), "those without an entry share one");
        assert!(admission.admit(at(60.), address(1 << 20)).is_ok());
        assert!(admission.addresses.len() <= 2, "rested entries are forgotten when room is needed");
    }

    #[test]
    fn first_connection_displaces_one_of_the_busiest_address() {
        let mut admission = Admission::new(LIMITS);
        for last in [1, 1, 2, 2] {
            assert_eq!(admission.admit(at(0.), host(last)).unwrap().displaces, None);
        }
        let newcomer = admission.admit(at(0.), host(3)).unwrap();
        assert_eq!(newcomer.displaces, Some(host(2)));
        assert!(newcomer.unauthenticated.is_of(host(3)));
    }

    #[test]
    fn flood_does_not_use_up_the_rate_of_rare_addresses() {
        let limits =
            Limits { unauthenticated_max: 1000, unauthenticated_per_address: 1000, rate: 20, ..LIMITS };
        let mut admission = Admission::new(limits);
        for n in 0..5000_u32 {
            let now = at(f64::from(n) / 500.);
            if let Ok(admitted) = admission.admit(now, host(n as u8 % 10)) {
                admission.left(admitted.unauthenticated);
            }
        }
        assert!(admission.admit(at(10.), host(200)).is_ok());
    }

    #[test]
    fn local_unauthenticated_peers_leave_half_to_other_hosts() {
        let limits = Limits { unauthenticated_max: 8, ..LIMITS };
        let mut admission = Admission::new(limits);
        let local = |n: u8| IpAddr::from([127, 0, 0, n]);
        let served = (1..=200).filter(|n| admission.admit(at(0.), local(*n)).is_ok()).count();
        assert_eq!(served, 4);
        assert_eq!(admission.admit(at(0.), host(1)).unwrap().displaces, None);
    }

    #[test]
    fn ipv6_network_counts_as_one_address() {
        let mut admission = Admission::new(LIMITS);
        let host = |n: u16| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, n]);
        let served = (0..10).filter(|n| admission.admit(at(0.), host(*n)).is_ok()).count();
        assert_eq!(served, LIMITS.unauthenticated_per_address);
    }
}
