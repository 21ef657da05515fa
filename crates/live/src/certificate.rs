//! How long a certificate is valid, in words.

use crate::figure;
use standfast_documents::status::Certificate;

/// Returns for how long the certificate is still valid at `now_us`, in words; `None` when it has expired or that is not
/// known.
pub fn left(certificate: &Certificate, now_us: Option<u64>) -> Option<String> {
    let seconds = match (certificate.not_after_us, now_us, certificate.days_left) {
        (Some(end_us), Some(now_us), _) => end_us.checked_sub(now_us)? / 1_000_000,
        (_, _, days) => u64::try_from(days?).ok()? * 86_400,
    };
    Some(if seconds < 2 * 86_400 {
        figure::seconds(seconds as f64)
    } else {
        format!("{} days", seconds / 86_400)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_expiry_is_shown_in_a_suitable_unit() {
        let left = |seconds: i64| {
            let not_after_us = Some(1_000_000_000_000_000);
            let certificate = Certificate { not_after_us, ..Certificate::default() };
            super::left(&certificate, Some((1_000_000_000_i64 - seconds) as u64 * 1_000_000))
        };
        assert_eq!(left(243 * 86_400 + 5).as_deref(), Some("243 days"));
        assert_eq!(left(1100).as_deref(), Some("18 min 20 s"));
        assert_eq!(left(-1), None);
        let days = |days_left| super::left(&Certificate { days_left, ..Certificate::default() }, None);
        assert_eq!((days(Some(100)).as_deref(), days(Some(-1)), days(None)), (Some("100 days"), None, None));
    }
}
