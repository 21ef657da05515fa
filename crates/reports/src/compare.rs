//! Two intervals side by side, in the form of the published tables about synchronous transport. Pure.

use crate::counters::Counters;
use crate::interval::Interval;
use crate::period::Period;
use crate::rules::{Finding, compared, diagnose};
use crate::section::{Section, Table, left, right};
use crate::units::{difference, number, when};
use serde::Serialize;
use standfast_instruments::{CommitPart, Event, Statistic};

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    pub name: String,
    pub unit: &'static str,
    /// The first interval; `None` when unknown.
    pub before: Option<f64>,
    /// The second interval; `None` when unknown.
    pub after: Option<f64>,
    /// Difference in percent of the first; `None` when either is unknown or the first is zero.
    pub percent: Option<f64>,
}

#[derive(Debug, Serialize)]
pub struct Comparison {
    pub schema_version: u32,
    /// The figures of the published tables about synchronous transport.
    pub key: Vec<Figure>,
    /// Mean time of each part of a commit.
    pub parts: Vec<Figure>,
    /// Mean time of each wait event that happened in either interval.
    pub events: Vec<Figure>,
    /// What the difference means (rules R6, R9, R10, R24).
    pub remarks: Vec<Finding>,
    /// What is wrong in the second interval.
    pub findings: Vec<Finding>,
    pub before: Interval,
    pub after: Interval,
}

pub fn comparison(before: &Period, after: &Period) -> Comparison {
    let (first, second) = (Interval::of(before), Interval::of(after));
    Comparison {
        schema_version: crate::interval::SCHEMA_VERSION,
        key: key(&first, &second),
        parts: parts(&first, &second),
        events: events(&first, &second),
        remarks: compared(&first, &second),
        findings: diagnose(&second, &after.to.observation),
        before: first,
        after: second,
    }
}

fn figure(name: impl Into<String>, unit: &'static str, before: Option<f64>, after: Option<f64>) -> Figure {
    let pair = before.zip(after).filter(|(before, _)| *before != 0.0);
    let percent = pair.map(|(before, after)| (after - before) / before * 100.0);
    Figure { name: name.into(), unit, before, after, percent }
}

fn ms(us: Option<f64>) -> Option<f64> {
    us.map(|us| us / 1e3)
}

fn key(before: &Interval, after: &Interval) -> Vec<Figure> {
    let here = |name: &str, unit, of: &dyn Fn(&Counters) -> Option<f64>| {
        let figure_of = |interval: &Interval| interval.counters.as_ref().and_then(of);
        figure(name, unit, figure_of(before), figure_of(after))
    };
    // Commits wait for the slowest synchronous standby, so its mean is the one that counts.
    let there = |interval: &Interval| {
        let means = interval.standbys.iter().filter(|standby| standby.is_sync());
        means.filter_map(|standby| standby.counters.as_ref()?.mean_us(Event::RfsRandomIo)).reduce(f64::max)
    };
    let network = |interval: &Interval| {
        let remote = interval.counters.as_ref()?.mean_us(Event::SyncRemoteWrite)?;
        Some((remote - there(interval)?).max(0.0))
    };
    vec![
        here("TPS", "1/s", &|of| of.per_second(Statistic::UserCommits)),
        here("log file sync", "ms", &|of| ms(of.mean_us(Event::LogFileSync))),
        here("log file parallel write", "ms", &|of| ms(of.mean_us(Event::LogFileParallelWrite))),
        here("redo write size", "KiB", &|of| of.write_bytes().map(|bytes| bytes / 1024.0)),
        here("redo writes", "", &|of| of.statistic(Statistic::RedoWrites).map(|writes| writes as f64)),
        figure("RFS random i/o", "ms", ms(there(before)), ms(there(after))),
        here("SYNC Remote Write", "ms", &|of| ms(of.mean_us(Event::SyncRemoteWrite))),
        figure("network (remote - RFS)", "ms", ms(network(before)), ms(network(after))),
        here("redo size", "MiB/s", &|of| of.per_second(Statistic::RedoSize).map(|rate| rate / 1_048_576.0)),
        here("DB time", "s/s", &|of| Some(of.db_time_s()? / of.seconds)),
        here("log switches", "1/h", &|of| of.per_second(Statistic::LogSwitches).map(|rate| rate * 3600.0)),
    ]
}

fn parts(before: &Interval, after: &Interval) -> Vec<Figure> {
    let mean = |interval: &Interval, part| interval.counters.as_ref()?.part(part)?.mean_us;
    let row = |part: CommitPart| figure(part.name(), "ms", ms(mean(before, part)), ms(mean(after, part)));
    CommitPart::ALL.into_iter().map(row).collect()
}

fn events(before: &Interval, after: &Interval) -> Vec<Figure> {
    let mean = |interval: &Interval, event| interval.counters.as_ref()?.mean_us(event);
    let row = |event: &Event| figure(event.name(), "ms", ms(mean(before, *event)), ms(mean(after, *event)));
    let happened = |figure: &Figure| figure.before.is_some() || figure.after.is_some();
    Event::ALL.iter().map(row).filter(happened).collect()
}

pub fn sections(comparison: &Comparison) -> Vec<Section> {
    let interval = |of: &Interval| {
        let id = |id: Option<i64>| id.map_or_else(|| "-".to_owned(), |id| id.to_string());
        format!("{} to {} (snapshots {} to {})", when(of.begin_us), when(of.end_us), id(of.from), id(of.to))
    };
    let flags = [("first", &comparison.before), ("second", &comparison.after)].into_iter();
    let flags = flags.flat_map(|(which, of)| of.flags.iter().map(move |flag| format!("{which}: {flag}")));
    let facts = vec![
        ("instance", comparison.after.name.clone()),
        ("first", interval(&comparison.before)),
        ("second", interval(&comparison.after)),
    ];
    let section = |title: &str| Section { title: title.to_owned(), ..Section::default() };
    let reported = |title: &str, findings: &[Finding]| Section {
        notes: if findings.is_empty() { vec!["None.".into()] } else { Vec::new() },
        findings: findings.to_vec(),
        ..section(title)
    };
    let figures = |title: &str, figures: &[Figure]| Section { table: Some(table(figures)), ..section(title) };
    vec![
        Section { facts, notes: flags.collect(), ..section("Identity and intervals") },
        figures("Key figures", &comparison.key),
        reported("What the difference means", &comparison.remarks),
        reported("Findings of the second interval", &comparison.findings),
        figures("Parts of a commit, means", &comparison.parts),
        figures("Wait events, means", &comparison.events),
    ]
}

fn table(figures: &[Figure]) -> Table {
    let digits = |figure: &Figure| match figure.unit {
        "ms" => 3,
        "" => 0,
        _ => 2,
    };
    let row = |figure: &Figure| {
        let digits = digits(figure);
        vec![
            figure.name.clone(),
            number(figure.before, digits),
            number(figure.after, digits),
            difference(figure.before, figure.after),
            figure.unit.to_owned(),
        ]
    };
    let columns = vec![left("figure"), right("first"), right("second"), right("difference"), left("unit")];
    Table { columns, rows: figures.iter().map(row).collect() }
}
