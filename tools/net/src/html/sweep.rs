//! The page of a search for settings, and its plots, which other pages also use.

use super::conditions::of_several;
use super::measured::{id_of, throughput};
use super::page::{Identity, ending, page};
use super::words::{directed, limit_name, to_or_from, window_name};
use crate::Result;
use crate::outcome::Outcome;
use crate::plan::{Direction, Directions};
use crate::search::{Sweep, Tried};
use crate::stream::Target;
use standfast_page::markup::Markup;
use standfast_page::page::{facts, figure, numbers, remark, section, table, words};
use standfast_page::plot::{Plot, ROOM, Rule, Series};
use standfast_page::scale::Axis;
use standfast_page::units::{megabits, readable_size};
use standfast_page::words::{mebibytes, millis, rate};

pub struct SweepReport<'a> {
    pub identity: &'a Identity,
    pub target: &'a Target,
    /// Directions that were to be searched.
    pub directions: Directions,
    pub options: Vec<(&'static str, String)>,
    /// Idle round trip, seconds; None when the tests ended before it was measured.
    pub round_trip: Option<f64>,
    /// Settings that were tried, for every direction that was begun.
    pub ways: &'a [(Direction, Sweep)],
    pub ended: &'a Result<()>,
}

pub fn page_of(report: &SweepReport<'_>) -> String {
    let SweepReport { identity, target, directions, ways, ended, .. } = report;
    // With several directions, the tests ended in the last one that was begun.
    let is_whole = |number: usize| ended.is_ok() || number + 1 < ways.len();
    let best =
        ways.iter().enumerate().map(|(number, (direction, sweep))| best(*direction, sweep, is_whole(number)));
    let results = ways.iter().map(|(direction, sweep)| one_way(*direction, sweep, report.round_trip));
    let conditions = of_several(target, *directions, &report.options);
    let sections = ending(ended.as_ref().err(), false, &so_far(report))
        .all(best)
        .all(results)
        .then(section("Conditions", facts(&conditions)));
    let title = format!("Best settings for the way {} {target}", to_or_from(*directions));
    page(&title, identity, &target.to_string(), sections)
}

/// Says what is shown of tests that did not complete.
fn so_far(report: &SweepReport<'_>) -> String {
    let tried = |direction: &Direction| {
        report.ways.iter().any(|(way, sweep)| way == direction && !sweep.windows.is_empty())
    };
    let (some, none): (Vec<Direction>, Vec<Direction>) =
        report.directions.all().iter().partition(|way| tried(way));
    if some.is_empty() {
        return "No setting was tried.".into();
    }
    let missing: String =
        none.iter().map(|direction| format!(" {}: no setting was tried.", direction.name())).collect();
    format!("What was tried until then is below; the best setting may not be among it.{missing}")
}

fn best(direction: Direction, sweep: &Sweep, is_whole: bool) -> Markup {
    sweep.best().map_or_else(Markup::new, |best| {
        let printed = format!("{}: {}, {}", direction.name(), setting(&best), rate(best.rate));
        remark("", if is_whole { "BEST" } else { "BEST SO FAR" }, printed)
    })
}

fn one_way(direction: Direction, sweep: &Sweep, round_trip: Option<f64>) -> Markup {
    let rtt = round_trip.unwrap_or(0.0);
    let course = sweep.best().and_then(|best| sweep.outcome(&best)).map_or_else(Markup::new, |outcome| {
        throughput("course", "Throughput over time at the best setting", outcome, &[])
    });
    section(&directed("Result", direction), figures(sweep, round_trip))
        .then(section(&directed("Socket buffers", direction), windows(direction, sweep, rtt, None)))
        .then(section(&directed("Connections", direction), streams(direction, sweep, None)))
        .then(section(&directed("Course", direction), course))
}

pub fn setting(tried: &Tried) -> String {
    let connections = if tried.streams == 1 { "connection" } else { "connections" };
    format!("socket buffers {}, {} {connections}", window_name(tried.window), tried.streams)
}

fn figures(sweep: &Sweep, round_trip: Option<f64>) -> Markup {
    let mut stated = Vec::new();
    stated.extend(round_trip.map(|rtt| ("idle round trip", format!("{} ms", millis(rtt)))));
    for (name, run) in [("one connection", sweep.best_window()), ("fastest", sweep.best())] {
        stated.extend(run.map(|run| (name, format!("{}, {}", rate(run.rate), setting(&run)))));
    }
    if let Some(wanted) = round_trip.and_then(|rtt| sweep.wanted_window(rtt)) {
        let once = readable_size(wanted / 3.0);
        stated.push((
            "bandwidth x delay",
            format!("{once}; buffers want three times that, {}", readable_size(wanted)),
        ));
    }
    if stated.is_empty() { Markup::new() } else { facts(&stated) }
}

/// Builds a table of settings and their outcomes.
fn tried_table<'a>(title: &str, runs: impl Iterator<Item = (&'a Tried, Option<&'a Outcome>)>) -> Markup {
    let columns = [
        words("socket buffers"),
        numbers("connections"),
        numbers("MiB/s"),
        numbers("Mbit/s"),
        numbers("sent again"),
        words("limited by"),
        words("cut down by"),
    ];
    let rows = runs.map(|(tried, outcome)| {
        let clamped = outcome.map_or_else(Vec::new, |outcome| outcome.buffers.clamped_by.clone());
        vec![
            window_name(tried.window),
            tried.streams.to_string(),
            mebibytes(tried.rate),
            format!("{:.1}", megabits(tried.rate)),
            outcome.map_or_else(|| "-".into(), |outcome| outcome.total.tcp.retransmissions.to_string()),
            limit_name(outcome.and_then(|outcome| outcome.total.limit)),
            clamped.join(", "),
        ]
    });
    table(title, &columns, rows)
}

/// Plots the throughput of one connection by socket buffer; `required` is a rate for comparison.
pub fn windows(direction: Direction, sweep: &Sweep, rtt: f64, required: Option<f64>) -> Markup {
    let title = &directed("Throughput of one connection by socket buffer", direction);
    let behind = tried_table(title, sweep.windows.iter().map(|tried| (tried, sweep.outcome(tried))));
    let mut given: Vec<Tried> = sweep.windows.iter().filter(|tried| tried.window != 0).copied().collect();
    given.sort_by_key(|tried| tried.window);
    if sweep.windows.is_empty() {
        return Markup::new();
    }
    if given.is_empty() {
        return behind;
    }
    let automatic = sweep.windows.iter().find(|tried| tried.window == 0);
    let wanted = sweep.wanted_window(rtt).filter(|bytes| *bytes >= 1024.0);
    let points = given.iter().map(|tried| (f64::from(tried.window), tried.rate / 1_048_576.0));
    let plot = Plot {
        id: id_of("windows", direction),
        title: title.into(),
        description: format!(
            "{} asked for, {} were tried. {}",
            "Buffers of both sides as they were",
            given.len(),
            automatic.map_or_else(String::new, |run| {
                format!("Left to the systems (auto): {} MiB/s.", mebibytes(run.rate))
            })
        ),
        x: Axis::doublings(
            "socket buffer",
            given.iter().map(|tried| f64::from(tried.window)).chain(wanted),
            9,
            doubling,
        ),
        y: rates(sweep.windows.iter(), required),
        series: vec![Series { name: "one connection".into(), points: points.collect(), marked: true }],
        rules: [
            automatic.map(|run| level("auto", run.rate)),
            required.map(|rate| level("required", rate)),
            wanted.map(|bytes| Rule {
                name: format!("3 x bandwidth x delay: {}", readable_size(bytes)),
                value: bytes,
                upright: true,
            }),
        ]
        .into_iter()
        .flatten()
        .collect(),
        events: None,
    };
    figure(&plot, behind)
}

/// Plots the throughput by number of connections; `required` is a rate for comparison.
pub fn streams(direction: Direction, sweep: &Sweep, required: Option<f64>) -> Markup {
    let title = &directed("Throughput by number of connections", direction);
    let Some(first) = sweep.streams.first() else { return Markup::new() };
    let behind = tried_table(title, sweep.streams.iter().map(|tried| (tried, sweep.outcome(tried))));
    if sweep.streams.len() < 2 {
        return behind;
    }
    let names: Vec<(f64, String)> =
        sweep.streams.iter().map(|tried| (f64::from(tried.streams), tried.streams.to_string())).collect();
    let ticks: Vec<(f64, &str)> = names.iter().map(|(value, name)| (*value, name.as_str())).collect();
    let most = ticks.iter().map(|(value, _)| *value).fold(1.0, f64::max);
    let plot = Plot {
        id: id_of("streams", direction),
        title: title.into(),
        description: format!(
            "All connections together, with socket buffers {}. One carried {} MiB/s.",
            window_name(first.window),
            mebibytes(first.rate)
        ),
        x: Axis::with_ticks("connections", most, &ticks),
        y: rates(sweep.streams.iter(), required),
        series: vec![Series {
            name: "together".into(),
            points: sweep
                .streams
                .iter()
                .map(|tried| (f64::from(tried.streams), tried.rate / 1_048_576.0))
                .collect(),
            marked: true,
        }],
        rules: required.map(|rate| level("required", rate)).into_iter().collect(),
        events: None,
    };
    figure(&plot, behind)
}

fn level(name: &str, rate: f64) -> Rule {
    Rule { name: format!("{name}: {} MiB/s", mebibytes(rate)), value: rate / 1_048_576.0, upright: false }
}

fn rates<'a>(tried: impl Iterator<Item = &'a Tried>, required: Option<f64>) -> Axis {
    Axis::from_zero(
        "MiB/s",
        tried.map(|run| run.rate).chain(required.map(|rate| rate * ROOM)).map(|rate| rate / 1_048_576.0),
        5,
    )
}

/// Formats a power of two: `64 KiB`, `2 MiB`, without digits after the point.
fn doubling(bytes: f64) -> String {
    match bytes {
        bytes if bytes < 1024.0 => format!("{bytes:.0} B"),
        bytes if bytes < 1_048_576.0 => format!("{:.0} KiB", bytes / 1024.0),
        bytes => format!("{:.0} MiB", bytes / 1_048_576.0),
    }
}
