//! Switchover: the primary hands its role to one of its standbys and becomes a standby of it. Nothing is copied, and
//! nothing is lost, whatever the protection mode.
//!
//! Order of events:
//!
//! 1. The standby says that it is ready; the primary has the files of a standby log. Nothing has changed yet.
//! 2. Sessions begin no more write transactions, and running ones end. The redo ends with a record that says so.
//! 3. The standby has all of it. The databases of the primary hold everything.
//! 4. The primary becomes a standby, durably. From here on it acknowledges nothing, also after a restart.
//! 5. The standby takes over: it compares the end of the redo with its own, applies everything, and begins a new
//!    incarnation. It ships to the old primary and to the bystanders.
//!
//! A step before 4 that fails leaves the primary what it was. If the standby refuses in step 5, the old primary takes the
//! role back, in a new incarnation. If the standby does not answer in step 5, both may be standbys, and the operator
//! decides: each has all the redo.

use crate::role::running::{Mode, Running, RunningPrimary};
use crate::role::step_down;
use standfast_documents::Status;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::DestinationConfig;
use standfast_environment::ship::archiving::archive_at_once;
use standfast_environment::ship::destination_groups::Ships;
use standfast_environment::ship::identity::peer_identity;
use standfast_environment::state::control::Role;
use standfast_primary::commit::primary::PrimaryShared;
use standfast_primary::open::primary_threads::RedoEnd;
use standfast_primary::ship::destinations::Destinations;
use standfast_transport::{
    LogGeometry, NotTakenOver, PositionSum, Right, Security, TakeOver, TakeOverAnswer, ask_to_take_over,
    fetch_status,
};
use standfast_types::{Hint, Scn};
use std::time::{Duration, Instant};

/// How long the standby may take to say whether it is ready, and to receive the end of the redo.
const ANSWER: Duration = Duration::from_secs(10);
/// How long the standby may take to apply the redo and become primary.
const TAKE_OVER: Duration = Duration::from_secs(120);
/// How long a standby that did not answer is asked for its role.
const UNKNOWN: Duration = Duration::from_secs(10);
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A switchover that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SwitchedOver {
    pub primary: String,
    /// Where the new incarnation begins.
    pub branch: Scn,
    /// From when sessions waited until the new primary was open.
    pub unavailable: Duration,
}

/// What a switchover needs to know about its target.
struct Target {
    destination: DestinationConfig,
    wish: TakeOver,
    security: Security,
}

impl Target {
    fn name(&self) -> &str {
        &self.destination.name
    }

    fn ask(&self, end: Option<PositionSum>, silence: Duration) -> Result<TakeOverAnswer, NotTakenOver> {
        let wish = TakeOver { end, ..self.wish.clone() };
        ask_to_take_over(&self.destination.address, &self.security, &wish, silence)
    }

    /// Asks for the role of a target whose answer got lost; `None`: unknown.
    fn is_primary(&self) -> Option<bool> {
        let text = fetch_status(&self.destination.address, &self.security, false, ANSWER).ok()?;
        Some(Status::in_observation(&text).ok()?.role? == "primary")
    }
}

/// How the request to take over ended.
enum Outcome {
    TakenOver(Scn),
    /// It is still a standby, and will not take over because of this request.
    Refused(String),
    /// Whether it is the primary is not known; the reason.
    Unknown(String),
}

impl Running {
    /// Hands the role of primary to the destination `target`; see the module. `drain`: how long running write
    /// transactions may take to end; `None`: as configured.
    ///
    /// # Errors
    /// When a step failed; the text says which role this instance has then.
    pub fn switchover(&self, target: &str, drain: Option<Duration>) -> Result<SwitchedOver, InstanceError> {
        self.open_primary()?;
        // Before the lock of commands, which the thread of fast-start failover needs.
        let _suspended = self.suspend_fast_start()?;
        let _one = self.one_command();
        let primary = self.open_primary()?;
        let target = self.find_target(&primary, target)?;
        step_down::prepare(&self.environment, self.is_ready(&target)?)?;
        self.environment.alert.say(format!("switchover to `{}` begins", target.name()));
        let began = Instant::now();
        match primary.threads.end_redo(drain.unwrap_or(self.role_change().drain_timeout()))? {
            Ok(end) => self.hand_over(&primary, &target, &end, began),
            Err(error) => Err(self.primary_again(&primary, &error)),
        }
    }

    /// Checks, here and at the standby, what a switchover to `target` needs. Changes nothing.
    ///
    /// # Errors
    /// Why a switchover would be refused.
    pub(crate) fn check_switchover(&self, target: &str) -> Result<(), InstanceError> {
        let primary = self.open_primary()?;
        let target = self.find_target(&primary, target)?;
        self.is_ready(&target).map(drop)
    }

    /// Finds the destination and checks what can be checked here.
    fn find_target(&self, primary: &RunningPrimary, name: &str) -> Result<Target, InstanceError> {
        let environment = &self.environment;
        let unknown = || {
            let what = format!("there is no destination {name} that is a standby");
            InstanceError::refused(what, "`standfast destination list` shows them")
        };
        let shipped = |at: &&DestinationConfig| Destinations::are_shipped_to(at);
        let configured = self.configured();
        let destination = configured.iter().filter(shipped).find(|at| at.name == name).ok_or_else(unknown)?;
        let members = environment.keeper.members()?;
        if members.listed_rights(name).is_some_and(|rights| !rights.has(Right::Candidate)) {
            let hint = format!("`standfast cert allow {name}` here and there, if it may");
            return Err(InstanceError::refused(format!("`{name}` may not become primary"), hint));
        }
        if environment.config.instance.listen.is_empty() {
            return Err(InstanceError::refused(
                "this instance does not listen: as a standby it could not receive redo",
                "set [instance] listen in standfast.toml and restart the instance",
            ));
        }
        self.all_are_served(primary)?;
        // It may be that of an earlier time: the instance has just opened.
        self.share_configuration();
        let unknown = || InstanceError::Failed("the shared configuration is not known".into());
        let wish = TakeOver {
            source: peer_identity(environment, Role::Primary.of_peer()),
            end: None,
            protection_mode: environment.control().protection_mode,
            configuration: environment.shared_configuration.document().ok_or_else(unknown)?,
        };
        let security = environment.security().only([name.to_owned()]);
        Ok(Target { destination: destination.clone(), wish, security })
    }

    /// A database that is offline here would be one at the standby without its redo.
    fn all_are_served(&self, primary: &RunningPrimary) -> Result<(), InstanceError> {
        let served = primary.threads.shared().all_databases();
        let whole = |id| served.iter().any(|at| at.id() == id && at.failure().is_none() && !at.owes_image());
        match self.environment.control().databases.iter().find(|record| !whole(record.id)) {
            None => Ok(()),
            Some(record) => Err(InstanceError::refused(
                format!("database {} is offline or being copied", record.name),
                "`standfast status` says why; a switchover needs all databases",
            )),
        }
    }

    /// Returns which online logs the target will have.
    fn is_ready(&self, target: &Target) -> Result<LogGeometry, InstanceError> {
        let refused = |why: String| {
            InstanceError::refused(
                format!("`{}` is not ready to take over: {why}", target.name()),
                "nothing has been changed; remove the cause and try again",
            )
        };
        match target.ask(None, ANSWER) {
            Ok(answer) => answer.logs.ok_or_else(|| refused("it does not say which logs it has".into())),
            Err(NotTakenOver::Certain(error) | NotTakenOver::Unknown(error)) => {
                Err(refused(error.to_string()))
            }
        }
    }

    /// Steps 3 to 5.
    fn hand_over(
        &self,
        primary: &RunningPrimary,
        target: &Target,
        end: &RedoEnd,
        began: Instant,
    ) -> Result<SwitchedOver, InstanceError> {
        if let Err(error) = self.await_end(primary, target.name(), end.scn) {
            return Err(self.primary_again(primary, &error));
        }
        self.verification().interrupt();
        *self.mode() = Mode::Changing;
        primary.destinations().stop();
        let stopped = primary.threads.stop(false);
        self.archive_the_rest(primary);
        let shared = primary.threads.shared();
        let rests = stopped
            .and_then(|()| has_ended(shared, end.scn))
            .and_then(|()| step_down::come_to_rest(&self.environment, shared));
        let rests = match rests {
            Ok(rests) => rests,
            Err(error) => return Err(self.primary_again(primary, &error)),
        };
        let stepped_down =
            primary.close_databases().and_then(|()| step_down::step_down(&self.environment, end, rests));
        if let Err(error) = stepped_down {
            return Err(self.reopen(&error));
        }
        self.ship_only_as_primary();
        let sum = PositionSum { scn: end.scn, crc: end.crc.0 };
        // The standby need not wait until the files here are open again.
        let (outcome, opened) = std::thread::scope(|scope| {
            let asked = scope.spawn(|| self.outcome(target, sum));
            let opened = self.open_as_standby();
            let lost = |_| Outcome::Unknown("the thread that asked it has ended".into());
            (asked.join().unwrap_or_else(lost), opened)
        });
        let unavailable = began.elapsed();
        if let Err(error) = opened {
            self.stuck(&error);
        }
        let name = target.name();
        match outcome {
            Outcome::TakenOver(branch) => {
                self.environment.alert.say(format!(
                    "switchover complete: `{name}` is the primary from SCN {branch}, this instance is its standby"
                ));
                Ok(SwitchedOver { primary: name.to_owned(), branch, unavailable })
            }
            Outcome::Refused(why) => Err(self.take_back(name, &why)),
            Outcome::Unknown(why) => {
                let error = InstanceError::failed(
                    format!(
                        "`{name}` was asked to take over, and it is not known whether it has: {why}. This instance is a \
                         standby now, with all the redo"
                    ),
                    format!(
                        "look at `standfast status` of `{name}`: if it is the primary, all is well; if it is a standby and \
                         stays one, `standfast failover` there or here loses nothing"
                    ),
                );
                self.environment.alert.say(error.in_one_line());
                Err(error)
            }
        }
    }

    /// Archives what the archiver has not: as a standby this instance does not read its online log, and as a primary again
    /// it must have all logs for standbys that lack some.
    fn archive_the_rest(&self, primary: &RunningPrimary) {
        let log = primary.source.redo_log();
        if let Err(error) = archive_at_once(log) {
            self.environment.alert.say(format!("switchover: a log is not archived: {}", error.in_one_line()));
        }
    }

    /// Waits until the target has hardened all the redo.
    fn await_end(&self, primary: &RunningPrimary, name: &str, end: Scn) -> Result<(), InstanceError> {
        let until = Instant::now() + ANSWER;
        loop {
            let status = primary.destinations().status();
            let hardened = status.iter().find(|(at, _)| at.name == name).map(|(at, _)| at.hardened);
            match hardened {
                Some(hardened) if hardened >= end => return Ok(()),
                _ if Instant::now() >= until => {
                    let at = hardened.unwrap_or_default();
                    return Err(InstanceError::refused(
                        format!("`{name}` has the redo only up to SCN {at}, not up to its end, {end}"),
                        "`standfast status` says what its link is doing; try again",
                    ));
                }
                _ => std::thread::park_timeout(LOOK_EVERY),
            }
        }
    }

    fn outcome(&self, target: &Target, end: PositionSum) -> Outcome {
        let why = match target.ask(Some(end), TAKE_OVER) {
            Ok(TakeOverAnswer { branch: Some(branch), .. }) => return Outcome::TakenOver(branch),
            Ok(TakeOverAnswer { failed, .. }) => failed.unwrap_or_else(|| "it gave no position".into()),
            Err(NotTakenOver::Certain(error)) => return Outcome::Refused(error.to_string()),
            Err(NotTakenOver::Unknown(error)) => error.to_string(),
        };
        let until = Instant::now() + UNKNOWN;
        while Instant::now() < until {
            if target.is_primary() == Some(true) {
                return Outcome::TakenOver(end.scn);
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
        Outcome::Unknown(why)
    }

    /// The target refused: this instance, which has all the redo, becomes primary again.
    fn take_back(&self, name: &str, why: &str) -> InstanceError {
        let error = match self.promote(false, true) {
            Ok(done) => InstanceError::refused(
                format!(
                    "`{name}` did not take over: {why}. This instance is the primary again, in a new incarnation from SCN {}",
                    done.branch
                ),
                "remove the cause and try again",
            ),
            Err(error) => InstanceError::failed(
                format!(
                    "`{name}` did not take over: {why}; and this instance, now a standby with all the redo, could not become \
                     primary again: {}",
                    error.as_a_reason()
                ),
                "remove the causes and run `standfast failover` here or there",
            ),
        };
        self.environment.alert.say(error.in_one_line());
        error
    }

    /// Opens as the primary again after a step that failed.
    fn primary_again(&self, primary: &RunningPrimary, error: &InstanceError) -> InstanceError {
        *self.mode() = Mode::Changing;
        primary.destinations().stop();
        // What could not be written now is recovered by the start.
        let _ = primary.threads.stop(false);
        match primary.close_databases() {
            Ok(()) => self.reopen(error),
            Err(open) => self.stuck(&open),
        }
    }

    fn reopen(&self, error: &InstanceError) -> InstanceError {
        let is_primary = self.environment.of_control(|control| control.role == Role::Primary);
        let opened = if is_primary { self.open_as_primary_again() } else { self.open_as_standby() };
        if let Err(second) = opened {
            return self.stuck(&second);
        }
        let role = if is_primary { "primary" } else { "standby" };
        let reported = InstanceError::refused(
            format!("the switchover failed: {}; this instance is a {role}", error.as_a_reason()),
            error.hint().unwrap_or_else(|| "remove the cause and try again".into()),
        );
        self.environment.alert.say(reported.in_one_line());
        reported
    }

    /// From now on the destinations of the old primary are in use when it is the primary again.
    fn ship_only_as_primary(&self) {
        let changed = self.set_destinations(|configured| {
            step_down::ship_only_as_primary(configured);
            Ok(())
        });
        if let Err(error) = changed {
            // They are refused as long as redo comes from there.
            self.environment
                .alert
                .say(format!("the destinations stay in use as a standby: {}", error.in_one_line()));
        }
    }
}

/// Checks that no redo was written after its end: a session may have begun a transaction at the moment at which sessions
/// had to wait, and its commit would be here alone.
fn has_ended(shared: &PrimaryShared, end: Scn) -> Result<(), InstanceError> {
    if shared.buffer.captured() == end {
        return Ok(());
    }
    let hint = "nothing has been changed; try again";
    Err(InstanceError::refused("a commit came after the end of the redo", hint))
}
