//! Interfaces that a receiver needs from its instance.

use crate::certificate::{CertificateGrant, CertificateRequest, CertificateRight};
use crate::channel::CertificateChannel;
use crate::error::{Refusal, RefuseCode, StageError};
use crate::event::ReceiverEvent;
use crate::gap::{ArchivedLogInfo, Gap, GivenUp};
use crate::hello::{NewStandby, SenderHello, TakeOver, TakeOverAnswer};
use crate::identity::{Incarnation, PeerIdentity};
use crate::positions::PositionRequests;
use crate::redo::LogSwitch;
use crate::rights::{MemberRights, Right};
use crate::source::RedoSource;
use crate::stopped::StoppedDatabase;
use crate::verified::VerifiedDatabase;
use serde::{Deserialize, Serialize};
use standfast_format::StreamCrc;
use standfast_types::Scn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// Where a stream begins, decided by the sender and accepted by the receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamStart {
    /// The sender, with its incarnation history, which the standby adopts.
    pub source: PeerIdentity,
    /// First position to be sent: the end of the redo that the standby holds, or its confirmed position when it may
    /// hold redo that this primary does not. The standby then compares its redo from here on with the redo that
    /// arrives.
    pub from: Scn,
    /// The standby drops all redo beyond this position immediately: it belongs to another branch.
    pub keep: Scn,
    /// The primary's log that contains the first position of the stream. When it begins exactly there, a switch to it
    /// follows.
    pub log: LogSwitch,
    /// The gap before the stream. Archived logs fill it, from `from` on, while the stream runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
}

impl StreamStart {
    pub fn first(&self) -> Scn {
        self.gap.as_ref().map_or(self.from, |gap| gap.to)
    }
}

/// Stores the archived logs that a standby receives over separate connections.
pub trait ArchiveStore: Send + Sync {
    /// Begins to store an archived log; discards an earlier attempt.
    ///
    /// # Errors
    /// When its file cannot be created.
    fn create(&self, log: &ArchivedLogInfo) -> Result<Arc<dyn ArchivePart>, StageError>;
}

/// An archived log that is being received. Several threads write to it, each byte once.
pub trait ArchivePart: Send + Sync {
    /// Writes `bytes` at `offset` of the file.
    ///
    /// # Errors
    /// When they cannot be written.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), StageError>;

    /// All bytes have been written. Checks every block, and that the log is the one announced; then makes it durable,
    /// and it counts as held. False: something in it is wrong.
    ///
    /// # Errors
    /// When it cannot be stored.
    fn complete(&self) -> Result<bool, StageError>;
}

/// A gap that a standby has opened.
pub struct OpenedGap {
    pub store: Arc<dyn ArchiveStore>,
    /// For each log of the gap, whether it is held already.
    pub held: Vec<bool>,
}

/// Destinations of a standby that the commits of its primary also wait for.
pub trait CascadeLimit: Send + Sync {
    /// Returns up to where redo held up to `position` may be acknowledged.
    fn limit(&self, position: Scn) -> Scn;

    /// Sets the function to call when the limit may have changed.
    fn watch(&self, moved: Option<Arc<dyn Fn() + Send + Sync>>);
}

/// The standby redo log as the receiver writes it. One thread at a time uses it.
///
/// Invariant: `applied <= confirmed <= received_end`. Apply stops at a confirmed position that has been hardened, and a
/// truncation never goes below the confirmed position. So apply never has to be undone.
pub trait StandbyLog: Send {
    /// End of the redo held, where the next byte goes. All of it survives a power loss of this machine.
    fn received_end(&self) -> Scn;

    /// Newest position that the primary has confirmed as durable, as hardened here.
    fn confirmed(&self) -> Scn;

    /// Applied SCN of the databases that are not stopped.
    fn applied(&self) -> Scn;

    /// The databases to which redo is not applied, with a version that grows with every change; `None` when the version
    /// is still `known`. Versions begin at 1. Must be read after `applied`: a database must be reported before any
    /// applied position beyond redo that it lacks.
    fn stopped(&self, known: u64) -> Option<(u64, Vec<StoppedDatabase>)>;

    /// The verification findings in the databases, with a version as in [`StandbyLog::stopped`]. Must be read after
    /// `applied`: the findings of a verification record must be reported before any applied position beyond it.
    fn verified(&self, _known: u64) -> Option<(u64, Vec<VerifiedDatabase>)> {
        None
    }

    /// Returns the running checksum of the stream up to `at`; must be known at least for `received_end` and
    /// `confirmed`.
    ///
    /// # Errors
    /// When the log cannot be read.
    fn stream_crc(&self, at: Scn) -> Result<Option<StreamCrc>, StageError>;

    /// Returns exactly `bytes` bytes of redo from `from` on, all of which are held.
    ///
    /// # Errors
    /// When the log cannot be read.
    fn read(&self, from: Scn, bytes: usize) -> Result<Vec<u8>, StageError>;

    /// Returns the log that contains `at`, or would contain the next byte there.
    fn log_containing(&self, at: Scn) -> Option<LogSwitch>;

    /// Truncates the redo at `at`; `confirmed <= at < received_end`.
    ///
    /// # Errors
    /// When the log cannot be written; it then accepts nothing more.
    fn cut(&mut self, at: Scn) -> Result<(), StageError>;

    /// Admits a sender whose identity allows it to send. Nothing of the log has been changed yet.
    ///
    /// # Errors
    /// Why it may not use the log.
    fn admit(&mut self, _hello: &SenderHello) -> Result<(), Refusal> {
        Ok(())
    }

    /// The destinations that must also have redo before it is acknowledged.
    fn cascade_limit(&self) -> Option<Arc<dyn CascadeLimit>> {
        None
    }

    /// The newest frames of the stream have been processed: the source's redo ends at `source_end`, and the redo that
    /// the stream has brought up to `delivered` is written. Redo held beyond `delivered` may differ from the source's.
    /// Until `waits_until` no commit is acknowledged without this standby; `None`: commits do not wait for it.
    fn heard(&self, _delivered: Scn, _source_end: Scn, _waits_until: Option<Instant>) {}

    /// A stream has begun over which requests for positions can be sent; `None`: it has ended.
    fn may_request_positions(&self, _requests: Option<PositionRequests>) {}

    /// The source has answered such a request: no commit that the primary had acknowledged when it was sent is beyond
    /// `position`.
    fn position_came(&self, _request: u64, _position: Scn) {}

    /// This end refuses to continue: the source need not wait for it.
    fn refuses(&self) {}

    /// A stream begins: records the primary and its incarnations.
    ///
    /// # Errors
    /// When that cannot be made durable.
    fn begin(&mut self, start: &StreamStart) -> Result<(), StageError>;

    /// Appends `slices` in order and returns the new end. The redo is durable on return, together with `confirmed`,
    /// which is at most the new end and never less than before.
    ///
    /// # Errors
    /// When the log cannot be written; it then accepts nothing more.
    fn append(&mut self, slices: &[&[u8]], confirmed: Scn) -> Result<Scn, StageError>;

    /// Ends the log sequence at `received_end` and begins the next. Does nothing when `log` is already being filled.
    /// May wait for a group that can be reused.
    ///
    /// # Errors
    /// As `append`.
    fn switch(&mut self, log: &LogSwitch) -> Result<(), StageError>;

    /// Hardens a newer confirmed position, at most `received_end`, without redo.
    ///
    /// # Errors
    /// As `append`.
    fn confirm(&mut self, confirmed: Scn) -> Result<(), StageError>;

    /// End of the redo held without a gap; nothing beyond it is acknowledged.
    fn contiguous_end(&self) -> Scn {
        self.received_end()
    }

    /// Opens `gap`: the redo continues beyond it, in the log `log`, while archived logs fill it. The gap is durably
    /// recorded before anything is written beyond it. Until it is filled, nothing beyond it counts as held.
    ///
    /// # Errors
    /// When that cannot be made durable.
    fn open_gap(&mut self, gap: &Gap, log: &LogSwitch) -> Result<OpenedGap, StageError> {
        Err(format!("this log takes no redo beyond a gap ({} to log {})", gap.from, log.sequence).into())
    }

    /// All logs of the gap are held: the redo beyond it counts from now on.
    ///
    /// # Errors
    /// When that cannot be made durable, or something is missing.
    fn fill_gap(&mut self) -> Result<(), StageError> {
        Ok(())
    }

    /// Closes a gap that was not filled when its stream ended, if one is open: discards the redo beyond it, and
    /// continues at the end of the archived logs that have arrived in order. Returns the range that was discarded.
    ///
    /// # Errors
    /// When the log cannot be written.
    fn give_up_gap(&mut self) -> Result<Option<GivenUp>, StageError> {
        Ok(None)
    }

    /// Checks that the open files of the log are still the files that their paths name. Called before every
    /// acknowledgement.
    ///
    /// # Errors
    /// Why the log can no longer be relied on.
    fn is_sound(&self) -> Result<(), StageError> {
        Ok(())
    }

    /// Called after the acknowledgement of appended or confirmed redo: apply may continue.
    fn hardened_notice(&self);
}

/// The instance behind a listening port. Several threads call all methods.
pub trait ReceiverService: Send + Sync {
    /// Identity of this instance with all incarnations it knows, including those that its own stream has not entered:
    /// they fence older primaries.
    fn identity(&self) -> PeerIdentity;

    /// [`ReceiverService::identity`] with the incarnations of the stream that is held. A source that may send gets
    /// this, to find where the two histories part.
    fn followed(&self) -> PeerIdentity {
        self.identity()
    }

    /// Whether to trust the claim of `peer` that the incarnation `newer` has begun. Only a member that may become
    /// primary can begin one. A valid record of the promotion proves the claim; without a record only the new primary
    /// itself is trusted, by its own right. `proven`: the peer has shown a certificate for its name. Called before the
    /// claim changes anything in this instance.
    ///
    /// # Errors
    /// The refusal to send to the peer.
    fn may_claim(&self, _peer: &PeerIdentity, _newer: &Incarnation, _proven: bool) -> Result<(), Refusal> {
        Ok(())
    }

    /// `peer`, whose claim was checked, knows a newer incarnation than this instance. From now on
    /// [`ReceiverService::identity`] includes it, also after a restart, so that no older primary is followed or
    /// acknowledged; a primary accepts no more commits. Not called for messages that this instance itself has sent.
    fn superseded(&self, _peer: &PeerIdentity, _newer: &Incarnation) {}

    /// A sender has sent its identity. Called before anything else is done for it, even while another stream is live.
    ///
    /// # Errors
    /// Why its redo is not accepted.
    fn admit(&self, _hello: &SenderHello) -> Result<(), Refusal> {
        Ok(())
    }

    /// The redo of this instance when it is a primary, to create standbys from.
    fn source(&self) -> Option<Arc<dyn RedoSource>>;

    /// The redo of this instance when it is a standby, for a copy of one database.
    fn copies(&self) -> Option<Arc<dyn RedoSource>> {
        None
    }

    /// The observation of this instance, as JSON text that fits into a frame; with `history` also its recorded history.
    fn status(&self, history: bool) -> String;

    /// Reports an event for the alert log.
    fn event(&self, event: &ReceiverEvent);

    /// The calling thread serves connections and has this name.
    fn enter_thread(&self, _name: &str) {}

    /// Whether `peer`, as named by its certificate, has the right `wish`. Not called over plain TCP, which proves no
    /// name.
    ///
    /// # Errors
    /// The refusal to send to the peer.
    fn authorise(&self, _peer: &str, _wish: Right) -> Result<(), Refusal> {
        Ok(())
    }

    /// A stream of `hello.source` over TLS has begun from the address `from`; `hello` lists the rights of members.
    fn endorsed(&self, _hello: &SenderHello, _from: Option<SocketAddr>) {}

    /// Changes when an answer of [`ReceiverService::authorise`] may have changed. Called often: must be cheap.
    fn rights_version(&self) -> u64 {
        0
    }

    /// The source of an open stream over TLS has sent a new list of members.
    fn endorsed_again(&self, _source: &str, _members: &[MemberRights]) {}

    /// The source of an open stream has sent the configuration that all instances share. `from`: the address of its
    /// connection, IP:PORT.
    fn configured(&self, _source: &PeerIdentity, _configuration: serde_json::Value, _from: Option<&str>) {}

    /// A stream over TLS has begun; until it ends, certificates can be requested from its source over it.
    fn certificate_channel(&self, _channel: &Arc<CertificateChannel>) {}

    /// The primary that this standby follows hands its role over, or asks whether the standby is ready. The peer is
    /// authenticated as `wish.source` and may be a primary. `from`: the address of its connection. Returns once this
    /// instance is the primary.
    ///
    /// # Errors
    /// Why it does not take over: it is then still a standby, or fails as after a failover that failed.
    fn take_over(&self, _wish: &TakeOver, _from: Option<SocketAddr>) -> Result<TakeOverAnswer, Refusal> {
        Err(Refusal::new(RefuseCode::NotAllowed, "this instance takes over from no other"))
    }

    /// Ships redo to an instance that was reinstated as a standby of this one. `from`: where its request comes from.
    ///
    /// # Errors
    /// Why not; nothing has changed then.
    fn follow(&self, _standby: &NewStandby, _from: Option<SocketAddr>) -> Result<(), Refusal> {
        Err(Refusal::new(RefuseCode::NotAllowed, "this instance ships no redo"))
    }

    /// Answers `member`, whose name is proved over TLS, as the observer of fast-start failover.
    ///
    /// # Errors
    /// When this is no observer, or it cannot keep what it decides.
    fn arbitrate(&self, _member: &str, _wish: &serde_json::Value) -> Result<serde_json::Value, Refusal> {
        Err(Refusal::new(RefuseCode::NotAllowed, "this instance is no observer"))
    }

    /// Grants or refuses a certificate.
    ///
    /// # Errors
    /// The refusal to send; of code `NotAllowed` when the right is not valid.
    fn certify(
        &self,
        _wish: &CertificateRequest,
        _right: &CertificateRight,
    ) -> Result<CertificateGrant, Refusal> {
        Err(Refusal::new(RefuseCode::NotAllowed, "this instance gives no certificates"))
    }
}
