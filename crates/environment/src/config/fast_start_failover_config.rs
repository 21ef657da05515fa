//! `[role_change.fast_start_failover]`: whether and when the target takes over by itself.

use crate::config::address::is_name;
use crate::config::arbiter_config::{ARBITER_RULE, ArbiterAddress};
use serde::{Deserialize, Serialize};
use standfast_arbitration::Settings;
use std::time::Duration;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FastStartMode {
    #[default]
    Disabled,
    Enabled,
}

/// `[role_change.fast_start_failover]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FastStartFailoverConfig {
    /// `disabled` or `enabled`; `standfast dg enable fast_start failover` checks first whether it can protect anything.
    pub mode: FastStartMode,
    /// The third voice: an observer, NAME@HOST:PORT, or etcd, etcd:https://HOST:PORT,https://HOST:PORT.
    pub observer: String,
    /// The member that is to take over (FastStartFailoverTarget); empty: whichever is synchronised.
    pub target: String,
    /// How long the primary must be silent before the target takes over, seconds, 1 to 3600 (FastStartFailoverThreshold).
    pub threshold_s: u64,
    /// Time between two looks at the observer, milliseconds, 100 to 60,000 (ObserverPingInterval).
    pub ping_interval_ms: u64,
    /// With this many looks without success the target takes over, whatever the threshold: 10 to 1000 (ObserverPingRetry). 0: the
    /// threshold counts.
    pub ping_retry: u32,
    /// Whether the observer's view suffices: the target takes over although it still hears the primary
    /// (ObserverOverride).
    pub observer_override: bool,
    /// Whether a primary that reaches neither target nor observer for the threshold stops
    /// (FastStartFailoverPmyShutdown).
    pub primary_shutdown: bool,
}

/// Longer than the time between two heartbeats of a stream, which is at most one second.
const SHORTEST_THRESHOLD: Duration = Duration::from_millis(1_500);

impl Default for FastStartFailoverConfig {
    fn default() -> Self {
        FastStartFailoverConfig {
            mode: FastStartMode::Disabled,
            observer: String::new(),
            target: String::new(),
            threshold_s: 30,
            ping_interval_ms: 1_000,
            ping_retry: 0,
            observer_override: false,
            primary_shutdown: true,
        }
    }
}

impl FastStartFailoverConfig {
    pub fn is_enabled(&self) -> bool {
        self.mode == FastStartMode::Enabled
    }

    /// The third voice; `None`: none is configured.
    pub fn arbiter(&self) -> Option<ArbiterAddress> {
        ArbiterAddress::parse(&self.observer)
    }

    /// The settings of the decisions.
    pub fn settings(&self) -> Settings {
        let ping_interval = Duration::from_millis(self.ping_interval_ms);
        let threshold = match self.ping_retry {
            0 => Duration::from_secs(self.threshold_s),
            retries => ping_interval * retries,
        };
        // Heartbeats and looks must fit into it, or a primary that is well looks silent.
        let threshold = threshold.max(ping_interval * 3).max(SHORTEST_THRESHOLD);
        Settings {
            threshold,
            ping_interval,
            primary_shutdown: self.primary_shutdown,
            observer_override: self.observer_override,
        }
    }

    /// Returns the first setting that breaks its rule: its name, its value and the rule.
    pub fn first_fault(&self) -> Option<(&'static str, String, &'static str)> {
        let is_named = self.target.is_empty() || is_name(&self.target);
        let is_observed = self.mode == FastStartMode::Disabled || !self.observer.is_empty();
        let is_retry = self.ping_retry == 0 || (10..=1_000).contains(&self.ping_retry);
        let is_threshold = (1..=3_600).contains(&self.threshold_s);
        let is_interval = (100..=60_000).contains(&self.ping_interval_ms);
        let rules = [
            (
                self.observer.is_empty() || self.arbiter().is_some(),
                "role_change.fast_start_failover.observer",
                self.observer.clone(),
                ARBITER_RULE,
            ),
            (
                is_named,
                "role_change.fast_start_failover.target",
                self.target.clone(),
                "the name of a member, or nothing",
            ),
            (
                is_threshold,
                "role_change.fast_start_failover.threshold_s",
                self.threshold_s.to_string(),
                "1 to 3600 seconds",
            ),
            (
                is_interval,
                "role_change.fast_start_failover.ping_interval_ms",
                self.ping_interval_ms.to_string(),
                "100 to 60000 milliseconds",
            ),
            (
                is_retry,
                "role_change.fast_start_failover.ping_retry",
                self.ping_retry.to_string(),
                "10 to 1000, or 0",
            ),
            (
                is_observed,
                "role_change.fast_start_failover.observer",
                self.observer.clone(),
                "not empty while fast-start failover is not disabled",
            ),
        ];
        let fault = rules.into_iter().find(|(is_kept, ..)| !is_kept)?;
        Some((fault.1, fault.2, fault.3))
    }
}
