//! The thread of a standby that applies redo (`mrp0`).
//!
//! Redo that cannot be read, because an archived log is damaged or missing, does not end the thread: the log may be
//! repaired while the instance runs, and reading then resumes. Any other error that concerns all databases ends apply
//! until the next start.

use crate::applier::Applier;
use crate::standby_shared::StandbyShared;
use crate::stopped::ALL;
use standfast_apply::{ApplyError, Limits};
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::environment::Environment;
use standfast_instruments::{Event, waiting};
use standfast_types::{APPLY_BEHIND_BYTES, Hint};
use std::sync::Arc;
use std::time::{Duration, Instant};

const SYNC_EVERY: Duration = Duration::from_secs(1);
const RETRY_APPLY: Duration = Duration::from_secs(5);
/// Interval between attempts to read redo that cannot be read.
const RETRY_READ: Duration = Duration::from_secs(1);
/// Under load, redo that arrives within this time is applied together: pages that many transactions change are written
/// once, and apply takes less from the device and the processors that acknowledgements need. It is also the most that
/// apply lags behind when it has nothing else to do.
const APPLY_TOGETHER: Duration = Duration::from_millis(4);
/// Applying takes long when the redo is spread over many databases. Apply then rests this many times as long as it
/// worked, so that more redo comes together and apply takes a small part of a processor from waiting threads.
const APPLY_REST: u32 = 8;
/// Longest rest, however long apply has worked.
const APPLY_TOGETHER_MAX: Duration = Duration::from_millis(40);
/// Interval, during a rest, at which a chunk of what apply has written is handed to the disk.
const WRITE_BACK_INTERVAL: Duration = Duration::from_millis(4);

/// Applies until the standby is stopped; returns the applier, for a failover.
///
/// # Errors
/// The error that ended apply.
pub(crate) fn run_apply(
    environment: &Arc<Environment>,
    shared: &Arc<StandbyShared>,
    applier: Applier,
) -> Result<Applier, InstanceError> {
    // SAFETY: PR_SET_TIMERSLACK takes one integer and concerns this thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    shared.control_apply(environment.config.standby.apply, false);
    let result = recovered(environment, shared, applier).and_then(|mut applier| {
        apply_until_stopped(environment, shared, &mut applier)?;
        Ok(applier)
    });
    if let Err(error) = &result {
        if !shared.is_stopping() {
            environment.alert.say(format!("apply has ended: {}", error.in_one_line()));
        }
        shared.stopped.add(ALL, Some(shared.applied()), error.for_terminal());
        shared.stopped.are_known();
        // The receiver continues: what it hardens is not lost.
        while !shared.is_stopping() {
            shared.wait_for_changes(Duration::from_secs(1));
        }
    }
    result
}

/// Recovers. While the redo for it cannot be read, opens everything again as a start does and retries.
fn recovered(
    environment: &Arc<Environment>,
    shared: &Arc<StandbyShared>,
    mut applier: Applier,
) -> Result<Applier, InstanceError> {
    loop {
        match applier.recover() {
            Ok(()) => {
                redo_is_read(environment, shared);
                return Ok(applier);
            }
            Err(error) if is_of_reading(&error) && !shared.is_stopping() => {
                redo_is_not_read(environment, shared, &error);
                shared.stopped.are_known();
                drop(applier);
                shared.let_more_come(RETRY_APPLY);
                applier = Applier::open(environment, shared, Limits::default())?;
            }
            Err(error) => return Err(error),
        }
    }
}

fn is_of_reading(error: &InstanceError) -> bool {
    matches!(error, InstanceError::Log(_) | InstanceError::Apply(ApplyError::Source { .. }))
}

fn redo_is_not_read(environment: &Environment, shared: &StandbyShared, error: &InstanceError) {
    if shared.stopped.add(ALL, Some(shared.applied()), error.for_terminal()) {
        environment.alert.say(format!("apply waits for redo that cannot be read: {}", error.in_one_line()));
    }
}

/// Clears the wait for redo that could not be read, and reports that it is over.
pub fn redo_is_read(environment: &Environment, shared: &StandbyShared) {
    if !shared.stopped.remove(|name| name == ALL).is_empty() {
        environment.alert.say("apply: the redo can be read again");
    }
}

fn apply_until_stopped(
    environment: &Environment,
    shared: &StandbyShared,
    applier: &mut Applier,
) -> Result<(), InstanceError> {
    let mut last_sync = Instant::now();
    let mut retry_at = Instant::now() + RETRY_APPLY;
    let mut dirty = true;
    let mut reported = false;
    while !shared.is_stopping() {
        if !shared.apply_is_on() {
            applier.leave_moved()?;
            shared.wait_for_changes(SYNC_EVERY);
            continue;
        }
        let began = Instant::now();
        let step = match applier.step() {
            Ok(progressed) => {
                redo_is_read(environment, shared);
                Some(progressed)
            }
            Err(error) if is_of_reading(&error) => {
                redo_is_not_read(environment, shared, &error);
                None
            }
            Err(error) => return Err(error),
        };
        let progressed = step == Some(true);
        dirty |= progressed;
        if dirty && last_sync.elapsed() >= SYNC_EVERY {
            dirty = progressed;
            last_sync = Instant::now();
            let synced = applier.sync();
            dirty |= applier.is_unsynced();
            match synced {
                // Error of the control file. Everything is applied and synced nevertheless; only the earlier logs are
                // not freed.
                Err(error @ InstanceError::Io { .. }) => {
                    dirty = true;
                    if !reported {
                        let alert = &environment.alert;
                        let error = error.in_one_line();
                        alert.say(format!("standby logs stay occupied until it can be written: {error}"));
                    }
                    reported = true;
                }
                result => {
                    result?;
                    reported = false;
                }
            }
        }
        if Instant::now() >= retry_at && !shared.stopped.is_empty() {
            retry_at = Instant::now() + RETRY_APPLY;
            match applier.retry() {
                Err(error) if is_of_reading(&error) => redo_is_not_read(environment, shared, &error),
                result => result?,
            }
        }
        if step.is_none() {
            let _wait = waiting(Event::RecoveryIdle);
            shared.let_more_come(RETRY_READ);
        } else if !progressed {
            let idle = if dirty { SYNC_EVERY } else { Duration::from_secs(5) };
            let held_back = applier.wait();
            let _wait =
                waiting(if held_back.is_some() { Event::RecoveryApplyDelay } else { Event::RecoveryIdle });
            shared.wait_for_changes(held_back.map_or(idle, |due| due.min(idle)));
        } else if applier.backlog() < APPLY_BEHIND_BYTES {
            rest(shared, applier, (began.elapsed() * APPLY_REST).clamp(APPLY_TOGETHER, APPLY_TOGETHER_MAX));
        }
    }
    Ok(())
}

/// Waits for more redo, and meanwhile hands what was applied to the disk incrementally: written in one go it would hold
/// up the next write of the standby log, which commits wait for.
fn rest(shared: &StandbyShared, applier: &mut Applier, time: Duration) {
    let until = Instant::now() + time;
    loop {
        let interval = if applier.write_back() { WRITE_BACK_INTERVAL } else { time };
        let left = until.saturating_duration_since(Instant::now());
        let wait = waiting(Event::RecoveryIdle);
        shared.let_more_come(interval.min(left));
        drop(wait);
        if left <= interval || shared.is_stopping() {
            return;
        }
    }
}
