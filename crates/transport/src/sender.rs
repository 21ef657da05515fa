//! The sending end of a stream, at a primary or a forwarding standby: one [`Sender`] per destination.
//!
//! A sender has two threads. The *feeder* connects, and sends the redo that the log writer could not hand to the socket
//! itself. The *ack reader* reads acknowledgements and checks the timeouts, so that a feeder blocked in a connect
//! cannot delay the net timeout. The log writer never waits for either.

mod acks;
mod connect;
mod current;
mod feed;
mod gap;
mod listing;

pub use gap::Archivers;

use crate::channel::OpenChannel;
use crate::destination::{Destination, Phase, Standing};
use crate::destination_config::{DestinationConfig, OnTimeout, TransportMode};
use crate::destination_set::{DestinationSet, Seat};
use crate::error::TransportError;
use crate::event::SenderEvent;
use crate::framing::FrameReader;
use crate::gap::{GapSettings, GapStatus};
use crate::identity::Role;
use crate::link::{LinkEnd, Security};
use crate::packing::Compression;
use crate::protection::Member;
use crate::redo::Piece;
use crate::release::ReleaseView;
use crate::source::{RedoSource, SenderObserver};
use crate::stats::DestinationStats;
use crate::stopped::StoppedDatabases;
use crate::verified::VerifiedDatabases;
use crate::wire::{Told, Wire};
use crate::{lock, now_us};
use current::{Current, Ended};
use gap::OpenGap;
use listing::Listing;
use serde::Serialize;
use standfast_instruments::{HistogramCounts, RemoteAnswer, Statistic, count};
use standfast_io::fault::{self, Fault};
use standfast_types::{IncarnationId, Scn};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, TryLockError, Weak};
use std::thread::{JoinHandle, Thread};
use std::time::{Duration, Instant};

#[derive(Clone, Debug)]
pub struct SenderConfig {
    pub destination: DestinationConfig,
    pub address: String,
    /// `db_unique_name` that the peer must have; `None`: any name.
    pub expected_name: Option<String>,
    pub security: Security,
    /// Compression, frame size and socket buffers.
    pub shape: StreamShape,
    /// DELAY: how long the standby holds redo back before it applies it; `None`: the standby's own setting applies.
    pub delay: Option<Duration>,
    /// Whether commits wait for a synchronous destination from the start, because it has been synchronised before.
    /// Otherwise they wait from its first synchronisation on.
    pub counts: bool,
    /// The set of destinations of this primary.
    pub destination_set: Arc<DestinationSet>,
    /// How archived logs are sent to it.
    pub archive: ArchiveTransport,
}

/// How archived logs are sent to a destination that lacks whole ones (ARCH).
#[derive(Clone, Debug)]
pub struct ArchiveTransport {
    pub settings: GapSettings,
    /// The pool of archivers, shared by all destinations of an instance.
    pub archivers: Arc<Archivers>,
    /// How often the sender checks whether a standby that is fed from the logs has such a gap.
    pub poll: Duration,
}

impl Default for ArchiveTransport {
    fn default() -> Self {
        let settings = GapSettings::default();
        ArchiveTransport {
            settings,
            archivers: Archivers::new(settings.connections),
            poll: Duration::from_secs(60),
        }
    }
}

/// Form of the redo on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamShape {
    pub compression: Compression,
    /// SDU: largest payload of a frame before compression; 0 = as large as the protocol allows. The smaller value of
    /// both ends applies.
    pub sdu_bytes: u32,
    /// SEND_BUF_SIZE of the socket; 0 = the system's default.
    pub send_buffer_bytes: u32,
    /// RECV_BUF_SIZE of the sockets at both ends; 0 = the system's default.
    pub receive_buffer_bytes: u32,
}

/// The redo that the log writer is about to write.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    pub pieces: &'a [Piece],
    /// First position of the log that receives the whole batch. [`RedoSource::switches`] already lists the begin of
    /// that log.
    pub log_first: Scn,
    /// The local durable position before the write.
    pub durable: Scn,
    /// End of the redo in the log buffer.
    pub captured: Scn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    Sent,
    Deferred,
    /// There is no connection; the redo is sent after the next one is made.
    Disconnected,
}

/// State of a destination for status output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DestinationStatus {
    pub name: String,
    pub address: String,
    pub mode: TransportMode,
    /// connecting, resolving, streaming, catching_up or failed.
    pub phase: &'static str,
    /// Whether commits wait for it, and why or why not.
    pub standing: Standing,
    /// End of the redo received there.
    pub received: Scn,
    /// End of the redo on disk there.
    pub hardened: Scn,
    /// Applied SCN there, of the databases that are not stopped.
    pub applied: Scn,
    /// Databases there to which redo is not applied.
    pub stopped: StoppedDatabases,
    pub verified: VerifiedDatabases,
    pub role: Option<Role>,
    pub failures: u32,
    /// Bytes of redo sent since the sender was started.
    pub redo_bytes: u64,
    /// Bytes of payload that this redo became on the wire.
    pub wire_bytes: u64,
    /// TCP segments with data sent since the sender was started, retransmissions included.
    pub tcp_segments: u64,
    /// TCP segments retransmitted because they or their acknowledgements were lost or late.
    pub tcp_retransmitted: u64,
    /// Mean time from sending to acknowledgement, microseconds.
    pub round_trip_us: u64,
    /// Shortest recent network round trip, without the standby's write, microseconds; `None` before the first one.
    pub network_round_trip_us: Option<u64>,
    /// Time from sending redo to its acknowledgement, since this sender was started.
    pub responses: HistogramCounts,
    /// 10th percentile of the standby's log write time, microseconds; `None` before the first write.
    pub log_write_us: Option<u64>,
    /// DELAY; `None`: the standby's own setting applies.
    pub delay: Option<Duration>,
    /// When it last answered, microseconds since the Unix epoch; `None`: never.
    pub last_heard_us: Option<u64>,
    /// Newest error, even if it is over.
    pub last_trouble: Option<String>,
    /// The gap of archived logs that is being sent.
    pub gap: Option<GapStatus>,
}

/// Sends redo to one destination. Stops on drop.
pub struct Sender {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

pub(crate) struct Shared {
    me: Weak<Shared>,
    index: usize,
    config: SenderConfig,
    source: Arc<dyn RedoSource>,
    observer: Arc<dyn SenderObserver>,
    began: Instant,
    destination: Mutex<Destination>,
    /// Copies of the destination's state, so that a release takes no lock.
    acknowledged: AtomicU64,
    /// Epoch of the source to which `acknowledged` belongs; odd: none.
    acknowledged_epoch: AtomicU64,
    required: AtomicBool,
    /// [`Destination::shortest_wait`] and [`Destination::waited_for_since`], microseconds.
    wait: AtomicU64,
    wait_since: AtomicU64,
    /// The state as the other destinations of the set see it.
    seat: Arc<Seat>,
    /// End of the redo that the log writer has offered. Beyond it the feeder sends only durable redo: which log other
    /// redo goes to is not decided, and on a quiet stream the feeder would only compete with the log writer.
    offered: AtomicU64,
    /// `None` while there is no stream.
    wire: Mutex<Option<Wire>>,
    link: Mutex<Current>,
    link_changed: Condvar,
    feeder: OnceLock<Thread>,
    stopping: AtomicBool,
    last_trouble: Mutex<Option<String>>,
    role: Mutex<Option<Role>>,
    /// Archived logs here are valid archived logs there. If false, missing redo comes over the stream.
    shares_logs: AtomicBool,
    gap: Mutex<Option<Arc<OpenGap>>>,
    /// Archived logs that could not be sent; later gaps exclude them.
    unusable: Mutex<HashSet<(IncarnationId, u64)>>,
    stats: DestinationStats,
}

/// Result of a change of the destination.
struct News {
    moved: bool,
    events: Vec<SenderEvent>,
}

/// The reading side of a connection, for the ack reader.
struct AckSide {
    reader: FrameReader<LinkEnd>,
    /// Time from our greeting to the peer's answer, network round trip included.
    greeted_in: Duration,
    /// `None` over plain TCP.
    channel: Option<OpenChannel>,
    listing: Listing,
}

impl Sender {
    /// Starts the threads. `index` is passed to the observer.
    ///
    /// # Errors
    /// `Io` when a thread cannot be started. An unusable address is an event, not an error: the name may become
    /// resolvable later.
    pub fn start(
        index: usize,
        config: SenderConfig,
        source: Arc<dyn RedoSource>,
        observer: Arc<dyn SenderObserver>,
    ) -> Result<Sender, TransportError> {
        let destination = Destination::new(config.destination.clone(), config.counts, Duration::ZERO);
        let shared = Arc::new_cyclic(|me| Shared {
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
        });
        // Publishes the initial state, also to the other destinations.
        shared.with_destination(|_, _| ());
        let sender = Sender { shared, threads: Mutex::default() };
        sender.spawn("feed", feed::run)?;
        sender.spawn("ack", acks::run)?;
        Ok(sender)
    }

    fn spawn(&self, what: &str, run: fn(&Shared)) -> Result<(), TransportError> {
        let shared = self.shared.clone();
        let name = format!("{what}-{}", shared.config.destination.name);
        let thread = std::thread::Builder::new()
            .name(name.clone())
            .spawn(move || {
                shared.observer.enter_thread(&name);
                run(&shared);
            })
            .map_err(TransportError::io("starting a thread of a sender"))?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    /// Hands `batch` to the socket if the stream has been sent up to exactly its begin and the socket has taken
    /// everything before; otherwise leaves it to the feeder. The log writer calls this before its own write. Never
    /// waits.
    pub fn offer(&self, batch: &Batch<'_>) -> Offer {
        let shared = &*self.shared;
        if let Some(last) = batch.pieces.last() {
            shared.offered.store(last.end().0, SeqCst);
        }
        // Compression takes time too: the log writer does not do it.
        let unpacked = shared.config.shape.compression == Compression::None;
        if shared.config.destination.mode == TransportMode::Async || !unpacked {
            shared.wake_feeder();
            return Offer::Deferred;
        }
        let mut wire = match shared.wire.try_lock() {
            Ok(wire) => wire,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                shared.wake_feeder();
                return Offer::Deferred;
            }
        };
        let Some(wire) = wire.as_mut() else { return Offer::Disconnected };
        match shared.send_directly(wire, batch) {
            Ok(offer) => offer,
            Err(error) => {
                shared.close(Ended::Lost(format!("sending failed: {error}")));
                Offer::Disconnected
            }
        }
    }

    /// Wakes the feeder: the source has more to send or has changed, see [`RedoSource::sendable`],
    /// [`RedoSource::epoch`].
    pub fn wake(&self) {
        self.shared.wake_feeder();
    }

    /// Returns the view of this destination for the release of commits; takes no lock.
    pub fn release_view(&self) -> ReleaseView {
        ReleaseView {
            name: self.shared.config.destination.name.clone(),
            required: self.is_required(),
            acknowledged: self.acknowledged(),
        }
    }

    pub fn is_required(&self) -> bool {
        self.shared.required.load(SeqCst)
    }

    /// Newest position acknowledged, received or hardened depending on the mode.
    pub fn acknowledged(&self) -> Scn {
        Scn(self.shared.acknowledged.load(SeqCst))
    }

    /// Newest position acknowledged of the redo that the source has now; zero when that may differ from the redo that
    /// was sent.
    pub fn acknowledged_now(&self) -> Scn {
        let epoch = self.shared.source.epoch();
        let same = epoch.is_multiple_of(2) && self.shared.acknowledged_epoch.load(SeqCst) == epoch;
        if same { self.acknowledged() } else { Scn::ZERO }
    }

    pub fn status(&self) -> DestinationStatus {
        let shared = &*self.shared;
        let segments = lock(&shared.link).segments();
        let destination = lock(&shared.destination);
        let (received, hardened, applied) = destination.positions();
        DestinationStatus {
            name: shared.config.destination.name.clone(),
            address: shared.config.address.clone(),
            mode: shared.config.destination.mode,
            phase: destination.phase().word(),
            standing: destination.standing(),
            received,
            hardened,
            applied,
            stopped: destination.stopped_databases().clone(),
            verified: destination.verified_databases().clone(),
            role: *lock(&shared.role),
            failures: destination.failures(),
            redo_bytes: shared.stats.redo_bytes.load(Relaxed),
            wire_bytes: shared.stats.wire_bytes.load(Relaxed),
            tcp_segments: segments.sent,
            tcp_retransmitted: segments.resent,
            round_trip_us: shared.stats.round_trip.counts().mean_us().unwrap_or(0.0) as u64,
            network_round_trip_us: shared.stats.network_round_trip_us(),
            responses: shared.stats.responses.counts(),
            log_write_us: shared.stats.standby_write.counts().percentile_us(0.1).map(|us| us as u64),
            delay: shared.config.delay,
            last_heard_us: destination.last_heard().map(|heard| {
                let ago = shared.began.elapsed().saturating_sub(heard);
                now_us().saturating_sub(u64::try_from(ago.as_micros()).unwrap_or(u64::MAX))
            }),
            last_trouble: lock(&shared.last_trouble).clone(),
            gap: lock(&shared.gap).as_ref().map(|open| open.status()),
        }
    }

    /// Returns the destination as the protection level sees it.
    pub fn member(&self) -> Member {
        let destination = lock(&self.shared.destination);
        let connected = matches!(destination.phase(), crate::Phase::Streaming | crate::Phase::CatchingUp);
        Member { mode: self.shared.config.destination.mode, standing: destination.standing(), connected }
    }

    pub fn stats(&self) -> &DestinationStats {
        &self.shared.stats
    }

    /// Attempts to connect now, even after the destination was abandoned.
    pub fn enable(&self) {
        self.shared.with_destination(|destination, now| destination.enable(now));
        self.shared.wake_feeder();
    }

    /// See [`Destination::let_go`].
    pub fn let_go(&self) {
        self.shared.deciding(|destination, _| destination.let_go());
    }

    /// Changes the rules for a destination that keeps commits waiting, from now on.
    pub fn set_policy(&self, on_timeout: OnTimeout, sync_latency: Duration) {
        self.shared.deciding(|destination, _| destination.set_policy(on_timeout, sync_latency));
    }

    /// Stops like [`Sender::stop`], for a destination that commits no longer wait for. Reports that to the destination
    /// first, if the connection takes the frame immediately.
    pub fn stop_waiting_for(&self) {
        let shared = &*self.shared;
        if let Some(wire) = lock(&shared.wire).as_mut()
            && let Ok(told) = feed::told(shared, wire)
        {
            // The stream ends now, whether or not this is sent.
            let _ = wire.send_confirm(Told { wait: Duration::ZERO, ..told });
        }
        self.stop();
    }

    /// Ends the connection and both threads; returns when they have ended.
    pub fn stop(&self) {
        // This comes first: the end of the connection must not count as a failure, and must release no commit.
        self.shared.with_destination(|destination, _| destination.end());
        self.shared.stopping.store(true, SeqCst);
        self.shared.close(Ended::Lost("the sender is stopped".into()));
        self.shared.wake_feeder();
        self.shared.link_changed.notify_all();
        for thread in lock(&self.threads).drain(..) {
            // The runtime has reported a panic of that thread.
            let _ = thread.join();
        }
    }
}

fn in_us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl Drop for Sender {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn send_directly(&self, wire: &mut Wire, batch: &Batch<'_>) -> std::io::Result<Offer> {
        let (Some(first), Some(last)) = (batch.pieces.first(), batch.pieces.last()) else {
            return Ok(Offer::Sent);
        };
        if last.end() <= wire.sent {
            return Ok(Offer::Sent);
        }
        let bytes = last.end().bytes_since(first.first());
        let continues = wire.sent == first.first()
            && wire.announced == batch.log_first
            && wire.epoch == self.source.epoch()
            && wire.is_clear();
        if !continues || bytes > wire.payload_bytes_max as u64 {
            self.wake_feeder();
            return Ok(Offer::Deferred);
        }
        fault::check(Fault::Send)?;
        let told =
            Told { durable: batch.durable, captured: batch.captured, time_us: now_us(), wait: self.wait() };
        let (sent, whole) = wire.send_redo(batch.pieces, told)?;
        self.stats.wire_bytes.fetch_add(sent as u64, Relaxed);
        self.stats.frames_direct.fetch_add(1, Relaxed);
        self.stats.redo_bytes.fetch_add(bytes, Relaxed);
        count(Statistic::RedoReadMemoryForTransport, bytes);
        // Wake the feeder to send the rest, or to have this redo confirmed later. A feeder with an armed confirmation
        // polls by itself.
        let armed = std::mem::replace(&mut wire.confirm_armed, true);
        if !whole || !armed {
            self.wake_feeder();
        }
        if whole {
            return Ok(Offer::Sent);
        }
        self.stats.frames_partial.fetch_add(1, Relaxed);
        Ok(Offer::Deferred)
    }

    /// Sends a whole frame beside the redo of `stream`, if `stream` is still the current one.
    fn send_beside(&self, stream: &LinkEnd, frame: &[u8]) -> std::io::Result<()> {
        match lock(&self.wire).as_mut() {
            Some(wire) if wire.stream().is(stream) => wire.send_frame(frame)?,
            _ => return Err(std::io::ErrorKind::NotConnected.into()),
        }
        // The feeder flushes the bytes that the socket did not take.
        self.wake_feeder();
        Ok(())
    }

    /// How long from now on no commit is acknowledged without this destination.
    fn wait(&self) -> Duration {
        let wait = self.wait.load(SeqCst);
        let waited = in_us(self.began.elapsed()).saturating_sub(self.wait_since.load(SeqCst));
        Duration::from_micros(wait.saturating_sub(waited))
    }

    fn stopping(&self) -> bool {
        self.stopping.load(SeqCst)
    }

    fn wake_feeder(&self) {
        if let Some(feeder) = self.feeder.get() {
            feeder.unpark();
        }
    }

    /// Ends the connection. The ack reader sees that and reports the first `reason` given.
    fn close(&self, reason: Ended) {
        let mut link = lock(&self.link);
        if let Some(stream) = &link.stream {
            stream.shutdown();
            link.reason.get_or_insert(reason);
        }
    }

    /// Interval between two confirmations on an idle stream: a third of the net timeout, at most 1 s, so that silence
    /// for the net timeout proves a failure.
    fn heartbeat(&self) -> Duration {
        (self.config.destination.net_timeout / 3).min(Duration::from_secs(1))
    }

    /// Changes the destination, then publishes its state and reports its events.
    fn with_destination<T>(&self, change: impl FnOnce(&mut Destination, Duration) -> T) -> T {
        let (result, news) = self.changed(change);
        self.tell(news, None);
        result
    }

    /// Changes the destination for an acknowledgement, then publishes its state and reports its events.
    fn arrived(&self, by: RemoteAnswer, change: impl FnOnce(&mut Destination, Duration)) {
        let ((), news) = self.changed(change);
        self.tell(news, Some(by));
    }

    /// Changes the destination in a way that may let commits continue without it: under the lock of the destination
    /// set. Then publishes its state and reports its events.
    fn deciding<T>(&self, change: impl FnOnce(&mut Destination, Duration) -> T) -> T {
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

    fn report(&self, event: &SenderEvent) {
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
    fn is_down(&self) -> bool {
        lock(&self.link).stream.is_none()
    }

    /// Waits for the reading half of a new connection, at most until `until`.
    fn take_reader(&self, until: Instant) -> Option<AckSide> {
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
    fn let_go(&self) -> Option<Ended> {
        *lock(&self.wire) = None;
        let mut link = lock(&self.link);
        link.reader = None;
        link.reason.take()
    }

    /// Lets the feeder connect again, after `let_go`.
    fn reopen_link(&self) {
        lock(&self.link).end();
        self.wake_feeder();
    }

    fn phase(&self) -> Phase {
        lock(&self.destination).phase().clone()
    }
}
