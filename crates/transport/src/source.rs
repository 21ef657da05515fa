//! What a sender needs from its instance.

use crate::certificate::{CertificateGrant, CertificateRequest};
use crate::channel::CertificateChannel;
use crate::error::{Refusal, RefuseCode, SourceError, StationError};
use crate::event::SenderEvent;
use crate::gap::ArchivedLogInfo;
use crate::hello::{Hop, IssuerAt, LogGeometry};
use crate::identity::{Incarnation, PeerIdentity};
use crate::rights::MemberRights;
use serde::{Deserialize, Serialize};
use standfast_format::StreamCrc;
use standfast_instruments::RemoteAnswer;
use standfast_types::{DatabaseId, PageNo, PageSize, Scn};
use std::fmt;
use std::sync::Arc;

/// A piece of the redo stream in memory, shared with whoever holds the memory. Cheap to clone.
#[derive(Clone)]
pub struct Piece {
    first: Scn,
    memory: Arc<dyn AsRef<[u8]> + Send + Sync>,
    from: usize,
    upto: usize,
}

impl Piece {
    /// All of `memory`, whose first byte stands at `first`.
    pub fn new(first: Scn, memory: Arc<dyn AsRef<[u8]> + Send + Sync>) -> Piece {
        let upto = (*memory).as_ref().len();
        Piece { first, memory, from: 0, upto }
    }

    /// Position of the first byte.
    pub fn first(&self) -> Scn {
        self.first
    }

    /// Position after the last byte.
    pub fn end(&self) -> Scn {
        self.first + (self.upto - self.from) as u64
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        &(*self.memory).as_ref()[self.from..self.upto]
    }

    /// What of it lies at or after `from` and before `upto`; empty when nothing does.
    #[must_use]
    pub fn clip(&self, from: Scn, upto: Scn) -> Piece {
        let start = from.max(self.first).min(self.end());
        let end = upto.min(self.end()).max(start);
        Piece {
            first: start,
            memory: self.memory.clone(),
            from: self.from + start.bytes_since(self.first) as usize,
            upto: self.from + end.bytes_since(self.first) as usize,
        }
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({}..{})", self.first, self.end())
    }
}

/// The beginning of a log sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogSwitch {
    /// Number of the log within its incarnation.
    pub sequence: u64,
    /// Position of its first byte.
    pub first_scn: Scn,
    /// Time of the switch, microseconds since the Unix epoch.
    pub time_us: u64,
    /// Bytes from `first_scn` to the first record that starts in it.
    pub first_record: u32,
}

/// A protected database as a new standby needs to know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseInfo {
    /// Its number in the stream.
    pub id: DatabaseId,
    /// File name on every instance, unique within the instance.
    pub name: String,
    /// Its page size.
    pub page_size: PageSize,
    /// Where it lies on the instance that says this.
    pub path: String,
}

/// What a copied snapshot of one database is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SnapshotInfo {
    /// The database.
    pub database: DatabaseId,
    /// The copy holds every commit up to here and none after. Durable on the primary.
    pub scn: Scn,
    /// Pages of the database.
    pub pages: PageNo,
}

/// The redo of a primary, or of a standby that forwards what it receives, as its senders read it. All methods are called from several threads.
pub trait RedoSource: Send + Sync {
    /// Who this instance is, with its present incarnation history.
    fn identity(&self) -> PeerIdentity;

    /// Instances that standbys shall take redo from after a failover, by name.
    fn peers(&self) -> Vec<String> {
        Vec::new()
    }

    /// All members that this instance knows, itself among them, with what each may do.
    fn members(&self) -> Vec<MemberRights> {
        Vec::new()
    }

    /// Changes when [`RedoSource::members`], or an objection by what a destination may do, may have become another one. Asked
    /// often: it must cost nothing.
    fn rights_version(&self) -> u64 {
        0
    }

    /// Where certificates are renewed.
    fn issuer(&self) -> Option<IssuerAt> {
        None
    }

    /// End of the redo in the log buffer.
    fn captured(&self) -> Scn;

    /// End of the redo that survives a power loss of this machine.
    fn durable(&self) -> Scn;

    /// End of what a sender may send without having been offered it: its place in the logs is decided.
    fn sendable(&self) -> Scn {
        self.durable()
    }

    /// Changes when redo that was captured is given up, or anything else that streams were begun with becomes something
    /// else; odd while that is being done. A stream of another epoch ends, and its successor finds out where to go on.
    /// What was read from this source counts only if the epoch is even and still the same afterwards.
    fn epoch(&self) -> u64 {
        0
    }

    /// Why nothing is to be sent to the destination of this name at the moment, without asking it.
    fn objection(&self, _destination: &str) -> Option<Refusal> {
        None
    }

    /// Instances through which the redo comes here, the primary first; empty at a primary.
    fn via(&self) -> Vec<Hop> {
        Vec::new()
    }

    /// The primary's online logs, when known.
    fn logs(&self) -> Option<LogGeometry> {
        None
    }

    /// Start of the oldest redo that `logged` can still read.
    fn oldest(&self) -> Scn;

    /// Redo from the log buffer, contiguous, about `bytes_max` bytes (at least one piece when there is any),
    /// the first piece containing `from`. Empty when there is nothing after `from`; `None` when `from` is no
    /// longer (or not yet) in the buffer.
    fn buffered(&self, from: Scn, bytes_max: usize) -> Option<Vec<Piece>>;

    /// Redo from online or archived logs, any cut, at most `bytes_max` bytes, up to what is durable.
    ///
    /// # Errors
    /// `Gone` when the log that held `from` exists no more; `Failed` when it cannot be read.
    fn logged(&self, from: Scn, bytes_max: usize) -> Result<Vec<u8>, SourceError>;

    /// Running sum of the stream up to `at`, which may lie in the log buffer. `None` when it is not known:
    /// `at` is older than the oldest log or newer than what is captured.
    ///
    /// # Errors
    /// When a log cannot be read.
    fn stream_crc(&self, at: Scn) -> Result<Option<StreamCrc>, SourceError>;

    /// Logs with `after < first_scn <= upto`, ascending; at most one begins at a position. A log is listed before
    /// any redo in it is offered to a sender or durable.
    fn switches(&self, after: Scn, upto: Scn) -> Vec<LogSwitch>;

    /// The log that contains `at`, or would contain the next byte there. `None` when no such log is left.
    fn log_containing(&self, at: Scn) -> Option<LogSwitch>;

    /// Archived logs that lead on from `from` without a hole, the first of which contains it, and the running sum after
    /// the last one. `None` when there are none, or they are not known to be of this stream.
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
    /// `Gone` when it exists no more; `Failed` when it cannot be read or is not what it was.
    fn open_archived(&self, log: &ArchivedLogInfo) -> Result<Box<dyn ArchivedFile>, SourceError> {
        Err(SourceError::Gone { wanted: log.first_scn, oldest: self.oldest() })
    }

    /// All protected databases, for a copy: what is protected from now on comes with the redo.
    ///
    /// # Errors
    /// When it cannot be made sure of that.
    fn databases(&self) -> Result<Vec<DatabaseInfo>, SourceError>;

    /// Gives a consistent copy of `database` to `sink`, in calls of whole pages that begin at the page number
    /// given, ascending, without holes. Commits go on meanwhile. The redo from the copy's SCN on must stay
    /// readable until the standby that asked for it has connected.
    ///
    /// # Errors
    /// What `sink` returns (`SourceError::Sink`), or why there is no copy.
    fn snapshot(
        &self,
        database: DatabaseId,
        sink: &mut dyn FnMut(PageNo, &[u8]) -> std::io::Result<()>,
    ) -> Result<SnapshotInfo, SourceError>;
}

/// An archived log as it is sent.
pub trait ArchivedFile: Send {
    /// Fills `out` from `offset`, whole blocks. Every block is checked.
    ///
    /// # Errors
    /// When it cannot be read, or a block is damaged; the text names file and place.
    fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<(), StationError>;
}

/// Whom a sender tells. Calls come from the sender's threads and must be short; they must not call back into
/// the sender except for `release_view` and `status`.
pub trait SenderObserver: Send + Sync {
    /// The destination's positions moved or it became more or less required: commits may be releasable.
    /// `by` is the acknowledgement that has just come; `None`: a decision, or a connection that ended.
    fn acknowledged(&self, destination: usize, by: Option<RemoteAnswer>);

    /// The calling thread, which belongs to a sender, has that name.
    fn enter_thread(&self, _name: &str) {}

    /// See [`crate::ReceiverService::may_claim`].
    ///
    /// # Errors
    /// The refusal it is told.
    fn may_claim(&self, _peer: &PeerIdentity, _newer: &Incarnation, _proven: bool) -> Result<(), Refusal> {
        Ok(())
    }

    /// A stream over TLS has begun, over which the destination can be asked for a certificate while it lasts.
    fn certificate_channel(&self, _channel: &Arc<CertificateChannel>) {}

    /// The destination, which has proved to be what the request names, asks for a certificate.
    ///
    /// # Errors
    /// The refusal it is told.
    fn certify(&self, _wish: &CertificateRequest) -> Result<CertificateGrant, Refusal> {
        Err(Refusal::new(RefuseCode::NotAllowed, "this instance gives no certificates"))
    }

    /// `peer` knows a newer incarnation than this instance, which is no primary: see [`crate::ReceiverService::superseded`].
    /// A primary is told with [`SenderEvent::Fenced`].
    fn superseded(&self, _peer: &PeerIdentity, _newer: &Incarnation) {}

    /// Something for the alert log.
    fn event(&self, destination: usize, event: &SenderEvent);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_is_clipped_without_copying() {
        let piece = Piece::new(Scn(100), Arc::new(b"0123456789".to_vec()));
        let middle = piece.clip(Scn(103), Scn(106));
        assert_eq!((middle.first(), middle.bytes(), middle.end()), (Scn(103), &b"345"[..], Scn(106)));
        assert_eq!(middle.clip(Scn(0), Scn(104)).bytes(), b"3");
        assert_eq!(piece.clip(Scn(110), Scn(200)).bytes(), b"");
        assert_eq!(piece.clip(Scn(0), Scn(50)).bytes(), b"");
        assert_eq!(piece.clip(Scn(0), Scn(500)).bytes().len(), 10);
    }
}
