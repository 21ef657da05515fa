//! The page of one test.

use super::markup::Markup;
use super::measured::{curves_of, distribution, latency_over_time, options, summary, throughput};
use super::page::{Identity, ending, facts, numbers, page, remark, section, table};
use super::words::mebibytes;
use crate::plan::Plan;
use crate::run::Outcome;
use crate::stream::Target;
use crate::{NetError, Result};

/// What the page shows.
pub struct ClientReport<'a> {
    /// Where and when.
    pub identity: &'a Identity,
    /// The server.
    pub target: &'a Target,
    /// What was asked for.
    pub plan: &'a Plan,
    /// What came of it.
    pub outcome: &'a Result<Outcome>,
    /// Criteria under which it counts as failed, with the figure of each that is met.
    pub criteria: &'a [(String, Option<String>)],
}

/// The page.
pub fn page_of(report: &ClientReport<'_>) -> String {
    let ClientReport { identity, target, plan, outcome, .. } = report;
    let (error, interrupted) = match outcome {
        Err(error) => (Some(error), false),
        Ok(outcome) => (outcome.trouble.as_ref(), outcome.interrupted),
    };
    let so_far = match outcome {
        Err(_) => "Nothing was measured.",
        Ok(_) => "What was measured until then is below.",
    };
    let sections = state(report, error, interrupted, so_far)
        .then(outcome.as_ref().map_or_else(|_| Markup::new(), |outcome| measured(plan, outcome)))
        .then(section("Conditions", facts(&options(plan))));
    page(&format!("Network test to {target}"), identity, &target.to_string(), sections)
}

fn state(report: &ClientReport<'_>, error: Option<&NetError>, interrupted: bool, so_far: &str) -> Markup {
    let ended = ending(error, interrupted, so_far);
    let criteria = report.criteria.iter().map(|(criterion, met)| match met {
        Some(found) => remark("fail", "FAIL", format!("{criterion}: met ({found})")),
        None => remark("", "PASS", format!("{criterion}: not met")),
    });
    match ended.is_empty() && report.criteria.is_empty() {
        true => remark("", "OK", "The test ran to its end."),
        false => ended.all(criteria),
    }
}

fn measured(plan: &Plan, outcome: &Outcome) -> Markup {
    let throughput = match plan.is_round_trip() {
        // Messages without payload carry nothing.
        true => Markup::new(),
        false => throughput("throughput", "Throughput over time", &outcome.intervals, &[]),
    };
    let plots = throughput
        .then(distribution("latency", "Latencies", &curves_of(outcome)))
        .then(latency_over_time("slow", &outcome.intervals));
    section("Result", summary(outcome)).then(section("Course", plots)).then(connections(outcome))
}

/// Each connection, when there are several.
fn connections(outcome: &Outcome) -> Markup {
    if outcome.streams.len() < 2 {
        return Markup::new();
    }
    let columns = [numbers("connection"), numbers("bytes"), numbers("MiB/s")];
    let rows = outcome.streams.iter().enumerate().map(|(number, bytes)| {
        let rate = *bytes as f64 / outcome.total.seconds.max(1e-9);
        vec![(number + 1).to_string(), bytes.to_string(), mebibytes(rate)]
    });
    section("Connections", table("Connections", &columns, rows))
}
