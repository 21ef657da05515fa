//! The thread `live` observes the instance once a second. It checks thresholds against the observation, and the HTTP
//! server serves its pages from it: however many clients load pages, the instance is observed once a second.

use crate::error::InstanceError;
use crate::http::HttpServer;
use crate::running::Running;
use crate::watchers::Watchers;
use standfast_instruments::Observation;
use standfast_live::{Dashboard, Looks, Machine, Severity, Status, Thresholds, Watch, metrics};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(1);

/// The newest observation, with what rates need from earlier ones.
pub struct Live {
    observation: Observation,
    looks: Looks,
    machine: Machine,
}

impl Live {
    pub fn dashboard(&self) -> Dashboard {
        Dashboard::of(&self.observation, &self.looks, &self.machine)
    }

    /// Returns the metrics in the exposition format.
    pub fn exposition(&self) -> String {
        let estimate = self.looks.estimate(&self.observation);
        metrics::exposition(metrics::families(&self.observation, &estimate))
    }

    /// Returns the severity and one line of text that names the instance.
    pub fn check(&self) -> (Severity, String) {
        let status = Status::of(&self.observation.status);
        standfast_live::line(&self.observation.name, &status, &Thresholds::of(&status))
    }
}

/// The newest observation; empty before the first.
#[derive(Default)]
pub struct Latest(Mutex<Option<Live>>);

impl Latest {
    /// Calls `show` with it; with `None` before the first observation.
    pub fn with<T>(&self, show: impl FnOnce(Option<&Live>) -> T) -> T {
        show(self.0.lock().unwrap_or_else(PoisonError::into_inner).as_ref())
    }

    fn take(&self, observation: Observation, machine: Machine) {
        let mut latest = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut looks = latest.take().map(|live| live.looks).unwrap_or_default();
        looks.take(&observation);
        *latest = Some(Live { observation, looks, machine });
    }
}

/// The thread `live` and the HTTP server that serves its observations.
pub struct LiveWatch {
    http: Option<HttpServer>,
    _thread: Watchers,
}

impl LiveWatch {
    /// Starts both for an instance.
    ///
    /// # Errors
    /// When the configured address cannot be served, or a thread cannot be started.
    pub fn start(running: &Arc<Running>) -> Result<LiveWatch, InstanceError> {
        let environment = &running.environment;
        let directory = &environment.paths.directory;
        let latest = Arc::new(Latest::default());
        let weak = Arc::downgrade(running);
        let http = HttpServer::start(&environment.config.http, directory, &weak, &latest)?;
        if let Some(http) = &http {
            environment.alert.say(format!("HTTP on {}, for {}", http.address(), http.readers()));
        }
        let (mut thread, mut thresholds, serves) = (Watchers::default(), Watch::default(), http.is_some());
        let look_again = move |running: &Running| look(running, &latest, serves, &mut thresholds);
        thread
            .spawn("live", EVERY, &weak, look_again)
            .map_err(InstanceError::io("begin the thread that looks once a second in", directory))?;
        Ok(LiveWatch { http, _thread: thread })
    }

    /// Address at which the HTTP server listens, if configured.
    pub fn http_address(&self) -> Option<String> {
        self.http.as_ref().map(|http| http.address().to_string())
    }
}

/// Makes one observation. The expensive parts are collected only when the HTTP server runs.
fn look(running: &Running, latest: &Latest, serves: bool, thresholds: &mut Watch) {
    let environment = &running.environment;
    let observation = if serves {
        Observation { history: running.history().recent(), ..crate::observe::at_a_glance(running) }
    } else {
        Observation { status: crate::status::status(running), ..Observation::default() }
    };
    let status = Status::of(&observation.status);
    let name = &environment.config.instance.name;
    for line in thresholds.look(name, &status, &Thresholds::of(&status)) {
        environment.alert.say(line);
    }
    if serves {
        let machine = Machine {
            cpus: std::thread::available_parallelism().ok().map(|cpus| cpus.get() as u64),
            disk_free_bytes: environment.disk.free_bytes(&environment.paths.directory).ok(),
        };
        latest.take(observation, machine);
    }
}
