//! Results for machines: base units (bytes, seconds), every number finite, also for failed tests. Pure.

use crate::outcome::{Outcome, RoundTrips};
use crate::plan::{Direction, Plan};
use crate::stats::{Interval, Latency, Quantile};
use crate::stream::Target;
use crate::{NetError, Result};
use serde_json::{Value, json};
use standfast_page::units::Extent;
use std::fmt::Write;

pub const SCHEMA_VERSION: u32 = 1;

/// The program that made a result.
pub const PROGRAM: &str = concat!("standfast ", env!("CARGO_PKG_VERSION"));

/// Returns the fields that every document begins with.
pub fn begin() -> Value {
    json!({ "schema_version": SCHEMA_VERSION, "program": PROGRAM })
}

/// Sets the fields `status` and `error` to how a procedure of several tests ended.
pub fn ending(report: &mut Value, ended: &Result<()>) {
    (report["status"], report["error"]) = ("ok".into(), Value::Null);
    match ended {
        Ok(()) => {}
        Err(NetError::Interrupted { .. }) => report["status"] = "interrupted".into(),
        Err(error) => fail(report, error),
    }
}

/// Returns the document of one test.
pub fn json(target: &Target, plan: &Plan, outcome: &Result<Outcome>) -> Value {
    let mut report = begin();
    ending(&mut report, &Ok(()));
    report["server"] = target.to_string().into();
    report["test"] = test(plan);
    match outcome {
        Err(error) => fail(&mut report, error),
        Ok(outcome) => {
            if outcome.interrupted {
                report["status"] = "interrupted".into();
            }
            if let Some(error) = &outcome.error {
                fail(&mut report, error);
            }
            figures(&mut report, outcome);
            report["round_trips"] = outcome.round_trips.as_ref().map(round_trips).into();
            if let Some(reverse) = &outcome.reverse {
                let mut other = json!({});
                figures(&mut other, reverse);
                report["reverse"] = other;
            }
        }
    }
    report
}

/// Sets the figures of one direction.
fn figures(report: &mut Value, outcome: &Outcome) {
    let direction = outcome.direction;
    report["direction"] = direction.code().into();
    report["sockbuf"] = json!({
        "requested": outcome.buffers.requested,
        "requested_server": outcome.buffers.requested_far,
        "send": outcome.buffers.send,
        "receive": outcome.buffers.receive,
        "clamped_by": outcome.buffers.clamped_by,
    });
    report["congestion"] = json!(outcome.congestion);
    report["intervals"] = outcome.intervals.iter().map(|one| interval(direction, one)).collect();
    report["streams"] = outcome.streams.iter().map(|bytes| json!({ "bytes": bytes })).collect();
    report["summary"] = interval(direction, &outcome.total);
    let quantiles = outcome.latencies.quantiles();
    let pairs = |of: fn(&Quantile) -> f64| {
        quantiles.iter().map(|point| json!([point.share, of(point)])).collect::<Value>()
    };
    report["summary"]["distribution"] = pairs(|point| point.total);
    report["summary"]["distribution_network"] = pairs(|point| point.network);
    report["summary"]["distribution_disk"] = pairs(|point| point.disk);
}

fn round_trips(trips: &RoundTrips) -> Value {
    json!({
        "idle": trips.idle.as_ref().map(latency),
        "loaded": trips.loaded.as_ref().map(latency),
        "growth": trips.growth().map(|(p50, p99)| json!({ "p50": p50, "p99": p99 })),
    })
}

fn fail(report: &mut Value, error: &NetError) {
    report["status"] = "failed".into();
    report["error"] = json!({ "code": error.code(), "message": error.to_string() });
}

fn test(plan: &Plan) -> Value {
    let (seconds, bytes) = match plan.duration {
        Extent::Endless => (None, None),
        Extent::Time(time) => (Some(time.as_secs_f64()), None),
        Extent::Bytes(bytes) => (None, Some(bytes)),
    };
    json!({
        "direction": plan.directions.code(),
        "mode": plan.mode.name().to_ascii_lowercase(),
        "write": plan.write,
        "length": plan.length,
        "random_length": plan.random_length,
        "delay": plan.delay.as_secs_f64(),
        "random_delay": plan.random_delay,
        "payload": plan.payload.name(),
        "streams": plan.streams,
        "interval": plan.interval.as_secs_f64(),
        "duration": seconds,
        "duration_bytes": bytes,
        "omit": plan.omit.as_secs_f64(),
        "rate": plan.rate,
        "timeout": plan.timeout.map(|timeout| timeout.as_secs_f64()),
    })
}

/// Returns one interval, or a whole test, in a direction.
pub fn interval(direction: Direction, interval: &Interval) -> Value {
    json!({
        "direction": direction.code(),
        "start": interval.start,
        "seconds": interval.seconds,
        "bytes": interval.bytes,
        "messages": interval.messages,
        "bytes_per_second": interval.rate(),
        "latency": interval.latency.as_ref().map(latency),
        "disk_share": interval.disk_share,
        "retransmissions": interval.tcp.retransmissions,
        "congestion_window": interval.tcp.congestion_window,
        "min_rtt": interval.tcp.min_rtt,
        "sack": interval.tcp.sack,
        "limited_by": interval.limit.map(|limit| limit.code()),
    })
}

pub fn latency(latency: &Latency) -> Value {
    json!({
        "count": latency.count,
        "mean": latency.total.mean,
        "p50": latency.total.p50,
        "p90": latency.total.p90,
        "p99": latency.total.p99,
        "p999": latency.total.p999,
        "max": latency.total.max,
        "network": latency.network,
        "disk": latency.disk,
        "waking": latency.waking,
    })
}

/// Columns of [`csv`]; each is the path of a value in an interval.
const COLUMNS: [&str; 17] = [
    "direction",
    "start",
    "seconds",
    "bytes",
    "messages",
    "bytes_per_second",
    "latency/mean",
    "latency/p50",
    "latency/p99",
    "latency/max",
    "latency/network/mean",
    "latency/disk/mean",
    "latency/waking/mean",
    "retransmissions",
    "congestion_window",
    "min_rtt",
    "limited_by",
];

/// Returns the intervals of reports as a table; the first column numbers the reports.
pub fn csv(reports: &[Value]) -> String {
    let mut out = csv_head();
    for (number, report) in reports.iter().enumerate() {
        let both = [&report["intervals"], &report["reverse"]["intervals"]];
        for interval in both.into_iter().filter_map(Value::as_array).flatten() {
            out += &csv_row(number, interval);
        }
    }
    out
}

/// Returns the header line of [`csv`].
pub fn csv_head() -> String {
    format!("test,{}\n", COLUMNS.map(|column| column.replace('/', "_")).join(","))
}

pub fn csv_row(number: usize, interval: &Value) -> String {
    let mut out = number.to_string();
    for column in COLUMNS {
        // No cell contains a comma or a quote: the values are numbers and names of this program.
        let _ = match interval.pointer(&format!("/{column}")) {
            None | Some(Value::Null) => write!(out, ","),
            Some(Value::String(text)) => write!(out, ",{text}"),
            Some(other) => write!(out, ",{other}"),
        };
    }
    out + "\n"
}
