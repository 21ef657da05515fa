//! `standfast verify`: compares the pages of the standbys with those here.
//!
//! A thread reads the pages of each database at a limited rate and puts their checksums into the redo, at a position
//! where they are valid (`primary/verification.rs`). Each standby compares when it applies that record, whatever its
//! network or lag, and reports differences before it acknowledges the position. So a comparison needs neither locks nor
//! coordination between instances, and commits continue. See `docs/decisions/0050-verification-in-the-redo.md`.
//!
//! [`Verification`] begins and ends runs, on demand or by `schedule`. A `run` puts `pages` into the redo, waits for the
//! `standbys`, and sends what differs (`repair`); `report` shows progress and findings.

mod pages;
mod repair;
mod report;
mod run;
mod schedule;
mod standbys;
mod start;

pub(crate) use standbys::differing_page;

use standfast_documents::verification::VerificationRun;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Pause between attempts, and between checks of what standbys have applied.
const PAUSE: Duration = Duration::from_millis(20);
/// Pages that change while they are read are read again this many times; apply compares pages that change constantly.
const ROUNDS: usize = 3;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Database by name or path; `None`: all.
    pub database: Option<String>,
    /// Send pages that differ to the standbys.
    pub repair: bool,
    /// Bytes read per second; `None`: as configured.
    pub bytes_per_s: Option<u64>,
    /// The run was started by the schedule.
    pub scheduled: bool,
}

/// The newest verification run of an instance.
#[derive(Default)]
pub struct Verification {
    progress: Mutex<Option<VerificationRun>>,
    stop: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Verification {
    /// Returns the progress of the newest run; `None` before the first.
    pub fn progress(&self) -> Option<VerificationRun> {
        self.lock().clone()
    }

    /// Ends the run in progress and prevents further runs.
    pub fn stop(&self) {
        self.stop.store(true, SeqCst);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The last owner of the instance may be that thread itself.
        if let Some(thread) = thread.filter(|thread| thread.thread().id() != std::thread::current().id()) {
            // The runtime has already reported a panic.
            let _ = thread.join();
        }
    }

    /// Ends the run in progress, because its primary ends.
    pub fn interrupt(&self) {
        let stopped = self.stop.swap(true, SeqCst);
        self.stop();
        self.stop.store(stopped, SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, Option<VerificationRun>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut VerificationRun)) {
        if let Some(progress) = self.lock().as_mut() {
            change(progress);
        }
    }
}
