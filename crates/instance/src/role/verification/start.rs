//! Begins runs, on demand or by schedule.

use super::run::Run;
use super::schedule::{Schedule, next_run};
use super::standbys::standbys;
use super::{Verification, Wanted};
use crate::role::running::{Running, RunningPrimary};
use standfast_documents::verification::{RunState, VerificationRun};
use standfast_environment::config::error::InstanceError;
use standfast_environment::state::now::now_us;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError};

impl Verification {
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
        *self.lock() = Some(VerificationRun {
            run,
            state: RunState::Reading,
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
}

impl Running {
    /// Begins a verification against the standbys; returns the number of the run.
    ///
    /// # Errors
    /// See [`Verification::begin`], and when this instance is not a primary.
    pub fn verify(&self, wanted: &Wanted) -> Result<u64, InstanceError> {
        // Releases the command lock immediately: a run takes long.
        self.with_primary(|_| Ok(()))?;
        match self.primary() {
            Some(primary) => self.verification().begin(self, primary, wanted),
            None => Err(InstanceError::refused("the instance is changing its role", "try again in a moment")),
        }
    }
}
