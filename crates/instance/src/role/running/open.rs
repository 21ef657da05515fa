//! Opens an instance in its role.

use super::{Mode, Running, RunningPrimary, RunningStandby, fenced_error, late};
use crate::role::far_sync::FarSync;
use crate::role::fast_start::state::UNCONFIRMED;
use crate::role::protection;
use standfast_environment::config::error::InstanceError;
use standfast_environment::state::control::Role;
use standfast_environment::state::descriptors;
use standfast_primary::open::foreign_watch;
use standfast_primary::open::open_primary::{OpenedPrimary, open_primary};
use standfast_primary::open::primary_threads::{PrimaryThreads, Wiring};
use standfast_primary::ship::redo_source::PrimarySource;
use standfast_session::{DatabaseState, FileId};
use standfast_standby::forwarding::Forwarding;
use standfast_standby::received_log::LentLog;
use standfast_standby::standby::Standby;
use standfast_transport::StandbyLog;
use standfast_types::{Hint, Scn, hint};
use std::sync::{Arc, Mutex};

impl Running {
    /// Opens the instance in the role in its control file and lets applications in.
    ///
    /// # Errors
    /// When anything it needs cannot be opened.
    pub fn open(&self) -> Result<(), InstanceError> {
        let opened = match self.environment.of_control(|control| control.role) {
            Role::Primary => self.open_as_primary_again(),
            Role::Standby => self.open_as_standby(),
            Role::FarSync => self.open_as_far_sync(),
        };
        match opened {
            // Handled like a later fence: the instance serves no session and shows the reason until it is stopped.
            Err(_) if matches!(*self.mode(), Mode::Fenced(_)) => Ok(()),
            opened => opened,
        }
    }

    /// Opens the instance as a standby.
    ///
    /// # Errors
    /// When the log or a database cannot be opened, or a thread cannot be started.
    pub(crate) fn open_as_standby(&self) -> Result<(), InstanceError> {
        self.bring_files_back()?;
        let environment = &self.environment;
        let control = environment.control();
        let is_snapshot = control.snapshot.is_some();
        let access = environment.access()?;
        let (segment, _) = access.segment(&environment.segment_path, control.instance.0)?;
        // Before apply begins, which also writes markers when the redo brings a new database: two concurrent writers
        // would lose each other's version of the file.
        environment.tell_standby_sessions(Some(segment));
        for record in &control.databases {
            segment.forget_current(record.id.0);
            // The databases of a snapshot standby have no markers: to applications they are databases like any other.
            if is_snapshot {
                segment.set_state(record.id.0, DatabaseState::Absent);
                continue;
            }
            segment.set_state(record.id.0, DatabaseState::Standby);
            if let Err(error) = environment.write_marker(record, FileId::of(&record.path)) {
                let name = &record.name;
                let what = format!(
                    "database {name}: {error}; programs with the extension take its file here for an unprotected one until \
                     the next start"
                );
                environment.alert.say(hint::in_one_line(what, error.hint().as_deref()));
            }
        }
        let (standby, log) = Standby::start(environment)?;
        let forwarding =
            Forwarding::start(environment, standby.shared(), &self.configured(), self.superseded_call())?;
        segment.set_running(true, &environment.segment_config());
        let log = Arc::new(Mutex::new(log));
        let lent: Box<dyn StandbyLog> = Box::new(LentLog(log.clone()));
        match self.receiver().as_ref() {
            Some(receiver) => receiver.attach(lent),
            None => environment.alert.say("this standby receives nothing: [instance] listen is empty"),
        }
        *self.mode() = Mode::Standby(Box::new(RunningStandby { standby, log, segment, forwarding }));
        if let Err(error) = descriptors::check_failover(control.databases.len()) {
            environment.alert.say(format!("A FAILOVER WILL BE REFUSED: {}", error.in_one_line()));
        }
        environment.alert.say(if is_snapshot { "snapshot standby opened" } else { "standby opened" });
        Ok(())
    }

    /// Opens the instance as the far sync that its control file says it is.
    ///
    /// # Errors
    /// See [`FarSync::start`].
    fn open_as_far_sync(&self) -> Result<(), InstanceError> {
        let environment = &self.environment;
        let (far_sync, log) = FarSync::start(environment, &self.configured(), self.superseded_call())?;
        match self.receiver().as_ref() {
            Some(receiver) => receiver.attach(log),
            None => environment.alert.say("this far sync receives nothing: [instance] listen is empty"),
        }
        *self.mode() = Mode::FarSync(Box::new(far_sync));
        environment.alert.say("far sync opened");
        Ok(())
    }

    /// Opens the instance as the primary that it was. If fast-start failover is enabled, another member may have taken over
    /// meanwhile: no commit returns before the arbiter has confirmed that none has, or the target has the commit.
    ///
    /// # Errors
    /// Those of [`Running::open_as_primary`].
    pub(crate) fn open_as_primary_again(&self) -> Result<(), InstanceError> {
        let is_enabled = self.role_change().fast_start_failover.is_enabled();
        self.environment.commit_hold.set(is_enabled.then_some(UNCONFIRMED));
        self.open_as_primary()
    }

    /// Opens the instance as the primary.
    ///
    /// # Errors
    /// When it is fenced meanwhile, or anything it needs cannot be opened.
    pub(crate) fn open_as_primary(&self) -> Result<(), InstanceError> {
        let environment = &self.environment;
        protection::check(environment.control().protection_mode, &self.configured())?;
        environment.sign_missing_promotion();
        let wiring = Wiring::default();
        let OpenedPrimary { primary, shared, log, late } =
            open_primary(environment, wiring.helper(environment))?;
        // If the reuse of logs depends on destinations, no log is reused until their positions are known.
        let waits = environment.config.redo.archive_min_succeed > 1;
        if waits || self.configured().iter().any(|at| at.mandatory) {
            log.set_reuse_limit(Scn::ZERO);
        }
        let source = Arc::new(PrimarySource::new(environment.clone(), shared.clone(), log.clone()));
        let (held, me) = (source.clone(), self.me.clone());
        let needed_from = Box::new(move || {
            let running = me.upgrade();
            let destinations = running.as_ref().map_or(Scn(u64::MAX), |running| running.needed_from());
            held.held_from().min(destinations)
        });
        let destinations = self.start_destinations(&shared, &source, None)?;
        shared.ship_through(destinations.clone());
        let threads = PrimaryThreads::start(environment, wiring, primary, log, needed_from)?;
        for database in shared.all_databases() {
            match environment.write_marker(database.record(), database.file()) {
                Ok(()) => {
                    foreign_watch::let_sessions_in(environment, &shared.segment, &database);
                }
                // The checkpointer reports it to the sessions of the database. The other databases are served.
                Err(error) => database.fail(error.as_a_reason()),
            }
        }
        shared.segment.set_running(true, &environment.segment_config());
        environment.update_control(|control| control.clean = false)?;
        let opened = RunningPrimary { threads, source, destinations: Mutex::new(destinations) };
        let mut mode = self.mode();
        // A destination may have reported meanwhile that another instance has taken over; the fence then found no
        // primary to end.
        if let Mode::Fenced(why) = &*mode {
            let error = fenced_error(why);
            drop(mode);
            self.end_replaced(&opened);
            return Err(error);
        }
        *mode = Mode::Primary(Arc::new(opened));
        drop(mode);
        self.share_configuration();
        environment.alert.say(format!("primary opened at SCN {}", shared.buffer.captured()));
        late::open_in_turn(&self.me, late).map_err(InstanceError::io(
            "begin the thread that opens late databases in",
            &environment.paths.directory,
        ))?;
        Ok(())
    }
}
