//! `[alert]`: what is reported to operators, and how.

use serde::{Deserialize, Serialize};
use standfast_live::Thresholds;

/// Longest threshold, seconds: a week, like the longest apply delay of a standby.
const LONGEST_S: u64 = 604_800;

/// `[alert]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlertConfig {
    /// Form of lines on stderr: "text", or "json" with `time`, `instance`, `message` and `hint`, one object a line. The
    /// file `alert.log` is always text.
    pub stderr: AlertForm,
    /// Transport lag of a standby, seconds, above which it is a warning (`_warn_s`) or critical (`_critical_s`): for
    /// THRESHOLD lines of the alert log, the dashboard, `/healthz` and `status --check`.
    pub transport_lag_warn_s: u64,
    /// Seconds; a value below `transport_lag_warn_s` is refused.
    pub transport_lag_critical_s: u64,
    /// Apply lag of a standby, seconds. What a standby holds back by its apply delay is added to both thresholds.
    pub apply_lag_warn_s: u64,
    /// Seconds; a value below `apply_lag_warn_s` is refused.
    pub apply_lag_critical_s: u64,
}

impl Default for AlertConfig {
    fn default() -> AlertConfig {
        let Thresholds { transport, apply } = Thresholds::default();
        AlertConfig {
            stderr: AlertForm::Text,
            transport_lag_warn_s: transport.warn_s as u64,
            transport_lag_critical_s: transport.critical_s as u64,
            apply_lag_warn_s: apply.warn_s as u64,
            apply_lag_critical_s: apply.critical_s as u64,
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlertForm {
    #[default]
    Text,
    Json,
}

impl AlertConfig {
    /// Returns the first setting that is out of range, its value and what is allowed.
    pub(crate) fn broken(&self) -> Option<(&'static str, u64, &'static str)> {
        let settings = [
            ("alert.transport_lag_warn_s", self.transport_lag_warn_s, 1),
            ("alert.transport_lag_critical_s", self.transport_lag_critical_s, self.transport_lag_warn_s),
            ("alert.apply_lag_warn_s", self.apply_lag_warn_s, 1),
            ("alert.apply_lag_critical_s", self.apply_lag_critical_s, self.apply_lag_warn_s),
        ];
        let (setting, value, _) =
            settings.into_iter().find(|(_, value, least)| !(*least..=LONGEST_S).contains(value))?;
        Some((setting, value, "1 to 604800 seconds (a week), ..._critical_s not less than ..._warn_s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thresholds_are_in_order_and_bounded() {
        let of = |warn, critical| {
            let config = AlertConfig {
                apply_lag_warn_s: warn,
                apply_lag_critical_s: critical,
                ..AlertConfig::default()
            };
            config.broken().map(|(setting, value, _)| (setting, value))
        };
        assert_eq!((of(30, 300), of(60, 60)), (None, None));
        for (warn, critical) in [(0, 300), (LONGEST_S + 1, LONGEST_S + 2)] {
            assert_eq!(of(warn, critical), Some(("alert.apply_lag_warn_s", warn)));
        }
        for (warn, critical) in [(301, 300), (5, LONGEST_S + 1)] {
            assert_eq!(of(warn, critical), Some(("alert.apply_lag_critical_s", critical)));
        }
    }
}
