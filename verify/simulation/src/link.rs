//! The connections between the primary and its standbys. Both ends of each are the machines that the threads of a sender
//! and a receiver run ([`standfast_transport::machine`]), with the real frames and handshake; the bytes go over a pipe in
//! memory, split anywhere, late, and lost from any byte on when the connection breaks. Archived logs that a standby lacks
//! come over connections of their own, as in an instance.
//!
//! ```text
//!  log writer ── offer ──> SenderEnd ══ pipe ══> ReceiverEnd ── append ──> StandbyLog    (once for each destination)
//!  commits <── releasable ── all Destinations <── Ack ════════┘
//!  archived logs ──> archiver ══ pipes ══> fetch ──> archived logs    (while a gap is open)
//! ```

mod archives;
mod line;
mod pipe;
mod receiver_end;
mod sender_end;

use crate::standby::StandbyHost;
use crate::{Held, Outcome};
use line::Line;
pub use pipe::Skew;
use pipe::Time;
use standfast_environment::config::settings::DestinationConfig;
use standfast_environment::ship::slices::slice_of;
use standfast_instruments::Cause;
use standfast_log::RedoChunk;
use standfast_primary::commit::primary::{PrimaryShared, Shipping};
use standfast_primary::ship::redo_source::PrimarySource;
use standfast_testkit::Rng;
use standfast_transport::{Batch, DestinationSet, RedoSource, RefuseCode, releasable_with};
use standfast_types::Scn;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

/// A standby, as the primary is configured for it.
pub struct Destination {
    pub config: DestinationConfig,
    pub standby: Held<StandbyHost>,
    /// How the clock of its machine differs.
    pub skew: Skew,
    /// Draws the properties and events of the connection.
    pub rng: Rng,
}

/// All destinations of the primary.
pub struct Link {
    source: Arc<PrimarySource>,
    shared: Arc<PrimaryShared>,
    lines: Vec<Arc<Line>>,
    set: Arc<DestinationSet>,
    time: Time,
    /// For each destination, whether commits could return without it since this was last asked.
    let_go: Vec<AtomicBool>,
}

impl Link {
    /// Creates the destinations without connections. A destination that `before` has continues; one that it has and
    /// that is not among `destinations` ends.
    pub fn new(
        source: &Arc<PrimarySource>,
        shared: &Arc<PrimaryShared>,
        destinations: Vec<Destination>,
        before: Option<&Link>,
    ) -> Arc<Link> {
        let set = before.map_or_else(Arc::default, |before| before.set.clone());
        let time = before.map_or_else(Time::default, |before| before.time.clone());
        let configured: Vec<_> = destinations.iter().map(|at| at.config.clone()).collect();
        let known = |name: &str| before.and_then(|link| link.lines.iter().find(|line| line.name() == name));
        let line = |destination: Destination| match known(&destination.config.name) {
            Some(line) => line.clone(),
            None => Arc::new(Line::new(source, destination, &configured, &set, &time)),
        };
        let lines: Vec<Arc<Line>> = destinations.into_iter().map(line).collect();
        let ends = |line: &&Arc<Line>| configured.iter().all(|at| at.name != line.name());
        before.iter().flat_map(|link| &link.lines).filter(ends).for_each(|line| line.lose_standby());
        let let_go = lines.iter().map(|_| AtomicBool::new(false)).collect();
        Arc::new(Link { source: source.clone(), shared: shared.clone(), lines, set, time, let_go })
    }

    /// Whether the network to a destination is up: the sender connects by itself.
    pub fn is_connected(&self, at: usize) -> bool {
        self.lines[at].is_up()
    }

    /// Whether every commit released since the last call had to wait for the destination, and commits still do.
    pub fn was_required(&self, at: usize) -> bool {
        !self.let_go[at].swap(false, SeqCst) && self.lines[at].core().is_required()
    }

    /// End of the redo that the destination has acknowledged, received or hardened depending on its mode; zero before
    /// the first handshake.
    pub fn acknowledged(&self, at: usize) -> Scn {
        self.lines[at].core().acknowledged()
    }

    /// End of the redo that the destination has acknowledged as hardened; zero before the first handshake.
    pub fn hardened(&self, at: usize) -> Scn {
        self.lines[at].core().hardened()
    }

    /// Takes the network to a destination down. What was sent arrives in part.
    pub fn disconnect(&self, at: usize) {
        self.lines[at].disconnect();
        self.shared.release(Cause::Decision);
    }

    /// A standby has died. The acknowledgements that it had sent arrive in part.
    pub fn lose_standby(&self, at: usize) {
        self.lines[at].lose_standby();
        self.shared.release(Cause::Decision);
    }

    /// The primary has died. The redo that it had sent arrives in part; what comes of it at the standbys is found later.
    pub fn die(&self) {
        self.lines.iter().for_each(|line| line.lose_primary());
    }

    /// Brings the network to a destination up.
    pub fn connect(&self, at: usize) {
        self.lines[at].connect();
    }

    /// Takes the error that occurred inside the log writer.
    pub fn take_failure(&self) -> Option<String> {
        // Of all: an error that is found later would count for machines that have power again.
        self.lines.iter().fold(None, |first, line| first.or(line.take_failure()))
    }

    /// Gaps that were filled by archived logs since this was last asked.
    pub fn take_gaps(&self) -> u64 {
        self.lines.iter().map(|line| line.take_gaps()).sum()
    }

    /// Why the handshake with a destination ended with a decision that no new attempt changes.
    pub fn take_refusal(&self, at: usize) -> Option<RefuseCode> {
        self.lines[at].take_refusal()
    }

    /// Lets both ends and the network of a destination do some steps. Returns whether there may be more to do.
    ///
    /// # Errors
    /// Why a stream ended, unless the connection was lost.
    pub fn deliver(&self, at: usize) -> Outcome<bool> {
        let delivered = self.lines[at].deliver(self.source.environment());
        self.shared.release(Cause::Decision);
        delivered
    }
}

impl Shipping for Link {
    fn offer(&self, chunk: &Arc<RedoChunk>, durable: Scn) {
        let slices = [slice_of(chunk)];
        let log_first = self.source.redo_log().current_first();
        let batch = Batch { slices: &slices, log_first, durable, captured: self.source.captured() };
        self.lines.iter().for_each(|line| line.offer(&batch));
    }

    fn releasable(&self, local: Scn) -> Scn {
        let waited_for: Vec<Option<Scn>> = self.lines.iter().map(|line| line.core().waited_for()).collect();
        for (let_go, waited_for) in self.let_go.iter().zip(&waited_for) {
            let_go.fetch_or(waited_for.is_none(), SeqCst);
        }
        releasable_with(local, waited_for)
    }
}
