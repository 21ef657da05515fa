//! Snapshot standby: applications write to copies of a standby's databases, while the standby receives redo as before
//! (`CONVERT DATABASE`).

use crate::role::running::{Mode, Running, RunningStandby};
use standfast_environment::config::error::InstanceError;
use standfast_environment::state::control::{Control, SnapshotStandby};
use standfast_environment::state::now::now_us;
use standfast_instruments::{Event, Statistic};
use standfast_io::fault::{self, Fault};
use standfast_standby::applier::Applier;
use standfast_standby::set_aside;
use standfast_types::{Hint, Scn};

/// What a conversion has done.
#[derive(Clone, Copy, Debug)]
pub struct Converted {
    pub databases: usize,
    /// Of the copies that applications write to from now on.
    pub copied_bytes: u64,
    /// Redo to apply from now on, bytes.
    pub to_apply: u64,
}

impl Running {
    /// Makes this standby a snapshot standby: its databases can be written to, and it applies no redo.
    ///
    /// # Errors
    /// `Refused` when it is no standby that applies redo to all databases, or fast-start failover may choose it; otherwise the
    /// error of the disk. It is the standby that it was, then.
    pub fn open_snapshot_standby(&self) -> Result<Converted, InstanceError> {
        let _one = self.one_command();
        self.may_be_snapshot()?;
        let environment = &self.environment;
        let (applied, bytes_per_s) = match &*self.mode() {
            Mode::Standby(standby) => (standby.standby.shared().applied(), self.apply_bytes_per_s()),
            _ => return Err(no_standby()),
        };
        environment.alert.say("becoming a snapshot standby");
        let snapshot =
            SnapshotStandby { since_us: now_us(), applied, is_open: false, apply_bytes_per_s: bytes_per_s };
        self.step()?;
        environment.update_control(|control| control.snapshot = Some(snapshot))?;
        let opened = self.copy_databases().and_then(|copied_bytes| {
            self.close_standby()?;
            self.set_files_aside().map(|databases| Converted { databases, copied_bytes, to_apply: 0 })
        });
        match opened {
            Ok(converted) => {
                self.open_as_standby_or_stuck()?;
                environment.alert.say(format!(
                    "snapshot standby: {} databases can be written to; redo is received and not applied",
                    converted.databases
                ));
                Ok(converted)
            }
            Err(error) => {
                environment.alert.say(format!("no snapshot standby: {}", error.in_one_line()));
                // Nothing but copies was made.
                if matches!(&*self.mode(), Mode::Standby(_)) {
                    if let Err(second) = self.bring_files_back() {
                        environment.alert.say(second.in_one_line());
                    }
                    return Err(error);
                }
                self.open_as_standby_or_stuck()?;
                Err(error)
            }
        }
    }

    /// Makes this snapshot standby a physical standby again: what was written to its databases is discarded, and the redo that
    /// has arrived is applied.
    ///
    /// # Errors
    /// `Refused` when it is none; otherwise the error of the disk: a restart continues then.
    pub fn close_snapshot_standby(&self) -> Result<Converted, InstanceError> {
        let _one = self.one_command();
        let environment = &self.environment;
        let (to_apply, databases) =
            match (&*self.mode(), environment.of_control(|control| control.snapshot.clone())) {
                (Mode::Standby(standby), Some(snapshot)) => {
                    let confirmed = standby.standby.shared().confirmed();
                    (confirmed.0.saturating_sub(snapshot.applied.0), environment.control().databases.len())
                }
                _ => {
                    return Err(InstanceError::refused(
                        "this instance is no snapshot standby",
                        "`standfast status` shows what it is",
                    ));
                }
            };
        environment
            .alert
            .say("becoming a physical standby again: what was written to its databases is discarded");
        self.step()?;
        environment.update_control(|control| {
            if let Some(snapshot) = &mut control.snapshot {
                snapshot.is_open = false;
            }
        })?;
        let closed = self.close_standby();
        self.open_as_standby_or_stuck()?;
        closed.map(|()| Converted { databases, copied_bytes: 0, to_apply })
    }

    fn may_be_snapshot(&self) -> Result<(), InstanceError> {
        match &*self.mode() {
            Mode::Standby(standby) => {
                if self.environment.of_control(|control| control.snapshot.is_some()) {
                    return Err(InstanceError::refused(
                        "this instance is a snapshot standby already",
                        "`standfast convert physical-standby` makes it a physical standby again",
                    ));
                }
                if let Some(stopped) = standby.standby.shared().stopped().databases.first() {
                    return Err(InstanceError::refused(
                        format!("redo is not applied to database {}: {}", stopped.database, stopped.reason),
                        "a copy would hold an earlier state: resolve that first",
                    ));
                }
            }
            _ => return Err(no_standby()),
        }
        if self.role_change().fast_start_failover.is_enabled() {
            return Err(InstanceError::refused(
                "fast-start failover is enabled, and a snapshot standby cannot take over",
                "disable it at the primary with `standfast dg disable fast_start failover`",
            ));
        }
        Ok(())
    }

    fn copy_databases(&self) -> Result<u64, InstanceError> {
        let shared = match &*self.mode() {
            Mode::Standby(standby) => standby.standby.shared().clone(),
            _ => return Err(no_standby()),
        };
        // The copies are of one moment.
        shared.control_apply(false, false);
        let copied = self.environment.control().databases.iter().try_fold(0, |sum, record| {
            let bytes = set_aside::copy(&self.environment, &shared, record)?;
            self.environment.alert.say(format!("database {}: copied, {bytes} bytes", record.name));
            Ok(sum + bytes)
        });
        if copied.is_err() {
            shared.control_apply(true, false);
        }
        copied
    }

    fn step(&self) -> Result<(), InstanceError> {
        let directory = &self.environment.paths.directory;
        fault::check(Fault::Convert).map_err(InstanceError::io("convert the standby in", directory))
    }

    /// Ends this standby, which is opened again. The databases are at rest then.
    fn close_standby(&self) -> Result<(), InstanceError> {
        self.step()?;
        let Mode::Standby(standby) = std::mem::replace(&mut *self.mode(), Mode::Changing) else {
            return Err(no_standby());
        };
        if let Some(receiver) = self.receiver().as_ref() {
            receiver.detach();
        }
        let RunningStandby { standby, segment, forwarding, .. } = *standby;
        forwarding.stop();
        segment.set_running(false, &self.environment.segment_config());
        standby.stop()?.map_or(Ok(()), Applier::rest)
    }

    fn set_files_aside(&self) -> Result<usize, InstanceError> {
        let environment = &self.environment;
        let control = environment.control();
        for record in &control.databases {
            environment.remove_marker(record)?;
            set_aside::open(record)?;
        }
        self.step()?;
        environment.update_control(|control| {
            if let Some(snapshot) = &mut control.snapshot {
                snapshot.is_open = true;
            }
        })?;
        Ok(control.databases.len())
    }

    /// Before the databases of a standby are opened: brings files back that were set aside for a snapshot standby, unless it
    /// is one.
    ///
    /// # Errors
    /// When a file cannot be renamed or removed.
    pub(crate) fn bring_files_back(&self) -> Result<(), InstanceError> {
        let environment = &self.environment;
        let changes = |control: &Control| control.snapshot.as_ref().is_some_and(|snapshot| !snapshot.is_open);
        if !environment.of_control(changes) {
            return Ok(());
        }
        for record in &environment.control().databases {
            set_aside::bring_back(record)?;
        }
        self.step()?;
        environment.update_control(|control| control.snapshot = None)
    }

    fn open_as_standby_or_stuck(&self) -> Result<(), InstanceError> {
        self.open_as_standby().map_err(|error| self.stuck(&error))
    }

    /// Redo that apply has taken in a second of work since the start, bytes; `None`: too little to say.
    fn apply_bytes_per_s(&self) -> Option<u64> {
        let instruments = &self.environment.instruments;
        let worked_ns = instruments.event(Event::RecoveryApply).time_ns;
        let applied = instruments.statistic(Statistic::RedoApplied);
        let seconds = worked_ns as f64 / 1e9;
        (seconds >= 0.1 && applied > 0).then(|| (applied as f64 / seconds) as u64)
    }
}

/// Seconds that it takes to apply `bytes` of redo; `None`: not known.
pub fn seconds_to_apply(snapshot: &SnapshotStandby, confirmed: Scn) -> Option<f64> {
    let rate = snapshot.apply_bytes_per_s.filter(|rate| *rate > 0)?;
    Some(confirmed.0.saturating_sub(snapshot.applied.0) as f64 / rate as f64)
}

fn no_standby() -> InstanceError {
    InstanceError::refused("this instance is not open as a standby", "`standfast status` shows what it is")
}
