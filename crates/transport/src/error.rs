//! Errors and refusals, each with its remedy.

use crate::framing::FramingError;
use serde::{Deserialize, Serialize};
use standfast_types::{Hint, Scn};
use std::fmt;
use std::time::Duration;

/// Version of the protocol; both ends must have the same.
pub const PROTOCOL_VERSION: u64 = 5;

/// An error of a stage behind one of this crate's traits. Its text says cause and remedy, see [`stage_error`].
pub type StageError = Box<dyn std::error::Error + Send + Sync>;

/// Makes an error of a stage of one with a hint. The text may be sent to the peer, so the hint becomes a part of it.
pub fn stage_error(error: impl Hint) -> StageError {
    error.in_one_line().into()
}

/// Why a redo source cannot serve a request.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The log that held the position no longer exists.
    #[error("redo from {wanted} on is gone; the oldest log here begins at {oldest}")]
    Gone {
        wanted: Scn,
        /// Start of the oldest log.
        oldest: Scn,
    },
    /// The sink of a snapshot failed.
    #[error("the copy could not be handed on: {0}")]
    Sink(#[source] std::io::Error),
    /// Any other failure; the text says cause and remedy.
    #[error("{0}")]
    Failed(#[source] StageError),
}

/// Why one end ends a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RefuseCode {
    /// The two ends speak different versions of the protocol.
    Version,
    /// The peer is not the expected instance, or is of another family.
    WrongPeer,
    /// The peer is a primary and takes no redo.
    NotStandby,
    /// The peer takes redo of a newer incarnation: this primary has been replaced.
    Fenced,
    /// The two ends hold different redo at positions that may have been applied.
    Diverged,
    /// The redo that the standby needs next no longer exists.
    Gap,
    /// A frame does not continue the stream.
    OutOfOrder,
    /// The standby has no log at the moment: it starts, stops or changes its role.
    Starting,
    /// The standby announces a clean shutdown: it is away until it is started again.
    Stopping,
    /// The stream of another source is open, or the log is in use.
    Busy,
    /// The redo comes from the standby itself, through others.
    Loop,
    /// The forwarding standby has less redo, or an older incarnation, than its destination.
    Behind,
    /// The standby cannot write its log.
    StandbyLog,
    /// The instance cannot read its redo or its databases.
    Source,
    /// A message that is not allowed at this point.
    Protocol,
    /// Plain TCP where it is not allowed, or TLS where there is no certificate.
    Tls,
    /// The peer's identity is proved, and it lacks the right to its request.
    NotAllowed,
}

/// Meaning of a refusal for commits and for the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// Treated like a lost connection: it passes by itself.
    NoAnswerYet,
    /// The standby leaves on purpose. Waiting would only delay commits: they continue without it immediately, where the
    /// configuration allows that. Not a failure.
    Leaving,
    /// The standby is there but cannot take redo. A restart or free space on its volume may repair that within the net
    /// timeout. Until then acknowledged redo must not be on one machine only: commits wait as for a silent standby.
    Unable,
    /// Only an operator can bring this destination back. Waiting would only delay commits: they continue without it
    /// immediately, where the configuration allows that.
    ForGood,
}

impl RefuseCode {
    pub const ALL: [RefuseCode; 17] = [
        RefuseCode::Version,
        RefuseCode::WrongPeer,
        RefuseCode::NotStandby,
        RefuseCode::Fenced,
        RefuseCode::Diverged,
        RefuseCode::Gap,
        RefuseCode::OutOfOrder,
        RefuseCode::Starting,
        RefuseCode::Stopping,
        RefuseCode::Busy,
        RefuseCode::Loop,
        RefuseCode::Behind,
        RefuseCode::StandbyLog,
        RefuseCode::Source,
        RefuseCode::Protocol,
        RefuseCode::Tls,
        RefuseCode::NotAllowed,
    ];

    /// Returns the meaning of the code. A code is [`RefusalKind::ForGood`] only when it states who the peer is or what
    /// redo it holds; `docs/protocol.md` has the list.
    pub fn kind(self) -> RefusalKind {
        use RefuseCode::*;
        match self {
            OutOfOrder | Starting | Busy | Protocol => RefusalKind::NoAnswerYet,
            Stopping => RefusalKind::Leaving,
            Loop | Behind | StandbyLog | Source | Fenced | Tls | NotAllowed => RefusalKind::Unable,
            Version | WrongPeer | NotStandby | Diverged | Gap => RefusalKind::ForGood,
        }
    }
}

impl fmt::Display for RefuseCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RefuseCode::Version => "version",
            RefuseCode::WrongPeer => "wrong_peer",
            RefuseCode::NotStandby => "not_standby",
            RefuseCode::Fenced => "fenced",
            RefuseCode::Diverged => "diverged",
            RefuseCode::Gap => "gap",
            RefuseCode::OutOfOrder => "out_of_order",
            RefuseCode::Starting => "starting",
            RefuseCode::Stopping => "stopping",
            RefuseCode::Busy => "busy",
            RefuseCode::Loop => "loop",
            RefuseCode::Behind => "behind",
            RefuseCode::StandbyLog => "standby_log",
            RefuseCode::Source => "source",
            RefuseCode::Protocol => "protocol",
            RefuseCode::Tls => "tls",
            RefuseCode::NotAllowed => "not_allowed",
        })
    }
}

/// The end of a conversation, as it is sent and shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message} [{code}]")]
pub struct Refusal {
    pub code: RefuseCode,
    /// For operators: cause and remedy. From a peer: one printable line of bounded length.
    #[serde(deserialize_with = "crate::foreign::foreign_text")]
    pub message: String,
}

impl Refusal {
    pub fn new(code: RefuseCode, message: impl Into<String>) -> Refusal {
        Refusal { code, message: message.into() }
    }

    /// Refusal because the other end speaks version `theirs`.
    pub fn version(theirs: u64) -> Refusal {
        Refusal::new(
            RefuseCode::Version,
            format!(
                "protocol version {theirs} meets version {PROTOCOL_VERSION}; install the same release of Standfast \
                 on both machines, the standby first"
            ),
        )
    }
}

/// Why a sender, receiver or request cannot do its work.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    #[error(
        "cannot use address `{address}`: {source}; it must be HOST:PORT of this machine or one it can reach"
    )]
    Address { address: String, source: std::io::Error },
    /// There is neither a certificate nor the permission to use plain TCP.
    #[error(
        "`{address}` cannot be used: this instance has no certificate, and plain TCP can be read and written by everyone who \
         reaches it; get a certificate with a token (`standfast cert join`), or set `insecure = true` in [instance] at both \
         ends if everybody who reaches their ports is trusted"
    )]
    Insecure { address: String },
    /// The two ends cannot agree on an encrypted connection.
    #[error("no TLS with {peer}: {what}")]
    Tls { peer: String, what: String },
    /// This instance's own certificate cannot be used; the text says cause and remedy.
    #[error("{0}")]
    Certificate(String),
    #[error("{what}: {source}")]
    Io { what: &'static str, source: std::io::Error },
    /// No further frame could be read.
    #[error("{0}")]
    Framing(#[from] FramingError),
    #[error("refused by the other end: {0}")]
    Refused(#[from] Refusal),
    /// Nothing came for the net timeout, of which this is the length.
    #[error("nothing heard for {:.1} s (net_timeout)", .0.as_secs_f64())]
    Silent(Duration),
    /// The other end sent something that is not allowed at this point.
    #[error("the other end broke the protocol: {0}; install the same release of Standfast on both machines")]
    Protocol(String),
}

impl TransportError {
    /// Returns a function for `map_err` on system calls.
    pub fn io(what: &'static str) -> impl Fn(std::io::Error) -> TransportError {
        move |source| TransportError::Io { what, source }
    }
}
