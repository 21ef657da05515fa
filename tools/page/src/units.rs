//! Sizes, times and rates in the form that users write, and back.
//!
//! Sizes count in 1,024s, as the classic tool does. Every parser is total: it returns a value or the list of allowed
//! forms and never guesses (`8kk` is not 8 KB).

use std::time::Duration;

pub const SIZE_FORMS: &str = "bytes, or a number with k, m or g (1,024-based): 8192, 8k, 1m";
pub const TIME_FORMS: &str = "a number with ms, s, m, h or d: 500ms, 10s, 2m, 1h";
/// Allowed forms of a duration in time or bytes.
pub const EXTENT_FORMS: &str =
    "a time (120, 30s, 2m = minutes, 1h) or an amount of data (500mb, 4gb, 100k); a bare number is seconds";
pub const RATE_FORMS: &str =
    "bytes or bits per second: 62MiB/s, 8mb, 100mbit (bits count in 1,000s, bytes in 1,024s)";

/// Largest size that is accepted: 1 EiB.
const MOST_BYTES: f64 = (1_u64 << 60) as f64;
/// Longest time that is accepted, seconds: ten years.
const MOST_SECONDS: f64 = 10.0 * 366.0 * 86_400.0;

/// Length of a test, in time or data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extent {
    Endless,
    Time(Duration),
    /// Until this many bytes of payload are sent.
    Bytes(u64),
}

/// Splits a text into a number and the lower-case unit that follows it.
fn split(text: &str) -> Option<(f64, String)> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    // f64 would also take ".", "1." and ".5"; those are more likely typing errors than values.
    if !digits.starts_with(|c: char| c.is_ascii_digit()) || !digits.ends_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let number = digits.parse::<f64>().ok().filter(|number| number.is_finite())?;
    Some((number, unit.trim().to_ascii_lowercase()))
}

fn byte_unit(unit: &str) -> Option<f64> {
    Some(match unit {
        "b" | "byte" | "bytes" => 1.0,
        "k" | "kb" | "kib" | "kbyte" | "kbytes" => 1024.0,
        "m" | "mb" | "mib" | "mbyte" | "mbytes" => f64::from(1 << 20),
        "g" | "gb" | "gib" | "gbyte" | "gbytes" => f64::from(1 << 30),
        "t" | "tb" | "tib" => (1_u64 << 40) as f64,
        _ => return None,
    })
}

fn second_unit(unit: &str) -> Option<f64> {
    Some(match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" | "sec" | "second" | "seconds" => 1.0,
        "m" | "min" | "minute" | "minutes" => 60.0,
        "h" | "hour" | "hours" => 3600.0,
        "d" | "day" | "days" => 86_400.0,
        _ => return None,
    })
}

fn bytes(number: f64, unit: &str) -> Option<u64> {
    let bytes = number * if unit.is_empty() { 1.0 } else { byte_unit(unit)? };
    (bytes <= MOST_BYTES && bytes.fract() == 0.0).then_some(bytes as u64)
}

fn seconds(number: f64, unit: &str, bare: &str) -> Option<Duration> {
    let seconds = number * second_unit(if unit.is_empty() { bare } else { unit })?;
    (seconds <= MOST_SECONDS).then(|| Duration::from_secs_f64(seconds))
}

/// Parses a size in bytes: `8192`, `8k`, `2MiB`.
pub fn size(text: &str) -> Result<u64, &'static str> {
    split(text).and_then(|(number, unit)| bytes(number, &unit)).ok_or(SIZE_FORMS)
}

/// Parses a time; a bare number counts in `bare` (`s` or `ms`).
pub fn time(text: &str, bare: &str) -> Result<Duration, &'static str> {
    split(text).and_then(|(number, unit)| seconds(number, &unit, bare)).ok_or(TIME_FORMS)
}

/// Parses a time or an amount of data. `m` alone is minutes.
pub fn extent(text: &str) -> Result<Extent, &'static str> {
    let (number, unit) = split(text).ok_or(EXTENT_FORMS)?;
    if let Some(time) = seconds(number, &unit, "s") {
        return Ok(Extent::Time(time));
    }
    bytes(number, &unit).map(Extent::Bytes).ok_or(EXTENT_FORMS)
}

/// Returns whether a duration was written with the unit `m`, which could also have meant megabytes.
pub fn ambiguous_extent(text: &str) -> bool {
    split(text).is_some_and(|(_, unit)| unit == "m")
}

/// Parses a rate and returns bytes per second: `62MiB/s`, `8m`, `100mbit`.
pub fn rate(text: &str) -> Result<f64, &'static str> {
    let parse = || {
        let (number, unit) = split(text)?;
        // "Gbps" is refused: some users mean bits by it and some bytes.
        let scale = match unit.strip_suffix("/s").unwrap_or(&unit) {
            "" => 1.0,
            "bit" => 0.125,
            "kbit" => 125.0,
            "mbit" => 125e3,
            "gbit" => 125e6,
            bytes => byte_unit(bytes)?,
        };
        Some(number * scale).filter(|rate| *rate > 0.0 && *rate <= MOST_BYTES)
    };
    parse().ok_or(RATE_FORMS)
}

/// Formats a size like the classic screen: `8 kbytes`, `1 Mbyte`, `1000 bytes`.
pub fn classic_size(bytes: u64) -> String {
    let (count, word) = match bytes {
        0 => (0, "byte"),
        _ if bytes.is_multiple_of(1 << 20) => (bytes >> 20, "Mbyte"),
        _ if bytes.is_multiple_of(1 << 10) => (bytes >> 10, "kbyte"),
        _ => (bytes, "byte"),
    };
    counted(count, word)
}

/// Formats a time: `10 seconds`, `2 minutes`, `1 hour`, `5 milliseconds`.
pub fn classic_time(time: Duration) -> String {
    let millis = time.as_millis() as u64;
    match millis {
        0 => "0 seconds".into(),
        _ if millis.is_multiple_of(3_600_000) => counted(millis / 3_600_000, "hour"),
        _ if millis.is_multiple_of(60_000) => counted(millis / 60_000, "minute"),
        _ if millis.is_multiple_of(1000) => counted(millis / 1000, "second"),
        _ => counted(millis, "millisecond"),
    }
}

fn counted(count: u64, word: &str) -> String {
    format!("{count} {word}{}", if count == 1 { "" } else { "s" })
}

/// Formats a size briefly: `512K`, `2.0M`, `96`.
pub fn short_size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes}"),
        1024..1_048_576 => format!("{}K", bytes >> 10),
        1_048_576..1_073_741_824 => format!("{:.1}M", bytes as f64 / 1048576.0),
        _ => format!("{:.1}G", bytes as f64 / 1073741824.0),
    }
}

/// Formats a size for reading: `1.5 KiB`, `64.0 MiB`.
pub fn readable_size(bytes: f64) -> String {
    match bytes {
        b if b < 1024.0 => format!("{b:.0} B"),
        b if b < 1048576.0 => format!("{:.1} KiB", b / 1024.0),
        b if b < 1073741824.0 => format!("{:.1} MiB", b / 1048576.0),
        b => format!("{:.2} GiB", b / 1073741824.0),
    }
}

pub fn millis(nanos: f64) -> f64 {
    nanos / 1e6
}

/// Converts bytes per second to Mbit/s (10^6 bits).
pub fn megabits(bytes_per_second: f64) -> f64 {
    bytes_per_second * 8.0 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_use_1024_based_units_and_malformed_ones_are_refused() {
        assert_eq!(size("8192"), Ok(8192));
        assert_eq!(size("8K"), Ok(8192));
        assert_eq!(size("1.5m"), Ok(1_572_864));
        assert_eq!(size("2MiB"), Ok(2 << 20));
        for wrong in
            ["", "8kk", "k", "-5", "+5", "0x10", "1e3", "foo", ".5", "5.", "1.2.3", "9999999999g", "0.3"]
        {
            assert_eq!(size(wrong), Err(SIZE_FORMS), "{wrong}");
        }
    }

    #[test]
    fn a_duration_is_a_time_or_bytes_and_m_means_minutes() {
        assert_eq!(extent("120"), Ok(Extent::Time(Duration::from_secs(120))));
        assert_eq!(extent("10m"), Ok(Extent::Time(Duration::from_secs(600))));
        assert_eq!(extent("10mb"), Ok(Extent::Bytes(10 << 20)));
        assert_eq!(extent("4G"), Ok(Extent::Bytes(4 << 30)));
        assert_eq!(extent("1H"), Ok(Extent::Time(Duration::from_secs(3600))));
        assert!(ambiguous_extent("10M") && !ambiguous_extent("10mb"));
        for wrong in ["", "m", "foo", "10x", "-1", "1 2", "1s2"] {
            assert_eq!(extent(wrong), Err(EXTENT_FORMS), "{wrong}");
        }
    }

    #[test]
    fn rates_use_1024_based_bytes_or_1000_based_bits() {
        assert_eq!(rate("62MiB/s"), Ok(62.0 * 1048576.0));
        assert_eq!(rate("100mbit"), Ok(12_500_000.0));
        assert_eq!(rate("1Gbps"), Err(RATE_FORMS));
        assert_eq!(rate("1Gbit/s"), Ok(125e6));
        assert_eq!(rate("0"), Err(RATE_FORMS));
    }

    #[test]
    fn screen_shows_sizes_and_times_in_whole_units() {
        assert_eq!(classic_size(1 << 20), "1 Mbyte");
        assert_eq!(classic_size(8192), "8 kbytes");
        assert_eq!(classic_size(4_194_303), "4194303 bytes");
        assert_eq!(classic_time(Duration::from_secs(120)), "2 minutes");
        assert_eq!(classic_time(Duration::from_millis(1500)), "1500 milliseconds");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_a_unit_parser_panic(text in ".{0,20}") {
            let _ = (size(&text), time(&text, "ms"), extent(&text), rate(&text));
        }
    }
}
