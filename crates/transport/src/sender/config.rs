//! The settings of a sender.

use super::archivers::Archivers;
use crate::destination_config::DestinationConfig;
use crate::destination_set::DestinationSet;
use crate::gap::GapSettings;
use crate::link::Security;
use crate::packing::Compression;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Debug)]
pub struct SenderConfig {
    pub destination: DestinationConfig,
    pub address: String,
    /// `db_unique_name` that the peer must have; `None`: any name.
    pub expected_name: Option<String>,
    pub security: Security,
    /// Compression, frame size and socket buffers.
    pub shape: StreamShape,
    /// DELAY: how long the standby holds redo back before it applies it; `None`: the standby's own setting applies.
    pub delay: Option<Duration>,
    /// Whether commits wait for a synchronous destination from the start, because it has been synchronised before.
    /// Otherwise they wait from its first synchronisation on.
    pub counts: bool,
    /// The set of destinations of this primary.
    pub destination_set: Arc<DestinationSet>,
    /// How archived logs are sent to it.
    pub archive: ArchiveTransport,
}

/// How archived logs are sent to a destination that lacks whole ones (ARCH).
#[derive(Clone, Debug)]
pub struct ArchiveTransport {
    pub settings: GapSettings,
    /// The pool of archivers, shared by all destinations of an instance.
    pub archivers: Arc<Archivers>,
    /// How often the sender checks whether a standby that is fed from the logs has such a gap.
    pub poll: Duration,
}

impl Default for ArchiveTransport {
    fn default() -> Self {
        let settings = GapSettings::default();
        ArchiveTransport {
            settings,
            archivers: Archivers::new(settings.connections),
            poll: Duration::from_secs(60),
        }
    }
}

/// Form of the redo on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamShape {
    pub compression: Compression,
    /// SDU: largest payload of a frame before compression; 0 = as large as the protocol allows. The smaller value of
    /// both ends applies.
    pub sdu_bytes: u32,
    /// SEND_BUF_SIZE of the socket; 0 = the system's default.
    pub send_buffer_bytes: u32,
    /// RECV_BUF_SIZE of the sockets at both ends; 0 = the system's default.
    pub receive_buffer_bytes: u32,
}
