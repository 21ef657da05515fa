//! Replication: each standby, as the primary sees it and as it reports itself.

use super::with_notes;
use crate::interval::Interval;
use crate::replication::StandbyFigures;
use crate::section::{Section, Table, left, right};
use crate::units::{UNKNOWN, bytes, count, millis, number, share, whole_bytes};
use standfast_instruments::Event;

/// One section per standby; a single section that says so when there is none.
pub fn replication(interval: &Interval) -> Vec<Section> {
    if interval.standbys.is_empty() {
        return vec![with_notes("Replication", vec!["No destinations.".into()])];
    }
    interval.standbys.iter().map(|standby| one(interval, standby)).collect()
}

fn one(interval: &Interval, standby: &StandbyFigures) -> Section {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".into());
    let per_second = |rate: Option<f64>| match rate {
        Some(rate) => format!("{}/s", bytes(Some(rate))),
        None => UNKNOWN.to_owned(),
    };
    let lag = |begin: Option<u64>, end: Option<u64>| {
        format!("{} at the begin, {} at the end", whole_bytes(begin), whole_bytes(end))
    };
    let gap = match standby.gap_end {
        Some(left) => format!("{} are missing", whole_bytes(Some(left))),
        None => "none".to_owned(),
    };
    let packed = standby.sent_bytes.zip(standby.wire_bytes).filter(|(_, wire)| *wire > 0);
    let resent = match standby.retransmitted_share() {
        Some(part) => format!(
            "{} of {}, {} %",
            count(standby.retransmitted),
            count(standby.segments),
            share(Some(part))
        ),
        None => UNKNOWN.to_owned(),
    };
    let mut facts = vec![
        ("mode", text(&standby.mode)),
        ("state", format!("{}; commits: {}", text(&standby.state), text(&standby.standing))),
        ("sent", per_second(standby.sent_per_second(interval.seconds))),
        ("redo for a byte on the wire", number(packed.map(|(redo, wire)| redo as f64 / wire as f64), 2)),
        ("TCP segments sent again", resent),
        ("applied", per_second(standby.applied_per_second())),
        ("transport lag", lag(standby.transport_lag_begin, standby.transport_lag_end)),
        ("apply lag", lag(standby.apply_lag_begin, standby.apply_lag_end)),
        ("apply is held up by", bottleneck(standby)),
        ("gap", gap),
        ("connections lost", count(standby.disconnects)),
        ("given up by commits", count(standby.timeouts)),
    ];
    facts.extend(
        standby.delay_s.filter(|delay| *delay > 0).map(|delay| ("apply delay", format!("{delay} s"))),
    );
    facts.extend(standby.last_trouble.clone().map(|error| ("newest error", error)));
    facts.extend(standby.silent.clone().map(|why| ("says nothing of itself", why)));
    let title = format!("Replication: {}", standby.name);
    Section { facts, table: Some(waits(standby)), ..with_notes(&title, lags(standby)) }
}

/// The event that the apply thread waited for most.
fn bottleneck(standby: &StandbyFigures) -> String {
    let Some(counters) = &standby.counters else { return UNKNOWN.to_owned() };
    let events = [
        Event::RecoveryApply,
        Event::DbFileSync,
        Event::DbFileParallelWrite,
        Event::LogFileSequentialRead,
        Event::RecoveryApplyDelay,
        Event::RecoveryIdle,
    ];
    let waited = events.into_iter().filter_map(|event| Some((event, counters.total_s(event)?)));
    let most = waited.filter(|(_, seconds)| *seconds > 0.0).max_by(|a, b| a.1.total_cmp(&b.1));
    match most {
        None => UNKNOWN.to_owned(),
        Some((Event::RecoveryIdle, seconds)) => {
            format!("nothing: it was idle for {} s", number(Some(seconds), 0))
        }
        Some((event, seconds)) => format!("{} ({} s)", event.name(), number(Some(seconds), 1)),
    }
}

fn waits(standby: &StandbyFigures) -> Table {
    let events = [
        Event::RfsWrite,
        Event::RfsRandomIo,
        Event::RfsSequentialIo,
        Event::RecoveryApply,
        Event::DbFileSync,
    ];
    let row = |event: Event| {
        let times = standby.counters.as_ref().and_then(|counters| counters.event(event));
        vec![
            event.name().to_owned(),
            count(times.map(|times| times.count)),
            millis(times.and_then(|times| times.mean_us)),
            millis(times.and_then(|times| times.p50_us)),
            millis(times.and_then(|times| times.p99_us)),
            millis(times.and_then(|times| times.max_us)),
        ]
    };
    let columns = vec![
        left("event there"),
        right("waits"),
        right("avg ms"),
        right("p50 ms"),
        right("p99 ms"),
        right("max ms"),
    ];
    Table { columns, rows: events.into_iter().map(row).collect() }
}

/// Sentences: for how many seconds each lag had which size.
fn lags(standby: &StandbyFigures) -> Vec<String> {
    let mut names: Vec<&str> = standby.lags.iter().map(|lag| lag.name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let bounds = [("below 1 s", 1), ("1 to 4 s", 5), ("5 to 29 s", 30), ("30 s or more", u64::MAX)];
    let sentence = |name: &str| {
        let mut from = 0;
        let parts = bounds.map(|(reported, to)| {
            let of = standby.lags.iter().filter(|lag| lag.name == name && (from..to).contains(&lag.seconds));
            let seen: u64 = of.map(|lag| lag.count).sum();
            from = to;
            format!("{reported} {}", count(Some(seen)))
        });
        format!("{name}, seconds seen: {}.", parts.join(", "))
    };
    names.into_iter().map(sentence).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Load, pair};

    #[test]
    fn unreachable_standby_is_shown_with_dashes_and_the_reason() {
        let mut period = pair(&Load::healthy());
        period.to.observation.standbys[0].observation = None;
        period.to.observation.standbys[0].error = Some("connection refused".into());
        let interval = Interval::of(&period);
        let section = &replication(&interval)[0];
        assert!(section.facts.contains(&("says nothing of itself", "connection refused".into())));
        assert!(section.facts.contains(&("applied", "-".into())));
        assert_eq!(section.table.as_ref().unwrap().rows[0][1..], ["-"; 5]);
    }
}
