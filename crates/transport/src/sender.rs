//! The sending end of a stream, at a primary or a forwarding standby: one [`Sender`] per destination.
//!
//! A sender has two threads. The *feeder* connects, and sends the redo that the log writer could not hand to the socket
//! itself. The *ack reader* reads acknowledgements and checks the timeouts, so that a feeder blocked in a connect
//! cannot delay the net timeout. The log writer never waits for either.

mod ack_stream;
mod acks;
mod archiver_stream;
mod archivers;
mod batch;
mod config;
mod connect;
mod current;
mod failure;
mod feed;
mod feeding;
mod gap;
mod gaps;
mod greeting;
mod listing;
mod open_gap;
mod sender_core;
mod shared;

pub use ack_stream::AckStream;
pub use archiver_stream::{ArchiverStep, ArchiverStream, archiver_hello};
pub use archivers::Archivers;
pub use batch::{Batch, Offer};
pub use config::{ArchiveTransport, SenderConfig, StreamShape};
pub use failure::{Ended, Failure};
pub use feeding::{Offered, Step};
pub use greeting::{Agreed, Greeting, answer_in};
pub use open_gap::OpenGap;
pub use sender_core::SenderCore;

use crate::clock::SystemClock;
use crate::destination::Standing;
use crate::destination_config::{OnTimeout, TransportMode};
use crate::error::TransportError;
use crate::gap::GapStatus;
use crate::identity::Role;
use crate::protection::Member;
use crate::release::ReleaseView;
use crate::source::{RedoSource, SenderObserver};
use crate::stats::DestinationStats;
use crate::stopped::StoppedDatabases;
use crate::verified::VerifiedDatabases;
use crate::wire::Reported;
use crate::{lock, now_us};
use serde::Serialize;
use shared::Shared;
use standfast_instruments::HistogramCounts;
use standfast_types::Scn;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Arc, Mutex, TryLockError};
use std::thread::JoinHandle;
use std::time::Duration;

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
    /// Whether it has announced its stop and has not come back.
    #[serde(skip)]
    pub has_left: bool,
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
    /// Connections lost or refused since the sender was started.
    pub disconnects: u64,
    /// Times that commits stopped waiting for it, or waited beyond the timeout, since the sender was started.
    pub timeouts: u64,
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
    #[serde(rename = "last_trouble")]
    pub last_error: Option<String>,
    /// The gap of archived logs that is being sent.
    pub gap: Option<GapStatus>,
}

/// Sends redo to one destination. Stops on drop.
pub struct Sender {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
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
        let core = SenderCore::new(index, config, source, observer, Arc::new(SystemClock));
        let shared = Shared::new(core);
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
        if !shared.note_offered(batch) {
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
        match shared.offer(wire, batch) {
            Ok(offered) => {
                if offered.wake {
                    shared.wake_feeder();
                }
                offered.offer
            }
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
        self.shared.is_required()
    }

    /// What it has acknowledged, if commits wait for it.
    pub fn waited_for(&self) -> Option<Scn> {
        self.shared.waited_for()
    }

    /// Newest position acknowledged, received or hardened depending on the mode.
    pub fn acknowledged(&self) -> Scn {
        self.shared.acknowledged()
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
            has_left: destination.has_left(),
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
            disconnects: shared.stats.disconnects.load(Relaxed),
            timeouts: shared.stats.timeouts.load(Relaxed),
            round_trip_us: shared.stats.round_trip.counts().mean_us().unwrap_or(0.0) as u64,
            network_round_trip_us: shared.stats.network_round_trip_us(),
            responses: shared.stats.responses.counts(),
            log_write_us: shared.stats.standby_write.counts().percentile_us(0.1).map(|us| us as u64),
            delay: shared.config.delay,
            last_heard_us: destination.last_heard().map(|heard| {
                let ago = shared.elapsed().saturating_sub(heard);
                now_us().saturating_sub(u64::try_from(ago.as_micros()).unwrap_or(u64::MAX))
            }),
            last_error: lock(&shared.last_error).clone(),
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
        self.shared.enable();
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
            && let Ok(reported) = shared.reported(wire)
        {
            // The stream ends now, whether or not this is sent.
            let _ = wire.send_confirm(Reported { wait: Duration::ZERO, ..reported });
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

impl Drop for Sender {
    fn drop(&mut self) {
        self.stop();
    }
}
