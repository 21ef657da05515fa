//! Numbers with their unit, in readable form. An unknown number is shown as such.

use serde::{Deserialize, Serialize};

pub const UNKNOWN: &str = "unknown";

/// A number in its base unit, and the text that is shown everywhere.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// Bytes, seconds or a count; `None`: unknown.
    pub value: Option<f64>,
    /// The number with its unit; [`UNKNOWN`] without a number.
    pub text: String,
}

impl Figure {
    fn new(value: Option<f64>, text: impl FnOnce(f64) -> String) -> Figure {
        let value = value.filter(|value| value.is_finite());
        Figure { value, text: value.map_or_else(|| UNKNOWN.into(), text) }
    }

    pub fn seconds(value: Option<f64>) -> Figure {
        Figure::new(value, seconds)
    }

    pub fn bytes(value: Option<u64>) -> Figure {
        Figure::new(value.map(|bytes| bytes as f64), bytes)
    }

    pub fn byte_rate(value: Option<f64>) -> Figure {
        Figure::new(value, |rate| format!("{}/s", bytes(rate)))
    }

    pub fn rate(value: Option<f64>) -> Figure {
        Figure::new(value, |rate| if rate < 10.0 { format!("{rate:.1}/s") } else { format!("{rate:.0}/s") })
    }

    pub fn count(value: Option<u64>) -> Figure {
        Figure::new(value.map(|count| count as f64), |count| format!("{count:.0}"))
    }

    /// A share from 0 to 1, shown in percent.
    pub fn share(value: Option<f64>) -> Figure {
        Figure::new(value, |share| format!("{:.0} %", share * 100.0))
    }
}

/// Bytes in at most three digits: `0 B`, `12 KiB`, `3.4 MiB`.
pub fn bytes(bytes: f64) -> String {
    let mut scaled = bytes;
    let mut unit = "B";
    for next in ["KiB", "MiB", "GiB", "TiB"] {
        if scaled < 1000.0 {
            break;
        }
        (scaled, unit) = (scaled / 1024.0, next);
    }
    match unit {
        "B" => format!("{scaled:.0} B"),
        _ if scaled < 9.95 => format!("{scaled:.1} {unit}"),
        _ => format!("{scaled:.0} {unit}"),
    }
}

/// A time in two or three digits: `0 s`, `12 us`, `3.4 ms`, `45 s`, `2 min 5 s`, `3 h 7 min`, `2 d 4 h`.
pub fn seconds(seconds: f64) -> String {
    let whole = seconds.round() as u64;
    match seconds {
        _ if seconds == 0.0 => "0 s".into(),
        _ if seconds < 0.001 => format!("{:.0} us", seconds * 1e6),
        _ if seconds < 0.00995 => format!("{:.1} ms", seconds * 1e3),
        _ if seconds < 0.9995 => format!("{:.0} ms", seconds * 1e3),
        _ if seconds < 9.95 => format!("{seconds:.1} s"),
        _ if whole < 120 => format!("{whole} s"),
        _ if whole < 7200 => format!("{} min {} s", whole / 60, whole % 60),
        _ if whole < 172_800 => format!("{} h {} min", whole / 3600, whole / 60 % 60),
        _ => format!("{} d {} h", whole / 86_400, whole / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_carry_their_unit() {
        let texts = [0.0, 999.0, 1023.0, 10_240.0, 3.4 * 1048576.0, 2e12].map(bytes);
        assert_eq!(texts, ["0 B", "999 B", "1.0 KiB", "10 KiB", "3.4 MiB", "1.8 TiB"]);
        let texts = [0.0, 12e-6, 0.0034, 0.45, 1.26, 45.2, 125.0, 11_220.0, 200_000.0].map(seconds);
        assert_eq!(
            texts,
            ["0 s", "12 us", "3.4 ms", "450 ms", "1.3 s", "45 s", "2 min 5 s", "3 h 7 min", "2 d 7 h"]
        );
    }

    #[test]
    fn unknown_figure_is_neither_zero_nor_blank() {
        for figure in [Figure::seconds(None), Figure::bytes(None), Figure::rate(Some(f64::NAN))] {
            assert_eq!((figure.value, figure.text.as_str()), (None, "unknown"));
        }
    }
}
