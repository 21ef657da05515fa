//! `net diff`: compares two results.

use super::arguments::DiffArgs;
use crate::terminal::{say, tell};
use crate::{NetError, Result};
use serde_json::{Value, json};
use std::path::Path;

/// Figures that are compared: the path in the summary of a result, or with a leading slash in the whole result; the
/// name with the unit; the factor to that unit; whether more is worse.
const FIGURES: [(&str, &str, f64, bool); 10] = [
    ("bytes_per_second", "throughput, MiB/s", 1.0 / 1_048_576.0, false),
    ("latency/mean", "mean latency, ms", 1e3, true),
    ("latency/p50", "p50, ms", 1e3, true),
    ("latency/p99", "p99, ms", 1e3, true),
    ("latency/network/mean", "network part, ms", 1e3, true),
    ("latency/disk/mean", "disk part, ms", 1e3, true),
    ("disk_share", "disk share of time", 1.0, true),
    ("min_rtt", "shortest round trip, ms", 1e3, true),
    ("/round_trips/loaded/p50", "p50 of loaded round trips, ms", 1e3, true),
    ("/round_trips/loaded/p99", "p99 of loaded round trips, ms", 1e3, true),
];

#[derive(Debug, PartialEq)]
struct Compared {
    name: String,
    before: f64,
    after: f64,
    /// Percent; positive when `after` is greater.
    change: f64,
    worse: bool,
}

/// Compares the figures that both results have. A figure is worse only by more than `tolerance` percent.
fn compare(before: &Value, after: &Value, tolerance: f64) -> Vec<Compared> {
    let directions = |result: &Value| [result.clone(), result["reverse"].clone()];
    let mut compared = Vec::new();
    for (before, after) in directions(before).iter().zip(&directions(after)) {
        compared.extend(compare_one_way(before, after, tolerance));
    }
    compared
}

fn compare_one_way(before: &Value, after: &Value, tolerance: f64) -> Vec<Compared> {
    let figure = |result: &Value, path: &str| match path.starts_with('/') {
        true => result.pointer(path)?.as_f64(),
        false => result.pointer(&format!("/summary/{path}"))?.as_f64(),
    };
    let reverse = if before["direction"] == "from_server" { " from server" } else { "" };
    let mut compared = Vec::new();
    for (path, name, scale, more_is_worse) in FIGURES {
        let (Some(old), Some(new)) = (figure(before, path), figure(after, path)) else { continue };
        let name = format!("{name}{reverse}");
        let change = match (old == new, old == 0.0) {
            (true, _) => 0.0,
            (_, true) => 100.0,
            _ => (new / old - 1.0) * 100.0,
        };
        let worse = if more_is_worse { change > tolerance } else { change < -tolerance };
        compared.push(Compared { name, before: old * scale, after: new * scale, change, worse });
    }
    compared
}

/// Reads a result file; the error says what is wrong with another file.
fn load(path: &Path) -> Result<Value> {
    let wrong = |reason: String| NetError::Usage(format!("{}: {reason}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let result: Value = serde_json::from_str(&text).map_err(|error| wrong(format!("is no JSON: {error}")))?;
    let version = &result["schema_version"];
    if *version != crate::report::SCHEMA_VERSION {
        return Err(wrong(format!(
            "has schema version {version}; one result of net client --json is wanted"
        )));
    }
    match result["summary"].is_object() {
        true => Ok(result),
        false => Err(wrong("has no summary: the test did not begin".into())),
    }
}

pub fn main(args: &DiffArgs) -> Result<u8> {
    let (before, after) = (load(&args.before)?, load(&args.after)?);
    if before["test"] != after["test"] {
        tell!("note: the tests had different settings");
    }
    let compared = compare(&before, &after, args.tolerance);
    let worse = compared.iter().any(|figure| figure.worse);
    if args.json {
        let figures: Vec<_> = compared
            .iter()
            .map(|figure| {
                json!({
                    "name": figure.name,
                    "before": figure.before,
                    "after": figure.after,
                    "change_percent": figure.change,
                    "worse": figure.worse,
                })
            })
            .collect();
        let mut report = crate::report::begin();
        report["tolerance_percent"] = args.tolerance.into();
        report["worse"] = worse.into();
        report["figures"] = figures.into();
        say!("{report:#}");
    } else {
        say!("{:<36} {:>12} {:>12} {:>9}", "", "before", "after", "change");
        for figure in &compared {
            let mark = if figure.worse { "  worse" } else { "" };
            say!(
                "{:<36} {:>12.3} {:>12.3} {:>+8.1}%{mark}",
                figure.name,
                figure.before,
                figure.after,
                figure.change
            );
        }
    }
    Ok(if worse { 3 } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(rate: f64, mean: f64) -> Value {
        json!({ "summary": { "bytes_per_second": rate, "latency": { "mean": mean } } })
    }

    #[test]
    fn lower_throughput_or_higher_latency_beyond_tolerance_is_worse() {
        let worse = |after: Value| compare(&result(100.0, 0.001), &after, 10.0).iter().any(|one| one.worse);
        assert!(!worse(result(91.0, 0.00109)));
        assert!(worse(result(89.0, 0.001)));
        assert!(worse(result(100.0, 0.0012)));
        assert!(!worse(result(500.0, 0.0001)));
        // A figure that one of the results lacks is not compared.
        assert_eq!(compare(&result(1.0, 1.0), &json!({ "summary": {} }), 0.0), []);
    }
}
