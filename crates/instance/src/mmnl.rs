//! The thread `mmnl`: looks once a second and notes what it sees, for lags and for the history.

use crate::error::InstanceError;
use crate::history::Look;
use crate::now_us;
use crate::observe;
use crate::running::Running;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

const EVERY: Duration = Duration::from_secs(1);

/// See the module. Ends when it is dropped.
pub struct Monitor {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Monitor {
    /// Starts the thread.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(running: &Weak<Running>) -> Result<Monitor, InstanceError> {
        let stop: Arc<(Mutex<bool>, Condvar)> = Arc::default();
        let (running, until) = (running.clone(), stop.clone());
        let look_again_and_again = move || {
            while wait(&until) {
                let Some(running) = running.upgrade() else { return };
                look(&running);
            }
        };
        let thread = Builder::new().name("mmnl".into()).spawn(look_again_and_again);
        let thread = thread.map_err(|error| {
            InstanceError::Failed(format!("the thread that notes metrics cannot be started: {error}"))
        })?;
        Ok(Monitor { stop, thread: Some(thread) })
    }
}

impl Drop for Monitor {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        // It may hold the last reference to what drops it.
        let thread = self.thread.take().filter(|thread| thread.thread().id() != std::thread::current().id());
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// False when it is time to end.
fn wait(stop: &(Mutex<bool>, Condvar)) -> bool {
    let ended = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = stop.1.wait_timeout_while(ended, EVERY, |ended| !*ended);
    !*waited.unwrap_or_else(PoisonError::into_inner).0
}

fn look(running: &Running) {
    let time_us = now_us();
    running.note_end(time_us);
    let lags = running.own_lags(time_us);
    let lags = [("transport lag", lags.transport_us), ("apply lag", lags.apply_us)];
    let known = |(name, lag): (&'static str, Option<u64>)| Some((name, lag? as f64 / 1e6));
    running.history().note(Look {
        time_us,
        sample: observe::sample(running),
        activity: observe::activity(running, time_us),
        lags: lags.into_iter().filter_map(known).collect(),
    });
}
