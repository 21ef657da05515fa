//! Rules about standbys that need no counts of the primary: gaps, lags, apply.

use super::finding::{ASIDE, Finding, STANDS_STILL, Severity, UNPROTECTED, Unit};
use crate::interval::Interval;
use crate::replication::StandbyFigures;
use standfast_instruments::Statistic;

/// R19: a gap that takes longer to fill is slow, seconds. Our own choice.
const GAP_S: f64 = 600.0;
/// R22: smallest apply lag that is reported, bytes. Our own choice.
const LAG_BYTES: f64 = 16_777_216.0;
/// R22: shortest time to apply that lag, seconds. Our own choice; ApplyLagThreshold is 30.
const LAG_S: f64 = 10.0;

pub(super) fn all(interval: &Interval) -> Vec<Finding> {
    let rules = [gap, lost, not_applied, apply_lag, transport_lag, silent];
    interval
        .standbys
        .iter()
        .flat_map(|standby| rules.iter().filter_map(|rule| rule(interval, standby)))
        .collect()
}

/// R19: a gap that fills slowly or not at all.
fn gap(interval: &Interval, standby: &StandbyFigures) -> Option<Finding> {
    let (begin, end) = (standby.gap_begin? as f64, standby.gap_end.filter(|left| *left > 0)? as f64);
    let rate = (begin - end) / interval.seconds;
    let left_s = (rate > 0.0).then(|| end / rate);
    left_s.is_none_or(|seconds| seconds >= GAP_S).then(|| {
        let connections = interval.destination_parameter(&standby.name, "max_connections");
        Finding::new("R19", Severity::Warning, 3.0 * ASIDE, format!("the gap of standby {} fills slowly", standby.name))
            .with("missing at the begin", Some(begin), Unit::Bytes)
            .with("missing at the end", Some(end), Unit::Bytes)
            .with("filled in, at this rate", left_s, Unit::Seconds)
            .with("connections at work", standby.gap_connections.map(|count| count as f64), Unit::Count)
            .with("max_connections", connections, Unit::Count)
            .with("redo.archive_processes", interval.parameter("redo.archive_processes"), Unit::Count)
            .remedy("raise max_connections of the destination, and redo.archive_processes to one more than that; mind what else the link carries; the alert log has the times of each gap")
            .unless("a link that is full already")
    })
}

/// R22: no redo arrives.
fn lost(interval: &Interval, standby: &StandbyFigures) -> Option<Finding> {
    let state = standby.state.as_deref()?;
    if standby.is_streaming() || !matches!(state, "connecting" | "resolving" | "failed") {
        return None;
    }
    let stalls = interval.waiting_for.as_deref().is_some_and(|event| event.contains(&standby.name));
    let (severity, weight) = match (stalls, standby.is_sync()) {
        (true, _) => (Severity::Critical, STANDS_STILL),
        (false, true) => (Severity::Critical, UNPROTECTED),
        (false, false) => (Severity::Warning, 3.0 * ASIDE),
    };
    let error = standby.last_trouble.clone().unwrap_or_else(|| "no reason is known".into());
    Some(
        Finding::new("R22 lost", severity, weight, format!("standby {} gets no redo: it is not connected", standby.name))
            .saying(format!("state {state}, commits: {}", standby.standing.as_deref().unwrap_or("unknown")))
            .saying(error)
            .with("transport lag", standby.transport_lag_end.map(|lag| lag as f64), Unit::Bytes)
            .remedy("see whether the standby runs and its address can be reached (`standfast net client`); its alert log says why it refuses")
            .unless("a state of streaming a moment later"),
    )
}

/// R22: redo arrives and is not applied.
fn not_applied(_: &Interval, standby: &StandbyFigures) -> Option<Finding> {
    let is_off = standby.apply_state.as_deref() == Some("apply stopped");
    if standby.stopped.is_empty() && !is_off {
        return None;
    }
    let title = match standby.stopped.is_empty() {
        true => format!("apply is stopped at standby {}", standby.name),
        false => format!("standby {} does not apply redo to some databases", standby.name),
    };
    let severity = if standby.stopped.is_empty() { Severity::Warning } else { Severity::Critical };
    let finding = Finding::new("R22 apply", severity, 4.0 * ASIDE, title).with(
        "apply lag",
        standby.apply_lag_end.map(|lag| lag as f64),
        Unit::Bytes,
    );
    let finding = standby.stopped.iter().take(3).fold(finding, |finding, text| finding.saying(text.clone()));
    Some(
        finding
            .remedy("`standfast apply start` where it was stopped by hand; for a database that differs, the reason says what to do")
            .unless("an apply lag that shrinks"),
    )
}

/// R22: received redo is applied too slowly.
fn apply_lag(interval: &Interval, standby: &StandbyFigures) -> Option<Finding> {
    let lag = standby.apply_lag_end.filter(|lag| *lag as f64 >= LAG_BYTES)? as f64;
    let transport = standby.transport_lag_end.unwrap_or(0) as f64;
    let waits_by_design = standby.delay_s.is_some_and(|delay| delay > 0);
    let is_off = standby.apply_state.as_deref().is_some_and(|state| state != "applying");
    let grows = standby.apply_lag_begin.is_none_or(|begin| lag >= begin as f64);
    if waits_by_design || is_off || transport > lag / 2.0 || !grows {
        return None;
    }
    let applied = standby.applied_per_second();
    let left_s = applied.filter(|rate| *rate > 0.0).map(|rate| lag / rate);
    left_s.is_none_or(|seconds| seconds >= LAG_S).then(|| {
        let generated = interval.counters.as_ref().and_then(|counters| counters.per_second(Statistic::RedoSize));
        Finding::new(
            "R22 slow",
            Severity::Warning,
            3.0 * ASIDE,
            format!("standby {} applies slower than redo arrives", standby.name),
        )
        .with("apply lag at the end", Some(lag), Unit::Bytes)
        .with("transport lag at the end", standby.transport_lag_end.map(|lag| lag as f64), Unit::Bytes)
        .with("applied", applied, Unit::BytesPerSecond)
        .with("generated", generated, Unit::BytesPerSecond)
        .with("applied in, at this rate", left_s, Unit::Seconds)
        .remedy("recovery apply and db file sync in `Replication` say what apply waits for: a faster disk for the standby's databases, more standby.apply_workers when there are many databases, fewer queries there")
        .unless("a lag that shrinks while the load is the same")
    })
}

/// R22: the transport lag grows, for no reason that another rule reports.
fn transport_lag(interval: &Interval, standby: &StandbyFigures) -> Option<Finding> {
    let lag =
        standby.transport_lag_end.filter(|lag| *lag as f64 >= LAG_BYTES && standby.is_streaming())? as f64;
    let grows = standby.transport_lag_begin.is_some_and(|begin| lag > begin as f64);
    grows.then(|| {
        Finding::new(
            "R22 transport",
            Severity::Warning,
            2.0 * ASIDE,
            format!("the transport lag of standby {} grows", standby.name),
        )
        .with("transport lag at the begin", standby.transport_lag_begin.map(|lag| lag as f64), Unit::Bytes)
        .with("transport lag at the end", Some(lag), Unit::Bytes)
        .with("redo sent", standby.sent_per_second(interval.seconds), Unit::BytesPerSecond)
        .remedy("measure the link with `standfast net advise`; look at the processors of both hosts")
        .unless("a peak that has passed")
    })
}

/// R22: the standby's own figures are unknown, so half of the rules stay silent about it.
fn silent(_: &Interval, standby: &StandbyFigures) -> Option<Finding> {
    let why = standby.silent.as_ref().filter(|why| standby.is_streaming() && *why != "it was not asked")?;
    Some(
        Finding::new(
            "R22 silent",
            Severity::Notice,
            ASIDE / 2.0,
            format!("standby {} does not say what it counts", standby.name),
        )
        .saying(why.clone())
        .remedy("make it answer: its lags and waits are not known here, and nothing is concluded from that")
        .unless("figures of it in the next interval"),
    )
}
