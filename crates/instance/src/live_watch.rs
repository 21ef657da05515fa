//! The thread `live` looks at the instance once a second: thresholds are watched by it, and the
//! HTTP server shows what it saw. However many look at pages, the instance is asked once a second.

use crate::error::InstanceError;
use crate::http::HttpServer;
use crate::running::Running;
use crate::watchers::Watchers;
use standfast_instruments::Observation;
use standfast_live::{Dashboard, Looks, Machine, Severity, Status, Thresholds, Watch, metrics};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often it looks.
const EVERY: Duration = Duration::from_secs(1);

/// What was seen last, and what rates need of before.
pub struct Live {
    observation: Observation,
    looks: Looks,
    machine: Machine,
}

impl Live {
    /// The dashboard.
    pub fn dashboard(&self) -> Dashboard {
        Dashboard::of(&self.observation, &self.looks, &self.machine)
    }

    /// The metrics.
    pub fn exposition(&self) -> String {
        let estimate = self.looks.estimate(&self.observation);
        metrics::exposition(metrics::families(&self.observation, &estimate))
    }

    /// How it is, in a line that names the instance.
    pub fn check(&self) -> (Severity, String) {
        let status = Status::of(&self.observation.status);
        standfast_live::line(&self.observation.name, &status, &Thresholds::of(&status))
    }
}

/// Of the newest look.
#[derive(Default)]
pub struct Latest(Mutex<Option<Live>>);

impl Latest {
    /// Shows it; `None` before the first look.
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

/// The thread, and the HTTP server that shows what it sees.
pub struct LiveWatch {
    http: Option<HttpServer>,
    /// Ends with this.
    _thread: Watchers,
}

impl LiveWatch {
    /// Starts both over an instance.
    ///
    /// # Errors
    /// When the configured address cannot be served, or a thread not be started.
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

    /// Where pages are served, if they are.
    pub fn http_address(&self) -> Option<String> {
        self.http.as_ref().map(|http| http.address().to_string())
    }
}

/// What is long is only asked for when somebody may look at it.
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
