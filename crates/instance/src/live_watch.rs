//! The thread `live` looks at the instance once a second: thresholds are watched by it, and the
//! HTTP server shows what it saw. However many look at pages, the instance is asked once a second.

use crate::error::InstanceError;
use crate::http::HttpServer;
use crate::running::Running;
use standfast_instruments::Observation;
use standfast_live::{Dashboard, Looks, Machine, Severity, Status, Thresholds, Watch, metrics};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};
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
        standfast_live::line(&self.observation.name, &status, &Thresholds::default())
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
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
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
            environment.alert.say(format!("HTTP on {}", http.address()));
        }
        let stop: Arc<(Mutex<bool>, Condvar)> = Arc::default();
        let serves = http.is_some();
        let until = stop.clone();
        let run = move || watch(&weak, &latest, &until, serves);
        let thread = Builder::new()
            .name("live".into())
            .spawn(run)
            .map_err(InstanceError::io("begin the thread that looks once a second in", directory))?;
        Ok(LiveWatch { http, stop, thread: Some(thread) })
    }

    /// Where pages are served, if they are.
    pub fn http_address(&self) -> Option<String> {
        self.http.as_ref().map(|http| http.address().to_string())
    }
}

impl Drop for LiveWatch {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        if let Some(thread) =
            self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id())
        {
            // A panic was reported by the runtime.
            let _ = thread.join();
        }
    }
}

fn watch(running: &Weak<Running>, latest: &Latest, stop: &(Mutex<bool>, Condvar), serves: bool) {
    let mut thresholds = Watch::default();
    loop {
        let Some(running) = running.upgrade() else { return };
        look(&running, latest, serves, &mut thresholds);
        drop(running);
        let ended = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = stop.1.wait_timeout_while(ended, EVERY, |ended| !*ended);
        if *waited.unwrap_or_else(PoisonError::into_inner).0 {
            return;
        }
    }
}

/// What is long is only asked for when somebody may look at it.
fn look(running: &Running, latest: &Latest, serves: bool, thresholds: &mut Watch) {
    let environment = &running.environment;
    let observation = if serves {
        Observation { history: running.history().recent(), ..crate::observe::observe(running, false, false) }
    } else {
        Observation { status: crate::status::status(running), ..Observation::default() }
    };
    let status = Status::of(&observation.status);
    let name = &environment.config.instance.name;
    for line in thresholds.look(name, &status, &Thresholds::default()) {
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
