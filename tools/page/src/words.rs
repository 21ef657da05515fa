//! Rates and times in the form of the screens. Pure.

use crate::units::megabits;
use std::time::{SystemTime, UNIX_EPOCH};

/// Formats a rate as MiB per second, as on the screens.
pub fn mebibytes(bytes_per_second: f64) -> String {
    format!("{:.3}", bytes_per_second / 1_048_576.0)
}

/// Formats a time as milliseconds, as on the screens.
pub fn millis(seconds: f64) -> String {
    format!("{:.3}", seconds * 1e3)
}

/// Formats a rate in both units.
pub fn rate(bytes_per_second: f64) -> String {
    let bits = megabits(bytes_per_second);
    format!("{} MiB/s ({bits:.1} Mbit/s)", mebibytes(bytes_per_second))
}

/// Formats a time: `2026-11-21 16:10:48 UTC`.
pub fn utc(time: SystemTime) -> String {
    let seconds = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // In years that begin with March, the leap day is the last day of its year.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn utc_dates_are_right_at_leap_days_and_year_ends() {
        for (seconds, printed) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_772_323_199, "2026-02-28 23:59:59 UTC"),
            (1_772_323_200, "2026-03-01 00:00:00 UTC"),
            (1_798_761_599, "2026-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(utc(UNIX_EPOCH + Duration::from_secs(seconds)), printed);
        }
    }
}
