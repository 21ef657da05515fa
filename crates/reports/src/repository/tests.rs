use super::*;
use crate::synthetic::{Load, activity, pair};
use standfast_documents::status::Database;
use standfast_instruments::Remote;
use standfast_testkit::TempDir;
use standfast_types::Hint;

const DAY_US: u64 = 86_400_000_000;

fn at(file: &TempDir) -> PathBuf {
    file.join("repository.db")
}

/// The end of a healthy period of that many seconds.
fn observation(seconds: u64) -> Observation {
    let load = Load { seconds, commits: seconds * 1000, ..Load::healthy() };
    pair(&load).to.observation
}

#[test]
fn snapshots_are_read_back_unchanged_during_writes() {
    let directory = TempDir::new("repository").unwrap();
    let mut writer = Repository::open(&at(&directory)).unwrap();
    let parameters = json!({ "redo": { "groups": 3 } });
    let ids: Vec<i64> = (1..=CHAIN_MAX as u64 + 5)
        .map(|n| writer.add(&observation(n * 600), parameters.clone(), 8 * DAY_US).unwrap())
        .collect();
    let reader = Repository::read(&at(&directory)).unwrap();
    assert_eq!(reader.last_two().unwrap(), (ids[ids.len() - 2], ids[ids.len() - 1]));
    // Within a chain, and across the boundary of two.
    for (from, to) in [(3, 9), (CHAIN_MAX as usize - 2, CHAIN_MAX as usize + 3)] {
        let period = reader.period(ids[from], ids[to]).unwrap();
        assert_eq!(period.from.observation.sample, observation((from as u64 + 1) * 600).sample);
        assert_eq!(period.to.observation.sample, observation((to as u64 + 1) * 600).sample);
        assert_eq!(period.to.parameters, parameters);
        let standby = period.to.observation.standbys[0].observation.as_ref().unwrap();
        assert!(standby.sample.statistic("redo applied").is_some_and(|bytes| bytes > 0));
    }
    writer.add(&observation(600_000), parameters, 8 * DAY_US).unwrap();
    assert_eq!(reader.list().unwrap().len(), ids.len() + 1);
}

#[test]
fn unavailable_period_is_refused_with_a_remedy() {
    let directory = TempDir::new("repository").unwrap();
    let printed = |error: ReportError| error.for_terminal();
    assert!(printed(Repository::read(&at(&directory)).err().unwrap()).contains("standfast snapshot"));
    let mut writer = Repository::open(&at(&directory)).unwrap();
    assert!(printed(writer.last_two().unwrap_err()).contains("there are 0"));
    let one = writer.add(&observation(600), Value::Null, DAY_US).unwrap();
    let two = writer.add(&observation(1200), Value::Null, DAY_US).unwrap();
    assert!(printed(writer.period(two, one).unwrap_err()).contains("not later"));
    assert!(printed(writer.period(one, 77).unwrap_err()).contains("no snapshot 77"));
    writer.database.execute("UPDATE snapshot SET body = x'00' WHERE id = ?", [two]).unwrap();
    assert!(printed(writer.period(one, two).unwrap_err()).contains("damaged"));
    writer.database.pragma_update(None, "user_version", 99).unwrap();
    assert!(printed(Repository::read(&at(&directory)).err().unwrap()).contains("schema version 99"));
}

#[test]
fn expired_snapshot_chains_are_removed_as_a_whole() {
    let directory = TempDir::new("repository").unwrap();
    let mut writer = Repository::open(&at(&directory)).unwrap();
    for n in 1..=3 * u64::from(CHAIN_MAX) {
        writer.add(&observation(n * 600), Value::Null, u64::from(CHAIN_MAX) * 600_000_000).unwrap();
    }
    let kept = writer.list().unwrap();
    // The newest chain, and the one before it, whose newest snapshots are within the retention.
    assert_eq!(kept.len(), 2 * CHAIN_MAX as usize);
    writer.period(kept[0].id, kept[kept.len() - 1].id).unwrap();
}

#[test]
fn new_process_begins_a_chain_without_duplicating_history() {
    let directory = TempDir::new("repository").unwrap();
    let noted = |seconds: u64| {
        let mut observation = observation(seconds);
        let begin_us = crate::synthetic::BEGIN_US;
        let rows = (1..=seconds / 10).map(|n| {
            let mut row = activity(n * 10, 1, "log file sync");
            row.time_us += begin_us;
            row
        });
        observation.history.activity = rows.collect();
        let line =
            |n: u64| format!("{}Z line {n}", units::when(begin_us + n * 600_000_000)[..19].replace(' ', "T"));
        observation.status.alerts = Some((1..=seconds / 600).map(line).collect());
        observation
    };
    let mut ids = Vec::new();
    for part in [1..4, 4..7] {
        let mut writer = Repository::open(&at(&directory)).unwrap();
        ids.extend(part.map(|n| writer.add(&noted(n * 600), Value::Null, DAY_US).unwrap()));
    }
    let period = Repository::read(&at(&directory)).unwrap().period(ids[1], ids[5]).unwrap();
    let lines: Vec<&str> =
        period.alerts.iter().filter_map(|line| line.split_once("Z ")).map(|line| line.1).collect();
    assert_eq!(lines, ["line 3", "line 4", "line 5", "line 6"]);
    assert_eq!(period.activity.iter().map(|row| row.seconds).sum::<f64>(), 2400.0);
}

/// A snapshot of a busy primary with three standbys, 1,000 databases and 500 sessions.
fn busy(number: u64) -> Observation {
    let mut seed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut next = |limit: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % limit
    };
    let mut all = observation(number * 600);
    let mut vary = |of: &mut Observation| {
        for counts in of
            .sample
            .events
            .iter_mut()
            .map(|event| &mut event.counts)
            .chain(of.sample.parts.iter_mut().map(|part| &mut part.counts))
        {
            let middle = counts.buckets.iter().position(|count| *count > 0);
            for offset in 0..middle.map_or(0, |_| 9) {
                let bucket = (middle.unwrap_or(0) + offset).saturating_sub(4);
                counts.buckets[bucket] += number * 1000 / (offset as u64 + 1) + next(500);
            }
            counts.time_ns += next(1 << 30);
            counts.count = counts.buckets.iter().sum();
        }
        for statistic in of.sample.statistics.iter_mut() {
            statistic.value += number * 10_000 + next(5_000);
        }
        of.status.captured = Some(number * 100_000_000 + next(1_000_000));
        let database = |n: u64| {
            let name = format!("{n}.db");
            Database::of(&json!({ "id": n, "name": name, "state": "open", "failure": null, "scn": n * 7 }))
        };
        of.status.databases = Some((0..1000).map(database).collect());
    };
    let mut standby = (**all.standbys[0].observation.as_ref().unwrap()).clone();
    vary(&mut standby);
    vary(&mut all);
    all.standbys = ["oslo", "rome", "bonn"]
        .map(|name| Remote {
            name: name.into(),
            observation: Some(Box::new(Observation { name: name.into(), ..standby.clone() })),
            error: None,
            asked_us: all.sample.time_us,
        })
        .to_vec();
    let begin_s = all.sample.time_us / 1_000_000 - 600;
    all.history.activity = (1..=600)
        .flat_map(|second| (0..3).map(move |n| (second, n)))
        .map(|(second, n)| {
            activity(begin_s + second, next(500) as u32, ["log file sync", "enq: TX - write lock"][n % 2])
        })
        .collect();
    all
}

#[test]
fn a_year_of_snapshots_with_three_standbys_is_below_200_mb() {
    let directory = TempDir::new("repository").unwrap();
    let mut writer = Repository::open(&at(&directory)).unwrap();
    let taken = 2 * u64::from(CHAIN_MAX);
    for number in 1..=taken {
        writer.add(&busy(number), Value::Null, 365 * DAY_US).unwrap();
    }
    writer.database.pragma_update(None, "wal_checkpoint", "truncate").unwrap();
    drop(writer);
    let bytes = std::fs::metadata(at(&directory)).unwrap().len();
    let year = 365 * 24 * 6;
    let whole = bytes as f64 / taken as f64 * year as f64;
    assert!(
        whole < 200e6,
        "{:.0} bytes a snapshot, {:.0} MB a year",
        bytes as f64 / taken as f64,
        whole / 1e6
    );
    eprintln!("{:.0} bytes a snapshot, {:.0} MB a year", bytes as f64 / taken as f64, whole / 1e6);
}
