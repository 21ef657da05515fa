//! `[role_change.fast_start_failover]`: whether and when the target takes over by itself.

use crate::config::address::{is_address, is_name};
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
    pub mode: FastStartMode,
    /// The observer, NAME@HOST:PORT.
    pub observer: String,
    /// The member that is to take over (FastStartFailoverTarget); empty: whichever is synchronised.
    pub target: String,
    /// How long the primary must be silent before the target takes over, seconds, 1 to 3600 (FastStartFailoverThreshold).
    pub threshold_s: u64,
    /// Time between two looks at the observer, milliseconds, 100 to 60,000 (ObserverPingInterval).
    pub ping_interval_ms: u64,
    /// With this many looks without success the target takes over, whatever the threshold: 10 to 1000 (ObserverPingRetry). 0: the
    /// threshold counts.
    pub ping_retry: u64,
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

    /// Name and address of the observer.
    pub fn observer(&self) -> Option<(&str, &str)> {
        self.observer.split_once('@')
    }

    pub fn is_observer(text: &str) -> bool {
        text.is_empty() || text.split_once('@').is_some_and(|(name, at)| is_name(name) && is_address(at))
    }

    /// The settings of the decisions.
    pub fn settings(&self) -> Settings {
        let ping_interval = Duration::from_millis(self.ping_interval_ms);
        let threshold = match u32::try_from(self.ping_retry) {
            Ok(0) | Err(_) => Duration::from_secs(self.threshold_s),
            Ok(retries) => ping_interval * retries,
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
        let number = |value: u64| value.to_string();
        if !FastStartFailoverConfig::is_observer(&self.observer) {
            return Some((
                "role_change.fast_start_failover.observer",
                self.observer.clone(),
                "NAME@HOST:PORT",
            ));
        }
        if !self.target.is_empty() && !is_name(&self.target) {
            return Some((
                "role_change.fast_start_failover.target",
                self.target.clone(),
                "the name of a member, or nothing",
            ));
        }
        if !(1..=3_600).contains(&self.threshold_s) {
            return Some((
                "role_change.fast_start_failover.threshold_s",
                number(self.threshold_s),
                "1 to 3600 seconds",
            ));
        }
        if !(100..=60_000).contains(&self.ping_interval_ms) {
            return Some((
                "role_change.fast_start_failover.ping_interval_ms",
                number(self.ping_interval_ms),
                "100 to 60000 milliseconds",
            ));
        }
        if self.ping_retry != 0 && !(10..=1_000).contains(&self.ping_retry) {
            return Some((
                "role_change.fast_start_failover.ping_retry",
                number(self.ping_retry),
                "10 to 1000, or 0",
            ));
        }
        if self.mode != FastStartMode::Disabled && self.observer.is_empty() {
            return Some((
                "role_change.fast_start_failover.observer",
                String::new(),
                "NAME@HOST:PORT while fast-start failover is not disabled",
            ));
        }
        None
    }
}
