//! Threads that call a function on the instance periodically until it ends.

use crate::role::running::Running;
use standfast_instruments::{Event, waiting};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// A set of such threads. All end when it is dropped.
#[derive(Default)]
pub struct Watchers {
    stop: Arc<(Mutex<bool>, Condvar)>,
    threads: Vec<JoinHandle<()>>,
}

impl Watchers {
    /// Starts a thread that calls `look` at this interval; the first call is one interval after the start.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(
        &mut self,
        name: &'static str,
        every: Duration,
        running: &Weak<Running>,
        mut look: impl FnMut(&Running) + Send + 'static,
    ) -> std::io::Result<()> {
        self.spawn_paced(name, every, running, move |running| {
            look(running);
            every
        })
    }

    /// Starts a thread that calls `look` after the pause `first`, and then after each pause that it returns.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn_paced(
        &mut self,
        name: &'static str,
        first: Duration,
        running: &Weak<Running>,
        mut look: impl FnMut(&Running) -> Duration + Send + 'static,
    ) -> std::io::Result<()> {
        let (running, stop) = (running.clone(), self.stop.clone());
        let instruments = running.upgrade().map(|running| running.environment.instruments.clone());
        let thread = Builder::new().name(name.into()).spawn(move || {
            if let Some(instruments) = instruments {
                instruments.enter_thread(name);
            }
            let mut next = first;
            while pause(&stop, next) {
                let Some(running) = running.upgrade() else { return };
                next = look(&running);
            }
        })?;
        self.threads.push(thread);
        Ok(())
    }
}

/// Waits for `time`; returns false when the thread must end.
fn pause(stop: &(Mutex<bool>, Condvar), time: Duration) -> bool {
    let _idle = waiting(Event::RdbmsIpcMessage);
    let ended = stop.0.lock().unwrap_or_else(PoisonError::into_inner);
    let waited = stop.1.wait_timeout_while(ended, time, |ended| !*ended);
    !*waited.unwrap_or_else(PoisonError::into_inner).0
}

impl Drop for Watchers {
    fn drop(&mut self) {
        *self.stop.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.1.notify_all();
        for thread in self.threads.drain(..) {
            // The last owner of the instance may be one of these threads. The runtime has already reported a panic in
            // another one.
            if thread.thread().id() != std::thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
