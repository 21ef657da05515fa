//! Redo transport from a primary to its standbys.
//!
//! ```text
//!  log writer ── offer ──> Sender (one per destination) ══ TCP ══> Receiver ── append ──> StandbyLog ──> apply
//!  commits <── release ── Destination <── Ack: received, hardened, applied ══════┘
//! ```
//!
//! - [`Sender`]: the log writer offers each batch before its own disk write. The sender's thread sends the part that
//!   the socket does not take immediately, from the log buffer or, once the log buffer no longer holds it, from the
//!   logs.
//! - [`Receiver`]: runs on every instance. On a standby it writes redo to the [`StandbyLog`] and acknowledges it; on a
//!   primary it serves copies for new standbys ([`fetch_snapshot`]).
//! - [`Destination`], [`resolve()`] and [`releasable`] make the decisions, without threads and clocks.
//!
//! This crate depends neither on the log nor on apply: an instance connects them through the traits [`RedoSource`],
//! [`SenderObserver`], [`StandbyLog`] and [`ReceiverService`]. `docs/protocol.md` describes the protocol.

mod ack;
mod arbitration;
mod certificate;
mod channel;
mod clock;
mod destination;
mod destination_config;
mod destination_set;
mod error;
mod event;
mod fetch_certificate;
mod foreign;
pub mod framing;
pub mod gap;
pub mod hello;
mod identity;
pub mod link;
pub mod machine;
mod packing;
mod page_sums;
mod positions;
pub mod protection;
mod receiver;
mod redo;
mod release;
mod remote_times;
mod request;
mod resolve;
mod rights;
pub mod selection;
mod sender;
mod snapshot;
mod source;
mod standby;
mod stats;
mod stopped;
mod sys;
mod verified;
mod wait;
mod wire;

pub use ack::AckTimes;
pub use arbitration::ObserverConnection;
pub use certificate::{
    AuthorityEndorsement, CertificateGrant, CertificateRequest, CertificateRight, TokenProof, now_seconds,
};
pub use channel::CertificateChannel;
pub use destination::{Destination, Phase, Standing};
pub use destination_config::{DestinationConfig, OnTimeout, TransportMode};
pub use destination_set::{DestinationSet, Others};
pub use error::{
    PROTOCOL_VERSION, Refusal, RefusalKind, RefuseCode, SourceError, StageError, TransportError, stage_error,
};
pub use event::{ReceiverEvent, SenderEvent};
pub use fetch_certificate::fetch_certificate;
pub use gap::{ArchivedLogInfo, Gap, GapSettings, GapStatus, GivenUp};
pub use hello::{Hop, IssuerAt, LogGeometry, NewStandby, PositionSum, SenderHello, TakeOver, TakeOverAnswer};
pub use identity::{Incarnation, Meeting, PeerIdentity, Promotion, Role, history_at, incarnation_of, meet};
pub use link::{Identities, Security};
pub use packing::{Compression, UnpackError, Unpacker};
pub use positions::{PositionAnswers, PositionCall, PositionRequests};
pub use receiver::{Limits, Receiver, ReceiverConfig, ReceiverCounts};
pub use redo::{LogSwitch, RedoSlice};
pub use release::{ReleaseView, releasable, releasable_with, withheld_by};
pub use resolve::{Verdict, View, resolve};
pub use rights::{MemberRights, Right, Rights};
pub use sender::{
    ArchiveTransport, Archivers, Batch, DestinationStatus, Offer, Sender, SenderConfig, StreamShape,
};
pub use snapshot::{
    COPY_SILENCE, Discarded, Manifest, NotTakenOver, SnapshotSink, SnapshotStart, ask_to_follow,
    ask_to_take_over, fetch_database, fetch_snapshot, fetch_status,
};
pub use source::{ArchivedFile, DatabaseInfo, RedoSource, SenderObserver, SnapshotInfo};
pub use standby::{
    ArchivePart, ArchiveStore, CascadeLimit, OpenedGap, ReceiverService, StandbyLog, StreamStart,
};
pub use stats::DestinationStats;
pub use stopped::{StoppedDatabase, StoppedDatabases};
pub use verified::{PageDifference, VerifiedDatabase, VerifiedDatabases};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks even if another holder has panicked: the data behind these locks is valid after every statement.
fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns microseconds since the Unix epoch.
fn now_us() -> u64 {
    clock::Clock::unix_us(&clock::SystemClock)
}
