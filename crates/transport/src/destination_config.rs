//! The settings of a destination.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// When a destination counts as having redo.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransportMode {
    /// When the redo is in the standby log on disk.
    SyncAffirm,
    /// When the redo is in the standby's memory.
    #[serde(rename = "fastsync")]
    FastSync,
    /// Commits never wait for the destination.
    Async,
}

/// Action when a synchronous destination has kept a commit waiting for the net timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnTimeout {
    /// Commits continue without it until it has caught up (Oracle's maximum availability).
    Degrade,
    /// Commits wait without limit.
    Stall,
    /// `Degrade` while another destination protects commits, else `Stall` (maximum protection).
    StallIfLast,
}

/// PROTECTION_MODE: what the destinations of a primary together promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProtectionMode {
    /// Nothing is promised beyond this machine.
    MaximumPerformance,
    /// Commits wait for every synchronous destination that keeps up. When none does, they continue and the alert log
    /// says so.
    #[default]
    MaximumAvailability,
    /// Every commit that returns is on disk on a second machine. When the last destination is lost, the primary stalls,
    /// then stops.
    MaximumProtection,
}

impl ProtectionMode {
    pub const ALL: [ProtectionMode; 3] = [
        ProtectionMode::MaximumPerformance,
        ProtectionMode::MaximumAvailability,
        ProtectionMode::MaximumProtection,
    ];

    pub fn words(self) -> &'static str {
        match self {
            ProtectionMode::MaximumPerformance => "maximum performance",
            ProtectionMode::MaximumAvailability => "maximum availability",
            ProtectionMode::MaximumProtection => "maximum protection",
        }
    }

    /// Default of `on_timeout` for a destination that does not configure it.
    pub fn on_timeout(self, mode: TransportMode) -> OnTimeout {
        match (self, mode) {
            (ProtectionMode::MaximumProtection, TransportMode::SyncAffirm) => OnTimeout::StallIfLast,
            _ => OnTimeout::Degrade,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestinationConfig {
    pub name: String,
    pub mode: TransportMode,
    /// Longest wait of a commit for it, and longest silence of a connection.
    pub net_timeout: Duration,
    /// Longest pause between two attempts to connect; pauses begin at 50 ms and double.
    pub reopen: Duration,
    /// Consecutive failed attempts after which it is abandoned; 0 = no limit.
    pub max_failure: u32,
    /// Another destination of its group takes over when it is abandoned. Until then commits keep waiting, up to the net
    /// timeout.
    pub grouped: bool,
    pub on_timeout: OnTimeout,
    /// Longest wait for it after another synchronous destination has acknowledged (DATA_GUARD_SYNC_LATENCY); zero: the
    /// net timeout.
    pub sync_latency: Duration,
}
