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

pub use report::{DatabaseResult, DestinationResult, Outcome, Progress};

use crate::error::InstanceError;
use crate::now_us;
use crate::running::{Running, RunningPrimary};
use run::Run;
use schedule::{Schedule, next_run};
use standbys::standbys;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
    progress: Mutex<Option<Progress>>,
    stop: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Verification {
    /// Progress of the newest run.
    pub fn progress(&self) -> Option<Progress> {
        self.lock().clone()
    }

    /// Begins a run; returns its number.
    ///
    /// # Errors
    /// `Refused` when a run is in progress, there is no such database or no standby, or the instance is not a primary.
    pub fn begin(
        &self,
        running: &Running,
        primary: Arc<RunningPrimary>,
        wanted: &Wanted,
    ) -> Result<u64, InstanceError> {
        let control = running.environment.control();
        let records = match &wanted.database {
            None => control.databases.clone(),
            Some(name) => vec![control.find_database(name)?.clone()],
        };
        if standbys(&primary).is_empty() {
            let hint = "add one with `standfast destination add NAME HOST:PORT`";
            return Err(InstanceError::refused("there is no standby to compare with", hint));
        }
        if wanted.bytes_per_s == Some(0) {
            return Err(InstanceError::refused(
                "nothing is read at a rate of 0",
                "give --rate a number of bytes",
            ));
        }
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.as_ref().is_some_and(|thread| !thread.is_finished()) || self.stop.load(SeqCst) {
            let hint = "`standfast status` shows how far it is; try again when it has ended";
            return Err(InstanceError::refused("a verification is in progress", hint));
        }
        let run = now_us();
        *self.lock() = Some(Progress {
            run,
            state: "reading",
            ended_us: None,
            scheduled: wanted.scheduled,
            repair: wanted.repair,
            pages: 0,
            pages_read: 0,
            failure: None,
            databases: Vec::new(),
        });
        let Some(me) = running.me() else { return Ok(run) };
        let bytes_per_s = wanted.bytes_per_s.unwrap_or(me.environment.config.verify.bytes_per_s);
        let (repair, instruments) = (wanted.repair, me.environment.instruments.clone());
        let work = move || {
            instruments.enter_thread("vrfy");
            standfast_io::behind::run_behind();
            let run = Run { running: &me, primary: &primary, run, bytes_per_s, repair };
            let ended = run.carry_out(&records);
            run.end(ended);
        };
        let begun = std::thread::Builder::new().name("vrfy".into()).spawn(work);
        *thread = Some(begun.map_err(InstanceError::io(
            "begin the thread that verifies databases of",
            &running.environment.paths.directory,
        ))?);
        Ok(run)
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

    /// Begins a run when the schedule says so. Called periodically.
    pub fn look(&self, running: &Running) {
        let config = &running.environment.config.verify;
        let Some(primary) = running.primary().filter(|_| config.every_hours > 0) else { return };
        let every_us = config.every_hours * 3_600_000_000;
        let due = running.environment.of_control(|control| control.verify_due_us);
        let now = now_us();
        match next_run(due, now, every_us) {
            Schedule::Later => return,
            Schedule::Due => {
                let wanted = Wanted { scheduled: true, ..Wanted::default() };
                // Without a standby, or while a run is in progress, this run is skipped.
                let _ = self.begin(running, primary, &wanted);
            }
            Schedule::Unknown => {}
        }
        // If this cannot be written, the next check tries again.
        let _ = running.environment.update_control(|control| control.verify_due_us = Some(now + every_us));
    }

    fn lock(&self) -> MutexGuard<'_, Option<Progress>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut Progress)) {
        if let Some(progress) = self.lock().as_mut() {
            change(progress);
        }
    }
}
