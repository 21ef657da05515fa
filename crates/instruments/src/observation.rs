//! Everything that an operator can ask of an instance, in one document: the source of views, reports, dashboards and
//! diagnosis. It contains the instance's standbys, as they report themselves, so all of it is readable at the primary.

use crate::event::WaitClass;
use crate::sample::Sample;
use serde::{Deserialize, Serialize};
use standfast_documents::{Catalog, Status};

/// One document about an instance. What is not known is `None` or null, never 0.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    pub name: String,
    pub sample: Sample,
    #[serde(default, deserialize_with = "standfast_documents::or_unknown")]
    pub status: Status,
    /// Log files, archived logs, attributes of destinations: data that seldom changes and is long.
    #[serde(default, deserialize_with = "standfast_documents::or_unknown")]
    pub catalog: Catalog,
    /// What the instance recorded once a second and once a minute.
    pub history: History,
    /// The standbys, as they report themselves; empty in a standby's own report.
    pub standbys: Vec<Remote>,
}

/// Another instance, as seen from here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Remote {
    pub name: String,
    /// Its own report; `None` when it does not answer.
    pub observation: Option<Box<Observation>>,
    /// Why it does not answer; `None` when it does.
    pub error: Option<String>,
    /// Time of the request, microseconds since the Unix epoch.
    pub asked_us: u64,
}

/// What an instance has recorded about itself since its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// Metrics per interval, the oldest interval first.
    pub metrics: Vec<Metric>,
    /// Active sessions and threads, sampled once a second, oldest first.
    pub activity: Vec<Activity>,
    /// How often a lag had which size, sampled once a second.
    pub lags: Vec<LagCount>,
}

/// A rate or average of an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    pub name: String,
    /// Unit in the words of V$SYSMETRIC.
    pub unit: String,
    /// Start of the interval, microseconds since the Unix epoch.
    pub begin_us: u64,
    /// End of the interval, microseconds since the Unix epoch.
    pub end_us: u64,
    /// Length of the intervals of its group in seconds: 15 or 60.
    pub group_s: u32,
    /// `None` when there is nothing to divide by.
    pub value: Option<f64>,
}

/// A session or thread that was not idle at a moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Activity {
    /// Time of the sample, microseconds since the Unix epoch.
    pub time_us: u64,
    /// Number of the session, or 0 for threads of the instance.
    pub session: u32,
    /// Process of the session, or of the instance.
    pub pid: u32,
    /// Name of the thread, or of the session's database.
    pub name: String,
    /// Whether it is a session of an application.
    pub foreground: bool,
    /// What it waited for; `None` when it worked.
    pub event: Option<String>,
    pub class: Option<WaitClass>,
    /// Duration of the wait so far, in microseconds.
    pub waited_us: Option<u64>,
}

/// Unit, in seconds, in which a lag of so many seconds is counted, as in V$STANDBY_EVENT_HISTOGRAM.
pub fn lag_unit_s(seconds: u64) -> u64 {
    match seconds {
        0..60 => 1,
        60..3_600 => 60,
        3_600..86_400 => 3_600,
        _ => 86_400,
    }
}

/// Number of times that a lag had a certain size.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LagCount {
    pub name: String,
    /// Lag in seconds, rounded down to a multiple of [`lag_unit_s`].
    pub seconds: u64,
    pub count: u64,
    /// Time at which it was seen last, microseconds since the Unix epoch.
    pub last_us: u64,
}
