//! Handmade observations, and rows as texts, for tests of views.

#![allow(clippy::unwrap_used)]

use serde_json::json;
use standfast_documents::catalog::Logs;
use standfast_documents::{Catalog, Status};
use standfast_instruments::{
    Activity, Event, History, Instruments, LagCount, Metric, Observation, Remote, ThreadSample, WaitClass,
};
use standfast_views::Cell;
use std::time::Duration;

/// 2026-11-21 10:00:00, microseconds since the Unix epoch.
pub const TEN: u64 = 1_795_255_200_000_000;
const SECOND: u64 = 1_000_000;

fn thread(name: &str, event: Option<Event>) -> ThreadSample {
    ThreadSample { name: name.into(), event: event.map(|event| event.name().into()), waited_us: Some(1) }
}

fn metric(name: &str, end_us: u64, value: Option<f64>) -> Metric {
    let unit = "Bytes Per Second".into();
    Metric { name: name.into(), unit, begin_us: end_us - 15 * SECOND, end_us, group_s: 15, value }
}

fn archived() -> serde_json::Value {
    let log = |sequence: u64, minute: u64, blocks: u64| {
        json!({"path": format!("/archive/{sequence}.arc"), "sequence": sequence, "incarnation": 1,
            "incarnation_id": "0202", "branch": 4096, "incarnation_time_us": TEN - 300 * SECOND,
            "first_scn": sequence * 1000, "first_time_us": TEN - (10 - minute) * 60 * SECOND,
            "next_scn": (sequence + 1) * 1000, "bytes": blocks * 4096, "block_bytes": 4096,
            "completed_us": TEN})
    };
    json!([log(6, 8, 512), log(7, 9, 256)])
}

/// A primary with a synchronous destination `north` and a local one, without the standby's answer.
pub fn primary() -> Observation {
    let instruments = Instruments::default();
    instruments.record(Event::SyncRemoteWrite, Duration::from_micros(300));
    instruments.record(Event::SyncRemoteWrite, Duration::from_micros(400));
    let mut sample = instruments.sample();
    (sample.started_us, sample.time_us) = (TEN + 10 * SECOND, TEN + 30 * SECOND);
    sample.threads = vec![
        thread("lgwr", Some(Event::LogFileParallelWrite)),
        thread("feed-north", Some(Event::RdbmsIpcMessage)),
    ];
    let status = Status::of(&json!({
        "name": "south", "role": "primary", "state": "open", "pid": 77, "time_us": TEN + 30 * SECOND,
        "durable": 9000, "log": {"checkpoint": 8500},
        "protection": {"mode": "maximum-availability", "level": "resynchronization"},
        "alerts": ["2026-11-21T10:00:00.123Z primary opened at SCN 4096",
            "2026-11-21T10:00:01.000Z destination north: cannot connect"],
        "destinations": [{"name": "north", "role": "standby", "state": "streaming", "standing": "required",
            "applied": 9000, "failures": 0, "gap": null, "last_trouble": "an old one",
            "responses": [0, 0, 0, 0, 0, 0, 0, 0, 0, 2]}],
        "local_destinations": [{"name": "copies", "status": "ERROR", "has": 7000, "failures": 2,
            "trouble": "no room"}],
    }));
    let catalog = Catalog::of(&json!({
        "family": "0123", "role": "primary", "incarnation": 1, "incarnation_id": "0202", "branch": 4096,
        "incarnation_time_us": TEN - 300 * SECOND,
        "logs": {"kind": "online", "block_bytes": 4096, "groups": [
            {"group": 1, "state": "inactive", "sequence": 7, "first_scn": 7000, "next_scn": 8000,
                "first_time_us": TEN - 60 * SECOND, "archived": true, "bytes": 8388608,
                "members": ["/redo/1a.log"], "lost_members": ["/redo2/1b.log"]},
            {"group": 2, "state": "current", "sequence": 8, "first_scn": 8000, "next_scn": null,
                "first_time_us": TEN, "archived": false, "bytes": 8388608,
                "members": ["/redo/2a.log"], "lost_members": []},
            {"group": 3, "state": "unused", "sequence": null, "first_scn": null, "next_scn": null,
                "first_time_us": null, "archived": false, "bytes": 8388608, "members": [], "lost_members": []},
        ]},
        "archived": archived(),
        "destinations": [
            {"id": 1, "name": "north", "address": "127.0.0.1:7411", "location": null, "state": "enable",
                "mode": "sync-affirm", "net_timeout_ms": 29_500, "reopen_ms": 1000, "max_failure": 0,
                "delay_min": 0, "compression": "none", "valid_for": ["all_logfiles", "all_roles"],
                "valid_for_primary": true, "valid_for_standby": true, "alternate": null, "mandatory": false,
                "max_connections": 1, "insecure": false, "attributes": "SERVICE=127.0.0.1:7411"},
            {"id": 2, "name": "copies", "address": "", "location": "/copies", "state": "enable", "mode": "async",
                "valid_for": ["all_logfiles", "all_roles"], "valid_for_primary": true, "attributes": "LOCATION=/copies"},
        ],
        "parameters": [{"name": "redo.groups", "value": 4, "default": 3}],
    }));
    let history = History {
        metrics: vec![
            metric("Redo Generated Per Sec", TEN + 15 * SECOND, Some(7.0)),
            metric("Redo Generated Per Txn", TEN + 30 * SECOND, None),
            metric("Redo Generated Per Sec", TEN + 30 * SECOND, Some(12.5)),
        ],
        activity: vec![
            Activity {
                time_us: TEN,
                session: 4,
                pid: 99,
                name: "app.db".into(),
                foreground: true,
                event: Some("log file sync".into()),
                class: Some(WaitClass::Commit),
                waited_us: Some(250),
            },
            Activity {
                time_us: TEN,
                session: 0,
                pid: 77,
                name: "lgwr".into(),
                foreground: false,
                event: None,
                class: None,
                waited_us: None,
            },
        ],
        lags: vec![],
    };
    Observation { name: "south".into(), sample, status, catalog, history, standbys: vec![] }
}

/// The standby `north` of [`primary`], which has received and applied everything.
pub fn standby() -> Observation {
    let mut at = primary();
    at.name = "north".into();
    at.sample.threads = vec![thread("rfs-1", Some(Event::RfsIdle)), thread("mrp0", None)];
    at.status = Status::of(&json!({
        "name": "north", "role": "standby", "state": "applying", "pid": 78, "time_us": TEN + 30 * SECOND,
        "log": {"checkpoint": 8500}, "protection": {"mode": "maximum-availability", "level": null}, "alerts": [],
        "standby": {"connected": true, "gap": null, "received": 9000, "hardened": 9000, "confirmed": 9000,
            "applied": 9000, "last_heard_us": TEN + 29 * SECOND, "source_end": 9000,
            "transport_lag_s": 0.0, "apply_lag_s": 0.0, "delay_s": 0,
            "transactions": 12, "source": {"name": "south", "role": "primary", "via": []}},
    }));
    at.catalog.role = Some("standby".into());
    at.catalog.destinations = Some(vec![]);
    at.catalog.logs = Some(Logs::of(&json!({"kind": "standby", "block_bytes": 4096, "groups": [
        {"group": 1, "state": "current", "sequence": 8, "first_scn": 8000, "next_scn": null, "first_time_us": TEN,
            "archived": false, "bytes": 8388608, "members": ["/b/1a.log"], "lost_members": []},
        {"group": 2, "state": "inactive", "sequence": 7, "first_scn": 7000, "next_scn": 8000,
            "first_time_us": TEN - 60 * SECOND, "archived": true, "bytes": 8388608, "members": [],
            "lost_members": []},
    ]})));
    let lag = |seconds, count| LagCount { name: "apply lag".into(), seconds, count, last_us: TEN };
    at.history = History { lags: vec![lag(2, 5), lag(61, 3), lag(90, 4)], ..History::default() };
    at
}

/// The primary with the answer of its standby.
pub fn family() -> Observation {
    let mut at = primary();
    at.standbys = vec![answering(standby())];
    at
}

pub fn answering(observation: Observation) -> Remote {
    let name = observation.name.clone();
    Remote { name, observation: Some(Box::new(observation)), error: None, asked_us: TEN }
}

pub fn silent(name: &str) -> Remote {
    Remote { name: name.into(), observation: None, error: Some("it does not answer".into()), asked_us: TEN }
}

/// Rows of a view as texts; `-` is NULL.
#[derive(Clone, Debug)]
pub struct Shown {
    columns: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Shown {
    pub fn of(view: &str, at: &Observation) -> Shown {
        let rows = super::rows(standfast_views::view(view).unwrap(), at);
        let text = |cell: &Cell| match cell {
            Cell::Null => "-".to_owned(),
            Cell::Integer(value) => value.to_string(),
            Cell::Real(value) => format!("{value:?}"),
            Cell::Text(text) => text.clone(),
        };
        let texts = rows.rows.iter().map(|row| row.iter().map(text).collect()).collect();
        Shown { columns: rows.columns, rows: texts }
    }

    fn place(&self, column: &str) -> usize {
        self.columns.iter().position(|known| *known == column).unwrap()
    }

    /// Keeps only the rows in which the column has that value.
    pub fn with(mut self, column: &str, value: &str) -> Shown {
        let at = self.place(column);
        self.rows.retain(|row| row[at] == value);
        self
    }

    pub fn all(&self, columns: &[&str]) -> Vec<Vec<String>> {
        let places: Vec<usize> = columns.iter().map(|column| self.place(column)).collect();
        self.rows.iter().map(|row| places.iter().map(|at| row[*at].clone()).collect()).collect()
    }

    /// Returns the only row.
    pub fn only(&self, columns: &[&str]) -> Vec<String> {
        let mut rows = self.all(columns);
        assert_eq!(rows.len(), 1, "{rows:?}");
        rows.remove(0)
    }
}
