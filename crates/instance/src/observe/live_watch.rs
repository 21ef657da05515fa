//! The thread `live` observes the instance once a second. It checks thresholds against the observation, and the HTTP
//! server serves its pages from it: however many clients load pages, the instance is observed once a second.

use crate::observe::http::HttpServer;
use crate::observe::latest::Latest;
use crate::observe::watchers::Watchers;
use crate::role::running::Running;
use standfast_environment::config::error::InstanceError;
use standfast_instruments::Observation;
use standfast_live::{Machine, Thresholds, Watch};
use std::sync::Arc;
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(1);

/// The thread `live` and the HTTP server that serves its observations.
pub struct LiveWatch {
    _http: Option<HttpServer>,
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
        Ok(LiveWatch { _http: http, _thread: thread })
    }
}

/// Makes one observation. The expensive parts are collected only when the HTTP server runs.
fn look(running: &Running, latest: &Latest, serves: bool, thresholds: &mut Watch) {
    let environment = &running.environment;
    let observation = if serves {
        Observation {
            history: running.history().recent(),
            ..crate::observe::observation::at_a_glance(running)
        }
    } else {
        Observation { status: crate::observe::status::status(running), ..Observation::default() }
    };
    let status = &observation.status;
    let name = &environment.config.instance.name;
    for line in thresholds.look(name, status, &Thresholds::of(status)) {
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
