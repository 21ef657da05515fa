//! Protection modes: the configured mode, the level in force, and when a primary must stop. Pure functions.
//!
//! Terms as in V$DATABASE: PROTECTION_MODE is configured, PROTECTION_LEVEL is the protection that commits get now.

pub use crate::destination_config::ProtectionMode;

use crate::destination::Standing;
use crate::destination_config::TransportMode;
use serde::Serialize;
use std::time::Duration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ProtectionLevel {
    MaximumPerformance,
    /// Commits are on this machine and at every synchronised destination.
    MaximumAvailability,
    /// Commits are on this machine and on disk at a SYNC AFFIRM destination, and none returns otherwise.
    MaximumProtection,
    /// No destination gives the protection of the mode. Maximum availability: synchronous destinations exist and none
    /// is synchronised. Maximum protection: no SYNC AFFIRM destination is synchronised.
    Resynchronization,
}

impl ProtectionLevel {
    pub fn words(self) -> &'static str {
        match self {
            ProtectionLevel::MaximumPerformance => "maximum performance",
            ProtectionLevel::MaximumAvailability => "maximum availability",
            ProtectionLevel::MaximumProtection => "maximum protection",
            ProtectionLevel::Resynchronization => "resynchronization",
        }
    }
}

/// A destination as the protection level sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    pub mode: TransportMode,
    pub standing: Standing,
    /// Whether it is connected. Without a connection it has acknowledged nothing new, even if it is required.
    pub connected: bool,
}

impl Member {
    fn is_synchronised(&self) -> bool {
        self.mode != TransportMode::Async && self.standing == Standing::Required && self.connected
    }

    /// Whether it alone satisfies maximum protection.
    pub fn protects(&self) -> bool {
        self.mode == TransportMode::SyncAffirm && self.is_synchronised()
    }
}

/// Returns the protection that commits get now.
pub fn level(mode: ProtectionMode, members: &[Member]) -> ProtectionLevel {
    let synchronous = || members.iter().filter(|member| member.mode != TransportMode::Async);
    match mode {
        ProtectionMode::MaximumPerformance => ProtectionLevel::MaximumPerformance,
        ProtectionMode::MaximumProtection if members.iter().any(Member::protects) => {
            ProtectionLevel::MaximumProtection
        }
        ProtectionMode::MaximumProtection => ProtectionLevel::Resynchronization,
        ProtectionMode::MaximumAvailability if synchronous().any(Member::is_synchronised) => {
            ProtectionLevel::MaximumAvailability
        }
        ProtectionMode::MaximumAvailability if synchronous().next().is_some() => {
            ProtectionLevel::Resynchronization
        }
        ProtectionMode::MaximumAvailability => ProtectionLevel::MaximumPerformance,
    }
}

/// Watches a primary in maximum protection: while no destination can protect commits they stall, and after a time the
/// primary stops, so that applications and an operator notice.
#[derive(Debug, Default)]
pub struct StallWatch {
    stalled_since: Option<Duration>,
}

impl StallWatch {
    /// Must be called about every second. True when the primary must stop: for `stop_after`, at least one destination
    /// was stalled beyond its net timeout and none protected commits. `stop_after` zero: never.
    pub fn must_stop(
        &mut self,
        now: Duration,
        mode: ProtectionMode,
        members: &[Member],
        stop_after: Duration,
    ) -> bool {
        let stalled = members.iter().any(|member| member.standing == Standing::Stalled);
        let protected = members.iter().any(Member::protects);
        if mode != ProtectionMode::MaximumProtection || protected || !stalled {
            self.stalled_since = None;
            return false;
        }
        let since = *self.stalled_since.get_or_insert(now);
        !stop_after.is_zero() && now.saturating_sub(since) >= stop_after
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ProtectionLevel as Level;
    use ProtectionMode as Mode;

    fn member(mode: TransportMode, standing: Standing) -> Member {
        Member { mode, standing, connected: true }
    }

    const AFFIRM: TransportMode = TransportMode::SyncAffirm;

    #[test]
    fn protection_level_is_the_effective_one_not_the_configured_one() {
        let good = member(AFFIRM, Standing::Required);
        let degraded = member(AFFIRM, Standing::Degraded);
        let fastsync = member(TransportMode::FastSync, Standing::Required);
        let far = member(TransportMode::Async, Standing::Optional);
        let away = Member { connected: false, ..good };
        for (mode, members, expected) in [
            (Mode::MaximumPerformance, vec![good], Level::MaximumPerformance),
            (Mode::MaximumAvailability, vec![], Level::MaximumPerformance),
            (Mode::MaximumAvailability, vec![far], Level::MaximumPerformance),
            (Mode::MaximumAvailability, vec![good, far], Level::MaximumAvailability),
            (Mode::MaximumAvailability, vec![fastsync], Level::MaximumAvailability),
            (Mode::MaximumAvailability, vec![degraded, good], Level::MaximumAvailability),
            (Mode::MaximumAvailability, vec![degraded, far], Level::Resynchronization),
            (Mode::MaximumAvailability, vec![away], Level::Resynchronization),
            (Mode::MaximumProtection, vec![good, far], Level::MaximumProtection),
            (Mode::MaximumProtection, vec![fastsync], Level::Resynchronization),
            (Mode::MaximumProtection, vec![member(AFFIRM, Standing::Stalled)], Level::Resynchronization),
        ] {
            assert_eq!(level(mode, &members), expected, "{mode:?} {members:?}");
        }
    }

    #[test]
    fn protection_level_is_written_in_words_as_the_mode_is() {
        for (level, words) in [
            (Level::MaximumPerformance, "maximum performance"),
            (Level::MaximumAvailability, "maximum availability"),
            (Level::MaximumProtection, "maximum protection"),
            (Level::Resynchronization, "resynchronization"),
        ] {
            assert_eq!(level.words(), words);
            assert_eq!(serde_json::to_value(level).unwrap(), words.replace(' ', "-"));
        }
    }

    #[test]
    fn stalled_primary_stops_at_its_timeout_unless_a_standby_returns() {
        let (good, stalled) = (member(AFFIRM, Standing::Required), member(AFFIRM, Standing::Stalled));
        let stop_after = Duration::from_secs(30);
        let at = Duration::from_secs;
        let mut watch = StallWatch::default();
        let mut ask =
            |now, members: &[Member]| watch.must_stop(now, Mode::MaximumProtection, members, stop_after);
        assert!(!ask(at(10), &[stalled]) && !ask(at(39), &[stalled]));
        assert!(ask(at(40), &[stalled]));
        assert!(!ask(at(41), &[stalled, good]), "one is enough");
        assert!(!ask(at(42), &[stalled]) && !ask(at(71), &[stalled]), "the time begins again");
        assert!(ask(at(72), &[stalled]));
        let mut other = StallWatch::default();
        for second in 0..100 {
            assert!(!other.must_stop(at(second), Mode::MaximumAvailability, &[stalled], stop_after));
            assert!(!other.must_stop(at(second), Mode::MaximumProtection, &[stalled], Duration::ZERO));
        }
    }
}
