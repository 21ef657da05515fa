//! What the threads of a receiver share.

use super::config::ReceiverConfig;
use super::connections::Connections;
use super::counts::ReceiverCounts;
use super::fetch::Fetch;
use super::slot::Slot;
use crate::clock::{Clock, SystemClock};
use crate::lock;
use crate::standby::{ReceiverService, StandbyLog};
use standfast_types::{About, Line, LineBudget};
use std::net::{IpAddr, TcpListener};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Instant;

pub(super) struct Shared {
    pub(super) config: ReceiverConfig,
    pub(super) service: Arc<dyn ReceiverService>,
    pub(super) slot: Slot,
    pub(super) fetch: Mutex<Option<Arc<Fetch>>>,
    pub(super) counts: Arc<ReceiverCounts>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) listener: TcpListener,
    pub(super) stopping: AtomicBool,
    pub(super) connections: Mutex<Connections>,
    pub(super) began: Instant,
    lines: Mutex<LineBudget>,
}

impl Shared {
    pub fn new(
        config: ReceiverConfig,
        service: Arc<dyn ReceiverService>,
        log: Option<Box<dyn StandbyLog>>,
        listener: TcpListener,
    ) -> Shared {
        let connections = Connections::new(config.limits);
        Shared {
            config,
            service,
            slot: Slot::new(log),
            fetch: Mutex::default(),
            counts: Arc::default(),
            clock: Arc::new(SystemClock),
            listener,
            stopping: AtomicBool::new(false),
            connections: Mutex::new(connections),
            began: Instant::now(),
            lines: Mutex::default(),
        }
    }

    /// The peer is authenticated and accepted: the limits for unauthenticated peers no longer count this connection.
    pub fn authenticated(&self, id: u64) {
        let connections = &mut *lock(&self.connections);
        if let Some(unauthenticated) =
            connections.live.get_mut(&id).and_then(|live| live.unauthenticated.take())
        {
            connections.admission.authenticated(unauthenticated);
        }
    }

    /// Delays further connections of an address that has guessed.
    pub fn penalise(&self, from: IpAddr) {
        lock(&self.connections).admission.penalise(self.began.elapsed(), from);
    }

    /// Returns the subject of an alert log line about a peer at `from`, of which TLS has proved the name `proved`.
    pub fn about(&self, from: IpAddr, proved: Option<&str>) -> About {
        match proved {
            Some(name) => About::Member(name.to_owned()),
            None => About::unauthenticated(from, lock(&self.connections).admission.is_known(from)),
        }
    }

    /// Charges an alert log line about a peer to the budget of that peer.
    pub fn line(&self, about: &About, text: &str) -> Line {
        lock(&self.lines).line(self.began.elapsed(), about, text)
    }
}
