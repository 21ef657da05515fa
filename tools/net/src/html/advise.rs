//! The page of the advice: the verdict first, then the settings, the measurements and the conditions.

use super::conditions::of_several;
use super::measured::{Curve, distribution, throughput};
use super::page::{Identity, ending, page};
use super::sweep::{setting, streams, windows};
use super::words::{directed, limit_name, to_or_from};
use crate::Result;
use crate::advice::{Advice, Findings, Grade, Measured, Verdict, Way};
use crate::log_history::LogHistory;
use crate::outcome::Outcome;
use crate::plan::{Direction, Directions};
use crate::stats::{Latency, Quantile};
use crate::stream::Target;
use standfast_page::markup::{Markup, text};
use standfast_page::page::{Column, copyable, facts, list, notice, numbers, section, table, words};
use standfast_page::units::{classic_size, readable_size};
use standfast_page::words::{mebibytes, millis, rate};

pub struct AdviceReport<'a> {
    pub identity: &'a Identity,
    pub target: &'a Target,
    pub directions: Directions,
    pub options: Vec<(&'static str, String)>,
    /// The log history that gave the peak; None when the peak was given.
    pub history: Option<&'a LogHistory>,
    pub ways: &'a [Way],
    pub ended: &'a Result<()>,
}

/// Builds the page. With two directions each has its own sections, and all verdicts come first.
pub fn page_of(report: &AdviceReport<'_>) -> String {
    let AdviceReport { identity, target, directions, ways, ended, .. } = report;
    let judged = || ways.iter().filter_map(|way| way.judged.as_ref().map(|judged| (way.direction, judged)));
    let verdicts = judged().map(|(direction, (measured, advice))| {
        section(&directed("Verdict", direction), verdicts(measured, advice))
    });
    let settings = judged().map(|(direction, (_, advice))| {
        section(&directed("Settings for both hosts", direction), settings(advice, judged().count() > 1))
    });
    let measured =
        ways.iter().map(|way| section(&directed("Measurements", way.direction), measurements(way)));
    let sections = ending(ended.as_ref().err(), false, &so_far(report))
        .all(verdicts)
        .all(settings)
        .all(measured)
        .then(section("Conditions", conditions(report)));
    let title = format!("Advice for redo transport {} {target}", to_or_from(*directions));
    page(&title, identity, &target.to_string(), sections)
}

/// Says what is shown of tests that did not complete.
fn so_far(report: &AdviceReport<'_>) -> String {
    let is_judged = |direction: &Direction| {
        report.ways.iter().any(|way| way.direction == *direction && way.judged.is_some())
    };
    let missing = report.directions.all().iter().filter(|direction| !is_judged(direction));
    let missing: Vec<&str> = missing.map(|direction| direction.name()).collect();
    format!(
        "There is no verdict {}: it needs all tests. What was measured until then is below.",
        missing.join(" and ")
    )
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

/// Shows the figures behind the verdicts, as on the screen.
fn behind(measured: &Measured, advice: &Advice) -> Markup {
    let mut reported = vec![
        ("round trip", format!("{} ms", millis(measured.round_trip))),
        ("peak of the redo", rate(measured.peak)),
        ("required", format!("{}: the peak + 30 %", rate(advice.required))),
    ];
    if let Some(loaded) = measured.loaded {
        let one = format!("{} ms while one connection fills the link", millis(loaded.total.p50));
        reported.push(("round trip under load", one));
    }
    for (name, run) in [("one connection", measured.single), ("fastest", measured.fastest)] {
        reported.extend(run.map(|run| (name, format!("{}, {}", rate(run.rate), setting(&run)))));
    }
    let (once, thrice) = (readable_size(advice.bandwidth_delay), readable_size(3.0 * advice.bandwidth_delay));
    reported.push(("bandwidth x delay", format!("{once}; buffers want three times that, {thrice}")));
    if let Some(fastsync) = measured.fastsync {
        reported.push(("wait of FASTSYNC", format!("{} ms on average", millis(fastsync.total.mean))));
    }
    if let Some(affirm) = measured.affirm {
        let [all, network, disk] = [affirm.total.mean, affirm.network.mean, affirm.disk.mean].map(millis);
        reported
            .push(("wait of SYNC AFFIRM", format!("{all} ms on average: network {network}, disk {disk}")));
    }
    reported
        .extend(advice.fastsync_gain.map(|gain| ("FASTSYNC saves", format!("{} ms a commit", millis(gain)))));
    reported
        .push(("segments sent again", format!("{:.3} % while the link was not full", measured.loss * 100.0)));
    reported.push(("redo log", format!("at least {} a group", readable_size(advice.log_bytes))));
    Markup::new().leaf("h3", "The numbers behind").then(facts(&reported))
}

fn settings(advice: &Advice, one_of_several: bool) -> Markup {
    let lines = match advice.settings.is_empty() {
        true => Markup::new().leaf("p", "None: what the tests need is in force on this host."),
        false => Markup::new()
            .leaf("p", "Nothing was changed. Put these in force by hand, on both hosts:")
            .then(copyable("Settings", &advice.settings)),
    };
    let larger = match one_of_several && !advice.settings.is_empty() {
        true => Markup::new()
            .leaf("p", "Where the other direction asks for another value, the larger one serves both."),
        false => Markup::new(),
    };
    lines.then(larger).then(list(advice.notes.iter().map(text)))
}

fn measurements(way: &Way) -> Markup {
    let Findings { sweep, paced, fastsync, affirm, .. } = &way.findings;
    let judged = way.judged.as_ref();
    let required = judged.map(|(_, advice)| advice.required);
    // On a link that does not carry twice the peak, that stream was slower than the peak.
    let peak = judged.map(|(measured, _)| measured.peak);
    let peak = peak.filter(|peak| sweep.best().is_some_and(|best| *peak <= best.rate / 2.0));
    let peak: Vec<(&str, f64)> = peak.map(|peak| ("peak of the redo", peak)).into_iter().collect();
    let best = sweep.best().and_then(|best| sweep.outcome(&best));
    acknowledged(way.direction, fastsync.as_ref(), affirm.as_ref())
        .then(waits(way))
        .then(windows(way.direction, sweep, way.findings.round_trip().unwrap_or(0.0), required))
        .then(streams(way.direction, sweep, required))
        .then(best.map_or_else(Markup::new, |run| {
            throughput("fastest", "Throughput over time at the best setting", run, &[])
        }))
        .then(paced.as_ref().map_or_else(Markup::new, |run| {
            throughput("paced", "A stream of redo that does not fill the link", run, &peak)
        }))
        .then(round_trips(way))
}

/// Returns a curve, when there was such a run.
fn curve<'a>(name: &'static str, run: &'a Option<Outcome>, part: fn(&Quantile) -> f64) -> Option<Curve<'a>> {
    let run = run.as_ref().filter(|run| run.latency().is_some())?;
    Some(Curve { name, latencies: &run.latencies, part })
}

fn waits(way: &Way) -> Markup {
    let Findings { fastsync, affirm, .. } = &way.findings;
    let curves = [
        curve("FASTSYNC", fastsync, |point| point.total),
        curve("SYNC AFFIRM", affirm, |point| point.total),
        curve("of it the disk", affirm, |point| point.disk),
    ];
    let curves: Vec<Curve<'_>> = curves.into_iter().flatten().collect();
    distribution("waits", "Wait of a commit for the standby", way.direction, &curves)
}

/// Shows what a full link does to the round trips.
fn round_trips(way: &Way) -> Markup {
    let Findings { idle, loaded, .. } = &way.findings;
    let curves = [
        curve("on the idle link", idle, |point| point.total),
        curve("while one connection fills it", loaded, |point| point.total),
    ];
    let curves: Vec<Curve<'_>> = curves.into_iter().flatten().collect();
    let title = match loaded {
        Some(_) => "Round trips, idle and while one connection fills the link",
        None => "Round trips on the idle link",
    };
    distribution("trips", title, way.direction, &curves)
}

/// Shows the tests that wait for every message, side by side.
fn acknowledged(direction: Direction, fastsync: Option<&Outcome>, affirm: Option<&Outcome>) -> Markup {
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
        row("waking up, mean ms", &|_, latency| millis(latency.waking.mean)),
        row("disk, mean ms", &|_, latency| millis(latency.disk.mean)),
        row("MiB/s", &|run, _| mebibytes(run.total.rate())),
        row("sent again", &|run, _| run.total.tcp.retransmissions.to_string()),
        row("limited by", &|run, _| limit_name(run.total.limit)),
    ];
    let columns: Vec<Column> = std::iter::once(words("messages of a redo write"))
        .chain(runs.iter().map(|(name, _, _)| numbers(name)))
        .collect();
    table(&directed("Messages that are waited for", direction), &columns, rows.into_iter())
}

fn conditions(report: &AdviceReport<'_>) -> Markup {
    let mut reported = of_several(report.target, report.directions, &report.options);
    if let Some(history) = report.history {
        let LogHistory { peak, logs, without_duration, shortest } = history;
        reported.push((
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
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "unknown".into(), classic_size);
    for way in report.ways {
        let Some((measured, _)) = &way.judged else { continue };
        let [ceiling, automatic] = match way.direction {
            Direction::ToServer => {
                ["net.core.wmem_max of this host", "largest automatic send buffer of this host"]
            }
            Direction::FromServer => {
                ["net.core.rmem_max of this host", "largest automatic receive buffer of this host"]
            }
        };
        reported.push((ceiling, size(measured.ceiling)));
        reported.push((automatic, size(measured.automatic_ceiling)));
    }
    facts(&reported)
}
