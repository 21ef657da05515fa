//! The messages of a handshake, as JSON in `Hello`, `Refuse`, `Request` and `Done` frames.

use crate::certificate::CertificateRequest;
use crate::destination_config::{ProtectionMode, TransportMode};
use crate::error::{PROTOCOL_VERSION, Refusal, TransportError};
use crate::foreign::{foreign_name, foreign_names};
use crate::framing::{FrameReader, FramingError};
use crate::identity::PeerIdentity;
use crate::link::LinkEnd;
use crate::packing::Compression;
use crate::redo::LogSwitch;
use crate::rights::MemberRights;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use standfast_format::{Frame, FrameKind, StreamCrc};
use standfast_types::{DatabaseId, FOREIGN_TEXT_MAX, InstanceId, Scn, printable};
use std::time::{Duration, Instant};

/// Upper limit of the silence after which a sender is dropped, whatever it asks for.
pub(crate) const NET_TIMEOUT_MAX: Duration = Duration::from_secs(1200);

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderHello {
    pub source: PeerIdentity,
    /// When it counts the redo as acknowledged.
    pub mode: TransportMode,
    /// Silence, in milliseconds, after which it drops the connection; the receiver does the same.
    pub net_timeout_ms: u64,
    /// Receive buffer for the receiver's socket; 0 = the system's default.
    #[serde(default)]
    pub receive_buffer_bytes: u32,
    #[serde(default)]
    pub compression: Compression,
    /// The connection is for archived logs of the gap that ends here, beside the stream of the same primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archives_to: Option<Scn>,
    /// Instances through which the redo comes to `source`, the primary first; empty when `source` is the primary.
    #[serde(default)]
    pub via: Vec<Hop>,
    /// How long the standby holds redo back before it applies it, in milliseconds; `None`: the standby's own setting
    /// applies.
    #[serde(default)]
    pub delay_ms: Option<u64>,
    /// The primary's online logs, which determine the size of the standby redo logs.
    #[serde(default)]
    pub logs: Option<LogGeometry>,
    /// Instances that this primary endorses: after a failover the receiver accepts redo from them too.
    #[serde(default, deserialize_with = "foreign_names")]
    pub peers: Vec<String>,
    /// All members that it knows, with their rights; empty: a release that only sends `peers`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberRights>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<IssuerAt>,
    /// Whether this end answers requests for certificates over this stream.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renews: bool,
    /// Whether this end answers requests for positions over this stream.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reports_position: bool,
}

impl SenderHello {
    /// Silence after which the connection is dropped, at most 1200 s, the same limit as in the configuration.
    pub fn net_timeout(&self) -> Duration {
        Duration::from_millis(self.net_timeout_ms).min(NET_TIMEOUT_MAX)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuerAt {
    pub name: String,
    /// HOST:PORT on which it listens. Without a host (`:PORT`): the address that the connection comes from.
    pub address: String,
}

/// An instance that the redo passes through.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    pub instance: InstanceId,
    #[serde(deserialize_with = "foreign_name")]
    pub name: String,
}

/// Geometry of the online redo log of a primary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogGeometry {
    /// Number of groups.
    pub groups: usize,
    /// Bytes of its largest log file.
    pub group_bytes: u64,
    /// Block size in bytes.
    pub block_bytes: usize,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiverHello {
    pub standby: PeerIdentity,
    /// Its positions; `None` when it takes no redo from this sender.
    pub positions: Option<StandbyPositions>,
    /// Largest payload of a frame that it accepts; 0 = as large as the protocol allows.
    #[serde(default)]
    pub sdu_bytes: u32,
    /// Whether this end answers requests for certificates over this stream.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renews: bool,
    /// Whether this end accepts a changed list of members over this stream; otherwise a changed list needs a new
    /// stream.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lists: bool,
    /// Whether this end keeps the shared configuration.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub configures: bool,
}

impl ReceiverHello {
    /// The answer of an instance that takes nothing beside the redo.
    pub fn new(standby: PeerIdentity, positions: Option<StandbyPositions>, sdu_bytes: u32) -> ReceiverHello {
        ReceiverHello { standby, positions, sdu_bytes, renews: false, lists: false, configures: false }
    }
}

/// The positions of a standby. They do not change until the stream has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyPositions {
    pub end: PositionSum,
    /// Position that the primary has confirmed; apply goes no further.
    pub confirmed: PositionSum,
    pub applied: Scn,
    /// Limit of the acknowledged redo, because the standby forwards synchronously; `None`: no limit.
    #[serde(default)]
    pub passed: Option<Scn>,
    /// The log that is being filled; `None` before the first one.
    pub log: Option<LogSwitch>,
}

/// A position with the running checksum of the stream up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PositionSum {
    pub scn: Scn,
    /// Value of the [`StreamCrc`] there.
    pub crc: u32,
}

impl PositionSum {
    /// Whether the stream known here has this checksum there.
    pub fn matches(&self, known: Option<StreamCrc>) -> bool {
        known == Some(StreamCrc(self.crc))
    }
}

/// First message of a connection that asks for something other than a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Copies of all databases for a new standby.
    Snapshot {
        /// `db_unique_name` of the new standby, for the alert log.
        #[serde(deserialize_with = "foreign_name")]
        name: String,
        /// Only the start position of its redo: it will have no databases.
        #[serde(default)]
        without_databases: bool,
        /// Only this database, to rebuild it at its primary. A standby serves this too; its copy holds all commits
        /// before the reported SCN, and possibly later ones.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        only: Option<DatabaseId>,
        /// The standby has files already: it answers requests for sums of their pages, and gets the pages that differ.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        sums: bool,
    },
    Status {
        /// Whether to include its recorded history, which is long.
        #[serde(default)]
        history: bool,
    },
    Certificate(CertificateRequest),
    /// The primary hands its role to this standby (switchover).
    TakeOver(Box<TakeOver>),
    /// A reinstated instance asks its primary to ship redo to it.
    Follow(NewStandby),
    /// A member asks this observer, again and again over this connection.
    Arbitrate {
        /// Name of the member.
        #[serde(deserialize_with = "foreign_name")]
        name: String,
    },
}

/// What a primary that ends its redo tells the standby that is to take over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeOver {
    pub source: PeerIdentity,
    /// End of the redo, which the standby must hold; `None`: the primary only asks whether the standby is ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<PositionSum>,
    pub protection_mode: ProtectionMode,
    /// The configuration that all instances share: the new primary ships to the others as the old one did, and to the old
    /// one as that shipped to it.
    pub configuration: serde_json::Value,
}

/// An instance that asks to be shipped to, because it has become a standby.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewStandby {
    #[serde(deserialize_with = "foreign_name")]
    pub name: String,
    /// HOST:PORT on which it listens. Without a host (`:PORT`): the address that its own request comes from.
    pub address: String,
    pub mode: TransportMode,
    pub net_timeout_ms: u64,
}

/// The answer to [`Request::TakeOver`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeOverAnswer {
    /// Where the new incarnation begins; `None`: the standby is ready, or see `failed`.
    pub branch: Option<Scn>,
    /// The online logs that it would have as primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logs: Option<LogGeometry>,
    /// It has failed between the roles: which one it has after a restart is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// Decodes the JSON payload of a frame.
///
/// # Errors
/// `Protocol` with the fault.
pub fn decode<T: DeserializeOwned>(frame: &Frame<'_>) -> Result<T, TransportError> {
    serde_json::from_slice(frame.payload).map_err(|error| {
        // The parser's message quotes the input.
        let error = printable(&error.to_string(), FOREIGN_TEXT_MAX);
        TransportError::Protocol(format!("{:?} message: {error}", frame.header.kind))
    })
}

/// Checks that a frame is of the expected kind and, where it carries one, of our version; returns the refusal of a
/// `Refuse` as an error.
///
/// # Errors
/// `Refused`, also for another version (in that case the other end has not been notified), or `Protocol`.
pub fn expect(frame: &Frame<'_>, kind: FrameKind) -> Result<(), TransportError> {
    if frame.header.kind == FrameKind::Refuse {
        return Err(TransportError::Refused(decode::<Refusal>(frame)?));
    }
    if frame.header.kind != kind {
        let message = format!("{:?} where {kind:?} was expected", frame.header.kind);
        return Err(TransportError::Protocol(message));
    }
    if matches!(kind, FrameKind::Hello | FrameKind::Request) && frame.header.a != PROTOCOL_VERSION {
        return Err(TransportError::Refused(Refusal::version(frame.header.a)));
    }
    Ok(())
}

/// Waits until `deadline` for a whole frame; a peer that sends byte by byte gets no more time.
///
/// # Errors
/// `TimedOut` at the deadline, else as [`FrameReader::read`].
pub fn await_frame(reader: &mut FrameReader<LinkEnd>, deadline: Instant) -> Result<Frame<'_>, FramingError> {
    loop {
        if reader.peek(0)?.is_some() {
            break;
        }
        let left = deadline.saturating_duration_since(Instant::now());
        if left < Duration::from_millis(1) {
            return Err(FramingError::TimedOut);
        }
        reader.inner().set_read_timeout(Some(left)).map_err(FramingError::Io)?;
        reader.fill()?;
    }
    reader.read()
}
