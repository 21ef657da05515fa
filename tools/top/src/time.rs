//! Times of day.

/// Formats microseconds since the Unix epoch as a time of day, UTC: `10:00:05`.
pub fn clock_text(us: u64) -> String {
    let second = us / 1_000_000 % 86_400;
    format!("{:02}:{:02}:{:02}", second / 3600, second / 60 % 60, second % 60)
}
