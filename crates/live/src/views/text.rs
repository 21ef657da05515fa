//! Formats of values in views.

/// `2026-11-21 10:00:00`, UTC: the format that SQLite's date functions accept.
pub fn time(us: u64) -> String {
    let text = standfast_types::utc_text(us);
    text.get(..19).unwrap_or(&text).replace('T', " ")
}

/// Formats as [`time`] does; `None` also for 0, which means unknown.
pub fn time_of(us: Option<u64>) -> Option<String> {
    us.filter(|us| *us > 0).map(time)
}

/// An interval as `+00 00:00:03`: days hours:minutes:seconds, rounded down.
pub fn interval(us: u64) -> String {
    let seconds = us / 1_000_000;
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    format!("+{days:02} {hours:02}:{minutes:02}:{:02}", seconds % 60)
}

/// An interval as [`interval`] formats it, with milliseconds.
pub fn interval_ms(us: u64) -> String {
    format!("{}.{:03}", interval(us), us / 1000 % 1000)
}

/// A number that identifies a name: the same in every release and at every instance (FNV-1a).
pub fn id_of(name: &str) -> u32 {
    name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

pub fn capitals(words: &str) -> String {
    words.replace(['-', '_'], " ").to_uppercase()
}

/// A readable upper bound of durations: in the largest unit that fits, rounded down.
pub fn duration(us: u64) -> String {
    let (count, unit) = match us {
        0..1_000 => (us, "microsecond"),
        1_000..1_000_000 => (us / 1_000, "millisecond"),
        1_000_000..60_000_000 => (us / 1_000_000, "second"),
        60_000_000..3_600_000_000 => (us / 60_000_000, "minute"),
        _ => (us / 3_600_000_000, "hour"),
    };
    format!("{count} {unit}{}", if count == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn view_times_are_in_a_format_that_sqlite_parses() {
        let text = time(1_709_210_096_789_000);
        assert_eq!(text, "2024-02-29 12:34:56");
        let sqlite = rusqlite::Connection::open_in_memory().unwrap();
        let back: f64 =
            sqlite.query_row("SELECT (julianday(?1) - 2440587.5) * 86400", [text], |row| row.get(0)).unwrap();
        assert!((back - 1_709_210_096.0).abs() < 0.001, "{back}");
        assert_eq!((time_of(None), time_of(Some(0))), (None, None));
    }

    #[test]
    fn intervals_and_durations_are_written_as_documented() {
        assert_eq!(interval(3_999_999), "+00 00:00:03");
        assert_eq!(interval((2 * 86_400 + 3 * 3_600 + 4 * 60 + 5) * 1_000_000), "+02 03:04:05");
        assert_eq!(interval_ms(61_002_999), "+00 00:01:01.002");
        let all = [1, 2, 512, 1 << 10, 1 << 16, 1 << 20, 1 << 25, 1 << 26, 1 << 32].map(duration);
        let expected =
            ["1 microsecond", "2 microseconds", "512 microseconds", "1 millisecond", "65 milliseconds"];
        assert_eq!(all[..5], expected);
        assert_eq!(all[5..], ["1 second", "33 seconds", "1 minute", "1 hour"]);
    }

    #[test]
    fn event_ids_are_distinct_and_never_change() {
        let all = standfast_instruments::Event::ALL.iter().map(|event| id_of(event.name()));
        let unlike: std::collections::BTreeSet<u32> = all.collect();
        assert_eq!(unlike.len(), standfast_instruments::Event::ALL.len());
        assert_eq!(id_of("log file sync"), 0xcdeb_61a0, "{:#x}", id_of("log file sync"));
    }
}
