//! Failover: makes a standby the primary.

use super::shared_configuration::ADD;
use super::{Mode, Running, RunningStandby};
use crate::role::failover::{self, OfflineDatabase};
use crate::role::{drain, far_sync};
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::shared_configuration::SharedConfiguration;
use standfast_environment::state::control::Role;
use standfast_environment::state::descriptors;
use standfast_standby::known_complete;
use standfast_transport::Right;
use standfast_types::{Hint, Scn, hint};
use std::time::{Duration, Instant};

/// How an operator wants a failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailoverOptions {
    /// How long to wait for redo that the source still has.
    pub timeout: Duration,
    /// Even if databases have to be excluded.
    pub immediate: bool,
    /// Even if the primary is alive.
    pub force: bool,
}

impl Default for FailoverOptions {
    fn default() -> Self {
        FailoverOptions { timeout: drain::TIMEOUT, immediate: false, force: false }
    }
}

pub struct TakenOver {
    pub branch: Scn,
    /// Whether all redo arrived that the source still had, with a description; `None` if its source was a primary.
    pub drained: Option<(bool, String)>,
    /// Whether everything that the primary acknowledged is here, with a description; `None` when that is certain.
    pub known: Option<(bool, String)>,
    /// Databases that stay offline because they lack redo.
    pub offline: Vec<OfflineDatabase>,
    /// Databases, as text, whose pages differed from the primary's at the last comparison; they are served.
    pub differing: Vec<String>,
}

impl Running {
    /// Makes this standby the primary, including what its source still has.
    ///
    /// # Errors
    /// When this is not a standby, when the failover cannot be completed, when a database would be excluded, or when the
    /// primary is heard; see [`failover`].
    pub fn failover(&self, options: FailoverOptions) -> Result<TakenOver, InstanceError> {
        let FailoverOptions { timeout, immediate, force } = options;
        self.check_right()?;
        if self.environment.of_control(|control| control.snapshot.is_some()) {
            if !force {
                self.refuse_while_heard()?;
            }
            self.close_snapshot_standby()?;
        }
        let mut has_all = false;
        if !force {
            self.refuse_while_heard()?;
            has_all = self.claim_primary_place()?;
        }
        let known = if has_all { None } else { self.known_complete() };
        let drained = self.drain(timeout);
        let TakenOver { branch, offline, differing, .. } = self.promote(immediate, false)?;
        Ok(TakenOver { branch, drained, known, offline, differing })
    }

    /// Configures what the new primary ships to after a failover. Commits wait for none of them before it has caught up.
    fn continue_as_primary(&self, shared: Option<&SharedConfiguration>) {
        let what = match shared {
            None => "the configuration of the old primary has not come here: its other standbys get no redo"
                .into(),
            Some(shared) => {
                let _one = self.one_command();
                let continued = self.change_settings(|changeable| {
                    self.continue_configuration(shared, changeable);
                    Ok(())
                });
                let Err(error) = continued else { return };
                let why = error.as_a_reason();
                format!(
                    "the other standbys of the old primary cannot be configured here and get no redo: {why}"
                )
            }
        };
        self.environment.alert.say(hint::in_one_line(what, Some(ADD)));
    }

    /// Makes this standby the primary with what is here. `immediate`: even if databases have to be excluded. `handed_over`:
    /// by the old primary, whose protection mode continues.
    ///
    /// # Errors
    /// Those of [`Running::failover`].
    pub(crate) fn promote(&self, immediate: bool, handed_over: bool) -> Result<TakenOver, InstanceError> {
        let mut mode = self.mode();
        match &*mode {
            Mode::Standby(_) => descriptors::check_failover(self.environment.control().databases.len())?,
            Mode::Primary(_) => {
                return Err(InstanceError::refused("this instance is the primary already", "nothing to do"));
            }
            Mode::Stuck(why) => return Err(failover::stuck(why)),
            Mode::FarSync(_) => return Err(far_sync::has_no_databases()),
            _ => return Err(InstanceError::refused("this instance is no standby", "fail over another one")),
        }
        let Mode::Standby(standby) = std::mem::replace(&mut *mode, Mode::Changing) else {
            return Err(InstanceError::Failed("the role changed meanwhile".into()));
        };
        drop(mode);
        self.environment.alert.say(if handed_over { "taking over" } else { "failover begins" });
        // Of the incarnation that ends here.
        let kept = self.current_configuration();
        // A file that was replaced while open must not become a database of the new primary.
        self.environment.places.look();
        if let Some(receiver) = self.receiver().as_ref() {
            receiver.detach();
        }
        self.environment.tell_standby_sessions(None);
        let RunningStandby { standby, log, segment: _segment, forwarding } = *standby;
        // Before everything received counts as confirmed: its last record may be incomplete, and destinations must not
        // treat that as confirmed.
        forwarding.stop();
        let done = failover::become_primary(&self.environment, standby, &log, immediate, handed_over);
        drop(log);
        let done = done.map_err(|error| self.standby_again(&error))?;
        if !handed_over {
            self.continue_as_primary(kept.as_ref());
        }
        // From when this instance was a primary before.
        self.environment.commit_hold.set(None);
        if let Err(error) = self.open_as_primary() {
            let fenced = matches!(&*self.mode(), Mode::Fenced(_));
            return Err(if fenced { error } else { self.stuck(&error) });
        }
        drop(done.keepers);
        // Opening has tried once more to roll them forward.
        let still_offline = self.environment.of_control(|control| {
            let offline = control.databases.iter().filter(|record| control.offline_from(record.id).is_some());
            offline.map(|record| record.name.clone()).collect::<Vec<_>>()
        });
        let offline =
            done.offline.into_iter().filter(|database| still_offline.contains(&database.database)).collect();
        self.environment.alert.say(format!(
            "failover complete: primary of incarnation {} from SCN {}",
            self.environment.control().incarnation().number,
            done.branch
        ));
        Ok(TakenOver { branch: done.branch, drained: None, known: None, offline, differing: done.differing })
    }

    /// Refuses an instance without the right to become primary: the others would not trust its claim, and there would
    /// be two primaries.
    pub(crate) fn check_right(&self) -> Result<(), InstanceError> {
        let name = &self.environment.config.instance.name;
        match self.environment.keeper.own_rights() {
            Some(rights) if !rights.has(Right::Candidate) => Err(InstanceError::refused(
                format!("`{name}` may not become primary: its family lists it for: {rights}"),
                format!(
                    "fail over another standby; if this one is to take over, `standfast cert allow {name}` here and at every \
                     other instance that is left, and try again"
                ),
            )),
            _ => Ok(()),
        }
    }

    /// After a failed failover: continues as the standby that the control file still records, as after a restart.
    /// Returns the error for the operator.
    fn standby_again(&self, error: &InstanceError) -> InstanceError {
        match failover::is_still_standby(&self.environment).and_then(|()| self.open_as_standby()) {
            Ok(()) => {
                let reported = failover::failed(error);
                self.environment.alert.say(reported.in_one_line());
                reported
            }
            Err(second) => {
                let (first, second) = (error.as_a_reason(), second.as_a_reason());
                self.stuck(&InstanceError::Failed(format!("{first}; and as a standby: {second}")))
            }
        }
    }

    pub(crate) fn stuck(&self, error: &InstanceError) -> InstanceError {
        let reported = failover::stuck(&error.as_a_reason());
        self.environment.alert.say(reported.in_one_line());
        *self.mode() = Mode::Stuck(error.as_a_reason());
        reported
    }
}

impl Running {
    /// Determines what is known of the redo that the primary has acknowledged, before a failover ends the stream.
    /// `None` when everything is here, or the source is not a primary.
    pub(crate) fn known_complete(&self) -> Option<(bool, String)> {
        let upstream = self.environment.control().upstream;
        let is_primary = |role: standfast_transport::Role| role == Role::Primary.of_peer();
        if upstream.as_ref().is_some_and(|upstream| !is_primary(upstream.role)) {
            return None;
        }
        let heard = match &*self.mode() {
            Mode::Standby(standby) => {
                let shared = standby.standby.shared();
                let report = *shared.report();
                shared.completeness().at(report, Instant::now())
            }
            _ => return None,
        };
        let known = known_complete::judge(&heard);
        let source = upstream.map_or("the primary".to_owned(), |upstream| upstream.name);
        let text = known.text(&source)?;
        self.environment.alert.say(format!("failover: {text}"));
        Some((known.is_complete(), text))
    }
}
