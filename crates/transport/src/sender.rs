//! The sending end of a stream, at a primary or a standby that forwards: one [`Sender`] per destination.
//!
//! Two threads belong to it. The *feeder* connects and sends whatever the log writer could not hand to the socket
//! itself. The *ack reader* reads acknowledgements and watches the time, so that a feeder that is stuck in a
//! connect cannot delay the net timeout. The log writer never waits for either.

mod acks;
mod connect;
mod current;
mod feed;
mod gap;
mod listing;

pub use gap::Archivers;

use crate::channel::OpenChannel;
use crate::destination::{Destination, DestinationConfig, OnTimeout, Phase, Standing, TransportMode};
use crate::error::TransportError;
use crate::event::SenderEvent;
use crate::framing::FrameReader;
use crate::gap::{GapSettings, GapStatus};
use crate::identity::Role;
use crate::link::{LinkEnd, Security};
use crate::packing::Compression;
use crate::protection::Member;
use crate::release::ReleaseView;
use crate::siblings::{Seat, Siblings};
use crate::source::{Piece, RedoSource, SenderObserver};
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

/// Where redo goes and how.
#[derive(Clone, Debug)]
pub struct SenderConfig {
    /// Mode, timeouts and policy.
    pub destination: DestinationConfig,
    /// HOST:PORT of the standby's receiver.
    pub address: String,
    /// `db_unique_name` that must answer there; any name when `None`.
    pub expected_name: Option<String>,
    /// How the connection is protected.
    pub security: Security,
    /// How redo is packed, and in which portions it goes out.
    pub shape: StreamShape,
    /// DELAY: how long the standby holds redo back before it applies it; `None`: its own setting counts.
    pub delay: Option<Duration>,
    /// Whether commits wait for a synchronous destination from the start: it has been synchronised before. Another one
    /// counts from its first synchronisation.
    pub counts: bool,
    /// The destinations of this primary.
    pub siblings: Arc<Siblings>,
    /// How archived logs go there.
    pub archive: ArchiveTransport,
}

/// How archived logs go to a destination that lacks whole ones (ARCH).
#[derive(Clone, Debug)]
pub struct ArchiveTransport {
    /// In what units and over how many connections.
    pub settings: GapSettings,
    /// Who sends them; shared by all destinations of an instance.
    pub archivers: Arc<Archivers>,
    /// How often it is looked whether a standby that is fed from the logs has such a gap.
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

/// How redo looks on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamShape {
    /// COMPRESSION.
    pub compression: Compression,
    /// SDU: largest payload of a frame, before it is packed; 0 = as large as the protocol allows. The smaller one of both
    /// ends counts.
    pub sdu_bytes: u32,
    /// SEND_BUF_SIZE of the socket; 0 = the system's own choice.
    pub send_buffer_bytes: u32,
    /// RECV_BUF_SIZE of the sockets at both ends; 0 = the system's own choice.
    pub receive_buffer_bytes: u32,
}

/// What the log writer is about to write.
#[derive(Clone, Copy, Debug)]
pub struct Batch<'a> {
    /// Contiguous redo.
    pub pieces: &'a [Piece],
    /// First position of the log that all of it goes to. Its begin is visible in [`RedoSource::switches`].
    pub log_first: Scn,
    /// What is durable here before the write.
    pub durable: Scn,
    /// End of the redo in the log buffer.
    pub captured: Scn,
}

/// What became of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// The socket has it.
    Sent,
    /// The feeder will send it.
    Deferred,
    /// There is no connection; it is sent after the next one is made.
    Disconnected,
}

/// State of a destination for status output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DestinationStatus {
    /// Its name.
    pub name: String,
    /// HOST:PORT.
    pub address: String,
    /// As configured.
    pub mode: TransportMode,
    /// connecting, resolving, streaming, catching_up or failed.
    pub phase: &'static str,
    /// Whether commits wait for it, and why or why not.
    pub standing: Standing,
    /// End of the redo received there.
    pub received: Scn,
    /// End of the redo on disk there.
    pub hardened: Scn,
    /// How far apply is there, in the databases that are not stopped.
    pub applied: Scn,
    /// Databases there to which redo is not applied.
    pub stopped: StoppedDatabases,
    /// What verification has found of its databases.
    pub verified: VerifiedDatabases,
    /// What it was when it last answered.
    pub role: Option<Role>,
    /// Failures in a row.
    pub failures: u32,
    /// Redo sent since the sender was started, bytes.
    pub redo_bytes: u64,
    /// The payload that it became on the wire, bytes.
    pub wire_bytes: u64,
    /// TCP segments with data that were sent to it since the sender was started, also those that were sent again.
    pub tcp_segments: u64,
    /// Those that were sent again, because they or their acknowledgements were lost or late.
    pub tcp_retransmitted: u64,
    /// Mean time from sending to acknowledgement, microseconds.
    pub round_trip_us: u64,
    /// Shortest time there and back of late, without the standby's write, microseconds; `None` before the first one.
    pub network_round_trip_us: Option<u64>,
    /// From sending redo to its acknowledgement, since this sender was started.
    pub responses: HistogramCounts,
    /// A short write of its log, microseconds: a tenth took less; `None` before the first one.
    pub log_write_us: Option<u64>,
    /// DELAY; `None`: the standby's own setting counts.
    pub delay: Option<Duration>,
    /// When it last answered, microseconds since the Unix epoch; `None`: never.
    pub last_heard_us: Option<u64>,
    /// Newest trouble, also when it is over.
    pub last_trouble: Option<String>,
    /// Archived logs that it lacks and that are being sent.
    pub gap: Option<GapStatus>,
}

/// Sends redo to one destination. Stopped on drop.
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
    /// The same, for the siblings.
    seat: Arc<Seat>,
    /// End of what the log writer has offered. The feeder sends nothing beyond it but what is durable: the place
    /// of such redo in the logs is not decided, and on a quiet stream it would only be in the log writer's way.
    offered: AtomicU64,
    /// `None` while there is no stream.
    wire: Mutex<Option<Wire>>,
    link: Mutex<Current>,
    link_changed: Condvar,
    feeder: OnceLock<Thread>,
    stopping: AtomicBool,
    last_trouble: Mutex<Option<String>>,
    role: Mutex<Option<Role>>,
    /// Archived logs from here are archived logs there; what is missing comes over the stream otherwise.
    shares_logs: AtomicBool,
    /// The gap that is being resolved.
    gap: Mutex<Option<Arc<OpenGap>>>,
    /// Archived logs that could not be sent: they are in no further gap.
    unusable: Mutex<HashSet<(IncarnationId, u64)>>,
    stats: DestinationStats,
}

/// What a change of the destination has led to.
struct News {
    moved: bool,
    events: Vec<SenderEvent>,
}

/// What the ack reader gets of a connection.
struct AckSide {
    reader: FrameReader<LinkEnd>,
    /// How long the other end took to answer our greeting, the way there and back included.
    greeted_in: Duration,
    /// `None` over plain TCP.
    channel: Option<OpenChannel>,
    listing: Listing,
}

impl Sender {
    /// Starts the threads. `index` is passed to the observer.
    ///
    /// # Errors
    /// `Io` when a thread cannot be started. An address that cannot be used is an event, not an error: the name
    /// may be resolvable later.
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
            seat: config.siblings.sit(),
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
        // As it stands from the start, for the siblings as well.
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

    /// Called by the log writer before its own write of `batch`. Hands it to the socket when the stream is just
    /// there and nothing is in the way, else leaves it to the feeder. Never waits.
    pub fn offer(&self, batch: &Batch<'_>) -> Offer {
        let shared = &*self.shared;
        if let Some(last) = batch.pieces.last() {
            shared.offered.store(last.end().0, SeqCst);
        }
        // Packing takes time, too: neither is for the log writer.
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

    /// The source has more to send, or has become another one: see [`RedoSource::sendable`], [`RedoSource::epoch`].
    pub fn wake(&self) {
        self.shared.wake_feeder();
    }

    /// What the release of commits needs to know; takes no lock.
    pub fn release_view(&self) -> ReleaseView {
        ReleaseView {
            name: self.shared.config.destination.name.clone(),
            required: self.is_required(),
            acknowledged: self.acknowledged(),
        }
    }

    /// Whether commits wait for this destination.
    pub fn is_required(&self) -> bool {
        self.shared.required.load(SeqCst)
    }

    /// Newest position acknowledged in the sense of its mode.
    pub fn acknowledged(&self) -> Scn {
        Scn(self.shared.acknowledged.load(SeqCst))
    }

    /// Newest position acknowledged of the redo that the source has now; zero when that may be other redo than was sent.
    pub fn acknowledged_now(&self) -> Scn {
        let epoch = self.shared.source.epoch();
        let same = epoch.is_multiple_of(2) && self.shared.acknowledged_epoch.load(SeqCst) == epoch;
        if same { self.acknowledged() } else { Scn::ZERO }
    }

    /// State for status output.
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

    /// The destination as far as protection is concerned.
    pub fn member(&self) -> Member {
        let destination = lock(&self.shared.destination);
        let connected = matches!(destination.phase(), crate::Phase::Streaming | crate::Phase::CatchingUp);
        Member { mode: self.shared.config.destination.mode, standing: destination.standing(), connected }
    }

    /// Counters.
    pub fn stats(&self) -> &DestinationStats {
        &self.shared.stats
    }

    /// Makes another attempt to connect now, also after the destination was given up.
    pub fn enable(&self) {
        self.shared.with_destination(|destination, now| destination.enable(now));
        self.shared.wake_feeder();
    }

    /// See [`Destination::let_go`].
    pub fn let_go(&self) {
        self.shared.deciding(|destination, _| destination.let_go());
    }

    /// Other rules for a destination that keeps commits waiting, from now on.
    pub fn set_policy(&self, on_timeout: OnTimeout, sync_latency: Duration) {
        self.shared.deciding(|destination, _| destination.set_policy(on_timeout, sync_latency));
    }

    /// As [`Sender::stop`], for a destination that commits do not wait for any more: it is told, if the connection takes that at
    /// once.
    pub fn stop_waiting_for(&self) {
        let shared = &*self.shared;
        if let Some(wire) = lock(&shared.wire).as_mut()
            && let Ok(told) = feed::told(shared, wire)
        {
            // The stream ends now, whatever comes of it.
            let _ = wire.send_confirm(Told { wait: Duration::ZERO, ..told });
        }
        self.stop();
    }

    /// Ends the connection and both threads; returns when they have ended.
    pub fn stop(&self) {
        // First: what comes of it must not count as a failure, and release nothing.
        self.shared.with_destination(|destination, _| destination.end());
        self.shared.stopping.store(true, SeqCst);
        self.shared.close(Ended::Lost("the sender is stopped".into()));
        self.shared.wake_feeder();
        self.shared.link_changed.notify_all();
        for thread in lock(&self.threads).drain(..) {
            // A panic there was reported by the runtime.
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
        // The feeder must flush what is left, or see to it that this becomes confirmed; while it does the latter
        // it looks by itself.
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

    /// Sends a whole frame beside the redo of `stream`, if that is still the stream.
    fn send_beside(&self, stream: &LinkEnd, frame: &[u8]) -> std::io::Result<()> {
        match lock(&self.wire).as_mut() {
            Some(wire) if wire.stream().is(stream) => wire.send_frame(frame)?,
            _ => return Err(std::io::ErrorKind::NotConnected.into()),
        }
        // What the socket did not take is flushed by the feeder.
        self.wake_feeder();
        Ok(())
    }

    /// For how long from now on no commit is acknowledged without this destination.
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

    /// Ends the connection; the ack reader sees that and reports `reason`, the first one there is.
    fn close(&self, reason: Ended) {
        let mut link = lock(&self.link);
        if let Some(stream) = &link.stream {
            stream.shutdown();
            link.reason.get_or_insert(reason);
        }
    }

    /// Interval between two confirmations on an idle stream: often enough that a silence means something.
    fn heartbeat(&self) -> Duration {
        (self.config.destination.net_timeout / 3).min(Duration::from_secs(1))
    }

    /// Changes the destination, then publishes its state and reports its events.
    fn with_destination<T>(&self, change: impl FnOnce(&mut Destination, Duration) -> T) -> T {
        let (result, news) = self.changed(change);
        self.tell(news, None);
        result
    }

    /// The same for an acknowledgement.
    fn arrived(&self, by: RemoteAnswer, change: impl FnOnce(&mut Destination, Duration)) {
        let ((), news) = self.changed(change);
        self.tell(news, Some(by));
    }

    /// The same for changes after which commits may go on without this destination.
    fn deciding<T>(&self, change: impl FnOnce(&mut Destination, Duration) -> T) -> T {
        let (result, news) = self.config.siblings.decide(&self.seat, |others| {
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
        // In this order a frame that is made in between says a wait that is too short, never one that is too long.
        if wait.is_zero() {
            self.wait.store(0, SeqCst);
        }
        self.wait_since.store(since.map_or(u64::MAX, in_us), SeqCst);
        self.wait.store(in_us(wait), SeqCst);
        let moved = self.acknowledged.swap(acknowledged.0, SeqCst) != acknowledged.0;
        let moved = (self.required.swap(required, SeqCst) != required) | moved;
        (result, News { moved, events })
    }

    /// Reports what a change has led to. No lock is held.
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

    /// Whether the stream of the present connection is over and its successor may be made.
    fn is_down(&self) -> bool {
        lock(&self.link).stream.is_none()
    }

    /// Waits for the reading half of a new connection, until `until` at most.
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

    /// The connection is over for both threads. Returns why this end closed it, if it did.
    fn let_go(&self) -> Option<Ended> {
        *lock(&self.wire) = None;
        let mut link = lock(&self.link);
        link.reader = None;
        link.reason.take()
    }

    /// After `let_go`: the feeder may connect again.
    fn reopen_link(&self) {
        lock(&self.link).end();
        self.wake_feeder();
    }

    fn phase(&self) -> Phase {
        lock(&self.destination).phase().clone()
    }
}
