//! The page of the advice: the verdict first, then what to set, then what was measured, then the conditions.

use super::markup::{Markup, text};
use super::measured::{Curve, distribution, throughput};
use super::page::{
    Column, Identity, copyable, ending, facts, list, notice, numbers, page, section, table, words,
};
use super::sweep::{setting, streams, windows};
use super::words::{limit_name, mebibytes, millis, rate};
use crate::Result;
use crate::advice::{Advice, Findings, Grade, Measured, Verdict};
use crate::log_history::LogHistory;
use crate::run::Outcome;
use crate::stats::Latency;
use crate::stream::Target;
use crate::units::{classic_size, readable_size};

/// What the page shows.
pub struct AdviceReport<'a> {
    /// Where and when.
    pub identity: &'a Identity,
    /// The server.
    pub target: &'a Target,
    /// What was asked for.
    pub options: Vec<(&'static str, String)>,
    /// Where the peak comes from, when from a log history.
    pub history: Option<&'a LogHistory>,
    /// The tests.
    pub findings: &'a Findings,
    /// Their figures and the verdicts; None when they did not come to their end.
    pub advice: Option<(&'a Measured, &'a Advice)>,
    /// How they ended.
    pub ended: &'a Result<()>,
}

/// The page.
pub fn page_of(report: &AdviceReport<'_>) -> String {
    let so_far = "There is no verdict: it needs all tests. What was measured until then is below.";
    let verdicts = report.advice.map_or_else(Markup::new, |(measured, advice)| verdicts(measured, advice));
    let settings = report.advice.map_or_else(Markup::new, |(_, advice)| settings(advice));
    let sections = ending(report.ended.as_ref().err(), false, so_far)
        .then(section("Verdict", verdicts))
        .then(section("Settings for both hosts", settings))
        .then(section("Measurements", measurements(report)))
        .then(section("Conditions", conditions(report)));
    let title = format!("Advice for redo transport to {}", report.target);
    page(&title, report.identity, &report.target.to_string(), sections)
}

fn verdicts(measured: &Measured, advice: &Advice) -> Markup {
    Markup::new().all(advice.verdicts.iter().map(verdict)).then(behind(measured, advice))
}

fn class_of(grade: Grade) -> &'static str {
    match grade {
        Grade::Pass => "",
        Grade::Warn => "warn",
        Grade::Fail => "fail",
    }
}

fn verdict(verdict: &Verdict) -> Markup {
    let waits = match verdict.commit {
        Some(time) => format!(": a commit waits {} ms", millis(time)),
        None if verdict.mode == "ASYNC" => ": commits do not wait".to_owned(),
        None => String::new(),
    };
    let mode = Markup::new().leaf("strong", verdict.mode).text(waits);
    let causes = verdict.causes.iter().map(|cause| {
        Markup::new()
            .leaf("strong", format!("{} {}", cause.grade, cause.name))
            .text(format!(": {}", cause.text))
    });
    let causes = match verdict.causes.is_empty() {
        true => Markup::new().leaf("p", "Nothing that was measured speaks against it."),
        false => list(causes),
    };
    notice(class_of(verdict.grade), &verdict.grade.to_string(), mode, causes)
}

/// The figures that the verdicts rest on, as the screen has them.
fn behind(measured: &Measured, advice: &Advice) -> Markup {
    let mut told = vec![
        ("round trip", format!("{} ms", millis(measured.round_trip))),
        ("peak of the redo", rate(measured.peak)),
        ("required", format!("{}: the peak + 30 %", rate(advice.required))),
    ];
    for (name, run) in [("one connection", measured.single), ("fastest", measured.fastest)] {
        told.extend(run.map(|run| (name, format!("{}, {}", rate(run.rate), setting(&run)))));
    }
    let (once, thrice) = (readable_size(advice.bandwidth_delay), readable_size(3.0 * advice.bandwidth_delay));
    told.push(("bandwidth x delay", format!("{once}; buffers want three times that, {thrice}")));
    if let Some(fastsync) = measured.fastsync {
        told.push(("wait of FASTSYNC", format!("{} ms on average", millis(fastsync.total.mean))));
    }
    if let Some(affirm) = measured.affirm {
        let [all, network, disk] = [affirm.total.mean, affirm.network.mean, affirm.disk.mean].map(millis);
        told.push(("wait of SYNC AFFIRM", format!("{all} ms on average: network {network}, disk {disk}")));
    }
    told.extend(advice.fastsync_gain.map(|gain| ("FASTSYNC saves", format!("{} ms a commit", millis(gain)))));
    told.push(("segments sent again", format!("{:.3} % while the link was not full", measured.loss * 100.0)));
    told.push(("redo log", format!("at least {} a group", readable_size(advice.log_bytes))));
    Markup::new().leaf("h3", "The numbers behind").then(facts(&told))
}

fn settings(advice: &Advice) -> Markup {
    let lines = match advice.settings.is_empty() {
        true => Markup::new().leaf("p", "None: what the tests need is in force on this host."),
        false => Markup::new()
            .leaf("p", "Nothing was changed. Put these in force by hand, on both hosts:")
            .then(copyable("Settings", &advice.settings)),
    };
    lines.then(list(advice.notes.iter().map(text)))
}

fn measurements(report: &AdviceReport<'_>) -> Markup {
    let Findings { round_trip, fastsync, affirm, sweep, paced } = report.findings;
    let required = report.advice.map(|(_, advice)| advice.required);
    let waits = [
        fastsync.as_ref().map(|run| Curve {
            name: "FASTSYNC",
            latencies: &run.latencies,
            part: |point| point.total,
        }),
        affirm.as_ref().map(|run| Curve {
            name: "SYNC AFFIRM",
            latencies: &run.latencies,
            part: |point| point.total,
        }),
        affirm.as_ref().map(|run| Curve {
            name: "of it the disk",
            latencies: &run.latencies,
            part: |point| point.disk,
        }),
    ];
    // Where the link does not carry the peak twice, that stream was slower.
    let peak = report.advice.map(|(measured, _)| measured.peak);
    let peak = peak.filter(|peak| sweep.best().is_some_and(|best| *peak <= best.rate / 2.0));
    let peak: Vec<(&str, f64)> = peak.map(|peak| ("peak of the redo", peak)).into_iter().collect();
    let waits: Vec<Curve<'_>> = waits.into_iter().flatten().collect();
    let best = sweep.best().and_then(|best| sweep.outcome(&best));
    acknowledged(fastsync.as_ref(), affirm.as_ref())
        .then(distribution("waits", "Wait of a commit for the standby", &waits))
        .then(windows(sweep, round_trip.unwrap_or(0.0), required))
        .then(streams(sweep, required))
        .then(best.map_or_else(Markup::new, |run| {
            course("fastest", "Throughput over time at the best setting", run, &[])
        }))
        .then(paced.as_ref().map_or_else(Markup::new, |run| {
            course("paced", "A stream of redo that does not fill the link", run, &peak)
        }))
}

fn course(id: &'static str, title: &str, run: &Outcome, rules: &[(&str, f64)]) -> Markup {
    throughput(id, title, &run.intervals, rules)
}

/// The tests in which every message is waited for, side by side.
fn acknowledged(fastsync: Option<&Outcome>, affirm: Option<&Outcome>) -> Markup {
    let runs: Vec<_> = [("without write", fastsync), ("with write", affirm)]
        .into_iter()
        .filter_map(|(name, run)| run.and_then(|run| Some((name, run, run.latency()?))))
        .collect();
    if runs.is_empty() {
        return Markup::new();
    }
    let row = |name: &str, of: &dyn Fn(&Outcome, &Latency) -> String| {
        std::iter::once(name.to_owned())
            .chain(runs.iter().map(|(_, run, latency)| of(run, latency)))
            .collect::<Vec<_>>()
    };
    let rows = [
        row("messages", &|_, latency| latency.count.to_string()),
        row("mean ms", &|_, latency| millis(latency.total.mean)),
        row("p50 ms", &|_, latency| millis(latency.total.p50)),
        row("p90 ms", &|_, latency| millis(latency.total.p90)),
        row("p99 ms", &|_, latency| millis(latency.total.p99)),
        row("p99.9 ms", &|_, latency| millis(latency.total.p999)),
        row("max ms", &|_, latency| millis(latency.total.max)),
        row("network, mean ms", &|_, latency| millis(latency.network.mean)),
        row("disk, mean ms", &|_, latency| millis(latency.disk.mean)),
        row("MiB/s", &|run, _| mebibytes(run.total.rate())),
        row("sent again", &|run, _| run.total.tcp.retransmissions.to_string()),
        row("limited by", &|run, _| limit_name(run.total.limit)),
    ];
    let columns: Vec<Column> = std::iter::once(words("messages of a redo write"))
        .chain(runs.iter().map(|(name, _, _)| numbers(name)))
        .collect();
    table("Messages that are waited for", &columns, rows.into_iter())
}

fn conditions(report: &AdviceReport<'_>) -> Markup {
    let mut told: Vec<(&str, String)> = report.options.clone();
    if let Some(history) = report.history {
        let LogHistory { peak, logs, without_duration, shortest } = history;
        told.push((
            "log history",
            format!(
                "{logs} logs, {without_duration} without a duration passed over; the fastest, sequence {} of thread {}, \
                 took {}; the shortest time between two switches was {shortest:.0} s",
                peak.sequence,
                peak.thread,
                rate(peak.rate())
            ),
        ));
    }
    if let Some((measured, _)) = report.advice {
        let size = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".into(), classic_size);
        told.push(("net.core.wmem_max of this host", size(measured.send_ceiling)));
        told.push(("largest automatic send buffer of this host", size(measured.automatic_ceiling)));
    }
    facts(&told)
}
