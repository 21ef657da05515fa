//! The messages of a handshake, as JSON in `Hello`, `Refuse`, `Request` and `Done` frames.

use crate::certificate::CertificateRequest;
use crate::destination::TransportMode;
use crate::error::{PROTOCOL_VERSION, Refusal, TransportError};
use crate::framing::{FrameReader, FramingError};
use crate::identity::PeerIdentity;
use crate::link::LinkEnd;
use crate::packing::Compression;
use crate::rights::MemberRights;
use crate::source::LogSwitch;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use standfast_format::{Frame, FrameKind, StreamCrc};
use standfast_types::{DatabaseId, FOREIGN_NAME_MAX, FOREIGN_TEXT_MAX, InstanceId, Scn, printable};
use std::time::{Duration, Instant};

/// Names of instances in one message.
const NAMES_MAX: usize = 256;
/// Silence after which a sender is given up, whatever it says.
pub(crate) const NET_TIMEOUT_MAX: Duration = Duration::from_secs(1200);

/// First message of a sender.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderHello {
    /// The primary.
    pub source: PeerIdentity,
    /// How it wants to be acknowledged.
    pub mode: TransportMode,
    /// Silence, in milliseconds, after which it gives the connection up; the receiver does the same.
    pub net_timeout_ms: u64,
    /// Receive buffer that the socket of the receiver is to have; 0 = the system's own choice.
    #[serde(default)]
    pub receive_buffer_bytes: u32,
    /// How it packs the redo.
    #[serde(default)]
    pub compression: Compression,
    /// The connection is for archived logs of the gap that ends here, beside the stream of the same primary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub archives_to: Option<Scn>,
    /// Instances through which the redo comes to `source`, the primary first; empty when that is the primary.
    #[serde(default)]
    pub via: Vec<Hop>,
    /// How long the standby is to hold redo back before it applies it, in milliseconds; `None`: the sender says nothing
    /// about it, and the standby's own setting counts.
    #[serde(default)]
    pub delay_ms: Option<u64>,
    /// The primary's online logs, by which standby redo logs are sized.
    #[serde(default)]
    pub logs: Option<LogGeometry>,
    /// Instances that this primary vouches for: after a failover the receiver takes redo from them, too.
    #[serde(default, deserialize_with = "foreign_names")]
    pub peers: Vec<String>,
    /// All members that it knows, with what each may do; empty: a release that only says `peers`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub members: Vec<MemberRights>,
    /// Where certificates are renewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<IssuerAt>,
    /// Requests for certificates are answered over this stream.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renews: bool,
}

impl SenderHello {
    /// Silence after which the connection is given up, 1200 s at most, as configurations say.
    pub fn net_timeout(&self) -> Duration {
        Duration::from_millis(self.net_timeout_ms).min(NET_TIMEOUT_MAX)
    }
}

/// An instance that gives certificates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IssuerAt {
    /// Its `db_unique_name`.
    pub name: String,
    /// Where it listens, HOST:PORT. Without a host (`:PORT`): where the connection comes from.
    pub address: String,
}

/// An instance on the way of the redo.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hop {
    /// The instance.
    pub instance: InstanceId,
    /// Its `db_unique_name`.
    #[serde(deserialize_with = "foreign_name")]
    pub name: String,
}

/// What the online redo log of a primary looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogGeometry {
    /// Groups.
    pub groups: usize,
    /// Bytes of its largest log file.
    pub group_bytes: u64,
    /// Block size in bytes.
    pub block_bytes: usize,
}

/// Answer of a receiver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiverHello {
    /// The instance that answers.
    pub standby: PeerIdentity,
    /// What it holds; `None` when it takes no redo from this sender.
    pub positions: Option<StandbyPositions>,
    /// Largest payload of a frame that it wants; 0 = as large as the protocol allows.
    #[serde(default)]
    pub sdu_bytes: u32,
    /// Requests for certificates are answered over this stream.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub renews: bool,
    /// A list of members that has changed is taken over this stream; otherwise another stream has to begin with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lists: bool,
}

/// What a standby holds. They do not move until the stream has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StandbyPositions {
    /// End of the redo held.
    pub end: PositionSum,
    /// Position up to which the primary has confirmed and apply may be.
    pub confirmed: PositionSum,
    /// How far apply is.
    pub applied: Scn,
    /// No more than this is acknowledged, because the standby forwards synchronously; `None`: all that it holds.
    #[serde(default)]
    pub passed: Option<Scn>,
    /// The log that is being filled; `None` before the first one.
    pub log: Option<LogSwitch>,
}

/// A position with the running sum of the stream up to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PositionSum {
    /// The position.
    pub scn: Scn,
    /// [`StreamCrc`] there.
    pub crc: u32,
}

impl PositionSum {
    /// Whether the stream known here has this sum there.
    pub fn matches(&self, known: Option<StreamCrc>) -> bool {
        known == Some(StreamCrc(self.crc))
    }
}

/// A question on a fresh connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "snake_case")]
pub enum Request {
    /// Copies of all databases for a new standby.
    Snapshot {
        /// `db_unique_name` of the standby to be, for the alert log.
        #[serde(deserialize_with = "foreign_name")]
        name: String,
        /// Only where its redo begins: it will have no databases.
        #[serde(default)]
        without_databases: bool,
        /// Only this database, to make it again at its primary. A standby gives it, too: then it holds all commits before the
        /// SCN that is said, and perhaps some of those after.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        only: Option<DatabaseId>,
    },
    /// What can be observed of the instance.
    Status {
        /// With what it has noted of itself over time, which is long.
        #[serde(default)]
        history: bool,
    },
    /// A certificate.
    Certificate(CertificateRequest),
}

/// Decodes the JSON payload of a frame.
///
/// # Errors
/// `Protocol` with what is wrong.
pub fn decode<T: DeserializeOwned>(frame: &Frame<'_>) -> Result<T, TransportError> {
    serde_json::from_slice(frame.payload).map_err(|error| {
        // The parser repeats what it does not understand.
        let error = printable(&error.to_string(), FOREIGN_TEXT_MAX);
        TransportError::Protocol(format!("{:?} message: {error}", frame.header.kind))
    })
}

/// A name that a peer says, as it may stand in messages: nothing that comes over a connection reaches a log, a terminal
/// or a file otherwise. Names that are allowed stay as they are.
pub(crate) fn foreign_name<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|name| printable(&name, FOREIGN_NAME_MAX))
}

/// [`foreign_name`] of several; as many as a family can have.
pub(crate) fn foreign_names<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    Ok(names.iter().take(NAMES_MAX).map(|name| printable(name, FOREIGN_NAME_MAX)).collect())
}

/// [`foreign_name`] of a text with a remedy, which may be on a line of its own.
pub(crate) fn foreign_text<'de, D: Deserializer<'de>>(from: D) -> Result<String, D::Error> {
    String::deserialize(from).map(|text| one_line(&text))
}

/// What a peer says, for logs and terminals.
pub(crate) fn one_line(text: &str) -> String {
    printable(&text.replace('\n', " | "), 2 * FOREIGN_TEXT_MAX)
}

/// Checks that a frame is of the kind expected and of our version where it carries one; a `Refuse` becomes the
/// refusal it holds.
///
/// # Errors
/// `Refused` also for another version (then the other end has not been told).
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

/// Waits until `deadline` for a whole frame; a peer that trickles bytes does not get more time.
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
