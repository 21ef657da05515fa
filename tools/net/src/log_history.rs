//! Finds the peak of the redo in a log history: the output of a query over archived logs, as a client program prints
//! it. Pure.
//!
//! Columns are found by their names, in any order, separated by blanks, tabs, `|` or commas. Lines of dashes, repeated
//! page heads and closing remarks are skipped. The size needs one of `BYTES`, `MB`, or `BLOCKS` with `BLOCK_SIZE`. The
//! time needs one of `SEC` (or `SECONDS`), or `FIRST_TIME` with `NEXT_TIME` (`YYYY-MM-DD HH:MM:SS`; a `T` between is
//! allowed). `THREAD#` and `SEQUENCE#` are used when they are there.

use crate::{NetError, Result};
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct LogOfHistory {
    /// Redo thread: the node of a cluster; 1 when the history does not say.
    pub thread: u64,
    /// Log sequence; 0 when the history does not say.
    pub sequence: u64,
    pub bytes: f64,
    /// Time from its first redo to that of the next log, seconds.
    pub seconds: f64,
}

impl LogOfHistory {
    /// Returns the bytes per second while the log was written.
    pub fn rate(&self) -> f64 {
        self.bytes / self.seconds
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LogHistory {
    /// The log that was filled fastest. A link must carry its rate, and that of each thread by itself.
    pub peak: LogOfHistory,
    pub logs: usize,
    /// Logs that began and ended in the same second; they have no rate.
    pub without_duration: usize,
    /// Shortest time between two log switches, seconds.
    pub shortest: f64,
}

const FORMS: &str = "a table with a line of column names: SEQUENCE#, MB (or BYTES, or BLOCKS and BLOCK_SIZE) and SEC \
                     (or FIRST_TIME and NEXT_TIME)";

/// Reads a history.
///
/// # Errors
/// `Usage` with the line when a value is not a number; `Usage` when no log has a size and a duration, or a column is
/// missing.
pub fn read(text: &str) -> Result<LogHistory> {
    let mut columns: Option<Columns> = None;
    let (mut logs, mut without_duration) = (Vec::new(), 0);
    for (number, line) in (1..).zip(text.lines()) {
        let fields = fields(line);
        if let Some(found) = Columns::named(&fields) {
            columns = Some(found);
            continue;
        }
        let is_data =
            fields.first().is_some_and(|field| field.starts_with(|first: char| first.is_ascii_digit()));
        let Some(columns) = columns.as_ref().filter(|columns| is_data && fields.len() == columns.count)
        else {
            continue;
        };
        let log = columns.log(&fields).ok_or_else(|| {
            NetError::Usage(format!("line {number} of the log history, '{}', cannot be read", line.trim()))
        })?;
        if log.seconds > 0.0 {
            logs.push(log);
        } else {
            without_duration += 1;
        }
    }
    let fastest = logs.iter().copied().max_by(|one, other| one.rate().total_cmp(&other.rate()));
    let Some(peak) = fastest else {
        return Err(NetError::Usage(format!(
            "no log with a size and a duration in the log history; it must be {FORMS}"
        )));
    };
    let shortest = logs.iter().map(|log| log.seconds).fold(f64::INFINITY, f64::min);
    Ok(LogHistory { peak, logs: logs.len(), without_duration, shortest })
}

/// Splits a line into words; a date and the time after it are one word.
fn fields(line: &str) -> Vec<String> {
    let words =
        line.split([' ', '\t', ',', '|']).map(|word| word.trim_matches('"')).filter(|word| !word.is_empty());
    let mut fields: Vec<String> = Vec::new();
    for word in words {
        match fields.last_mut() {
            Some(date) if is_date(date) && word.contains(':') => {
                date.push('T');
                date.push_str(word);
            }
            _ => fields.push(word.to_owned()),
        }
    }
    fields
}

fn is_date(word: &str) -> bool {
    word.len() == 10 && word.split('-').map(str::len).eq([4, 2, 2])
}

enum Size {
    Bytes(usize),
    Megabytes(usize),
    Blocks(usize, usize),
}

enum Lasting {
    Seconds(usize),
    FromTo(usize, usize),
}

struct Columns {
    count: usize,
    thread: Option<usize>,
    sequence: Option<usize>,
    size: Size,
    lasting: Lasting,
}

impl Columns {
    /// Returns the columns when the words name enough of them.
    fn named(fields: &[String]) -> Option<Columns> {
        let at = |names: &[&str]| {
            fields.iter().position(|field| names.iter().any(|name| field.eq_ignore_ascii_case(name)))
        };
        let size =
            match (at(&["BYTES"]), at(&["MB", "MBYTES", "SIZE_MB"]), at(&["BLOCKS"]), at(&["BLOCK_SIZE"])) {
                (Some(bytes), ..) => Size::Bytes(bytes),
                (_, Some(megabytes), ..) => Size::Megabytes(megabytes),
                (_, _, Some(blocks), Some(size)) => Size::Blocks(blocks, size),
                _ => return None,
            };
        let lasting = match (at(&["SEC", "SECS", "SECONDS"]), at(&["FIRST_TIME"]), at(&["NEXT_TIME"])) {
            (Some(seconds), ..) => Lasting::Seconds(seconds),
            (_, Some(first), Some(next)) => Lasting::FromTo(first, next),
            _ => return None,
        };
        let thread = at(&["THREAD#", "THREAD_NO", "THREAD"]);
        let sequence = at(&["SEQUENCE#", "SEQUENCE_NO", "SEQUENCE"]);
        Some(Columns { count: fields.len(), thread, sequence, size, lasting })
    }

    fn log(&self, fields: &[String]) -> Option<LogOfHistory> {
        let number =
            |at: usize| fields[at].parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
        let whole = |at: Option<usize>, default: u64| at.map_or(Some(default), |at| fields[at].parse().ok());
        let bytes = match self.size {
            Size::Bytes(at) => number(at)?,
            Size::Megabytes(at) => number(at)? * 1_048_576.0,
            Size::Blocks(blocks, size) => number(blocks)? * number(size)?,
        };
        let seconds = match self.lasting {
            Lasting::Seconds(at) => number(at)?,
            Lasting::FromTo(first, next) => seconds_of(&fields[next])? - seconds_of(&fields[first])?,
        };
        Some(LogOfHistory {
            thread: whole(self.thread, 1)?,
            sequence: whole(self.sequence, 0)?,
            bytes,
            seconds,
        })
    }
}

/// Parses `YYYY-MM-DDTHH:MM:SS` into seconds since a fixed day.
fn seconds_of(text: &str) -> Option<f64> {
    let (date, time) = text.split_once('T')?;
    let [year, month, day] = numbers(date, '-')?;
    let [hour, minute, second] = numbers(time.trim_end_matches('Z'), ':')?;
    // Days before a month are counted in a year that begins with March, so that a leap day is its last day.
    let (year, month) = if month <= 2.0 { (year - 1.0, month + 9.0) } else { (year, month - 3.0) };
    let leap_days = (year / 4.0).floor() - (year / 100.0).floor() + (year / 400.0).floor();
    let days = year * 365.0 + leap_days + ((153.0 * month + 2.0) / 5.0).floor() + day;
    Some(days * 86_400.0 + hour * 3_600.0 + minute * 60.0 + second)
}

fn numbers(text: &str, between: char) -> Option<[f64; 3]> {
    let numbers: Option<Vec<f64>> = text.split(between).map(|number| number.parse().ok()).collect();
    numbers?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classic_log_query_output_yields_the_peak() {
        let text = "\n   THREAD#  SEQUENCE#         MB        SEC       MB/s\n\
                    ---------- ---------- ---------- ---------- ----------\n\
                    \u{20}        2       2291 29366.1963        831 35.338383\n\
                    \u{20}        1       2565 29365.6553        781 37.600070\n\
                    \u{20}        2       2292 29359.3403        537 54.672887\n\
                    \u{20}        1       2566 29407.8296        813 36.171992\n\
                    \n   THREAD#  SEQUENCE#         MB        SEC       MB/s\n\
                    ---------- ---------- ---------- ---------- ----------\n\
                    \u{20}        2       2295 29452.4648        477 61.745216\n\
                    \u{20}        2       2296 12.0                0 0\n\n5 rows selected.\n";
        let history = read(text).unwrap();
        assert_eq!((history.peak.thread, history.peak.sequence), (2, 2295));
        assert!((history.peak.rate() / 1_048_576.0 - 61.745).abs() < 0.001);
        assert_eq!((history.logs, history.without_duration, history.shortest), (5, 1, 477.0));
    }

    #[test]
    fn comma_separated_blocks_and_times_are_accepted() {
        let text = "sequence#,blocks,block_size,first_time,next_time\n\
                    7,2048,512,2028-02-28 23:59:30,2028-02-29T00:00:30\n\
                    8,4096,512,2028-02-29 00:00:30,2028-03-01 00:00:30\n";
        let history = read(text).unwrap();
        assert_eq!(history.peak, LogOfHistory { thread: 1, sequence: 7, bytes: 1_048_576.0, seconds: 60.0 });
        assert_eq!(history.logs, 2);
        assert_eq!(
            seconds_of("2028-03-01T00:00:00").unwrap() - seconds_of("2028-02-28T00:00:00").unwrap(),
            172_800.0
        );
    }

    #[test]
    fn unreadable_log_history_is_reported_with_its_line() {
        let none = read("nothing here").unwrap_err().to_string();
        assert!(none.contains("FIRST_TIME and NEXT_TIME"), "{none}");
        let odd = read("MB SEC\n12 x3\n").unwrap_err().to_string();
        assert!(odd.contains("line 2") && odd.contains("12 x3"), "{odd}");
        assert!(read("MB SEC\n12 0\n").is_err(), "no log has a duration");
    }

    proptest::proptest! {
        #[test]
        fn no_log_history_text_causes_a_panic(text in "[A-Z#_ ,|\n0-9:T.-]{0,200}") {
            let _ = read(&format!("THREAD# BYTES FIRST_TIME NEXT_TIME SEC\n{text}"));
        }
    }
}
