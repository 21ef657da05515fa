//! Wait events, statistics, metrics, active sessions.

use super::builder::{Builder, cell};
use super::text::{duration, id_of, time};
use standfast_instruments::{EventTotals, Metric, Observation, Statistic, WaitClass, bucket_upper_us};
use standfast_views::Cell;

/// Upper bound shown for the last, open-ended bucket of a histogram in microseconds.
pub(super) const BEYOND_US: u64 = 1 << 32;
/// Buckets below this one are shorter than a millisecond (of 1,024 microseconds).
const MILLI_BUCKET: usize = 10;

pub fn system_event(rows: &mut Builder, at: &Observation) {
    for totals in &at.sample.events {
        let counts = &totals.counts;
        let (micro, count) = (counts.time_ns / 1_000, counts.count);
        let average = counts.mean_us().map(|us| us / 10_000.0);
        // No session waits for a background event: its session values are known to be 0.
        let of_sessions = |value: u64| cell(if totals.foreground { value } else { 0 });
        rows.row([
            ("event", cell(totals.event.as_str())),
            ("total_waits", cell(count)),
            ("time_waited", cell(micro / 10_000)),
            ("average_wait", cell(average)),
            ("time_waited_micro", cell(micro)),
            ("total_waits_fg", of_sessions(count)),
            ("time_waited_fg", of_sessions(micro / 10_000)),
            ("average_wait_fg", cell(average.filter(|_| totals.foreground))),
            ("time_waited_micro_fg", of_sessions(micro)),
            ("event_id", cell(id_of(&totals.event))),
            ("wait_class_id", cell(id_of(totals.class.name()))),
            ("wait_class_no", cell(class_number(totals.class))),
            ("wait_class", cell(totals.class.name())),
        ]);
    }
}

fn class_number(class: WaitClass) -> Option<usize> {
    WaitClass::ALL.iter().position(|known| *known == class).map(|at| at + 1)
}

/// The buckets of an event up to the last that is not empty.
fn buckets(totals: &EventTotals) -> impl Iterator<Item = (usize, u64)> {
    let buckets = &totals.counts.buckets;
    let used = buckets.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
    buckets.iter().take(used).copied().enumerate()
}

pub fn event_histogram_micro(rows: &mut Builder, at: &Observation) {
    for (number, totals) in at.sample.events.iter().enumerate() {
        for (bucket, count) in buckets(totals) {
            let upper = bucket_upper_us(bucket).unwrap_or(BEYOND_US);
            rows.row([
                ("event_no", cell(number + 1)),
                ("event", cell(totals.event.as_str())),
                ("wait_time_micro", cell(upper)),
                ("wait_time_format", cell(duration(upper))),
                ("wait_count", cell(count)),
            ]);
        }
    }
}

pub fn event_histogram(rows: &mut Builder, at: &Observation) {
    for (number, totals) in at.sample.events.iter().enumerate() {
        let mut milli: Vec<u64> = Vec::new();
        for (bucket, count) in buckets(totals) {
            let place = bucket.saturating_sub(MILLI_BUCKET);
            milli.resize(milli.len().max(place + 1), 0);
            milli[place] += count;
        }
        for (place, count) in milli.into_iter().enumerate() {
            rows.row([
                ("event_no", cell(number + 1)),
                ("event", cell(totals.event.as_str())),
                ("wait_time_milli", cell(1u64 << place)),
                ("wait_count", cell(count)),
            ]);
        }
    }
}

pub fn sysstat(rows: &mut Builder, at: &Observation) {
    for statistic in &at.sample.statistics {
        let class: u64 = match statistic.name.as_str() {
            name if name.starts_with("user ") => 1,
            name if name.starts_with("redo ") || name.starts_with("log ") => 2,
            _ => 8,
        };
        rows.row([
            ("statistic_no", cell(Statistic::named(&statistic.name).map(Statistic::index))),
            ("name", cell(statistic.name.as_str())),
            ("class", cell(class)),
            ("value", cell(statistic.value)),
            ("stat_id", cell(id_of(&statistic.name))),
        ]);
    }
}

pub fn sysmetric(rows: &mut Builder, at: &Observation) {
    let metrics = &at.history.metrics;
    let newest = |metric: &&Metric| {
        let same = |other: &&Metric| other.name == metric.name && other.group_s == metric.group_s;
        metrics.iter().filter(same).map(|other| other.end_us).max() == Some(metric.end_us)
    };
    // Only the end of the history is considered, so the newest metric of a group is not searched in all of it.
    let newest_end = metrics.iter().map(|metric| metric.end_us).max().unwrap_or(0);
    let recent = |metric: &&Metric| metric.end_us + 2_000_000 * u64::from(metric.group_s) >= newest_end;
    metrics.iter().filter(recent).filter(newest).for_each(|metric| add_metric(rows, metric));
}

pub fn sysmetric_history(rows: &mut Builder, at: &Observation) {
    at.history.metrics.iter().for_each(|metric| add_metric(rows, metric));
}

fn add_metric(rows: &mut Builder, metric: &Metric) {
    let group: Option<u64> = match metric.group_s {
        60 => Some(2),
        15 => Some(3),
        _ => None,
    };
    rows.row([
        ("begin_time", cell(time(metric.begin_us))),
        ("end_time", cell(time(metric.end_us))),
        ("intsize_csec", cell(metric.end_us.saturating_sub(metric.begin_us) / 10_000)),
        ("group_id", cell(group)),
        ("metric_id", cell(id_of(&metric.name))),
        ("metric_name", cell(metric.name.as_str())),
        ("value", cell(metric.value)),
        ("metric_unit", cell(metric.unit.as_str())),
    ]);
}

pub fn active_session_history(rows: &mut Builder, at: &Observation) {
    for activity in &at.history.activity {
        let event = activity.event.as_deref();
        let class = activity.class.map(WaitClass::name);
        rows.row([
            ("sample_id", cell(activity.time_us / 1_000_000)),
            ("sample_time", cell(time(activity.time_us))),
            ("session_id", Cell::Integer(i64::from(activity.session))),
            ("session_type", cell(if activity.foreground { "FOREGROUND" } else { "BACKGROUND" })),
            ("session_state", cell(if event.is_some() { "WAITING" } else { "ON CPU" })),
            ("event", cell(event)),
            ("event_id", cell(event.map(id_of))),
            ("wait_class", cell(class)),
            ("wait_class_id", cell(class.map(id_of))),
            ("time_waited", cell(activity.waited_us)),
            ("program", cell(activity.name.as_str())),
            ("pid", cell(activity.pid)),
        ]);
    }
}

#[cfg(test)]
mod tests {
    use crate::views::example::{self, Shown};
    use standfast_instruments::{Event, Histogram, Observation};

    fn waited(event: Event, all_us: &[u64]) -> Observation {
        let mut at = example::primary();
        let histogram = Histogram::default();
        all_us.iter().for_each(|us| histogram.record(us * 1_000));
        at.sample.put_event(event, histogram.counts());
        at
    }

    #[test]
    fn wait_times_are_in_centiseconds_and_in_microseconds() {
        let at = waited(Event::LogFileSync, &[30_000, 10_000]);
        let shown = Shown::of("v$system_event", &at).with("event", "log file sync");
        let columns = ["total_waits", "time_waited", "average_wait", "time_waited_micro", "wait_class"];
        assert_eq!(shown.only(&columns), ["2", "4", "2.0", "40000", "Commit"]);
        assert_eq!(
            shown.only(&["total_waits_fg", "time_waited_micro_fg", "total_timeouts"]),
            ["2", "40000", "-"]
        );
        let idle = Shown::of("v$system_event", &at).with("event", "RFS write");
        assert_eq!(idle.only(&["total_waits", "average_wait", "total_waits_fg"]), ["0", "-", "0"]);
    }

    #[test]
    fn both_histograms_label_buckets_by_their_upper_bound() {
        let at = waited(Event::LogFileSync, &[1, 700, 1_500, 3_000]);
        let micro = Shown::of("v$event_histogram_micro", &at).with("event", "log file sync");
        let rows = micro.all(&["wait_time_micro", "wait_time_format", "wait_count"]);
        assert_eq!(rows.len(), 13, "up to the last that is not empty");
        assert_eq!(rows[1], ["2", "2 microseconds", "1"]);
        assert_eq!(rows[12], ["4096", "4 milliseconds", "1"]);
        let milli = Shown::of("v$event_histogram", &at).with("event", "log file sync");
        let rows = milli.all(&["wait_time_milli", "wait_count"]);
        assert_eq!(rows, [["1", "2"], ["2", "1"], ["4", "1"]]);
    }

    #[test]
    fn longest_waits_have_their_own_bucket() {
        let at = waited(Event::LogFileSync, &[1 << 40]);
        let last = |view| Shown::of(view, &at).with("event", "log file sync");
        let micro = last("v$event_histogram_micro").all(&["wait_time_micro", "wait_count"]);
        assert_eq!(micro.last().unwrap(), &["4294967296", "1"]);
        let milli = last("v$event_histogram").all(&["wait_time_milli", "wait_count"]);
        assert_eq!(milli.last().unwrap(), &["4194304", "1"]);
    }

    #[test]
    fn latest_metrics_are_shown_and_division_by_zero_is_null() {
        let at = example::primary();
        let columns = ["metric_name", "group_id", "end_time", "value"];
        let now = Shown::of("v$sysmetric", &at).all(&columns);
        let expected = [
            ["Redo Generated Per Txn", "3", "2026-11-21 10:00:30", "-"],
            ["Redo Generated Per Sec", "3", "2026-11-21 10:00:30", "12.5"],
        ];
        assert_eq!(now, expected);
        assert_eq!(Shown::of("v$sysmetric_history", &at).all(&columns).len(), 3);
    }

    #[test]
    fn session_on_cpu_shows_no_wait_event() {
        let shown = Shown::of("v$active_session_history", &example::primary());
        let rows = shown.all(&["session_id", "session_type", "session_state", "event", "time_waited"]);
        assert_eq!(rows[0], ["4", "FOREGROUND", "WAITING", "log file sync", "250"]);
        assert_eq!(rows[1], ["0", "BACKGROUND", "ON CPU", "-", "-"]);
    }
}
