//! Synthetic pairs of observations for tests: what a load would have counted.

use crate::period::Period;
use serde_json::{Value, json};
use standfast_documents::Status;
use standfast_instruments::{
    Activity, BUCKETS, CommitPart, Event, HistogramCounts, Instruments, LagCount, Observation, Remote,
    Sample, Statistic, WaitClass, bucket_of,
};

/// Begin of the interval, microseconds since the Unix epoch: 2026-11-21 10:00:00.
pub const BEGIN_US: u64 = 1_795_255_200_000_000;
const STARTED_US: u64 = BEGIN_US - 3_600_000_000;

/// A load of ten minutes: means in microseconds, counts in the interval.
#[derive(Clone, Debug)]
pub struct Load {
    pub seconds: u64,
    pub commits: u64,
    pub redo_bytes: u64,
    pub writes: u64,
    pub switches: u64,
    /// Events at the primary: count and mean.
    pub events: Vec<(Event, u64, f64)>,
    /// Mean of each part, over all commits.
    pub parts: Vec<(CommitPart, f64)>,
    /// Events at the standby: count and mean.
    pub standby_events: Vec<(Event, u64, f64)>,
    pub statistics: Vec<(Statistic, u64)>,
    pub standby_statistics: Vec<(Statistic, u64)>,
    /// JSON pointers with the values to write into the status at the begin and at the end.
    pub at_begin: Vec<(&'static str, Value)>,
    pub at_end: Vec<(&'static str, Value)>,
    pub standby_at_end: Vec<(&'static str, Value)>,
    pub alerts: Vec<String>,
    pub parameters: Value,
}

impl Load {
    /// A synchronous pair on fast disks, 0.2 ms apart, with nothing wrong: 1,000 commits/s.
    pub fn healthy() -> Load {
        let (commits, writes) = (600_000, 300_000);
        Load {
            seconds: 600,
            commits,
            redo_bytes: 160 * commits,
            writes,
            switches: 1,
            events: vec![
                (Event::LogFileSync, commits, 400.0),
                (Event::WriteLock, 60_000, 50.0),
                (Event::LogFileParallelWrite, writes, 100.0),
                (Event::SyncRemoteWrite, writes, 310.0),
                (Event::DbFileSync, 60, 2_000.0),
                (Event::RdbmsIpcMessage, 6_000, 90_000.0),
            ],
            parts: vec![
                (CommitPart::WriteLockQueue, 5.0),
                (CommitPart::Transaction, 40.0),
                (CommitPart::Wake, 12.0),
                (CommitPart::Gather, 5.0),
                (CommitPart::Network, 200.0),
                (CommitPart::RemoteWrite, 110.0),
                (CommitPart::Acknowledgement, 18.0),
                (CommitPart::Post, 5.0),
                (CommitPart::Scheduling, 50.0),
            ],
            standby_events: vec![
                (Event::RfsWrite, writes, 115.0),
                (Event::RfsRandomIo, writes, 105.0),
                (Event::RecoveryApply, 6_000, 3_000.0),
            ],
            statistics: vec![(Statistic::RedoReadMemoryForTransport, 160 * commits / 1024)],
            standby_statistics: vec![(Statistic::RedoApplied, 160 * commits)],
            at_begin: Vec::new(),
            at_end: Vec::new(),
            standby_at_end: Vec::new(),
            alerts: Vec::new(),
            parameters: json!({
                "redo": { "groups": 3, "archive_processes": 4, "buffer_bytes": 67_108_864 },
                "destination": [{ "name": "oslo", "net_timeout_ms": 30_000, "max_connections": 1,
                                  "send_buffer_bytes": 0, "receive_buffer_bytes": 0 }],
            }),
        }
    }

    /// Sets the mean of an event at the primary and keeps its count.
    pub fn event(mut self, event: Event, mean_us: f64) -> Load {
        let writes = self.writes;
        put(&mut self.events, event, writes, mean_us);
        self
    }

    /// Sets the mean and the count of an event at the primary.
    pub fn events(mut self, event: Event, times: u64, mean_us: f64) -> Load {
        self.events.retain(|(of, ..)| *of != event);
        self.events.push((event, times, mean_us));
        self
    }

    /// Sets the mean of an event at the standby and keeps its count.
    pub fn standby_event(mut self, event: Event, mean_us: f64) -> Load {
        let writes = self.writes;
        put(&mut self.standby_events, event, writes, mean_us);
        self
    }

    /// Sets the mean of a part of commits and adjusts `log file sync`.
    pub fn part(mut self, part: CommitPart, mean_us: f64) -> Load {
        self.parts.retain(|(of, _)| *of != part);
        self.parts.push((part, mean_us));
        let sum = self.parts.iter().filter(|(part, _)| part.is_of_log_file_sync()).map(|(_, us)| us).sum();
        put(&mut self.events, Event::LogFileSync, 0, sum);
        self
    }

    pub fn statistic(mut self, statistic: Statistic, value: u64) -> Load {
        self.statistics.push((statistic, value));
        self
    }

    pub fn standby_statistic(mut self, statistic: Statistic, value: u64) -> Load {
        self.standby_statistics.push((statistic, value));
        self
    }

    /// Overwrites a value of the status at the end.
    pub fn at_end(mut self, place: &'static str, value: Value) -> Load {
        self.at_end.push((place, value));
        self
    }

    /// Overwrites a value of the status at both ends.
    pub fn always(mut self, place: &'static str, value: Value) -> Load {
        self.at_begin.push((place, value.clone()));
        self.at_end(place, value)
    }

    /// Overwrites a value of the standby's own status at the end.
    pub fn standby_at_end(mut self, place: &'static str, value: Value) -> Load {
        self.standby_at_end.push((place, value));
        self
    }

    /// Adds a line to the alert log.
    pub fn alert(mut self, line: &str) -> Load {
        self.alerts.push(format!("2026-11-21T10:0{}:00.000Z {line}", self.alerts.len()));
        self
    }
}

fn put(all: &mut Vec<(Event, u64, f64)>, event: Event, otherwise: u64, mean_us: f64) {
    match all.iter_mut().find(|(of, ..)| *of == event) {
        Some((.., mean)) => *mean = mean_us,
        None => all.push((event, otherwise, mean_us)),
    }
}

/// A histogram of `count` waits that all took `mean_us`.
pub fn counts(count: u64, mean_us: f64) -> HistogramCounts {
    let ns = (mean_us * 1e3) as u64;
    let mut buckets = vec![0; BUCKETS];
    buckets[bucket_of(ns)] = count;
    HistogramCounts { count, time_ns: ns * count, max_ns: if count > 0 { ns } else { 0 }, buckets }
}

fn sample(time_us: u64) -> Sample {
    Sample { time_us, started_us: STARTED_US, threads: Vec::new(), ..Instruments::default().sample() }
}

/// The two ends of the interval, with one standby `oslo`.
pub fn pair(load: &Load) -> Period {
    let end_us = BEGIN_US + load.seconds * 1_000_000;
    let (mut from, mut to) = (observation(BEGIN_US, load, false), observation(end_us, load, true));
    set(&mut from.status, &load.at_begin);
    set(&mut to.status, &load.at_end);
    let standby = to.standbys[0].observation.as_mut().unwrap();
    set(&mut standby.status, &load.standby_at_end);
    to.status.alerts = Some(load.alerts.clone());
    Period::between(from, to, load.parameters.clone())
}

fn set(status: &mut Status, values: &[(&'static str, Value)]) {
    let mut document = json!(status);
    for (place, value) in values {
        let (parent, key) = place.rsplit_once('/').unwrap();
        document.pointer_mut(parent).unwrap()[key] = value.clone();
    }
    *status = Status::of(&document);
}

fn observation(time_us: u64, load: &Load, is_end: bool) -> Observation {
    let (mut sample, mut standby) = (sample(time_us), sample(time_us));
    if is_end {
        count(&mut sample, load);
        for (event, times, mean_us) in &load.standby_events {
            standby.put_event(*event, counts(*times, *mean_us));
        }
        for (statistic, value) in &load.standby_statistics {
            standby.put_statistic(statistic.name(), *value);
        }
    }
    let sent = if is_end { load.redo_bytes } else { 0 };
    let own = Observation {
        name: "oslo".into(),
        sample: standby,
        status: Status::of(&json!({
            "role": "standby", "state": "applying", "version": "0.1.0", "incarnation": 1,
            "standby": { "connected": true, "delay_s": 0, "apply_lag_bytes": 1000 },
            "log": { "groups": [{ "members": ["redo"] }, { "members": ["redo"] }] },
        })),
        ..Observation::default()
    };
    let mut own = own;
    own.history.lags = vec![LagCount {
        name: "apply lag".into(),
        seconds: 0,
        count: if is_end { load.seconds } else { 0 },
        last_us: time_us,
    }];
    Observation {
        name: "paris".into(),
        sample,
        status: Status::of(&json!({
            "role": "primary", "state": "open", "version": "0.1.0", "incarnation": 1, "instance": "00",
            "waiting_for": "", "waiting_commits": 0, "sessions": 40,
            "protection": { "mode": "maximum-availability", "level": "maximum-availability" },
            "log": { "group_bytes": 67_108_864, "block_bytes": 4096, "groups": [{}, {}, {}] },
            "destinations": [{
                "name": "oslo", "mode": "sync-affirm", "state": "streaming", "standing": "required",
                "required": true, "transport_lag_bytes": 0, "apply_lag_bytes": 1000, "redo_bytes": sent,
                "wire_bytes": sent, "round_trip_us": 310, "failures": 0, "disconnects": 0, "timeouts": 0, "last_trouble": null, "gap": null,
                "stopped_databases": [],
            }],
            "alerts": [],
        })),
        standbys: vec![Remote {
            name: "oslo".into(),
            observation: Some(Box::new(own)),
            error: None,
            asked_us: time_us,
        }],
        ..Observation::default()
    }
}

fn count(sample: &mut Sample, load: &Load) {
    for (event, times, mean_us) in &load.events {
        sample.put_event(*event, counts(*times, *mean_us));
    }
    for part in CommitPart::ALL {
        let mean = load.parts.iter().find(|(of, _)| *of == part).map_or(0.0, |(_, us)| *us);
        sample.put_part(part, counts(load.commits, mean));
    }
    let of_load = [
        (Statistic::UserCommits, load.commits),
        (Statistic::RedoSynchWrites, load.commits),
        (Statistic::RedoSize, load.redo_bytes),
        (Statistic::RedoWrites, load.writes),
        (Statistic::RedoBlocksWritten, load.redo_bytes / 4096 + load.writes),
        (Statistic::LogSwitches, load.switches),
    ];
    for (statistic, value) in of_load.iter().chain(&load.statistics) {
        sample.put_statistic(statistic.name(), *value);
    }
}

/// A row of activity at that second.
pub fn activity(second: u64, session: u32, event: &str) -> Activity {
    Activity {
        time_us: second * 1_000_000,
        session,
        pid: 4_000 + session,
        name: "orders.db".into(),
        foreground: true,
        event: Some(event.into()),
        class: Some(WaitClass::Commit),
        waited_us: Some(1_200),
    }
}
