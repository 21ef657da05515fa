//! What a receiver needs from its instance.

use crate::certificate::{CertificateGrant, CertificateRequest, CertificateRight};
use crate::channel::CertificateChannel;
use crate::error::{Refusal, RefuseCode, StationError};
use crate::event::ReceiverEvent;
use crate::gap::{ArchivedLogInfo, Gap};
use crate::hello::SenderHello;
use crate::identity::{Incarnation, PeerIdentity};
use crate::rights::{MemberRights, Right};
use crate::source::{LogSwitch, RedoSource};
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
    /// The sender, with its incarnation history, which the standby takes over.
    pub source: PeerIdentity,
    /// First position that will be sent: the end of what the standby holds, or its confirmed position when it
    /// may hold redo that this primary does not. What it holds from here on is then compared with what arrives.
    pub from: Scn,
    /// What the standby holds beyond belongs to another branch and is dropped at once.
    pub keep: Scn,
    /// The primary's log that contains `from`. When it begins exactly at `from`, a switch to it follows.
    pub log: LogSwitch,
    /// The stream begins beyond a gap, which is filled meanwhile: what it lacks from `from` on comes in archived logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<Gap>,
}

impl StreamStart {
    /// First position of the stream.
    pub fn first(&self) -> Scn {
        self.gap.as_ref().map_or(self.from, |gap| gap.to)
    }
}

/// What a standby does with archived logs that come over connections of their own.
pub trait ArchiveStore: Send + Sync {
    /// Begins to take an archived log; one that was begun before is given up.
    ///
    /// # Errors
    /// When no file can be made for it.
    fn create(&self, log: &ArchivedLogInfo) -> Result<Arc<dyn ArchivePart>, StationError>;
}

/// An archived log on its way. Several threads write to it, each byte once.
pub trait ArchivePart: Send + Sync {
    /// Writes `bytes` at `offset` of the file.
    ///
    /// # Errors
    /// When they cannot be written.
    fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), StationError>;

    /// All bytes have been written. Every block is checked, and that the log is the one that was announced; then it is
    /// made durable and counts as held. False: something in it is wrong.
    ///
    /// # Errors
    /// When it cannot be kept.
    fn complete(&self) -> Result<bool, StationError>;
}

/// What a standby has given up, because the gap before it was not filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenUp {
    /// End of the redo that is held without a hole.
    pub end: Scn,
    /// The gap ended here.
    pub to: Scn,
    /// End of the redo that was held beyond it.
    pub received: Scn,
}

/// A gap as a standby has opened it.
pub struct OpenedGap {
    /// Where its archived logs go.
    pub store: Arc<dyn ArchiveStore>,
    /// For each log of the gap, whether it is held already.
    pub held: Vec<bool>,
}

/// Destinations of a standby for which the commits of its primary wait, too.
pub trait Passing: Send + Sync {
    /// How far of what is held up to `position` may be acknowledged.
    fn limit(&self, position: Scn) -> Scn;

    /// From now on `moved` is called when the limit may have changed.
    fn watch(&self, moved: Option<Arc<dyn Fn() + Send + Sync>>);
}

/// The standby redo log as the receiver writes it. One thread at a time uses it.
///
/// Always `applied <= confirmed <= received_end`: apply goes no further than a confirmed position that has been
/// hardened, and a cut never goes below the confirmed position. So apply never has to be undone.
pub trait StandbyLog: Send {
    /// End of the redo held; where the next byte goes. All of it survives a power loss of this machine.
    fn received_end(&self) -> Scn;

    /// The newest position that the primary has confirmed durable, as hardened here.
    fn confirmed(&self) -> Scn;

    /// How far apply is, in the databases that are not stopped.
    fn applied(&self) -> Scn;

    /// The databases to which redo is not applied, with a version that grows with every change; `None` when that
    /// is still `known`. Versions begin at 1. To be asked after `applied`, so that a position beyond redo that a
    /// database lacks is never told before the database.
    fn stopped(&self, known: u64) -> Option<(u64, Vec<StoppedDatabase>)>;

    /// What verification has found of the databases, with a version as that of [`StandbyLog::stopped`]. To be asked
    /// after `applied`, so that a position behind a verification record is never told before what it has found.
    fn verified(&self, _known: u64) -> Option<(u64, Vec<VerifiedDatabase>)> {
        None
    }

    /// Running sum of the stream up to `at`; must be known at least for `received_end` and `confirmed`.
    ///
    /// # Errors
    /// When the log cannot be read.
    fn stream_crc(&self, at: Scn) -> Result<Option<StreamCrc>, StationError>;

    /// Redo held from `from` on, exactly `bytes` bytes, which are there.
    ///
    /// # Errors
    /// When the log cannot be read.
    fn read(&self, from: Scn, bytes: usize) -> Result<Vec<u8>, StationError>;

    /// The log that contains `at`, or would contain the next byte there.
    fn log_containing(&self, at: Scn) -> Option<LogSwitch>;

    /// Drops everything from `at` on; `confirmed <= at < received_end`.
    ///
    /// # Errors
    /// When the log cannot be written; it then takes nothing more.
    fn cut(&mut self, at: Scn) -> Result<(), StationError>;

    /// A sender has introduced itself, which may send as far as its identity goes. Nothing of the log has been touched.
    ///
    /// # Errors
    /// Why it is not let near the log.
    fn admit(&mut self, _hello: &SenderHello) -> Result<(), Refusal> {
        Ok(())
    }

    /// Who else has to have redo before it is acknowledged.
    fn passing(&self) -> Option<Arc<dyn Passing>> {
        None
    }

    /// The newest frames of the stream said that the source's redo ends at `source_end`, and what the stream has brought
    /// up to `delivered` is written. What is held beyond may be other redo than the source's. Until `waits_until` no commit is
    /// acknowledged without this standby; `None`: commits do not wait for it.
    fn heard(&self, _delivered: Scn, _source_end: Scn, _waits_until: Option<Instant>) {}

    /// This end refuses to go on: the source need not wait for it.
    fn refuses(&self) {}

    /// A stream begins: remember the primary and its incarnations.
    ///
    /// # Errors
    /// When that cannot be made durable.
    fn begin(&mut self, start: &StreamStart) -> Result<(), StationError>;

    /// Writes `slices` one after the other at the end and returns the new end. Durable on return, together with
    /// `confirmed`, which is at most the new end and never less than before.
    ///
    /// # Errors
    /// When the log cannot be written; it then takes nothing more.
    fn append(&mut self, slices: &[&[u8]], confirmed: Scn) -> Result<Scn, StationError>;

    /// The log sequence ends at `received_end` and the next begins. Nothing to do when it is already the one
    /// being filled. May wait for a group that can be reused.
    ///
    /// # Errors
    /// As `append`.
    fn switch(&mut self, log: &LogSwitch) -> Result<(), StationError>;

    /// Hardens a newer confirmed position, at most `received_end`, without redo.
    ///
    /// # Errors
    /// As `append`.
    fn confirm(&mut self, confirmed: Scn) -> Result<(), StationError>;

    /// End of the redo that is held without a hole: all that is acknowledged as hardened.
    fn contiguous_end(&self) -> Scn {
        self.received_end()
    }

    /// The redo goes on beyond `gap`, in the log `log`, while archived logs fill it. Remembered durably before anything is
    /// written there. Until the gap is filled nothing beyond it counts as held.
    ///
    /// # Errors
    /// When that cannot be made durable.
    fn open_gap(&mut self, gap: &Gap, log: &LogSwitch) -> Result<OpenedGap, StationError> {
        Err(format!("this log takes no redo beyond a gap ({} to log {})", gap.from, log.sequence).into())
    }

    /// All logs of the gap are held: what lies beyond it counts.
    ///
    /// # Errors
    /// When that cannot be made durable, or something is missing.
    fn fill_gap(&mut self) -> Result<(), StationError> {
        Ok(())
    }

    /// The stream has ended before the gap was filled, if one is open: gives up what lies beyond it, and goes on where the
    /// archived logs lead that have come. Returns what was given up.
    ///
    /// # Errors
    /// When the log cannot be written.
    fn give_up_gap(&mut self) -> Result<Option<GivenUp>, StationError> {
        Ok(None)
    }

    /// Whether what was written to the log is still in the files that their paths name. Asked before every acknowledgement.
    ///
    /// # Errors
    /// Why nothing rests on it any more.
    fn is_sound(&self) -> Result<(), StationError> {
        Ok(())
    }

    /// Called after the acknowledgement of what was appended or confirmed: apply may go on.
    fn hardened_notice(&self);
}

/// The instance behind a listening port. All methods are called from several threads.
pub trait ReceiverService: Send + Sync {
    /// Who this instance is at the moment, with all incarnations it knows of (also those that its own stream
    /// has not entered yet: they fence older primaries).
    fn identity(&self) -> PeerIdentity;

    /// As [`ReceiverService::identity`], with the incarnations of the stream that is held: what a source that may send is
    /// told, to find out where the two parted.
    fn followed(&self) -> PeerIdentity {
        self.identity()
    }

    /// Whether what `peer` says of the incarnation `newer` is believed: only who may become primary has begun one, and that
    /// is proved by a record of the promotion, or said by somebody who has that right itself. `proven`: the peer has shown a
    /// certificate for its name. Nothing of this instance may change before.
    ///
    /// # Errors
    /// The refusal it is told.
    fn may_claim(&self, _peer: &PeerIdentity, _newer: &Incarnation, _proven: bool) -> Result<(), Refusal> {
        Ok(())
    }

    /// `peer`, which is who it says and may say so, knows a newer incarnation than this instance. From now on
    /// [`ReceiverService::identity`] knows it too, also after a restart, so that no older primary is followed or
    /// acknowledged; a primary accepts no more commits. Not asked of what this instance itself has sent.
    fn superseded(&self, _peer: &PeerIdentity, _newer: &Incarnation) {}

    /// A sender has introduced itself. Asked before anything else of it, also while another stream is live.
    ///
    /// # Errors
    /// Why its redo is not taken.
    fn admit(&self, _hello: &SenderHello) -> Result<(), Refusal> {
        Ok(())
    }

    /// The redo of this instance when it is a primary, for the creation of standbys.
    fn source(&self) -> Option<Arc<dyn RedoSource>>;

    /// The redo of this instance when it is a standby, for a copy of one database.
    fn copies(&self) -> Option<Arc<dyn RedoSource>> {
        None
    }

    /// What can be observed of this instance, as JSON text that fits into a frame; with `history` also what it has noted
    /// over time.
    fn status(&self, history: bool) -> String;

    /// Something for the alert log.
    fn event(&self, event: &ReceiverEvent);

    /// The calling thread, which serves connections, has that name.
    fn enter_thread(&self, _name: &str) {}

    /// Whether `peer`, whose certificate bears that name, may do what it wishes. Not asked over plain TCP, which
    /// proves no name.
    ///
    /// # Errors
    /// The refusal it is told.
    fn authorise(&self, _peer: &str, _wish: Right) -> Result<(), Refusal> {
        Ok(())
    }

    /// A stream of `hello.source`, which connects from there, has begun; it says who may do what. Over TLS only.
    fn vouched(&self, _hello: &SenderHello, _from: Option<SocketAddr>) {}

    /// Changes when an answer of [`ReceiverService::authorise`] may have become another one. Asked often: it must cost nothing.
    fn rights_version(&self) -> u64 {
        0
    }

    /// The source of an open stream over TLS says who may do what from now on.
    fn vouched_again(&self, _source: &str, _members: &[MemberRights]) {}

    /// A stream over TLS has begun, over which its source can be asked for a certificate while it lasts.
    fn certificate_channel(&self, _channel: &Arc<CertificateChannel>) {}

    /// A certificate is asked for.
    ///
    /// # Errors
    /// The refusal that is told; of code `NotAllowed` when the right is not good.
    fn certify(
        &self,
        _wish: &CertificateRequest,
        _right: &CertificateRight,
    ) -> Result<CertificateGrant, Refusal> {
        Err(Refusal::new(RefuseCode::NotAllowed, "this instance gives no certificates"))
    }
}
