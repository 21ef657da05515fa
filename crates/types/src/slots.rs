//! Decides which connections of a listener stay when there are more than it serves. No clock and no sockets.
//!
//! A connection is *unauthenticated* until it has stated what it wants and proved that it may; then it is
//! *authenticated*, for which there are separate slots. A new connection always gets a slot. If necessary another
//! connection loses its slot: the oldest of the same address if that address already has its share, otherwise the
//! oldest of the address with the most connections. So a client that immediately says what it wants is served, however
//! many silent or slow clients there are, and one address cannot displace another one that has fewer connections.
//! Addresses from which a client was authenticated before are displaced last.

use crate::host_network;
use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotLimits {
    /// Unauthenticated connections at the same time.
    pub unauthenticated: usize,
    /// Unauthenticated connections from one address at the same time.
    pub per_address: usize,
    /// Authenticated connections at the same time.
    pub authenticated: usize,
}

/// Number of addresses that are remembered as known.
const KNOWN_MAX: usize = 64;

struct Slot {
    id: u64,
    network: IpAddr,
    authenticated: bool,
}

/// The connections that have a slot, oldest first.
pub struct Slots {
    limits: SlotLimits,
    taken: VecDeque<Slot>,
    /// Addresses from which a client was authenticated, newest last.
    known: VecDeque<IpAddr>,
}

impl Slots {
    pub fn new(limits: SlotLimits) -> Slots {
        Slots { limits, taken: VecDeque::new(), known: VecDeque::new() }
    }

    /// Gives the connection `id` from `from` a slot. Returns the connection that lost its slot and must be closed.
    pub fn enter(&mut self, id: u64, from: IpAddr) -> Option<u64> {
        let network = host_network(from);
        let waiting = |slot: &Slot| !slot.authenticated;
        let own = self.taken.iter().filter(|slot| waiting(slot) && slot.network == network).count();
        let displaced = if own >= self.limits.per_address {
            self.remove_oldest(|slot| waiting(slot) && slot.network == network)
        } else if self.taken.iter().filter(|slot| waiting(slot)).count() >= self.limits.unauthenticated {
            self.heaviest(false).and_then(|of| self.remove_oldest(|slot| waiting(slot) && slot.network == of))
        } else {
            None
        };
        self.taken.push_back(Slot { id, network, authenticated: false });
        displaced
    }

    /// Marks the connection `id` as authenticated. Returns another connection that lost its slot for it.
    pub fn authenticated(&mut self, id: u64) -> Option<u64> {
        let at = self.taken.iter().position(|slot| slot.id == id && !slot.authenticated)?;
        let network = self.taken[at].network;
        self.known.retain(|known| *known != network);
        if self.known.len() == KNOWN_MAX {
            self.known.pop_front();
        }
        self.known.push_back(network);
        let full = self.taken.iter().filter(|slot| slot.authenticated).count() >= self.limits.authenticated;
        let displaced = match full {
            true => self
                .heaviest(true)
                .and_then(|of| self.remove_oldest(|slot| slot.authenticated && slot.network == of)),
            false => None,
        };
        if let Some(slot) = self.taken.iter_mut().find(|slot| slot.id == id) {
            slot.authenticated = true;
        }
        displaced
    }

    /// Frees the slot of the connection `id`, which is gone.
    pub fn leave(&mut self, id: u64) {
        self.taken.retain(|slot| slot.id != id);
    }

    /// Removes the oldest unauthenticated connection, e.g. when the process has no descriptor left.
    pub fn give_up_oldest(&mut self) -> Option<u64> {
        self.remove_oldest(|slot| !slot.authenticated)
    }

    fn remove_oldest(&mut self, which: impl Fn(&Slot) -> bool) -> Option<u64> {
        let at = self.taken.iter().position(which)?;
        self.taken.remove(at).map(|slot| slot.id)
    }

    /// Returns the address with the most connections of this kind; a known address only when there is no other. Of
    /// several addresses, the one whose oldest connection is oldest.
    fn heaviest(&self, authenticated: bool) -> Option<IpAddr> {
        let mut counts: HashMap<IpAddr, (bool, usize, usize)> = HashMap::new();
        for (age, slot) in self.taken.iter().filter(|slot| slot.authenticated == authenticated).enumerate() {
            let known = !authenticated && self.known.contains(&slot.network);
            let entry = counts.entry(slot.network).or_insert((!known, 0, usize::MAX - age));
            entry.1 += 1;
        }
        counts.into_iter().max_by_key(|(_, weight)| *weight).map(|(network, _)| network)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: SlotLimits = SlotLimits { unauthenticated: 8, per_address: 4, authenticated: 2 };

    fn host(last: u8) -> IpAddr {
        [203, 0, 113, last].into()
    }

    #[test]
    fn address_at_its_limit_displaces_its_own_oldest() {
        let mut slots = Slots::new(LIMITS);
        assert!((0..4).all(|id| slots.enter(id, host(1)).is_none()));
        assert_eq!(slots.enter(4, host(1)), Some(0));
        assert_eq!(slots.enter(5, host(2)), None);
    }

    #[test]
    fn full_table_displaces_one_of_the_busiest_address() {
        let mut slots = Slots::new(LIMITS);
        for id in 0..4 {
            slots.enter(id, host(1));
        }
        for id in 4..7 {
            slots.enter(id, host(2));
        }
        slots.enter(7, host(3));
        assert_eq!(slots.enter(8, host(4)), Some(0));
        assert_eq!(slots.enter(9, host(5)), Some(1));
    }

    #[test]
    fn silent_flood_does_not_displace_an_authenticated_client() {
        let mut slots = Slots::new(LIMITS);
        slots.enter(0, host(9));
        assert_eq!(slots.authenticated(0), None);
        let displaced: Vec<u64> = (1..50_000).filter_map(|id| slots.enter(id, host(id as u8 % 8))).collect();
        assert!(!displaced.contains(&0) && displaced.len() == 50_000 - 1 - 8);
        assert_eq!(slots.taken.len(), 9);
    }

    #[test]
    fn known_address_is_displaced_last() {
        let mut slots = Slots::new(SlotLimits { per_address: 1, ..LIMITS });
        slots.enter(0, host(100));
        slots.authenticated(0);
        slots.leave(0);
        slots.enter(1, host(100));
        let displaced: Vec<u64> = (2..200).filter_map(|id| slots.enter(id, host(id as u8 % 90))).collect();
        assert!(displaced.len() > 100 && !displaced.contains(&1));
    }

    #[test]
    fn authenticated_connections_are_bounded_too() {
        let mut slots = Slots::new(LIMITS);
        for id in 0..3 {
            slots.enter(id, host(id as u8));
        }
        assert_eq!((slots.authenticated(0), slots.authenticated(1)), (None, None));
        assert_eq!(slots.authenticated(2), Some(0));
        slots.leave(1);
        slots.enter(3, host(3));
        assert_eq!(slots.authenticated(3), None);
    }
}
