//! Clocks and certificates: when a certificate is due for renewal, and whose clock may be wrong when a new one is not
//! valid. Decisions only; the caller reads the clocks.

use standfast_tls::CertificateInfo;
use std::time::{Duration, Instant};

/// Clock differences below this are not reported, seconds.
const NOTABLE: u64 = 300;

/// When and how this process obtained its certificate.
#[derive(Clone, Copy, Debug)]
pub(super) struct Got {
    pub at: Instant,
    /// By the clock of this host the certificate was due for renewal, or not valid, when it arrived.
    pub unfit: bool,
}

/// Whether the certificate is valid at `now`.
pub(super) fn holds(info: &CertificateInfo, now: u64) -> bool {
    (info.not_before..=info.not_after).contains(&now)
}

/// Whether the certificate is due for renewal by the wall clock.
pub(super) fn is_due_by_the_clock(info: &CertificateInfo, now: u64) -> bool {
    now >= info.renew_at() || now < info.not_before
}

/// Whether the certificate is due for renewal. `got`: how long ago this process obtained it, and whether it was unfit
/// then. That time comes from the monotonic clock, so a certificate is renewed even if the wall clock is behind. After
/// an unfit certificate the next one is not requested immediately: it would be no better until a clock is set.
pub(super) fn is_due(info: &CertificateInfo, now: u64, got: Option<(Duration, bool)>) -> bool {
    let by_clock = is_due_by_the_clock(info, now);
    let two_thirds = info.renew_at().saturating_sub(info.made());
    match got {
        Some((held, _)) if held.as_secs() >= two_thirds => true,
        Some((held, true)) => by_clock && held.as_secs() >= (two_thirds / 10).max(1),
        _ => by_clock,
    }
}

/// Seconds by which the clock here, which shows `now`, is ahead of the clock by which the certificate was just made.
pub(super) fn ahead(info: &CertificateInfo, now: u64) -> i64 {
    (now as i64).saturating_sub(info.made() as i64)
}

/// Describes that the clock here is `ahead` of that of `other`, for messages; `None` if the difference is small.
pub(crate) fn difference(ahead: i64, other: &str) -> Option<String> {
    let which = if ahead > 0 { "ahead of" } else { "behind" };
    (ahead.unsigned_abs() >= NOTABLE)
        .then(|| format!("the clock of this host is {} {which} that of `{other}`", rough(ahead)))
}

/// Formats a time in a suitable unit.
pub(super) fn rough(seconds: i64) -> String {
    match seconds.unsigned_abs() {
        0..120 => format!("{} s", seconds.unsigned_abs()),
        120..7200 => format!("{} min", (seconds.unsigned_abs() + 30) / 60),
        7200..172_800 => format!("{:.1} h", seconds.unsigned_abs() as f64 / 3600.0),
        _ => format!("{:.1} days", seconds.unsigned_abs() as f64 / 86_400.0),
    }
}

/// Compares the wall clock with the monotonic clock.
pub(super) struct ClockWatch {
    last: (Instant, u64),
}

impl ClockWatch {
    /// Begins at `at`, when the wall clock shows `wall`.
    pub fn begin(at: Instant, wall: u64) -> ClockWatch {
        ClockWatch { last: (at, wall) }
    }

    /// Seconds by which the wall clock, which shows `wall`, has been set since the last call; `None` if it was not set,
    /// or only slightly.
    pub fn moved(&mut self, at: Instant, wall: u64) -> Option<i64> {
        let (then, wall_then) = std::mem::replace(&mut self.last, (at, wall));
        let passed = at.saturating_duration_since(then).as_secs() as i64;
        let by = (wall as i64).saturating_sub(wall_then as i64).saturating_sub(passed);
        (by.unsigned_abs() >= NOTABLE).then_some(by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADE: u64 = 1_800_000_000;
    const DAY: u64 = 86_400;

    fn hour() -> CertificateInfo {
        CertificateInfo {
            name: "oslo".into(),
            issuer: "family".into(),
            not_before: MADE - DAY,
            not_after: MADE + 3600,
            fingerprint: [0; 32],
        }
    }

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn certificate_renewal_is_due_after_two_thirds_by_either_clock() {
        let info = hour();
        assert!(!is_due(&info, MADE + 2399, None) && is_due(&info, MADE + 2400, None));
        assert!(is_due(&info, MADE - DAY - 1, None), "not valid yet");
        // The wall clock is a day behind, and stays so.
        assert!(!is_due(&info, MADE - DAY + 2399, Some((s(2399), false))));
        assert!(is_due(&info, MADE - DAY + 2400, Some((s(2400), false))));
        // The clock was set forward meanwhile.
        assert!(is_due(&info, MADE + DAY, Some((s(10), false))));
    }

    #[test]
    fn certificate_invalid_on_arrival_is_not_renewed_immediately() {
        let info = hour();
        for now in [MADE + DAY, MADE - 2 * DAY] {
            assert!(!is_due(&info, now, Some((s(239), true))), "{now}");
            assert!(is_due(&info, now, Some((s(240), true))), "{now}");
        }
        // The clock was corrected.
        assert!(!is_due(&info, MADE + 300, Some((s(300), true))));
    }

    #[test]
    fn clock_difference_is_reported_with_its_direction() {
        let at = |now| difference(ahead(&hour(), now), "paris");
        assert_eq!(at(MADE + 200), None);
        assert_eq!(
            at(MADE + DAY).as_deref(),
            Some("the clock of this host is 24.0 h ahead of that of `paris`")
        );
        assert_eq!(
            at(MADE - 3 * DAY).as_deref(),
            Some("the clock of this host is 3.0 days behind that of `paris`")
        );
        assert!(holds(&hour(), MADE - DAY) && !holds(&hour(), MADE - DAY - 1) && !holds(&hour(), MADE + DAY));
    }

    #[test]
    fn each_clock_change_is_detected_once() {
        let began = Instant::now();
        let mut watch = ClockWatch::begin(began, MADE);
        assert_eq!(watch.moved(began + s(60), MADE + 61), None);
        assert_eq!(watch.moved(began + s(120), MADE + 121 + DAY), Some(DAY as i64));
        assert_eq!(watch.moved(began + s(180), MADE + 181 + DAY), None);
        assert_eq!(watch.moved(began + s(240), MADE + 241), Some(-(DAY as i64)));
    }
}
