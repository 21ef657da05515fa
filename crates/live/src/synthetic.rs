//! A synthetic primary with two standbys, for tests and screenshots. Commits wait for `oslo`, which keeps up; `rome` is
//! asynchronous, behind, and lacks logs.

use crate::dashboard::{Dashboard, Machine};
use crate::look::Looks;
use serde_json::json;
use standfast_documents::Status;
use standfast_instruments::{
    Activity, CommitPart, Event, Histogram, Instruments, Observation, Parts, Statistic, ThreadSample,
    WaitClass,
};
use std::time::Duration;

/// Time of the first observation: 2026-11-21 10:00:00 UTC.
const BEGIN_US: u64 = 1_795_255_200_000_000;
const MIB: u64 = 1 << 20;

/// The observation `second` seconds after the first one.
pub fn observation(second: u64) -> Observation {
    let time_us = BEGIN_US + second * 1_000_000;
    let mut sample = sample(second * 400);
    (sample.time_us, sample.started_us) = (time_us, BEGIN_US - 86_400_000_000);
    let thread = |name: &str, event: Option<Event>, waited_us| ThreadSample {
        name: name.into(),
        event: event.map(|event| event.name().into()),
        waited_us,
    };
    sample.threads = vec![
        thread("lgwr", Some(Event::LogFileParallelWrite), Some(310)),
        thread("feed-oslo", None, None),
        thread("ack-oslo", Some(Event::SyncRemoteWrite), Some(820)),
        thread("ckpt", Some(Event::RdbmsIpcMessage), Some(212_000)),
    ];
    let mut observation = Observation { name: "paris".into(), sample, ..Observation::default() };
    observation.history.activity = activity(time_us);
    observation.status = Status::of(&status(second, time_us));
    observation
}

fn sample(commits: u64) -> standfast_instruments::Sample {
    let instruments = Instruments::default();
    let sync = Histogram::default();
    for commit in 0..commits {
        let slow = if commit % 100 == 0 { 8 } else { 1 };
        let mut parts = Parts::default();
        for (part, us) in CommitPart::ALL.into_iter().zip([40, 110, 9, 22, 0, 310, 540, 12, 7, 31]) {
            parts.0[part.index()] = us * 1000 * slow;
        }
        instruments.record_commit(&parts);
        sync.record((930 + commit % 64) * 1000 * slow);
        instruments.record(Event::LogFileParallelWrite, Duration::from_micros(320 * slow));
        instruments.record(Event::SyncRemoteWrite, Duration::from_micros(850 * slow));
    }
    instruments.add(Statistic::LogSwitches, 17);
    instruments.add(Statistic::UserCommits, commits);
    let mut sample = instruments.sample();
    sample.put_event(Event::LogFileSync, sync.counts());
    sample
}

fn activity(time_us: u64) -> Vec<Activity> {
    let seen = |session: u32, event: Option<Event>, waited_us| Activity {
        time_us,
        session,
        pid: 4711,
        name: "orders.db".into(),
        foreground: true,
        event: event.map(|event| event.name().into()),
        class: event.map(Event::class),
        waited_us,
    };
    let commits = (1..6).map(|session| seen(session, Some(Event::LogFileSync), Some(700)));
    let queue = (6..9).map(|session| seen(session, Some(Event::WriteLock), Some(1_900)));
    commits.chain(queue).chain([seen(9, None, None)]).filter(|at| at.class != Some(WaitClass::Idle)).collect()
}

fn status(second: u64, time_us: u64) -> serde_json::Value {
    let captured = 90_000 * MIB + second * 3 * MIB;
    json!({
        "name": "paris", "role": "primary", "state": "open", "failure": null, "incarnation": 1,
        "security": { "insecure": false, "certificate": { "days_left": 243, "state": "valid",
            "not_after_us": BEGIN_US + 243 * 86_400_000_000u64, "renewal_failure": null } },
        "version": "0.1.0", "time_us": time_us, "sessions": 12,
        "protection": { "mode": "maximum-availability", "level": "maximum-availability" },
        "captured": captured, "durable": captured, "commits": 1_000_000 + second * 400,
        "waiting_commits": 5, "waiting_for": "",
        "log": { "groups": [
            { "state": "inactive", "sequence": 811, "first_scn": 89_900 * MIB, "bytes": 256 * MIB, "archived": true },
            { "state": "active", "sequence": 812, "first_scn": 89_950 * MIB, "bytes": 256 * MIB, "archived": false },
            { "state": "current", "sequence": 813, "first_scn": 89_980 * MIB, "bytes": 256 * MIB, "archived": false },
        ] },
        "databases": [{ "name": "app.db", "state": "open", "foreign_commits": 0, "foreign_seen_us": null }],
        "unprotected_files": [], "verification": { "run": time_us - 9_000_000, "ended_us": time_us - 8_000_000, "state": "done",
            "scheduled": true, "repair": false, "pages": 0, "pages_read": 0, "databases": [] },
        "destinations": [oslo(captured, time_us), rome(captured, second, time_us)],
        "alerts": [
            "2026-11-21T09:12:44.120Z primary opened at SCN 94371840000",
            "2026-11-21T09:12:45.003Z destination oslo: connected, synchronised",
            "2026-11-21T09:58:20.480Z destination rome: connection lost: connection reset by peer",
            "2026-11-21T09:58:51.007Z THRESHOLD rome: not connected for 30 s",
            "2026-11-21T09:59:33.371Z destination rome: connected; logs 809 to 811 are missing there",
        ],
    })
}

fn oslo(captured: u64, time_us: u64) -> serde_json::Value {
    json!({ "name": "oslo", "address": "10.0.0.2:7411", "role": "standby", "mode": "sync-affirm",
              "state": "streaming", "standing": "required", "required": true, "received": captured,
              "hardened": captured, "applied": captured - 40_000, "stopped_total": 0, "differing_pages": 0,
              "transport_lag_bytes": 0, "transport_lag_s": 0.0, "apply_lag_bytes": 40_000, "apply_lag_s": 0.013,
              "last_heard_us": time_us - 400_000, "redo_bytes": captured, "tcp_segments": 1_204_318, "tcp_retransmitted": 12, "disconnects": 1, "timeouts": 0, "round_trip_us": 862,
              "last_trouble": null, "gap": null })
}

fn rome(captured: u64, second: u64, time_us: u64) -> serde_json::Value {
    json!({ "name": "rome", "address": "10.0.1.2:7411", "role": "standby", "mode": "async",
              "state": "catching_up", "standing": "optional", "required": false,
              "received": captured - 260 * MIB + second * MIB, "hardened": captured - 260 * MIB,
              "applied": captured - 300 * MIB + second * MIB, "stopped_total": 0,
              "transport_lag_bytes": 260 * MIB - second * MIB, "transport_lag_s": 86.6,
              "apply_lag_bytes": 300 * MIB - second * MIB, "apply_lag_s": 101.0,
              "last_heard_us": time_us - 1_200_000, "redo_bytes": 60_000 * MIB, "round_trip_us": 24_100,
              "last_trouble": "connection reset by peer",
              "gap": { "low_sequence": 809, "high_sequence": 811, "bytes_left": 180 * MIB } })
}

/// The dashboard of the synthetic primary after ten seconds.
pub fn dashboard() -> Dashboard {
    let mut looks = Looks::default();
    let last = observation(10);
    looks.take(&observation(0));
    looks.take(&last);
    Dashboard::of(&last, &looks, &Machine { cpus: Some(8), disk_free_bytes: Some(212 << 30) })
}

/// The metrics of the synthetic primary after ten seconds.
pub fn exposition() -> String {
    let mut looks = Looks::default();
    let last = observation(10);
    looks.take(&observation(0));
    looks.take(&last);
    crate::metrics::exposition(crate::metrics::families(&last, &looks.estimate(&last)))
}
