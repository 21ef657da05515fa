//! Snapshots of this instance's counters for reports: one every `snapshot.interval_s`, and on request.
//!
//! MMON takes them on its own thread, at low priority. Commits never wait for a snapshot: it only reads what they
//! count. A repository that cannot be written is reported in the alert log and has no other effect.

use crate::observe::observation::observe;
use crate::role::running::Running;
use serde_json::json;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::{Config, SnapshotConfig};
use standfast_reports::{ReportError, Repository};
use standfast_types::Hint;
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Latest time of the first snapshot after the start: reports begin there, and the standbys have connected by then.
const FIRST: Duration = Duration::from_secs(60);

/// The repository; one snapshot at a time.
#[derive(Default)]
pub struct Snapshots {
    repository: Mutex<Option<Repository>>,
}

impl Snapshots {
    /// Closes the repository, so that it is a single file again.
    pub fn close(&self) {
        *self.repository.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Takes a snapshot now; returns its number.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn take(&self, running: &Running) -> Result<i64, InstanceError> {
        let observation = observe(running, true, true);
        let environment = &running.environment;
        let retention_us = environment.config.snapshot.retention_us();
        let mut repository = self.repository.lock().unwrap_or_else(PoisonError::into_inner);
        let mut open = match repository.take() {
            Some(open) => open,
            None => Repository::open(&path(running)).map_err(report_failed)?,
        };
        let config = Config { destinations: running.configured(), ..environment.config.clone() };
        let id = open.add(&observation, json!(config), retention_us).map_err(report_failed)?;
        // After a failure it is opened again next time: the cause may have been removed meanwhile.
        *repository = Some(open);
        Ok(id)
    }
}

fn path(running: &Running) -> PathBuf {
    running.environment.paths.repository()
}

/// Decides when the next snapshot is due.
#[derive(Debug)]
pub struct Schedule {
    due: Instant,
}

impl Schedule {
    /// Schedule of an instance that was started at `now`.
    pub fn new(now: Instant, config: &SnapshotConfig) -> Schedule {
        Schedule { due: now + FIRST.min(config.interval()) }
    }

    /// Whether a snapshot is due at `now`; the next one is then due an interval later.
    pub fn is_due(&mut self, now: Instant, config: &SnapshotConfig) -> bool {
        if config.interval_s == 0 || now < self.due {
            return false;
        }
        self.due = now + config.interval();
        true
    }
}

#[derive(Default)]
pub struct Monitor {
    schedule: Option<Schedule>,
    reported: bool,
}

impl Monitor {
    /// Takes a snapshot when one is due. Reports a failure once, until a snapshot succeeds.
    pub fn look(&mut self, snapshots: &Snapshots, running: &Running) {
        let config = &running.environment.config.snapshot;
        let schedule = self.schedule.get_or_insert_with(|| {
            standfast_io::behind::run_behind();
            Schedule::new(Instant::now(), config)
        });
        if !schedule.is_due(Instant::now(), config) {
            return;
        }
        if let Some(text) = self.changes_of(snapshots.take(running)) {
            running.environment.alert.say(text);
        }
    }

    /// Text for the alert log, if something is new.
    fn changes_of(&mut self, taken: Result<i64, InstanceError>) -> Option<String> {
        let reported = std::mem::replace(&mut self.reported, taken.is_err());
        let error = taken.err().filter(|_| !reported)?;
        Some(format!(
            "no snapshot can be taken: reports will lack this time, commits continue: {}",
            error.in_one_line()
        ))
    }
}

/// Wraps an error of the repository.
pub fn report_failed(error: ReportError) -> InstanceError {
    let hint = error.hint().map(Cow::into_owned);
    InstanceError::Other { is_usage: error.is_usage(), hint, error: Box::new(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_snapshot_is_due_after_a_minute_then_every_interval() {
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        let config = SnapshotConfig::default();
        let mut schedule = Schedule::new(start, &config);
        assert!(!schedule.is_due(after(59), &config));
        assert!(schedule.is_due(after(60), &config));
        assert!(!schedule.is_due(after(659), &config));
        // Missed snapshots are not taken later.
        assert!(schedule.is_due(after(5_000), &config));
        assert!(!schedule.is_due(after(5_001), &config));
        assert!(schedule.is_due(after(5_600), &config));
    }

    #[test]
    fn unwritable_repository_is_reported_once_until_it_recovers() {
        let mut monitor = Monitor::default();
        let mut tells = |taken: Result<i64, &str>| {
            monitor.changes_of(taken.map_err(|why| InstanceError::Failed(why.into()))).is_some()
        };
        let stated = [Ok(1), Err("full"), Err("full"), Err("full"), Ok(2), Err("full")].map(&mut tells);
        assert_eq!(stated, [false, true, false, false, false, true]);
    }

    #[test]
    fn zero_snapshot_interval_takes_no_snapshots() {
        let start = Instant::now();
        let config = SnapshotConfig { interval_s: 0, ..SnapshotConfig::default() };
        let mut schedule = Schedule::new(start, &config);
        assert!(!schedule.is_due(start + Duration::from_secs(100_000), &config));
    }
}
