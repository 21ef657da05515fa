//! The state of a sender, as a machine: the destination, what is published of it, and what is decided about its
//! connection. It has no thread and no socket, and reads the time from a [`Clock`].
//!
//! ```text
//!  connect_due ──> Greeting ──> begin ──> feed, offer ──> bytes
//!                                         AckStream::take <── acknowledgements
//!                                         tick, ended, failed ──> Destination ──> required, acknowledged
//! ```

use super::config::SenderConfig;
use super::failure::{Ended, Failure};
use super::open_gap::OpenGap;
use crate::clock::Clock;
use crate::destination::{Destination, Phase};
use crate::destination_config::TransportMode;
use crate::destination_set::Slot;
use crate::event::SenderEvent;
use crate::identity::Role;
use crate::lock;
use crate::source::{RedoSource, SenderObserver};
use crate::stats::DestinationStats;
use standfast_instruments::RemoteAnswer;
use standfast_types::{IncarnationId, Scn};
use std::collections::HashSet;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub struct SenderCore {
    index: usize,
    pub(super) config: SenderConfig,
    pub(super) source: Arc<dyn RedoSource>,
    pub(super) observer: Arc<dyn SenderObserver>,
    pub(super) clock: Arc<dyn Clock>,
    began: Instant,
    pub(super) destination: Mutex<Destination>,
    /// Copies of the destination's state, so that a release takes no lock.
    acknowledged: AtomicU64,
    /// Epoch of the source to which `acknowledged` belongs; odd: none.
    pub(super) acknowledged_epoch: AtomicU64,
    required: AtomicBool,
    /// [`Destination::shortest_wait`] and [`Destination::waited_for_since`], microseconds.
    wait: AtomicU64,
    wait_since: AtomicU64,
    /// The state as the other destinations of the set see it.
    slot: Arc<Slot>,
    /// End of the redo that the log writer has offered. Beyond it the feeder sends only durable redo: which log other
    /// redo goes to is not decided, and on a quiet stream the feeder would only compete with the log writer.
    pub(super) offered: AtomicU64,
    pub(super) last_error: Mutex<Option<String>>,
    pub(super) role: Mutex<Option<Role>>,
    /// Archived logs here are valid archived logs there. If false, missing redo comes over the stream.
    pub(super) shares_logs: AtomicBool,
    pub(super) gap: Mutex<Option<Arc<OpenGap>>>,
    /// Archived logs that could not be sent; later gaps exclude them.
    pub(super) unusable: Mutex<HashSet<(IncarnationId, u64)>>,
    pub(super) stats: DestinationStats,
}

/// Result of a change of the destination.
struct Changes {
    moved: bool,
    events: Vec<SenderEvent>,
}

impl SenderCore {
    /// `index` is passed to the observer.
    pub fn new(
        index: usize,
        config: SenderConfig,
        source: Arc<dyn RedoSource>,
        observer: Arc<dyn SenderObserver>,
        clock: Arc<dyn Clock>,
    ) -> SenderCore {
        let destination = Destination::new(config.destination.clone(), config.counts, Duration::ZERO);
        let core = SenderCore {
            index,
            required: AtomicBool::new(destination.is_required()),
            wait: AtomicU64::new(0),
            wait_since: AtomicU64::new(u64::MAX),
            acknowledged: AtomicU64::new(0),
            acknowledged_epoch: AtomicU64::new(1),
            slot: config.destination_set.sit(),
            destination: Mutex::new(destination),
            config,
            source,
            observer,
            began: clock.now(),
            clock,
            offered: AtomicU64::new(0),
            last_error: Mutex::default(),
            role: Mutex::default(),
            shares_logs: AtomicBool::new(true),
            gap: Mutex::default(),
            unusable: Mutex::default(),
            stats: DestinationStats::default(),
        };
        // Publishes the initial state, also to the other destinations.
        core.with_destination(|_, _| ());
        core
    }

    /// Time on the destination's clock.
    pub(super) fn elapsed(&self) -> Duration {
        self.clock.now().saturating_duration_since(self.began)
    }

    pub fn is_required(&self) -> bool {
        self.required.load(SeqCst)
    }

    /// Newest position acknowledged, received or hardened depending on the mode.
    pub fn acknowledged(&self) -> Scn {
        Scn(self.acknowledged.load(SeqCst))
    }

    /// What it has acknowledged, if commits wait for it.
    pub fn waited_for(&self) -> Option<Scn> {
        self.is_required().then(|| self.acknowledged())
    }

    /// Newest position that is on the destination's disk, as last reported over the present connection.
    pub fn hardened(&self) -> Scn {
        lock(&self.destination).positions().1
    }

    /// Time until the next attempt to connect; see [`Destination::connect_due`].
    pub fn connect_due(&self) -> Option<Duration> {
        self.with_destination(|destination, now| destination.connect_due(now))
    }

    /// See [`Destination::connected`].
    pub fn connected(&self) {
        self.with_destination(|destination, now| destination.connected(now));
    }

    /// See [`Destination::enable`].
    pub fn enable(&self) {
        self.with_destination(|destination, now| destination.enable(now));
    }

    /// Checks the timeouts; see [`Destination::tick`]. Returns why the connection must be closed, if so.
    pub fn tick(&self) -> Option<Ended> {
        let captured = self.source.captured();
        self.deciding(|destination, now| destination.tick(now, captured)).map(Ended::Lost)
    }

    /// The connection is over.
    pub fn ended(&self, ended: Ended) {
        self.deciding(|at, now| match ended {
            Ended::Lost(reason) => at.lost(now, reason),
            Ended::Restart(reason) => at.restarts_stream(now, reason),
            Ended::Refused(refusal) => at.refused(now, refusal),
        });
    }

    /// An attempt to connect has failed.
    pub fn failed(&self, failure: Failure) {
        match failure {
            Failure::Own(reason) => self.deciding(|at, now| at.restarts_stream(now, reason)),
            Failure::Lost(reason) => self.deciding(|at, now| at.lost(now, reason)),
            Failure::Refused(refusal) => self.deciding(|at, now| at.refused(now, refusal)),
            Failure::Fenced { incarnation, peer } => {
                self.with_destination(|at, _| at.fenced(incarnation, peer));
            }
        }
    }

    /// How long from now on no commit is acknowledged without this destination.
    pub(super) fn wait(&self) -> Duration {
        let wait = self.wait.load(SeqCst);
        let waited = in_us(self.elapsed()).saturating_sub(self.wait_since.load(SeqCst));
        Duration::from_micros(wait.saturating_sub(waited))
    }

    /// Interval between two confirmations on an idle stream: a third of the net timeout, at most 1 s, so that silence
    /// for the net timeout proves a failure.
    pub(super) fn heartbeat(&self) -> Duration {
        (self.config.destination.net_timeout / 3).min(Duration::from_secs(1))
    }

    /// Changes the destination, then publishes its state and reports its events.
    pub(super) fn with_destination<T>(&self, change: impl FnOnce(&mut Destination, Duration) -> T) -> T {
        let (result, changes) = self.changed(change);
        self.tell(changes, None);
        result
    }

    /// Changes the destination for an acknowledgement, then publishes its state and reports its events.
    pub(super) fn arrived(&self, by: RemoteAnswer, change: impl FnOnce(&mut Destination, Duration)) {
        let ((), changes) = self.changed(change);
        self.tell(changes, Some(by));
    }

    /// Changes the destination in a way that may let commits continue without it: under the lock of the destination
    /// set. Then publishes its state and reports its events.
    pub(super) fn deciding<T>(&self, change: impl FnOnce(&mut Destination, Duration) -> T) -> T {
        let (result, changes) = self.config.destination_set.decide(&self.slot, |others| {
            self.changed(|destination, now| {
                destination.see(others);
                change(destination, now)
            })
        });
        self.tell(changes, None);
        result
    }

    /// Changes the destination and publishes its state.
    fn changed<T>(&self, change: impl FnOnce(&mut Destination, Duration) -> T) -> (T, Changes) {
        let mut destination = lock(&self.destination);
        let result = change(&mut destination, self.elapsed());
        let events = destination.take_events();
        let acknowledged = destination.acknowledged();
        let required = destination.is_required();
        let affirms = destination.config().mode == TransportMode::SyncAffirm;
        self.slot.show(destination.is_synchronised(), affirms, acknowledged);
        let wait = destination.shortest_wait();
        let since = destination.waited_for_since();
        // With this order of stores, a frame made in between carries a wait that is too short, never one that is too
        // long.
        if wait.is_zero() {
            self.wait.store(0, SeqCst);
        }
        self.wait_since.store(since.map_or(u64::MAX, in_us), SeqCst);
        self.wait.store(in_us(wait), SeqCst);
        let moved = self.acknowledged.swap(acknowledged.0, SeqCst) != acknowledged.0;
        let moved = (self.required.swap(required, SeqCst) != required) | moved;
        (result, Changes { moved, events })
    }

    /// Reports the result of a change. The caller holds no lock.
    fn tell(&self, changes: Changes, by: Option<RemoteAnswer>) {
        if changes.moved {
            self.observer.acknowledged(self.index, by);
        }
        for event in &changes.events {
            self.report(event);
        }
    }

    pub(super) fn report(&self, event: &SenderEvent) {
        self.count(event);
        self.note_error(event);
        self.observer.event(self.index, event);
    }

    fn count(&self, event: &SenderEvent) {
        let counter = match event {
            SenderEvent::Disconnected { .. } => &self.stats.disconnects,
            SenderEvent::Degraded { .. } | SenderEvent::Stalled { .. } => &self.stats.timeouts,
            _ => return,
        };
        counter.fetch_add(1, Relaxed);
    }

    fn note_error(&self, event: &SenderEvent) {
        use SenderEvent::*;
        if matches!(
            event,
            Disconnected { .. }
                | Degraded { .. }
                | Stalled { .. }
                | Refused(_)
                | Fenced { .. }
                | GaveUp { .. }
                | ArchiveUnusable { .. }
        ) {
            *lock(&self.last_error) = Some(event.to_string());
        }
    }

    pub(super) fn phase(&self) -> Phase {
        lock(&self.destination).phase().clone()
    }
}

fn in_us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
