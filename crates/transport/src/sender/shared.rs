//! What a sender and its threads share: the destination, the connection, and the copies of their state that need no
//! lock.

use super::config::SenderConfig;
use super::current::{AckSide, Current, Ended};
use super::open_gap::OpenGap;
use crate::destination::{Destination, Phase};
use crate::destination_config::TransportMode;
use crate::destination_set::Seat;
use crate::event::SenderEvent;
use crate::identity::Role;
use crate::link::LinkEnd;
use crate::lock;
use crate::source::{RedoSource, SenderObserver};
use crate::stats::DestinationStats;
use crate::wire::Wire;
use standfast_instruments::RemoteAnswer;
use standfast_types::IncarnationId;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::thread::Thread;
use std::time::{Duration, Instant};

pub(super) struct Shared {
    pub(super) me: Weak<Shared>,
    index: usize,
    pub(super) config: SenderConfig,
    pub(super) source: Arc<dyn RedoSource>,
    pub(super) observer: Arc<dyn SenderObserver>,
    pub(super) began: Instant,
    pub(super) destination: Mutex<Destination>,
    /// Copies of the destination's state, so that a release takes no lock.
    pub(super) acknowledged: AtomicU64,
    /// Epoch of the source to which `acknowledged` belongs; odd: none.
    pub(super) acknowledged_epoch: AtomicU64,
    pub(super) required: AtomicBool,
    /// [`Destination::shortest_wait`] and [`Destination::waited_for_since`], microseconds.
    wait: AtomicU64,
    wait_since: AtomicU64,
    /// The state as the other destinations of the set see it.
    seat: Arc<Seat>,
    /// End of the redo that the log writer has offered. Beyond it the feeder sends only durable redo: which log other
    /// redo goes to is not decided, and on a quiet stream the feeder would only compete with the log writer.
    pub(super) offered: AtomicU64,
    /// `None` while there is no stream.
    pub(super) wire: Mutex<Option<Wire>>,
    pub(super) link: Mutex<Current>,
    pub(super) link_changed: Condvar,
    pub(super) feeder: OnceLock<Thread>,
    pub(super) stopping: AtomicBool,
    pub(super) last_trouble: Mutex<Option<String>>,
    pub(super) role: Mutex<Option<Role>>,
    /// Archived logs here are valid archived logs there. If false, missing redo comes over the stream.
    pub(super) shares_logs: AtomicBool,
    pub(super) gap: Mutex<Option<Arc<OpenGap>>>,
    /// Archived logs that could not be sent; later gaps exclude them.
    pub(super) unusable: Mutex<HashSet<(IncarnationId, u64)>>,
    pub(super) stats: DestinationStats,
}

/// Result of a change of the destination.
struct News {
    moved: bool,
    events: Vec<SenderEvent>,
}

impl Shared {
    pub fn new(
        index: usize,
        config: SenderConfig,
        source: Arc<dyn RedoSource>,
        observer: Arc<dyn SenderObserver>,
    ) -> Arc<Shared> {
        let destination = Destination::new(config.destination.clone(), config.counts, Duration::ZERO);
        Arc::new_cyclic(|me| Shared {
            me: me.clone(),
            index,
            required: AtomicBool::new(destination.is_required()),
            wait: AtomicU64::new(0),
            wait_since: AtomicU64::new(u64::MAX),
            acknowledged: AtomicU64::new(0),
            acknowledged_epoch: AtomicU64::new(1),
            seat: config.destination_set.sit(),
            destination: Mutex::new(destination),
            config,
            source,
            observer,
            began: Instant::now(),
            offered: AtomicU64::new(0),
            wire: Mutex::new(None),
            link: Mutex::default(),
            link_changed: Condvar::new(),
            feeder: OnceLock::new(),
            stopping: AtomicBool::new(false),
            last_trouble: Mutex::default(),
            role: Mutex::default(),
            shares_logs: AtomicBool::new(true),
            gap: Mutex::default(),
            unusable: Mutex::default(),
            stats: DestinationStats::default(),
        })
    }

    /// Sends a whole frame beside the redo of `stream`, if `stream` is still the current one.
    pub fn send_beside(&self, stream: &LinkEnd, frame: &[u8]) -> std::io::Result<()> {
        match lock(&self.wire).as_mut() {
            Some(wire) if wire.stream().is(stream) => wire.send_frame(frame)?,
            _ => return Err(std::io::ErrorKind::NotConnected.into()),
        }
        // The feeder flushes the bytes that the socket did not take.
        self.wake_feeder();
        Ok(())
    }

    /// How long from now on no commit is acknowledged without this destination.
    pub fn wait(&self) -> Duration {
        let wait = self.wait.load(SeqCst);
        let waited = in_us(self.began.elapsed()).saturating_sub(self.wait_since.load(SeqCst));
        Duration::from_micros(wait.saturating_sub(waited))
    }

    pub fn stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    pub fn wake_feeder(&self) {
        if let Some(feeder) = self.feeder.get() {
            feeder.unpark();
        }
    }

    /// Ends the connection. The ack reader sees that and reports the first `reason` given.
    pub fn close(&self, reason: Ended) {
        let mut link = lock(&self.link);
        if let Some(stream) = &link.stream {
            stream.shutdown();
            link.reason.get_or_insert(reason);
        }
    }

    /// Interval between two confirmations on an idle stream: a third of the net timeout, at most 1 s, so that silence
    /// for the net timeout proves a failure.
    pub fn heartbeat(&self) -> Duration {
        (self.config.destination.net_timeout / 3).min(Duration::from_secs(1))
    }

    /// Changes the destination, then publishes its state and reports its events.
    pub fn with_destination<T>(&self, change: impl FnOnce(&mut Destination, Duration) -> T) -> T {
        let (result, news) = self.changed(change);
        self.tell(news, None);
        result
    }

    /// Changes the destination for an acknowledgement, then publishes its state and reports its events.
    pub fn arrived(&self, by: RemoteAnswer, change: impl FnOnce(&mut Destination, Duration)) {
        let ((), news) = self.changed(change);
        self.tell(news, Some(by));
    }

    /// Changes the destination in a way that may let commits continue without it: under the lock of the destination
    /// set. Then publishes its state and reports its events.
    pub fn deciding<T>(&self, change: impl FnOnce(&mut Destination, Duration) -> T) -> T {
        let (result, news) = self.config.destination_set.decide(&self.seat, |others| {
            self.changed(|destination, now| {
                destination.see(others);
                change(destination, now)
            })
        });
        self.tell(news, None);
        result
    }

    /// Changes the destination and publishes its state.
    fn changed<T>(&self, change: impl FnOnce(&mut Destination, Duration) -> T) -> (T, News) {
        let mut destination = lock(&self.destination);
        let result = change(&mut destination, self.began.elapsed());
        let events = destination.take_events();
        let acknowledged = destination.acknowledged();
        let required = destination.is_required();
        let affirms = destination.config().mode == TransportMode::SyncAffirm;
        self.seat.show(destination.is_synchronised(), affirms, acknowledged);
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
        (result, News { moved, events })
    }

    /// Reports the result of a change. The caller holds no lock.
    fn tell(&self, news: News, by: Option<RemoteAnswer>) {
        if news.moved {
            self.observer.acknowledged(self.index, by);
        }
        for event in &news.events {
            self.report(event);
        }
    }

    pub fn report(&self, event: &SenderEvent) {
        self.note_trouble(event);
        self.observer.event(self.index, event);
    }

    fn note_trouble(&self, event: &SenderEvent) {
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
            *lock(&self.last_trouble) = Some(event.to_string());
        }
    }

    /// Whether the current connection is over and the next one may be made.
    pub fn is_down(&self) -> bool {
        lock(&self.link).stream.is_none()
    }

    /// Waits for the reading half of a new connection, at most until `until`.
    pub fn take_reader(&self, until: Instant) -> Option<AckSide> {
        let mut link = lock(&self.link);
        while link.reader.is_none() && !self.stopping() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            link = self.link_changed.wait_timeout(link, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        link.reader.take()
    }

    /// Drops the connection for both threads. Returns the reason if this end closed it.
    pub fn let_go(&self) -> Option<Ended> {
        *lock(&self.wire) = None;
        let mut link = lock(&self.link);
        link.reader = None;
        link.reason.take()
    }

    /// Lets the feeder connect again, after `let_go`.
    pub fn reopen_link(&self) {
        lock(&self.link).end();
        self.wake_feeder();
    }

    pub fn phase(&self) -> Phase {
        lock(&self.destination).phase().clone()
    }
}

fn in_us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
