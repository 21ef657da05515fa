//! What the dashboard shows, in the order in which an operator reads it. Computed once, for the web page and the
//! terminal.

mod commit;
mod pressure;
mod standbys;
mod verdict;

pub use commit::{CommitTime, PartTime};
pub use pressure::Pressure;
pub use standbys::{Link, StandbyState};
pub use verdict::Verdict;

use crate::active::{ActiveClass, active_sessions};
use crate::figure::Figure;
use crate::look::Looks;
use serde::{Deserialize, Serialize};
use standfast_documents::Status;
use standfast_instruments::{Event, Observation, WaitClass};

pub const SCHEMA_VERSION: u32 = 1;
/// Maximum lines of the alert log.
const EVENTS: usize = 20;

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Machine {
    /// Number of processors; `None` when it is unknown.
    pub cpus: Option<u64>,
    /// Free bytes where the redo is; `None`: unknown.
    pub disk_free_bytes: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Dashboard {
    pub schema_version: u32,
    pub name: String,
    pub role: String,
    pub state: String,
    pub version: String,
    /// Time of the observation, microseconds since the Unix epoch.
    pub time_us: u64,
    /// Time over which rates are computed.
    pub window: Figure,
    /// 1: what a failover would cost now, and what is wrong.
    pub verdict: Verdict,
    /// 2: which instance sends redo to which.
    pub topology: Vec<Link>,
    /// 3: the state and the lags of each standby.
    pub standbys: Vec<StandbyState>,
    /// 4: where the time of commits goes.
    pub commit: CommitTime,
    /// 5: sessions and threads, and what they wait for.
    pub sessions: Sessions,
    /// 6: the log, its archive and the disk, which may run out.
    pub pressure: Pressure,
    /// 7: the alert log, the newest line first.
    pub events: Vec<EventLine>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sessions {
    pub connected: Figure,
    /// Active sessions by wait class; `None`: unknown.
    pub active: Option<Vec<ActiveClass>>,
    /// Processors of the host; more sessions on the CPU compete for them.
    pub cpus: Figure,
    /// Waits in progress of the instance's own threads, idle ones excluded.
    pub threads: Vec<ThreadWait>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadWait {
    pub thread: String,
    pub event: String,
    pub waited: Figure,
}

/// A line of the alert log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventLine {
    /// UTC; `-` when the line has no time.
    pub time: String,
    pub text: String,
}

impl Dashboard {
    /// Builds the dashboard of an observation that `looks` already has.
    pub fn of(observation: &Observation, looks: &Looks, machine: &Machine) -> Dashboard {
        let status = &observation.status;
        let text = |text: &Option<String>| text.clone().unwrap_or_else(|| crate::figure::UNKNOWN.into());
        Dashboard {
            schema_version: SCHEMA_VERSION,
            name: observation.name.clone(),
            role: text(&status.role),
            state: text(&status.state),
            version: text(&status.version),
            time_us: observation.sample.time_us,
            window: Figure::seconds(looks.window_s()),
            verdict: Verdict::of(status, &looks.estimate(observation)),
            topology: standbys::links(status, &observation.name),
            standbys: standbys::standbys(status, &observation.name, looks),
            commit: CommitTime::of(status, looks),
            sessions: sessions(observation, status, machine),
            pressure: Pressure::of(status, looks, machine),
            events: status.alerts.iter().flatten().rev().take(EVENTS).map(|line| event(line)).collect(),
        }
    }
}

fn sessions(observation: &Observation, status: &Status, machine: &Machine) -> Sessions {
    let idle = |event: &str| Event::named(event).is_some_and(|event| event.class() == WaitClass::Idle);
    let waits = observation.sample.threads.iter().filter_map(|thread| {
        let event = thread.event.as_ref().filter(|event| !idle(event))?;
        let waited = Figure::seconds(thread.waited_us.map(|us| us as f64 / 1e6));
        Some(ThreadWait { thread: thread.name.clone(), event: event.clone(), waited })
    });
    Sessions {
        connected: Figure::count(status.sessions),
        active: active_sessions(observation),
        cpus: Figure::count(machine.cpus),
        threads: waits.collect(),
    }
}

/// Splits a line into its time, with which it begins, and its text.
fn event(line: &str) -> EventLine {
    let (time, text) = line.split_once(' ').filter(|(time, _)| time.ends_with('Z')).unwrap_or(("-", line));
    EventLine { time: time.into(), text: text.into() }
}
