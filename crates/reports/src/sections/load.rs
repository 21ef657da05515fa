//! Identity, findings, and how much was done.

use super::{unknown, with_notes, with_table};
use crate::interval::Interval;
use crate::rules::Finding;
use crate::section::{Section, Table, left, right};
use crate::units::{UNKNOWN, count, duration, number, share, when, whole_bytes};
use serde_json::Value;
use standfast_instruments::{CommitPart, Event, Statistic, WaitClass};

pub fn identity(interval: &Interval) -> Section {
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".into());
    let snapshot =
        |id: Option<i64>| id.map_or_else(|| "not a snapshot".into(), |id| format!("snapshot {id}"));
    let protection = interval.protection.clone().unwrap_or_default();
    let words = |of: Option<String>| of.unwrap_or_else(|| "unknown".into()).replace('-', " ");
    let facts = vec![
        ("instance", format!("{}, {} ({})", interval.name, text(&interval.role), text(&interval.state))),
        ("version", text(&interval.version)),
        ("incarnation", count(interval.incarnation)),
        ("protection", format!("{}, level {}", words(protection.mode), words(protection.level))),
        ("begin", format!("{} ({})", when(interval.begin_us), snapshot(interval.from))),
        ("end", format!("{} ({})", when(interval.end_us), snapshot(interval.to))),
        ("elapsed", duration(interval.seconds)),
        ("running since", when(interval.started_us)),
        ("sessions at the end", count(interval.sessions)),
    ];
    Section { facts, ..with_notes("Identity and interval", interval.flags.clone()) }
}

pub fn findings(interval: &Interval, findings: Vec<Finding>) -> Section {
    let note = match (findings.is_empty(), interval.counters.is_some()) {
        (false, _) => "The cause first.",
        (true, true) => "No problems found.",
        (true, false) => "None, but without counts most rules cannot speak.",
    };
    Section { findings, ..with_notes("Findings", vec![note.into()]) }
}

/// Load profile, per second and per transaction.
pub fn load_profile(interval: &Interval) -> Section {
    let title = "Load profile";
    let Some(counters) = &interval.counters else { return unknown(title) };
    let commits = counters.statistic(Statistic::UserCommits);
    let row = |name: &str, total: Option<f64>, digits: usize| {
        let each =
            total.zip(commits).filter(|(_, commits)| *commits > 0).map(|(all, commits)| all / commits as f64);
        let per_second = total.map(|all| all / counters.seconds);
        vec![name.to_owned(), number(per_second, digits), number(each, digits.max(1))]
    };
    let of = |statistic: Statistic| counters.statistic(statistic).map(|value| value as f64);
    let waits = |event: Event| counters.event(event).map(|times| times.count as f64);
    let rows = vec![
        row("DB time (s)", counters.db_time_s(), 4),
        row("transactions", of(Statistic::UserCommits), 1),
        row("redo size (bytes)", of(Statistic::RedoSize), 1),
        row("redo entries", of(Statistic::RedoEntries), 1),
        row("redo writes", of(Statistic::RedoWrites), 2),
        row("redo wastage (bytes)", of(Statistic::RedoWastage), 1),
        row("log file sync (waits)", waits(Event::LogFileSync), 1),
        row("write lock (waits)", waits(Event::WriteLock), 2),
        row("wake-ups of the log writer", of(Statistic::BackgroundWakes), 2),
    ];
    let columns = vec![left("what"), right("per second"), right("per transaction")];
    with_table(title, "A transaction is a commit of a write.", Table { columns, rows })
}

/// Time model: where DB time was spent.
pub fn time_model(interval: &Interval) -> Section {
    let title = "Time model";
    let Some(counters) = &interval.counters else { return unknown(title) };
    let db_time = counters.db_time_s();
    let share_of =
        |seconds: Option<f64>| share(seconds.zip(db_time.filter(|all| *all > 0.0)).map(|(of, all)| of / all));
    let row = |name: &str, seconds: Option<f64>| vec![name.to_owned(), number(seconds, 3), share_of(seconds)];
    let mut rows = vec![
        row("DB time", db_time),
        row("  transactions (work under the write lock)", counters.part_s(CommitPart::Transaction)),
    ];
    for class in WaitClass::ALL {
        let of = counters.events.iter().filter(|event| event.foreground && event.class == class);
        let mut of = of.peekable();
        if of.peek().is_some() {
            let seconds = of.map(|event| Some(event.times.as_ref()?.total_s)).sum::<Option<f64>>();
            rows.push(row(&format!("  waits of class {}", class.name()), seconds));
        }
    }
    rows.push(vec!["background, not idle".into(), number(counters.background_s(), 3), UNKNOWN.into()]);
    let average = db_time.map(|seconds| seconds / counters.seconds);
    let note = format!(
        "DB time is that of sessions in write transactions; reads are not counted. On average {} sessions were active.",
        number(average, 2)
    );
    let columns = vec![left("what"), right("seconds"), right("% of DB time")];
    with_table(title, &note, Table { columns, rows })
}

pub fn statistics(interval: &Interval) -> Section {
    let title = "Statistics";
    let Some(counters) = &interval.counters else { return unknown(title) };
    let commits = counters.statistic(Statistic::UserCommits).filter(|commits| *commits > 0);
    let rows = counters.statistics.iter().map(|statistic| {
        let value = statistic.value.map(|value| value as f64);
        let each = value.zip(commits).map(|(value, commits)| value / commits as f64);
        vec![
            statistic.name.clone(),
            count(statistic.value),
            number(value.map(|value| value / counters.seconds), 1),
            number(each, 2),
        ]
    });
    let columns = vec![left("statistic"), right("total"), right("per second"), right("per transaction")];
    with_table(title, "", Table { columns, rows: rows.collect() })
}

/// Settings that differ between the two ends.
pub fn changed(interval: &Interval) -> Section {
    let title = "Changed parameters";
    if interval.changed.is_empty() {
        return with_notes(title, vec!["None.".into()]);
    }
    let value = |value: &Value| match value {
        Value::Null => "not set".to_owned(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let rows = interval.changed.iter();
    let rows = rows.map(|changed| vec![changed.name.clone(), value(&changed.before), value(&changed.after)]);
    let columns = vec![left("parameter"), left("at the begin"), left("at the end")];
    with_table(title, "", Table { columns, rows: rows.collect() })
}

/// Bytes per second, without the `/s`.
pub(super) fn rate(bytes: Option<u64>, seconds: f64) -> String {
    whole_bytes(bytes.map(|bytes| (bytes as f64 / seconds) as u64))
}
