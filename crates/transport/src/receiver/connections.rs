//! The open connections of a receiver, and which of them are unauthenticated.

use super::admission::{Admission, Limits, Unauthenticated};
use crate::link::LinkEnd;
use std::collections::HashMap;
use std::net::IpAddr;
use std::thread::JoinHandle;

pub(super) struct Connections {
    pub(super) next: u64,
    pub(super) live: HashMap<u64, Live>,
    pub(super) admission: Admission,
    pub(super) threads: HashMap<u64, JoinHandle<()>>,
}

pub(super) struct Live {
    pub(super) stream: LinkEnd,
    /// `None` once the peer is authenticated.
    pub(super) unauthenticated: Option<Unauthenticated>,
}

impl Connections {
    pub fn new(limits: Limits) -> Connections {
        Connections {
            next: 0,
            live: HashMap::new(),
            admission: Admission::new(limits),
            threads: HashMap::new(),
        }
    }

    pub fn end(&mut self, id: u64) {
        if let Some(unauthenticated) = self.live.remove(&id).and_then(|live| live.unauthenticated) {
            self.admission.left(unauthenticated);
        }
    }

    /// Closes the oldest unauthenticated connection of an address; its thread ends.
    pub fn displace(&mut self, address: IpAddr) {
        let of_address = |live: &Live| {
            live.unauthenticated.as_ref().is_some_and(|unauthenticated| unauthenticated.is_of(address))
        };
        let oldest = self.live.iter().filter(|(_, live)| of_address(live)).map(|(id, _)| *id).min();
        if let Some(live) = oldest.and_then(|id| self.live.get_mut(&id)) {
            live.stream.shutdown();
            if let Some(unauthenticated) = live.unauthenticated.take() {
                self.admission.left(unauthenticated);
            }
        }
    }
}
