//! Interfaces that a sender needs from its instance.

use crate::certificate::{CertificateGrant, CertificateRequest};
use crate::channel::CertificateChannel;
use crate::error::{Refusal, RefuseCode, SourceError, StageError};
use crate::event::SenderEvent;
use crate::gap::ArchivedLogInfo;
use crate::hello::{Hop, IssuerAt, LogGeometry};
use crate::identity::{Incarnation, PeerIdentity};
use crate::positions::PositionCall;
use crate::redo::{LogSwitch, RedoSlice};
use crate::rights::MemberRights;
use serde::{Deserialize, Serialize};
use standfast_format::StreamCrc;
use standfast_instruments::RemoteAnswer;
use standfast_types::{DatabaseId, PageNo, PageSize, Scn};
use std::sync::Arc;

/// A protected database, as described to a new standby.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseInfo {
    /// Number of the database in the stream.
    pub id: DatabaseId,
    /// File name on every instance, unique within the instance.
    pub name: String,
    pub page_size: PageSize,
    /// Path on the instance that reports this.
    pub path: String,
}

/// Describes the copy of one database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotInfo {
    pub database: DatabaseId,
    /// The copy holds every commit up to here. On a primary this position is durable and the copy holds no later
    /// commit; on a standby it may hold later ones.
    pub scn: Scn,
    /// Pages of the database.
    pub pages: PageNo,
}

/// The redo of a primary, or of a forwarding standby, as its senders read it. Several threads call all methods.
pub trait RedoSource: Send + Sync {
    /// Identity of this instance with its current incarnation history.
    fn identity(&self) -> PeerIdentity;

    /// Names of the instances from which standbys accept redo after a failover.
    fn peers(&self) -> Vec<String> {
        Vec::new()
    }

    /// All members that this instance knows, itself included, with their rights.
    fn members(&self) -> Vec<MemberRights> {
        Vec::new()
    }

    /// Changes when [`RedoSource::members`], or an objection because of a destination's rights, may have changed.
    /// Called often: must be cheap.
    fn rights_version(&self) -> u64 {
        0
    }

    /// The configuration that all instances share, for the standbys to keep; `None`: none is known.
    fn configuration(&self) -> Option<serde_json::Value> {
        None
    }

    /// Changes when [`RedoSource::configuration`] does. Called often: must be cheap.
    fn configuration_version(&self) -> u64 {
        0
    }

    fn issuer(&self) -> Option<IssuerAt> {
        None
    }

    /// End of the redo in the log buffer.
    fn captured(&self) -> Scn;

    /// End of the redo that survives a power loss of this machine.
    fn durable(&self) -> Scn;

    /// Calls `answer` with a position of this redo that includes all commits that the primary had acknowledged when this was
    /// called; immediately, or when that is known. Never when it cannot be known.
    fn position_of_primary(&self, _answer: PositionCall) {}

    /// End of the redo that a sender may send without having been offered it, because its place in the logs is decided.
    fn sendable(&self) -> Scn {
        self.durable()
    }

    /// Changes when captured redo is discarded, or when anything else that streams depend on changes; odd during such a
    /// change. A stream of another epoch ends, and the next one resolves where to continue. Data read from this source
    /// is valid only if the epoch is even and unchanged after the read.
    fn epoch(&self) -> u64 {
        0
    }

    /// Returns why nothing may be sent to this destination at the moment; it need not be contacted to know that.
    fn objection(&self, _destination: &str) -> Option<Refusal> {
        None
    }

    /// Instances through which the redo comes here, the primary first; empty at a primary.
    fn via(&self) -> Vec<Hop> {
        Vec::new()
    }

    /// Geometry of the primary's online logs, if known.
    fn logs(&self) -> Option<LogGeometry> {
        None
    }

    /// Start of the oldest redo that `logged` can still read.
    fn oldest(&self) -> Scn;

    /// Returns contiguous redo from the log buffer, about `bytes_max` bytes, at least one chunk if there is any; the
    /// first chunk contains `from`. Empty when there is no redo after `from`; `None` when `from` is no longer (or not
    /// yet) in the buffer.
    fn buffered(&self, from: Scn, bytes_max: usize) -> Option<Vec<RedoSlice>>;

    /// Returns redo from online or archived logs, cut anywhere, at most `bytes_max` bytes, up to the durable position.
    ///
    /// # Errors
    /// `Gone` when the log that held `from` no longer exists; `Failed` when it cannot be read.
    fn logged(&self, from: Scn, bytes_max: usize) -> Result<Vec<u8>, SourceError>;

    /// Returns the running checksum of the stream up to `at`, which may be in the log buffer. `None` when it is not
    /// known: `at` is older than the oldest log or newer than the captured redo.
    ///
    /// # Errors
    /// When a log cannot be read.
    fn stream_crc(&self, at: Scn) -> Result<Option<StreamCrc>, SourceError>;

    /// Returns the logs with `after < first_scn <= upto`, ascending; at most one begins at a position. A log is listed
    /// before any of its redo is offered to a sender or durable.
    fn switches(&self, after: Scn, upto: Scn) -> Vec<LogSwitch>;

    /// Returns the log that contains `at`, or would contain the next byte there. `None` when that log no longer exists.
    fn log_containing(&self, at: Scn) -> Option<LogSwitch>;

    /// Returns archived logs that continue from `from` without a gap, the first of which contains it, and the running
    /// checksum after the last one. `None` when there are none, or when they are not known to be of this stream.
    ///
    /// # Errors
    /// When a log cannot be read.
    fn archived_from(&self, from: Scn) -> Result<Option<(Vec<ArchivedLogInfo>, StreamCrc)>, SourceError> {
        let _ = from;
        Ok(None)
    }

    /// Opens an archived log to be sent.
    ///
    /// # Errors
    /// `Gone` when it no longer exists; `Failed` when it cannot be read or has changed.
    fn open_archived(&self, log: &ArchivedLogInfo) -> Result<Box<dyn ArchivedFile>, SourceError> {
        Err(SourceError::Gone { wanted: log.first_scn, oldest: self.oldest() })
    }

    /// Returns all protected databases, for a copy. Databases that are protected later come with the redo.
    ///
    /// # Errors
    /// When that cannot be guaranteed.
    fn databases(&self) -> Result<Vec<DatabaseInfo>, SourceError>;

    /// Passes a consistent copy of `database` to `sink`, in calls of whole pages that begin at the given page number,
    /// ascending, without gaps. Commits continue meanwhile. The redo from the copy's SCN on must stay readable until
    /// the standby that requested the copy has connected.
    ///
    /// # Errors
    /// The error of `sink` (`SourceError::Sink`), or the reason why there is no copy.
    fn snapshot(
        &self,
        database: DatabaseId,
        sink: &mut dyn FnMut(PageNo, &[u8]) -> std::io::Result<()>,
    ) -> Result<SnapshotInfo, SourceError>;
}

/// An archived log that is being sent.
pub trait ArchivedFile: Send {
    /// Fills `out` from `offset` with whole blocks. Checks every block.
    ///
    /// # Errors
    /// When it cannot be read, or a block is damaged; the text names file and offset.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StageError>;
}

/// Receives the reports of a sender. The sender's threads call these methods, which must be short and must not call
/// back into the sender except for `release_view` and `status`.
pub trait SenderObserver: Send + Sync {
    /// The destination's positions moved, or it became required or no longer is: commits may be releasable. `by` is the
    /// acknowledgement that has just arrived; `None`: a decision, or a connection that ended.
    fn acknowledged(&self, destination: usize, by: Option<RemoteAnswer>);

    /// The calling thread belongs to a sender and has this name.
    fn enter_thread(&self, _name: &str) {}

    /// See [`crate::ReceiverService::may_claim`].
    ///
    /// # Errors
    /// The refusal to send to the peer.
    fn may_claim(&self, _peer: &PeerIdentity, _newer: &Incarnation, _proven: bool) -> Result<(), Refusal> {
        Ok(())
    }

    /// A stream over TLS has begun; until it ends, certificates can be requested from the destination over it.
    fn certificate_channel(&self, _channel: &Arc<CertificateChannel>) {}

    /// The destination requests a certificate for the name that it has proved.
    ///
    /// # Errors
    /// The refusal to send to the destination.
    fn certify(&self, _wish: &CertificateRequest) -> Result<CertificateGrant, Refusal> {
        Err(Refusal::new(RefuseCode::NotAllowed, "this instance gives no certificates"))
    }

    /// `peer` knows a newer incarnation than this instance, which is not a primary: see
    /// [`crate::ReceiverService::superseded`]. A primary gets [`SenderEvent::Fenced`] instead.
    fn superseded(&self, _peer: &PeerIdentity, _newer: &Incarnation) {}

    /// Reports an event for the alert log.
    fn event(&self, destination: usize, event: &SenderEvent);
}
