//! One test: its figures, its throughput over time, its latencies.

use super::thin::{Row, rows};
use super::words::{directed, limit_meaning, limit_name, who_sends};
use crate::outcome::Outcome;
use crate::plan::Direction;
use crate::stats::{Latencies, Latency, Quantile, Spread};
use standfast_page::markup::Markup;
use standfast_page::page::{Column, facts, figure, numbers, table, words};
use standfast_page::plot::{Events, Plot, ROOM, Rule, Series};
use standfast_page::scale::{Axis, plain};
use standfast_page::units::{megabits, readable_size, short_size};
use standfast_page::words::{mebibytes, millis, rate};

/// Maximum number of rows; more would make the page large and unreadable.
const MOST_ROWS: usize = 300;
/// Percentiles at even distances: the position is the number of nines.
const PERCENTILES: [(f64, &str); 7] = [
    (std::f64::consts::LOG10_2, "50 %"),
    (1.0, "90 %"),
    (2.0, "99 %"),
    (3.0, "99.9 %"),
    (4.0, "99.99 %"),
    (5.0, "99.999 %"),
    (6.0, "99.9999 %"),
];

/// Shows the figures of one direction of a test.
pub fn summary(outcome: &Outcome) -> Markup {
    let total = &outcome.total;
    let mut reported = vec![
        ("direction", who_sends(outcome.direction)),
        ("throughput", rate(total.rate())),
        (
            "payload",
            format!(
                "{} ({} bytes) in {} messages",
                readable_size(total.bytes as f64),
                total.bytes,
                total.messages
            ),
        ),
        ("time counted", format!("{:.3} s", total.seconds)),
    ];
    if total.latency.is_none() {
        reported.push((
            disk_of(outcome.direction),
            format!("{:.0} % of the time in durable writes", total.disk_share * 100.0),
        ));
    }
    reported.push(("limited by", limit_name(total.limit)));
    reported.extend(tcp(outcome));
    reported.extend(buffers(outcome));
    let latency =
        total.latency.as_ref().map_or_else(Markup::new, |latency| latency_table(latency, outcome.direction));
    let meaning = total.limit.map_or("It was too short to tell what limited it.".into(), |limit| {
        format!("Limited by {limit}: {}.", limit_meaning(limit, outcome.direction))
    });
    latency.then(facts(&reported)).leaf("p", meaning)
}

fn tcp(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let tcp = &outcome.total.tcp;
    let unknown = || "unknown".to_owned();
    vec![
        ("segments sent again", tcp.retransmissions.to_string()),
        ("congestion window", short_size(tcp.congestion_window)),
        ("shortest round trip", tcp.min_rtt.map_or_else(unknown, |rtt| format!("{} ms", millis(rtt)))),
        ("selective acknowledgements", if tcp.sack { "negotiated" } else { "not negotiated" }.into()),
        ("congestion control", outcome.congestion.clone().unwrap_or_else(unknown)),
    ]
}

fn buffers(outcome: &Outcome) -> Vec<(&'static str, String)> {
    let buffers = &outcome.buffers;
    let asked = |bytes: u32| if bytes == 0 { "auto".into() } else { short_size(bytes.into()) };
    let granted = |bytes: u64, request: u32| format!("{} (asked for: {})", short_size(bytes), asked(request));
    let mut reported = match outcome.direction {
        Direction::ToServer => vec![
            ("client's send buffer", granted(buffers.send, buffers.requested)),
            ("server's receive buffer", granted(buffers.receive, buffers.requested_far)),
        ],
        Direction::FromServer => vec![
            ("server's send buffer", granted(buffers.send, buffers.requested_far)),
            ("client's receive buffer", granted(buffers.receive, buffers.requested)),
        ],
    };
    reported.extend(buffers.clamped_by.iter().map(|setting| ("buffer cut down by", (*setting).to_owned())));
    reported
}

/// Names the disk that the receiver of a direction writes to.
fn disk_of(direction: Direction) -> &'static str {
    match direction {
        Direction::ToServer => "server's disk",
        Direction::FromServer => "client's disk",
    }
}

/// Builds a table of mean and percentiles, with the parts of network, waking and disk.
fn latency_table(latency: &Latency, direction: Direction) -> Markup {
    let mut columns = vec![words("latency, ms"), numbers("all")];
    let mut parts = vec![&latency.total];
    if writes(latency) || latency.waking.max > 0.0 {
        columns.extend([numbers("network"), numbers("waking up")]);
        parts.extend([&latency.network, &latency.waking]);
    }
    if writes(latency) {
        columns.push(numbers(disk_of(direction)));
        parts.push(&latency.disk);
    }
    type Figure = (&'static str, fn(&Spread) -> f64);
    let figures: [Figure; 6] = [
        ("mean", |part| part.mean),
        ("p50", |part| part.p50),
        ("p90", |part| part.p90),
        ("p99", |part| part.p99),
        ("p99.9", |part| part.p999),
        ("max", |part| part.max),
    ];
    let rows = figures.iter().map(|(name, of)| {
        let cells = parts.iter().map(|part| millis(of(part)));
        std::iter::once((*name).to_owned()).chain(cells).collect()
    });
    table(&directed("Latency", direction), &columns, rows)
}

fn writes(latency: &Latency) -> bool {
    latency.disk.max > 0.0
}

/// Returns a time axis in seconds, minutes or hours, whichever makes short numbers, and that unit in seconds.
fn time_axis(end: f64) -> (Axis, f64) {
    let (unit, label) = match end {
        end if end <= 180.0 => (1.0, "seconds since the begin"),
        end if end <= 10_800.0 => (60.0, "minutes since the begin"),
        _ => (3600.0, "hours since the begin"),
    };
    (Axis::until(label, end / unit, 8), unit)
}

fn end_of(rows: &[Row]) -> f64 {
    rows.iter().map(Row::end).fold(0.0, f64::max)
}

/// Returns the points of steps. Every row is level over its time: a line between midpoints would show a slope where
/// there was a step.
fn steps(rows: &[Row], unit: f64, of: impl Fn(&Row) -> f64) -> Vec<(f64, f64)> {
    rows.iter().flat_map(|row| [(row.start / unit, of(row)), (row.end() / unit, of(row))]).collect()
}

fn taken_together(each: usize) -> String {
    match each {
        1 => String::new(),
        each => format!(
            " {each} intervals are one row here; its percentiles and maximum are those of the worst of them, and its \
             limit is the most frequent."
        ),
    }
}

/// Returns a plot's id, which differs between the two directions.
pub fn id_of(name: &str, direction: Direction) -> String {
    format!("{name}-{}", direction.code())
}

/// Plots the throughput of a run over time, with retransmitted segments; `rules` are rates for comparison.
pub fn throughput(id: &str, title: &str, outcome: &Outcome, rules: &[(&str, f64)]) -> Markup {
    let title = &directed(title, outcome.direction);
    let (rows, each) = rows(&outcome.intervals, MOST_ROWS);
    if rows.is_empty() {
        return Markup::new();
    }
    let (x, unit) = time_axis(end_of(&rows));
    let mib = |rate: f64| rate / 1_048_576.0;
    let mut series = vec![Series {
        name: "mean".into(),
        points: steps(&rows, unit, |row| mib(row.rate())),
        marked: false,
    }];
    if each > 1 {
        let points = steps(&rows, unit, |row| mib(row.slowest));
        series.push(Series { name: format!("slowest of {each} intervals"), points, marked: false });
    }
    let again: u64 = rows.iter().map(|row| row.retransmissions).sum();
    let (slow, fast) = rows
        .iter()
        .fold((f64::INFINITY, 0.0_f64), |(slow, fast), row| (slow.min(row.slowest), fast.max(row.rate())));
    let range = match mebibytes(slow) == mebibytes(fast) {
        true => mebibytes(slow),
        false => format!("From {} to {}", mebibytes(slow), mebibytes(fast)),
    };
    let shown = rows.iter().map(|row| mib(row.rate())).chain(rules.iter().map(|(_, rate)| mib(*rate * ROOM)));
    let plot = Plot {
        id: id_of(id, outcome.direction),
        title: title.into(),
        description: format!("{} MiB/s; segments sent again: {again}.{}", range, taken_together(each)),
        x,
        y: Axis::from_zero("MiB/s", shown, 5),
        series,
        rules: rules
            .iter()
            .map(|(name, value)| Rule { name: (*name).into(), value: mib(*value), upright: false })
            .collect(),
        events: (again > 0).then(|| Events {
            name: "segments sent again".into(),
            points: rows
                .iter()
                .map(|row| ((row.start + row.end()) / 2.0 / unit, row.retransmissions))
                .collect(),
        }),
    };
    figure(&plot, rows_table(title, &rows))
}

fn rows_table(title: &str, rows: &[Row]) -> Markup {
    let waits = rows.iter().any(|row| row.latency.is_some());
    let mut columns: Vec<Column> = ["from s", "to s", "MiB/s", "Mbit/s", "messages"].map(numbers).into();
    columns.extend(match waits {
        true => ["mean ms", "p50 ms", "p99 ms", "max ms", "network ms", "waking ms", "disk ms"]
            .map(numbers)
            .into(),
        false => vec![numbers("disk %")],
    });
    columns.extend([numbers("sent again"), numbers("cwnd"), words("limited by")]);
    let cells = rows.iter().map(|row| {
        let mut cells = vec![
            format!("{:.1}", row.start),
            format!("{:.1}", row.end()),
            mebibytes(row.rate()),
            format!("{:.1}", megabits(row.rate())),
            row.messages.to_string(),
        ];
        match &row.latency {
            Some(part) => {
                let parts = [part.network, part.waking, part.disk];
                cells.extend([part.mean, part.p50, part.p99, part.max].into_iter().chain(parts).map(millis));
            }
            None if waits => cells.extend(vec!["-".to_owned(); 7]),
            None => cells.push(format!("{:.0}", row.disk_share * 100.0)),
        }
        cells.extend([
            row.retransmissions.to_string(),
            short_size(row.congestion_window),
            limit_name(row.limit),
        ]);
        cells
    });
    table(title, &columns, cells)
}

/// Plots mean and slow latencies over time.
pub fn latency_over_time(id: &str, outcome: &Outcome) -> Markup {
    let title = directed("Latency over time", outcome.direction);
    let (rows, each) = rows(&outcome.intervals, MOST_ROWS);
    let waited: Vec<Row> = rows.into_iter().filter(|row| row.latency.is_some()).collect();
    // For one interval the distribution says everything.
    if waited.len() < 2 {
        return Markup::new();
    }
    let (x, unit) = time_axis(end_of(&waited));
    let points = |of: fn(&super::thin::RowLatency) -> f64| {
        steps(&waited, unit, |row| row.latency.as_ref().map_or(f64::NAN, of) * 1e3)
    };
    let series = vec![
        Series { name: "mean".into(), points: points(|part| part.mean), marked: false },
        Series { name: "99 in 100 within".into(), points: points(|part| part.p99), marked: false },
        Series { name: "slowest".into(), points: points(|part| part.max), marked: false },
    ];
    let values = series.iter().flat_map(|one| one.points.iter().map(|(_, y)| *y));
    let plot = Plot {
        id: id_of(id, outcome.direction),
        title: title.clone(),
        description: format!(
            "Mean, 99th percentile and maximum of every interval, from the send to the acknowledgement.{}",
            taken_together(each)
        ),
        x,
        y: Axis::logarithmic("milliseconds (each step the same factor)", values, 11, plain),
        series,
        rules: Vec::new(),
        events: None,
    };
    figure(&plot, rows_table(&title, &waited))
}

/// A line of a plot of latencies.
pub struct Curve<'a> {
    pub name: &'static str,
    pub latencies: &'a Latencies,
    /// Selects the part of the latencies.
    pub part: fn(&Quantile) -> f64,
}

/// Returns the curves of one test: all of the latency and, with durable writes, network and disk separately.
pub fn curves_of(outcome: &Outcome) -> Vec<Curve<'_>> {
    let latencies = &outcome.latencies;
    let all = Curve { name: "all", latencies, part: |point| point.total };
    let parts = [
        Curve { name: "network", latencies, part: |point: &Quantile| point.network },
        Curve { name: disk_of(outcome.direction), latencies, part: |point: &Quantile| point.disk },
    ];
    match outcome.latency() {
        None => Vec::new(),
        Some(latency) if writes(&latency) => std::iter::once(all).chain(parts).collect(),
        Some(_) => vec![all],
    }
}

/// Returns how many nines a share has: 0.9 is 1, 0.99 is 2.
fn nines(share: f64) -> f64 {
    -(1.0 - share).max(1e-9).log10()
}

/// Plots which share of the messages was acknowledged within which time.
pub fn distribution(id: &str, title: &str, direction: Direction, curves: &[Curve<'_>]) -> Markup {
    let title = &directed(title, direction);
    let quantiles: Vec<Vec<Quantile>> = curves.iter().map(|curve| curve.latencies.quantiles()).collect();
    let most = curves.iter().filter_map(|curve| curve.latencies.figures()).map(|latency| latency.count).max();
    let Some(most) = most else { return Markup::new() };
    let series: Vec<Series> = curves
        .iter()
        .zip(&quantiles)
        .map(|(curve, points)| Series {
            name: curve.name.into(),
            points: curve_points(curve, points),
            marked: true,
        })
        .collect();
    let values = series.iter().flat_map(|one| one.points.iter().map(|(_, y)| *y));
    let plot = Plot {
        id: id_of(id, direction),
        title: title.into(),
        description: format!(
            "The share of the messages that was done within a time. Further right are the slow ones; the last point is \
             the slowest of {most}."
        ),
        y: Axis::logarithmic("milliseconds (each step the same factor)", values, 11, plain),
        x: Axis::with_ticks("share of the messages", nines(1.0 - 1.0 / most.max(4) as f64), &PERCENTILES),
        series,
        rules: Vec::new(),
        events: None,
    };
    let mut columns = vec![numbers("share of messages")];
    columns.extend(curves.iter().map(|curve| numbers(curve.name)));
    let shares = quantiles.first().map_or(0, Vec::len);
    let cells = (0..shares).map(|number| {
        let mut cells = vec![percent(quantiles[0][number].share)];
        cells.extend(curves.iter().zip(&quantiles).map(|(curve, points)| {
            points
                .get(number)
                .map_or_else(|| "-".into(), |point| format!("{} ms", millis((curve.part)(point))))
        }));
        cells
    });
    figure(&plot, table(title, &columns, cells))
}

/// Formats a share: `99.95 %`.
fn percent(share: f64) -> String {
    let digits = format!("{:.4}", share * 100.0);
    format!("{} %", digits.trim_end_matches('0').trim_end_matches('.'))
}

/// Returns the points up to the share that the number of messages can resolve; the slowest message is placed there.
fn curve_points(curve: &Curve<'_>, points: &[Quantile]) -> Vec<(f64, f64)> {
    let count = curve.latencies.figures().map_or(1, |latency| latency.count);
    let last = nines(1.0 - 1.0 / count.max(2) as f64);
    points
        .iter()
        .map(|point| (if point.share < 1.0 { nines(point.share) } else { last }, (curve.part)(point) * 1e3))
        .filter(|(x, _)| *x <= last)
        .collect()
}
