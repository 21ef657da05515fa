//! How far standbys are behind, and how fast they apply.

use super::builder::{Builder, cell};
use super::family::{sender_of, silent};
use super::text::{interval, interval_ms, time, time_of};
use standfast_documents::status::Received;
use standfast_instruments::{Observation, Statistic, lag_unit_s};
use std::collections::BTreeMap;

/// Names in v$dataguard_stats, with their units.
const STATS: [(&str, &str); 4] = [
    ("transport lag", "day(2) to second(0) interval"),
    ("apply lag", "day(2) to second(0) interval"),
    ("apply finish time", "day(2) to second(3) interval"),
    ("estimated startup time", "second"),
];
/// Lags in microseconds; `None`: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Lags {
    transport_us: Option<u64>,
    apply_us: Option<u64>,
}

/// Lags as reported by a standby, or by its sender.
fn lags(transport_s: Option<f64>, apply_s: Option<f64>) -> Lags {
    let us = |lag: Option<f64>| lag.filter(|seconds| *seconds >= 0.0).map(|seconds| (seconds * 1e6) as u64);
    Lags { transport_us: us(transport_s), apply_us: us(apply_s) }
}

pub fn dataguard_stats(rows: &mut Builder, at: &Observation) {
    if let Some(standby) = &at.status.standby {
        let source = standby.source.as_ref().and_then(|source| source.name.as_deref());
        add_stats(rows, at, source, &lags(standby.transport_lag_s, standby.apply_lag_s), Some(standby));
    }
    for name in silent(at) {
        rows.begin_instance(name);
        let sender = sender_of(at, name);
        let lags = sender.map(|sender| lags(sender.transport_lag_s, sender.apply_lag_s));
        add_stats(rows, at, Some(&at.name), &lags.unwrap_or_default(), None);
    }
}

/// Adds the rows of one standby. `standby`: what it reports about itself; `None` when it does not answer.
fn add_stats(
    rows: &mut Builder,
    at: &Observation,
    source: Option<&str>,
    lags: &Lags,
    standby: Option<&Received>,
) {
    // A far sync does not apply.
    let applies = standby.is_none_or(|_| at.status.role.as_deref() != Some("far sync"));
    // The activity of a standby that does not answer is unknown.
    let known = |of: fn(&Observation) -> Option<f64>| standby.and_then(|_| of(at));
    let finish_us = known(crate::apply_finish_s).map(|seconds| (seconds * 1e6) as u64);
    let values = [
        lags.transport_us.map(interval),
        lags.apply_us.map(interval),
        finish_us.map(interval_ms),
        known(crate::startup_s).map(|seconds| format!("{}", seconds.ceil())),
    ];
    for ((name, unit), value) in STATS.into_iter().zip(values) {
        if name.starts_with("apply") && !applies {
            continue;
        }
        rows.row([
            ("source_dbid", cell(&at.catalog.family)),
            ("source_db_unique_name", cell(source)),
            ("name", cell(name)),
            ("value", cell(value)),
            ("unit", cell(unit)),
            ("time_computed", cell(time_of(at.status.time_us))),
            ("datum_time", cell(time_of(standby.and_then(|standby| standby.last_heard_us)))),
        ]);
    }
}

pub fn recovery_progress(rows: &mut Builder, at: &Observation) {
    let Some(standby) = at.status.standby.as_ref().filter(|standby| standby.applied.is_some()) else {
        return;
    };
    let lag_us = lags(standby.transport_lag_s, standby.apply_lag_s).apply_us;
    let elapsed_s = at.sample.time_us.saturating_sub(at.sample.started_us) / 1_000_000;
    let applied = at.sample.statistic(Statistic::RedoApplied.name());
    let newest = |name: &str| {
        let of_name = at.history.metrics.iter().filter(|metric| metric.name == name);
        of_name.max_by_key(|metric| metric.end_us).and_then(|metric| metric.value)
    };
    let rate_kb = |per_second: f64| (per_second / 1024.0) as u64;
    let items: [(&str, &str, Option<u64>); 6] = [
        ("Active Apply Rate", "KB/sec", newest("Redo Applied Per Sec").map(rate_kb)),
        ("Average Apply Rate", "KB/sec", applied.and_then(|bytes| (bytes / 1024).checked_div(elapsed_s))),
        ("Redo Applied", "Megabytes", applied.map(|bytes| bytes >> 20)),
        ("Elapsed Time", "Seconds", Some(elapsed_s)),
        ("Standby Apply Lag", "Seconds", lag_us.map(|us| us / 1_000_000)),
        ("Transactions Applied", "Transactions", standby.transactions),
    ];
    for (item, units, sofar) in items {
        rows.row([
            ("start_time", cell(time(at.sample.started_us))),
            ("type", cell("Media Recovery")),
            ("item", cell(item)),
            ("units", cell(units)),
            ("sofar", cell(sofar)),
        ]);
    }
    rows.row([
        ("start_time", cell(time(at.sample.started_us))),
        ("type", cell("Media Recovery")),
        ("item", cell("Last Applied Redo")),
        ("units", cell("SCN+Time")),
        ("timestamp", cell(time_of(standby.applied_time_us))),
        ("comments", cell(standby.applied.map(|scn| format!("SCN: {scn}")))),
    ]);
}

/// Unit in which a lag is shown: its length in seconds, and its name.
fn unit_of(seconds: u64) -> (u64, &'static str) {
    match lag_unit_s(seconds) {
        1 => (1, "seconds"),
        60 => (60, "minutes"),
        3_600 => (3_600, "hours"),
        day => (day, "days"),
    }
}

pub fn standby_event_histogram(rows: &mut Builder, at: &Observation) {
    let mut counts: BTreeMap<(&str, u64, u64), (&str, u64, u64)> = BTreeMap::new();
    for lag in &at.history.lags {
        let (length, unit) = unit_of(lag.seconds);
        let entry = counts.entry((&lag.name, length, lag.seconds / length)).or_insert((unit, 0, 0));
        *entry = (unit, entry.1 + lag.count, entry.2.max(lag.last_us));
    }
    for ((name, _, size), (unit, count, last_us)) in counts {
        rows.row([
            ("name", cell(name)),
            ("time", cell(size)),
            ("unit", cell(unit)),
            ("count", cell(count)),
            ("last_time_updated", cell(time(last_us))),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::views::example::{self, Shown};

    fn stats(at: &Observation) -> Vec<Vec<String>> {
        Shown::of("v$dataguard_stats", at).all(&["db_unique_name", "name", "value", "datum_time"])
    }

    #[test]
    fn standby_with_all_redo_shows_zero_lags() {
        let rows = stats(&example::family());
        assert_eq!(rows[0], ["north", "transport lag", "+00 00:00:00", "2026-11-21 10:00:29"]);
        assert_eq!(rows[1], ["north", "apply lag", "+00 00:00:00", "2026-11-21 10:00:29"]);
        assert_eq!(rows[2][..3], ["north", "apply finish time", "+00 00:00:00.000"]);
        assert_eq!(rows[3][..3], ["north", "estimated startup time", "1"]);
        assert_eq!(rows.len(), 4, "none about the primary itself");
    }

    #[test]
    fn lags_are_shown_as_intervals_and_unknown_lags_as_null() {
        let mut at = example::standby();
        at.status.standby.as_mut().unwrap().transport_lag_s = Some(3.9);
        at.status.standby.as_mut().unwrap().apply_lag_s = Some(86_461.0);
        let rows = stats(&at);
        assert_eq!((rows[0][2].as_str(), rows[1][2].as_str()), ("+00 00:00:03", "+01 00:01:01"));
        at.status.standby.as_mut().unwrap().transport_lag_s = None;
        at.status.standby.as_mut().unwrap().apply_lag_s = Some(-1.0);
        let rows = stats(&at);
        assert_eq!((rows[0][2].as_str(), rows[1][2].as_str()), ("-", "-"));
    }

    #[test]
    fn a_standby_that_does_not_answer_has_rows_without_values() {
        let mut at = example::primary();
        at.standbys = vec![example::silent("north")];
        let rows = stats(&at);
        assert_eq!(rows[0], ["north", "transport lag", "-", "-"]);
        assert_eq!(rows.len(), 4);
    }

    #[test]
    fn sender_lags_are_shown_for_a_standby_that_does_not_answer() {
        let mut at = example::primary();
        let north = &mut at.status.destinations.as_mut().unwrap()[0];
        (north.transport_lag_s, north.apply_lag_s) = (Some(0.0), Some(70.5));
        let known: Vec<String> = stats(&at).into_iter().map(|row| row[2].clone()).collect();
        assert_eq!(known, ["+00 00:00:00", "+00 00:01:10", "-", "-"]);
        at.standbys = vec![example::answering(example::standby())];
        let asked: Vec<String> = stats(&at).into_iter().map(|row| row[2].clone()).collect();
        assert_eq!(asked[..2], ["+00 00:00:00", "+00 00:00:00"], "what it says itself counts");
        assert_eq!(asked[2..], ["+00 00:00:00.000", "1"]);
    }

    #[test]
    fn small_lags_are_counted_by_seconds_and_long_ones_by_minutes() {
        let rows = Shown::of("v$standby_event_histogram", &example::standby())
            .all(&["name", "time", "unit", "count"]);
        assert_eq!(rows, [["apply lag", "2", "seconds", "5"], ["apply lag", "1", "minutes", "7"]]);
    }

    #[test]
    fn recovery_progress_shows_unknown_values_as_null() {
        let shown = Shown::of("v$recovery_progress", &example::standby());
        assert_eq!(shown.clone().with("item", "Active Apply Rate").only(&["sofar"]), ["-"]);
        assert_eq!(shown.clone().with("item", "Elapsed Time").only(&["sofar", "total"]), ["20", "-"]);
        assert_eq!(
            shown.with("item", "Last Applied Redo").only(&["comments", "timestamp"]),
            ["SCN: 9000", "-"]
        );
        let mut at = example::standby();
        let standby = at.status.standby.as_mut().unwrap();
        standby.applied_time_us = standby.last_heard_us;
        let shown = Shown::of("v$recovery_progress", &at).with("item", "Last Applied Redo");
        assert_eq!(shown.only(&["timestamp"]), ["2026-11-21 10:00:29"]);
    }
}
