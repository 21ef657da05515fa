//! `[role_change]`: what all instances have in common when one of them becomes the primary. The primary's settings count;
//! its standbys keep them, and continue with them.

use crate::config::fast_start_failover_config::FastStartFailoverConfig;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// `[role_change]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RoleChangeConfig {
    /// A new primary ships redo to the other standbys of the old one (BystandersFollowRoleChange).
    pub bystanders_follow: bool,
    /// How long running write transactions may take to end in a switchover, seconds, 0 to 3600 (DrainTimeout).
    pub drain_timeout_s: u64,
    pub fast_start_failover: FastStartFailoverConfig,
}

impl Default for RoleChangeConfig {
    fn default() -> Self {
        RoleChangeConfig {
            bystanders_follow: true,
            drain_timeout_s: 10,
            fast_start_failover: FastStartFailoverConfig::default(),
        }
    }
}

impl RoleChangeConfig {
    pub const DRAIN_TIMEOUT_MAX_S: u64 = 3_600;

    pub fn drain_timeout(&self) -> Duration {
        Duration::from_secs(self.drain_timeout_s)
    }
}
