//! Numbers as text; an unknown one is a dash, never 0. Pure.

use standfast_page::words::utc;
use std::time::{Duration, UNIX_EPOCH};

pub const UNKNOWN: &str = "-";

pub fn number(value: Option<f64>, digits: usize) -> String {
    // The sum of an empty iterator is -0.0; adding 0.0 makes it 0.0.
    let value = value.filter(|value| value.is_finite()).map(|value| value + 0.0);
    value.map_or_else(|| UNKNOWN.to_owned(), |value| grouped(&format!("{value:.digits$}")))
}

pub fn count(value: Option<u64>) -> String {
    value.map_or_else(|| UNKNOWN.to_owned(), |value| grouped(&value.to_string()))
}

/// Microseconds as milliseconds with three decimals.
pub fn millis(us: Option<f64>) -> String {
    number(us.map(|us| us / 1e3), 3)
}

/// A share from 0 to 1, in percent.
pub fn share(value: Option<f64>) -> String {
    number(value.map(|value| value * 100.0), 1)
}

/// Formats bytes with a binary unit, from B to TiB.
pub fn bytes(value: Option<f64>) -> String {
    let Some(value) = value.filter(|value| value.is_finite()) else { return UNKNOWN.to_owned() };
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut at = 0;
    let mut value = value;
    while value.abs() >= 10_240.0 && at + 1 < units.len() {
        (value, at) = (value / 1024.0, at + 1);
    }
    let digits = if at == 0 || value.abs() >= 100.0 { 0 } else { 1 };
    format!("{value:.digits$} {}", units[at])
}

/// A byte count with a binary unit.
pub fn whole_bytes(value: Option<u64>) -> String {
    bytes(value.map(|value| value as f64))
}

/// A time in microseconds since the Unix epoch as UTC text.
pub fn when(us: u64) -> String {
    utc(UNIX_EPOCH + Duration::from_micros(us))
}

/// Seconds as `1 h 02 min`, `2 min 05 s` or `9.5 s`.
pub fn duration(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        0..60 => format!("{seconds:.1} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole / 60 % 60),
    }
}

/// Difference in percent of the first; a dash when the first is zero or either is unknown.
pub fn difference(before: Option<f64>, after: Option<f64>) -> String {
    let Some((before, after)) = before.zip(after).filter(|(before, _)| *before != 0.0) else {
        return UNKNOWN.to_owned();
    };
    format!("{:+.1} %", (after - before) / before * 100.0)
}

/// `1234567.8` as `1,234,567.8`.
fn grouped(digits: &str) -> String {
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits), |digits| ("-", digits));
    let (whole, fraction) =
        digits.split_once('.').map_or((digits, ""), |(whole, _)| (whole, &digits[whole.len()..]));
    let mut out = String::with_capacity(digits.len() + 4);
    for (index, digit) in whole.chars().enumerate() {
        if index > 0 && (whole.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    format!("{sign}{out}{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_values_are_never_shown_as_zero() {
        assert_eq!([number(None, 1), count(None), millis(None), share(None), bytes(None)], ["-"; 5]);
        assert_eq!([number(Some(f64::NAN), 1), difference(Some(0.0), Some(1.0))], ["-"; 2]);
        assert_eq!(count(Some(0)), "0");
    }

    #[test]
    fn numbers_are_formatted_with_separators_and_units() {
        assert_eq!(count(Some(1_234_567)), "1,234,567");
        assert_eq!(number(Some(-1_234.56), 1), "-1,234.6");
        assert_eq!(count(Some(999)), "999");
        assert_eq!(number(Some([0.0; 0].iter().sum()), 0), "0");
        assert_eq!(
            [bytes(Some(8_020.8)), bytes(Some(62.0 * 1048576.0)), bytes(Some(20_992.0))],
            ["8021 B", "62.0 MiB", "20.5 KiB"]
        );
        assert_eq!(
            [duration(9.5), duration(125.0), duration(3_725.0)],
            ["9.5 s", "2 min 05 s", "1 h 02 min"]
        );
        assert_eq!(difference(Some(0.68), Some(4.60)), "+576.5 %");
    }
}
