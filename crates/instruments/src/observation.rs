//! Everything that an operator can ask of an instance, in one document: what views, reports, dashboards and diagnosis
//! are made of. Its standbys are in it, as they say themselves, so that all of it is readable at the primary.

use crate::event::WaitClass;
use crate::sample::Sample;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// See the module. What is not known is `None` or null, never 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// `db_unique_name`.
    pub name: String,
    /// Wait events, statistics, parts of commits, threads.
    pub sample: Sample,
    /// As `standfast status --json`.
    pub status: Value,
    /// Log files, archived logs, attributes of destinations: what changes seldom and is long.
    pub catalog: Value,
    /// What was noted once a second and once a minute.
    pub history: History,
    /// Its standbys, as they say themselves; empty in what they say.
    pub standbys: Vec<Remote>,
}

/// Another instance, as seen from here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remote {
    /// Name of the destination.
    pub name: String,
    /// What it says; `None` when it does not answer.
    pub observation: Option<Box<Observation>>,
    /// Why it does not answer.
    pub error: Option<String>,
    /// When it was asked, microseconds since the Unix epoch.
    pub asked_us: u64,
}

/// What an instance has noted of itself since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Metrics of intervals, the oldest first.
    pub metrics: Vec<Metric>,
    /// Who was active, once a second, the oldest first.
    pub activity: Vec<Activity>,
    /// How often a lag had which size, once a second.
    pub lags: Vec<LagCount>,
}

/// A rate or average of an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// As in V$SYSMETRIC.
    pub name: String,
    /// Its unit, as in V$SYSMETRIC.
    pub unit: String,
    /// Begin of the interval, microseconds since the Unix epoch.
    pub begin_us: u64,
    /// Its end.
    pub end_us: u64,
    /// Length of the intervals of its group: 15 or 60.
    pub group_s: u32,
    /// `None` when there is nothing to divide by.
    pub value: Option<f64>,
}

/// A session or thread that was not idle at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// When, microseconds since the Unix epoch.
    pub time_us: u64,
    /// Number of the session, or 0 for threads of the instance.
    pub session: u32,
    /// Process of the session, or of the instance.
    pub pid: u32,
    /// Name of the thread, or of the session's database.
    pub name: String,
    /// Whether it is a session of an application.
    pub foreground: bool,
    /// What it waited for; `None`: it worked.
    pub event: Option<String>,
    /// Class of that event.
    pub class: Option<WaitClass>,
    /// For how long so far, microseconds.
    pub waited_us: Option<u64>,
}

/// The unit in which a lag of so many seconds is counted, seconds: as in V$STANDBY_EVENT_HISTOGRAM.
pub fn lag_unit_s(seconds: u64) -> u64 {
    match seconds {
        0..60 => 1,
        60..3_600 => 60,
        3_600..86_400 => 3_600,
        _ => 86_400,
    }
}

/// How often a lag was seen to be of a size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LagCount {
    /// `apply lag` or `transport lag`.
    pub name: String,
    /// Seconds, rounded down to [`lag_unit_s`].
    pub seconds: u64,
    /// How often.
    pub count: u64,
    /// When it was seen last, microseconds since the Unix epoch.
    pub last_us: u64,
}
