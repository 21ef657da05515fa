//! What the clocks of hosts have to do with certificates: when one is due, and whose clock may be wrong when a fresh one is not
//! valid. Decisions only; the caller reads the clocks.

use standfast_tls::CertificateInfo;
use std::time::{Duration, Instant};

/// Clocks that differ by less are not spoken of, seconds.
const NOTABLE: u64 = 300;

/// A certificate as this process has come by it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Got {
    /// When.
    pub at: Instant,
    /// By the clock of this host it was due for renewal, or not valid, right then.
    pub unfit: bool,
}

/// Whether the certificate is valid at `now`.
pub(super) fn holds(info: &CertificateInfo, now: u64) -> bool {
    (info.not_before..=info.not_after).contains(&now)
}

/// Whether the wall clock says that it is to be renewed.
pub(super) fn is_due_by_the_clock(info: &CertificateInfo, now: u64) -> bool {
    now >= info.renew_at() || now < info.not_before
}

/// Whether it is to be renewed. `got`: how long ago this process has got it, and whether it was unfit then. That is told by a
/// clock that cannot be set, so that a certificate is also renewed where the wall clock is behind. After one that was unfit the
/// next one is not asked for at once: it would be no better before a clock is set.
pub(super) fn is_due(info: &CertificateInfo, now: u64, got: Option<(Duration, bool)>) -> bool {
    let by_clock = is_due_by_the_clock(info, now);
    let two_thirds = info.renew_at().saturating_sub(info.made());
    match got {
        Some((held, _)) if held.as_secs() >= two_thirds => true,
        Some((held, true)) => by_clock && held.as_secs() >= (two_thirds / 10).max(1),
        _ => by_clock,
    }
}

/// By how many seconds the clock here, which shows `now`, is ahead of the one by which the certificate was made right now.
pub(super) fn ahead(info: &CertificateInfo, now: u64) -> i64 {
    (now as i64).saturating_sub(info.made() as i64)
}

/// That the clock here is `ahead` of that of `other`, for messages; `None` when the two agree well enough.
pub(super) fn difference(ahead: i64, other: &str) -> Option<String> {
    let which = if ahead > 0 { "ahead of" } else { "behind" };
    (ahead.unsigned_abs() >= NOTABLE)
        .then(|| format!("the clock of this host is {} {which} that of `{other}`", rough(ahead)))
}

/// A time in the unit in which it is read.
pub(super) fn rough(seconds: i64) -> String {
    match seconds.unsigned_abs() {
        0..120 => format!("{} s", seconds.unsigned_abs()),
        120..7200 => format!("{} min", (seconds.unsigned_abs() + 30) / 60),
        7200..172_800 => format!("{:.1} h", seconds.unsigned_abs() as f64 / 3600.0),
        _ => format!("{:.1} days", seconds.unsigned_abs() as f64 / 86_400.0),
    }
}

/// Compares the wall clock with the monotonic one.
pub(super) struct ClockWatch {
    last: (Instant, u64),
}

impl ClockWatch {
    /// From a moment on at which the wall clock shows `wall`.
    pub fn begin(at: Instant, wall: u64) -> ClockWatch {
        ClockWatch { last: (at, wall) }
    }

    /// By how many seconds the wall clock, which shows `wall`, has been set since the last call; `None` when it has not, or by
    /// little.
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
    fn a_certificate_is_due_after_two_thirds_by_either_clock() {
        let info = hour();
        assert!(!is_due(&info, MADE + 2399, None) && is_due(&info, MADE + 2400, None));
        assert!(is_due(&info, MADE - DAY - 1, None), "not valid yet");
        // The wall clock is a day behind, and stays so.
        assert!(!is_due(&info, MADE - DAY + 2399, Some((s(2399), false))));
        assert!(is_due(&info, MADE - DAY + 2400, Some((s(2400), false))));
        // It was put ahead meanwhile.
        assert!(is_due(&info, MADE + DAY, Some((s(10), false))));
    }

    #[test]
    fn a_certificate_that_was_unfit_when_it_came_is_not_renewed_at_once() {
        let info = hour();
        for now in [MADE + DAY, MADE - 2 * DAY] {
            assert!(!is_due(&info, now, Some((s(239), true))), "{now}");
            assert!(is_due(&info, now, Some((s(240), true))), "{now}");
        }
        // The clock was set right.
        assert!(!is_due(&info, MADE + 300, Some((s(300), true))));
    }

    #[test]
    fn the_clock_that_differs_is_named_with_direction() {
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
    fn a_clock_that_is_set_is_noticed_once() {
        let began = Instant::now();
        let mut watch = ClockWatch::begin(began, MADE);
        assert_eq!(watch.moved(began + s(60), MADE + 61), None);
        assert_eq!(watch.moved(began + s(120), MADE + 121 + DAY), Some(DAY as i64));
        assert_eq!(watch.moved(began + s(180), MADE + 181 + DAY), None);
        assert_eq!(watch.moved(began + s(240), MADE + 241), Some(-(DAY as i64)));
    }
}
