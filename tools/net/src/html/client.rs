//! The page of one test.

use super::conditions::options;
use super::measured::{curves_of, distribution, latency_over_time, summary, throughput};
use super::page::{Identity, ending, page};
use super::words::{directed, directions_name, to_or_from};
use crate::outcome::{Outcome, RoundTrips};
use crate::plan::{Direction, Directions, Plan};
use crate::stats::Latency;
use crate::stream::Target;
use crate::{NetError, Result};
use standfast_page::markup::Markup;
use standfast_page::page::{facts, numbers, remark, section, table, words};
use standfast_page::words::{mebibytes, millis};

/// A criterion in one direction of a test that ran.
pub struct Judged {
    pub criterion: String,
    /// Direction of the figure that it concerns.
    pub direction: Direction,
    /// The figure, when the criterion is met: then the test counts as failed.
    pub met: Option<String>,
}

pub struct ClientReport<'a> {
    pub identity: &'a Identity,
    pub target: &'a Target,
    pub plan: &'a Plan,
    /// Round trips were requested beside the test.
    pub loaded: bool,
    pub outcome: &'a Result<Outcome>,
    /// Criteria under which the test counts as failed.
    pub criteria: &'a [Judged],
}

pub fn page_of(report: &ClientReport<'_>) -> String {
    let ClientReport { identity, target, plan, loaded, outcome, .. } = report;
    let (error, interrupted) = match outcome {
        Err(error) => (Some(error), false),
        Ok(outcome) => (outcome.error.as_ref(), outcome.interrupted),
    };
    let so_far = match outcome {
        Err(_) => "Nothing was measured.",
        Ok(_) => "What was measured until then is below.",
    };
    let sections = state(report, error, interrupted, so_far)
        .then(outcome.as_ref().map_or_else(|_| Markup::new(), |outcome| measured(plan, outcome)))
        .then(section("Conditions", facts(&options(target, plan, *loaded))));
    let title = format!("Network test {} {target}", to_or_from(plan.directions));
    page(&title, identity, &target.to_string(), sections)
}

fn state(report: &ClientReport<'_>, error: Option<&NetError>, interrupted: bool, so_far: &str) -> Markup {
    let ended = ending(error, interrupted, so_far);
    let criteria = report.criteria.iter().map(|Judged { criterion, direction, met }| {
        let criterion = directed(criterion, *direction);
        match met {
            Some(found) => remark("fail", "FAIL", format!("{criterion}: met ({found})")),
            None => remark("", "PASS", format!("{criterion}: not met")),
        }
    });
    match ended.is_empty() && report.criteria.is_empty() {
        true => remark("", "OK", "The test ran to its end."),
        false => ended.all(criteria),
    }
}

fn measured(plan: &Plan, outcome: &Outcome) -> Markup {
    let trips =
        outcome.round_trips.as_ref().map_or_else(Markup::new, |trips| round_trips(plan.directions, trips));
    let ways = Markup::new().all(outcome.directions().map(|way| one_way(plan, way)));
    ways.then(section("Round trips beside the test", trips))
}

fn one_way(plan: &Plan, outcome: &Outcome) -> Markup {
    let direction = outcome.direction;
    let throughput = match plan.is_round_trip() {
        // Messages without payload have no throughput.
        true => Markup::new(),
        false => throughput("throughput", "Throughput over time", outcome, &[]),
    };
    let plots = throughput
        .then(distribution("latency", "Latencies", direction, &curves_of(outcome)))
        .then(latency_over_time("slow", outcome));
    section(&directed("Result", direction), summary(outcome))
        .then(section(&directed("Course", direction), plots))
        .then(section(&directed("Connections", direction), connections(outcome)))
}

/// Lists each connection, when there are several.
fn connections(outcome: &Outcome) -> Markup {
    if outcome.streams.len() < 2 {
        return Markup::new();
    }
    let columns = [numbers("connection"), numbers("bytes"), numbers("MiB/s")];
    let rows = outcome.streams.iter().enumerate().map(|(number, bytes)| {
        let rate = *bytes as f64 / outcome.total.seconds.max(1e-9);
        vec![(number + 1).to_string(), bytes.to_string(), mebibytes(rate)]
    });
    table(&directed("Connections", outcome.direction), &columns, rows)
}

/// Shows round trips without payload, before and during the load.
fn round_trips(directions: Directions, trips: &RoundTrips) -> Markup {
    let printed = format!(
        "On a connection of their own, from the client: first on the idle link, then while the test filled it {}. What \
         they grow by are the queues on the path and at the ends.",
        directions_name(directions)
    );
    let mut columns = vec![words("link")];
    columns
        .extend(["round trips", "mean ms", "p50 ms", "p90 ms", "p99 ms", "p99.9 ms", "max ms"].map(numbers));
    let row = |name: &str, latency: Option<&Latency>| {
        let figures = latency.map(|latency| {
            let total = &latency.total;
            let times = [total.mean, total.p50, total.p90, total.p99, total.p999, total.max];
            std::iter::once(latency.count.to_string()).chain(times.map(millis)).collect()
        });
        let figures: Vec<String> = figures.unwrap_or_else(|| vec!["-".to_owned(); 7]);
        std::iter::once(name.to_owned()).chain(figures).collect::<Vec<_>>()
    };
    let mut rows = vec![row("idle", trips.idle.as_ref()), row("loaded", trips.loaded.as_ref())];
    rows.extend(trips.growth().map(|(p50, p99)| {
        let none = String::new;
        let times = |growth: f64| format!("{growth:.1} times");
        vec!["growth".into(), none(), none(), times(p50), none(), times(p99), none(), none()]
    }));
    Markup::new().leaf("p", printed).then(table("Round trips beside the test", &columns, rows.into_iter()))
}
