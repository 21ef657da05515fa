//! A run from beginning to end: reads all databases, waits for the standbys and assesses them, then sends pages that
//! differ.

use super::report::summary;
use super::standbys::{assess, standbys};
use super::{PAUSE, Verification};
use crate::role::running::{Running, RunningPrimary};
use standfast_documents::verification::{DatabaseResult, RunState};
use standfast_environment::config::error::InstanceError;
use standfast_environment::state::control::DatabaseRecord;
use standfast_environment::state::now::now_us;
use standfast_transport::DestinationStatus;
use standfast_types::{Hint, Scn};
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// A standby whose apply has not advanced for this long is no longer waited for.
const STANDSTILL: Duration = Duration::from_secs(60);

pub(super) struct Run<'a> {
    pub(super) running: &'a Running,
    pub(super) primary: &'a RunningPrimary,
    pub(super) run: u64,
    pub(super) bytes_per_s: u64,
    pub(super) repair: bool,
}

/// Why a database is not compared, or the whole run ends.
pub(super) enum Obstacle {
    Skipped(String),
    Ended(InstanceError),
}

impl From<InstanceError> for Obstacle {
    fn from(error: InstanceError) -> Obstacle {
        Obstacle::Ended(error)
    }
}

impl Run<'_> {
    pub(super) fn verification(&self) -> &Verification {
        self.running.verification()
    }

    pub(super) fn carry_out(&self, records: &[DatabaseRecord]) -> Result<(), InstanceError> {
        for record in records {
            let mut result = DatabaseResult { name: record.name.clone(), ..DatabaseResult::default() };
            match self.read(record, &mut result) {
                Ok(()) => {}
                Err(Obstacle::Skipped(why)) => result.skipped = Some(why),
                Err(Obstacle::Ended(error)) => return Err(error),
            }
            self.verification().update(|progress| progress.databases.push(result));
        }
        self.set_state(RunState::Waiting);
        self.await_standbys()?;
        self.assess_all();
        if self.repair {
            self.set_state(RunState::Repairing);
            for record in records {
                self.repair(record)?;
            }
            self.assess_all();
        }
        Ok(())
    }

    fn set_state(&self, state: RunState) {
        self.verification().update(|progress| progress.state = state);
    }

    /// Records the result of the run.
    pub(super) fn end(&self, ended: Result<(), InstanceError>) {
        let alert = &self.running.environment.alert;
        let text = match &ended {
            Err(error) => Some(format!("verification has ended: {}", error.in_one_line())),
            Ok(()) => self.verification().progress().map(|progress| summary(&progress)),
        };
        if let Some(text) = text {
            alert.say(text);
        }
        self.verification().update(|progress| {
            progress.ended_us = Some(now_us());
            progress.state = if ended.is_ok() { RunState::Done } else { RunState::Failed };
            progress.failure = ended.err().map(|error| error.for_terminal());
        });
    }

    pub(super) fn check_stop(&self) -> Result<(), InstanceError> {
        match self.verification().stop.load(SeqCst) || self.running.is_stopping() {
            true => Err(InstanceError::Failed("the instance is stopped".into())),
            false => Ok(()),
        }
    }

    /// Waits until every standby has applied all redo of this run, or has stopped advancing.
    fn await_standbys(&self) -> Result<(), InstanceError> {
        let ends = self.verification().progress().into_iter().flat_map(|progress| progress.databases);
        let Some(end) = ends.filter_map(|database| database.scn).max() else { return Ok(()) };
        self.await_applied(end)
    }

    pub(super) fn await_applied(&self, end: Scn) -> Result<(), InstanceError> {
        let mut moved = Instant::now();
        let mut before = Vec::new();
        loop {
            self.check_stop()?;
            let waited_for = |at: &DestinationStatus| {
                let held_back = at.delay.is_some_and(|delay| !delay.is_zero());
                at.applied < end && !held_back && matches!(at.phase, "streaming" | "catching_up")
            };
            let behind: Vec<_> = standbys(self.primary).into_iter().filter(waited_for).collect();
            let positions: Vec<_> = behind.iter().map(|at| (at.name.clone(), at.applied)).collect();
            if positions.is_empty() || moved.elapsed() > STANDSTILL {
                return Ok(());
            }
            if positions != before {
                (moved, before) = (Instant::now(), positions);
            }
            if let Some(failure) = self.primary.threads.failure() {
                return Err(InstanceError::of_text(&failure.why));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Records what the standbys have found so far.
    fn assess_all(&self) {
        let standbys = standbys(self.primary);
        self.verification().update(|progress| {
            for database in &mut progress.databases {
                let Some(scn) = database.scn else { continue };
                let (name, pages) = (&database.name, database.pages);
                let found = standbys.iter().map(|at| assess(at, self.run, name, pages, scn));
                database.destinations = found.collect();
            }
        });
    }
}
