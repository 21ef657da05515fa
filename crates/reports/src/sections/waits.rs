//! Wait events.

use super::{unknown, with_notes, with_table};
use crate::counters::EventFigures;
use crate::interval::Interval;
use crate::section::{Section, Table, left, right};
use crate::units::{UNKNOWN, count, millis, number, share};
use standfast_instruments::{WaitClass, bucket_upper_us};

const TOP: usize = 10;

/// The ten events that sessions waited for most.
pub fn foreground(interval: &Interval) -> Section {
    let title = "Top 10 foreground events";
    let Some(counters) = &interval.counters else { return unknown(title) };
    let all = counters.events.iter().filter(|event| event.foreground);
    events(title, "% DB", all.collect(), counters.db_time_s())
}

/// Waits of the instance's threads, idle ones excluded.
pub fn background(interval: &Interval) -> Section {
    let title = "Background events";
    let Some(counters) = &interval.counters else { return unknown(title) };
    let all = counters.events.iter().filter(|event| !event.foreground && event.class != WaitClass::Idle);
    events(title, "% bg", all.collect(), counters.background_s())
}

fn events(
    title: &str,
    share_head: &'static str,
    mut all: Vec<&EventFigures>,
    whole_s: Option<f64>,
) -> Section {
    all.retain(|event| event.times.as_ref().is_none_or(|times| times.count > 0));
    if all.is_empty() {
        return with_notes(title, vec!["None.".into()]);
    }
    let total = |event: &&EventFigures| event.times.as_ref().map_or(f64::MAX, |times| times.total_s);
    all.sort_by(|a, b| total(b).total_cmp(&total(a)));
    let row = |event: &EventFigures| {
        let times = event.times.as_ref();
        let whole = whole_s.filter(|whole| *whole > 0.0);
        vec![
            event.event.clone(),
            count(times.map(|times| times.count)),
            number(times.map(|times| times.total_s), 1),
            millis(times.and_then(|times| times.mean_us)),
            millis(times.and_then(|times| times.p99_us)),
            share(times.zip(whole).map(|(times, whole)| times.total_s / whole)),
            event.class.name().to_owned(),
        ]
    };
    let columns = vec![
        left("event"),
        right("waits"),
        right("time s"),
        right("avg ms"),
        right("p99 ms"),
        right(share_head),
        left("class"),
    ];
    let note = match share_head {
        "% DB" => "% DB is the share of DB time.",
        _ => "% bg is the share of the waits of threads of the instance that are not idle.",
    };
    with_table(title, note, Table { columns, rows: all.into_iter().take(TOP).map(row).collect() })
}

/// Columns of the histograms, each with the bucket at which it ends (exclusive).
const BOUNDS: [(&str, usize); 8] = [
    ("<64us", 7),
    ("<256us", 9),
    ("<1ms", 11),
    ("<4ms", 13),
    ("<16ms", 15),
    ("<64ms", 17),
    ("<1s", 21),
    (">=1s", usize::MAX),
];

/// Distribution of the waits, in percent of each event.
pub fn histograms(interval: &Interval) -> Section {
    let title = "Wait event histograms";
    let Some(counters) = &interval.counters else { return unknown(title) };
    let mut all: Vec<&EventFigures> =
        counters.events.iter().filter(|event| event.class != WaitClass::Idle).collect();
    all.retain(|event| event.times.as_ref().is_some_and(|times| times.count > 0));
    all.sort_by_key(|event| !event.foreground);
    let row = |event: &EventFigures| {
        let buckets = event.times.as_ref().map_or(&[][..], |times| &times.buckets);
        let all = buckets.iter().sum::<u64>().max(1) as f64;
        let mut from = 0;
        let cells = BOUNDS.iter().map(|(_, to)| {
            let to = (*to).min(buckets.len());
            let within: u64 = buckets.get(from..to).unwrap_or_default().iter().sum();
            from = to;
            if within == 0 { UNKNOWN.to_owned() } else { number(Some(within as f64 / all * 100.0), 1) }
        });
        std::iter::once(event.event.clone()).chain(cells).collect()
    };
    // Column bounds are bucket bounds, powers of two: 64 us is exact, the column `1ms` ends at 1,024 us.
    debug_assert_eq!(bucket_upper_us(BOUNDS[0].1 - 1), Some(64));
    let columns = std::iter::once(left("event")).chain(BOUNDS.iter().map(|(name, _)| right(name))).collect();
    let rows = all.into_iter().map(row).collect();
    let note =
        "Percent of the waits of each event; bounds are powers of two (1 ms is 1,024 us). A dash: none.";
    with_table(title, note, Table { columns, rows })
}
