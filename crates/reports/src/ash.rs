//! Active session history: what sessions and threads did, from samples. Pure.
//!
//! A row is a session or thread that was not idle at the time of a sample; it stands for the seconds to the next
//! sample. Activity that is rare may be missed; activity that is short and frequent is not.

use crate::period::{Period, Weighted};
use crate::section::{Section, Table, left, right};
use crate::units::{count, number, share, when};
use serde::Serialize;
use standfast_instruments::{Activity, WaitClass};
use std::collections::BTreeMap;

/// Maximum rows of a report table.
const TOP: usize = 10;
/// Number of slots of the course.
const SLOTS: u64 = 12;

/// Active seconds, by event and by session.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Active {
    pub begin_us: u64,
    pub end_us: u64,
    /// Number of samples, idle ones not counted.
    pub samples: usize,
    /// Sum of the active seconds of all samples.
    pub seconds: f64,
    /// Sorted by time, the largest first.
    pub events: Vec<Spent>,
    /// Sorted by time, the largest first.
    pub sessions: Vec<Spent>,
    /// The interval in slots of equal length, the oldest first.
    pub course: Vec<Stretch>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Spent {
    /// An event, or a session or thread.
    pub name: String,
    /// The class of the event, or the event that took most of the session's time.
    pub detail: String,
    pub seconds: f64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stretch {
    pub begin_us: u64,
    pub average_active: f64,
    /// The event that took most of the time; `None` when there was no activity.
    pub top_event: Option<String>,
}

fn event_of(row: &Activity) -> String {
    row.event.clone().unwrap_or_else(|| "on CPU".to_owned())
}

fn class_of(class: Option<WaitClass>) -> &'static str {
    class.map_or("CPU", WaitClass::name)
}

/// Adds up the activity of a period.
pub fn active(period: &Period) -> Active {
    let (begin_us, end_us) = (period.from.observation.sample.time_us, period.to.observation.sample.time_us);
    // Idle waits of the instance's threads are no activity.
    let rows = || period.activity.iter().filter(|row| row.activity.class != Some(WaitClass::Idle));
    let events = sums(
        rows().map(|row| (event_of(&row.activity), class_of(row.activity.class).to_owned(), row.seconds)),
    );
    let sessions = sums(rows().map(|row| (who(&row.activity), event_of(&row.activity), row.seconds)));
    let length = (end_us.saturating_sub(begin_us) / SLOTS).max(1);
    let stretch = |slot: u64| {
        let begin = begin_us + slot * length;
        let of =
            |row: &&Weighted| (begin..begin + length).contains(&(row.activity.time_us.saturating_sub(1)));
        let within: Vec<&Weighted> = rows().filter(of).collect();
        let top = sums(within.iter().map(|row| (event_of(&row.activity), String::new(), row.seconds)));
        Stretch {
            begin_us: begin,
            average_active: within.iter().map(|row| row.seconds).sum::<f64>() / (length as f64 / 1e6),
            top_event: top.first().map(|spent| spent.name.clone()),
        }
    };
    Active {
        begin_us,
        end_us,
        samples: rows().count(),
        seconds: rows().map(|row| row.seconds).sum(),
        events,
        sessions,
        course: (0..SLOTS).map(stretch).collect(),
    }
}

fn who(row: &Activity) -> String {
    match row.foreground {
        true => format!("session {} of process {} ({})", row.session, row.pid, row.name),
        false => format!("thread {}", row.name),
    }
}

/// Adds up seconds by name, the largest first; the detail is the one with the most seconds.
fn sums(rows: impl Iterator<Item = (String, String, f64)>) -> Vec<Spent> {
    let mut all: BTreeMap<String, BTreeMap<String, f64>> = BTreeMap::new();
    for (name, detail, seconds) in rows {
        *all.entry(name).or_default().entry(detail).or_default() += seconds;
    }
    let spent = |(name, details): (String, BTreeMap<String, f64>)| {
        let seconds = details.values().sum();
        let most = details.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
        Spent { name, detail: most.map_or_else(String::new, |(detail, _)| detail), seconds }
    };
    let mut sums: Vec<Spent> = all.into_iter().map(spent).collect();
    sums.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    sums
}

pub fn sections(active: &Active) -> Vec<Section> {
    let share_of = |seconds: f64| share((active.seconds > 0.0).then(|| seconds / active.seconds));
    let top = |head: &'static str, detail: &'static str, all: &[Spent]| Table {
        columns: vec![left(head), left(detail), right("seconds"), right("%")],
        rows: all
            .iter()
            .take(TOP)
            .map(|spent| {
                vec![
                    spent.name.clone(),
                    spent.detail.clone(),
                    number(Some(spent.seconds), 0),
                    share_of(spent.seconds),
                ]
            })
            .collect(),
    };
    let course = Table {
        columns: vec![left("from"), right("active"), left("most of it")],
        rows: active
            .course
            .iter()
            .map(|stretch| {
                let event = stretch.top_event.clone().unwrap_or_else(|| "-".to_owned());
                vec![when(stretch.begin_us), number(Some(stretch.average_active), 2), event]
            })
            .collect(),
    };
    let reported = format!(
        "{} to {}: {} samples, which stand for {} s of sessions and threads that were not idle.",
        when(active.begin_us),
        when(active.end_us),
        count(Some(active.samples as u64)),
        number(Some(active.seconds), 0),
    );
    let section =
        |title: &str, table| Section { title: title.to_owned(), table: Some(table), ..Section::default() };
    vec![
        Section { notes: vec![reported], ..section("Top events", top("event", "class", &active.events)) },
        section("Top sessions and threads", top("who", "mostly", &active.sessions)),
        section("Course", course),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::{Load, activity, pair};

    #[test]
    fn sampled_rows_are_weighted_by_their_seconds() {
        let mut period = pair(&Load::healthy());
        let begin = period.from.observation.sample.time_us;
        let mut row = |second: u64, session, event, seconds| {
            let mut row = activity(second, session, event);
            row.time_us += begin;
            period.activity.push(Weighted { activity: row, seconds });
        };
        row(10, 1, "log file sync", 10.0);
        row(10, 2, "log file sync", 10.0);
        row(20, 1, "enq: TX - write lock", 10.0);
        row(590, 1, "log file sync", 20.0);
        let active = active(&period);
        assert_eq!((active.samples, active.seconds), (4, 50.0));
        assert_eq!((active.events[0].name.as_str(), active.events[0].seconds), ("log file sync", 40.0));
        assert_eq!((active.sessions[0].seconds, active.sessions[0].detail.as_str()), (40.0, "log file sync"));
        assert_eq!(active.course[0].average_active, 30.0 / 50.0);
        assert_eq!(active.course[1].top_event, None);
        assert_eq!(active.course[11].average_active, 20.0 / 50.0);
    }
}
