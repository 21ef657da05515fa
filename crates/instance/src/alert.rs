//! The alert log: what an operator should know, one line each, in a file and on stderr; there as JSON where it is wanted.

use crate::alert_config::AlertForm;
use crate::config::Config;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// Appends lines to the alert log of an instance.
pub struct AlertLog {
    path: Option<PathBuf>,
    /// The instance's name, where lines on stderr are JSON.
    json_of: Option<String>,
    last: Mutex<Vec<String>>,
}

const KEPT: usize = 50;

impl AlertLog {
    /// Writes to `path` and to stderr.
    pub fn new(path: &Path, config: &Config) -> AlertLog {
        let json = config.alert.stderr == AlertForm::Json;
        let json_of = json.then(|| config.instance.name.clone());
        AlertLog { path: Some(path.to_owned()), json_of, last: Mutex::new(Vec::new()) }
    }

    /// Writes nowhere but keeps the last lines.
    pub fn silent() -> AlertLog {
        AlertLog { path: None, json_of: None, last: Mutex::new(Vec::new()) }
    }

    /// Writes one line with the time. A log that cannot be written must not stop the instance.
    pub fn say(&self, message: impl AsRef<str>) {
        let time = utc_text(crate::now_us());
        let message = message.as_ref().replace('\n', " | ");
        let line = format!("{time} {message}");
        if let Some(path) = &self.path {
            match &self.json_of {
                Some(instance) => eprintln!("{}", json_line(&time, instance, &message)),
                None => eprintln!("{line}"),
            }
            if let Ok(mut file) = OpenOptions::new().create(true).append(true).open(path) {
                let _ = writeln!(file, "{line}");
            }
        }
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if last.len() == KEPT {
            last.remove(0);
        }
        last.push(line);
    }

    /// The newest lines, oldest first.
    pub fn last(&self) -> Vec<String> {
        self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }
}

/// The remedy of a message is a field of its own.
fn json_line(time: &str, instance: &str, message: &str) -> String {
    let cut = message.split_once(" | hint: ");
    let (message, hint) = cut.map_or((message, None), |(message, hint)| (message, Some(hint)));
    serde_json::json!({ "time": time, "instance": instance, "message": message, "hint": hint }).to_string()
}

/// `2026-11-21T10:00:00.123Z` for microseconds since the Unix epoch (civil-from-days after H. Hinnant).
pub fn utc_text(us: u64) -> String {
    let (seconds, milliseconds) = (us / 1_000_000, us / 1_000 % 1_000);
    let (days, second_of_day) = ((seconds / 86_400) as i64, seconds % 86_400);
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{milliseconds:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_json_has_the_remedy_by_itself() {
        let read = |message: &str| -> serde_json::Value {
            let line = json_line("2026-11-22T10:00:00.000Z", "paris", message);
            assert!(!line.contains('\n'));
            serde_json::from_str(&line).unwrap()
        };
        let line = read("a gap was open | hint: none of them \"was\" acknowledged");
        assert_eq!(
            (line["instance"].as_str(), line["message"].as_str()),
            (Some("paris"), Some("a gap was open"))
        );
        assert_eq!(line["hint"], "none of them \"was\" acknowledged");
        assert_eq!(
            read("two | lines | hint: one"),
            serde_json::json!({ "time": "2026-11-22T10:00:00.000Z",
            "instance": "paris", "message": "two | lines", "hint": "one" })
        );
        assert!(read("all is well")["hint"].is_null());
    }

    #[test]
    fn times_are_readable() {
        assert_eq!(utc_text(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(utc_text(1_709_210_096_789_000), "2024-02-29T12:34:56.789Z");
    }
}
