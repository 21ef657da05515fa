//! Fast-start failover at a running instance: carries out what [`standfast_arbitration`] decides. The thread `fsfp` calls
//! [`Look::look`] in every role.
//!
//! - A primary makes the members durable without which no commit returns, puts that in force at their destinations, and
//!   reports to the observer.
//! - A standby looks at the observer's record, and becomes primary once the observer has given it the primary's place.

mod arbiter;
mod at_primary;
mod at_standby;
pub(crate) mod state;

use self::arbiter::arbiter_of;
use self::at_primary::AtPrimary;
use self::at_standby::AtStandby;
use self::state::{Ordered, Shown, Suspended, incarnation_of};
use crate::role::running::{Mode, Running, RunningPrimary};
use standfast_arbitration::arbiter::{Answer, Ask};
use standfast_arbitration::primary::{Order, PrimaryRules, Required, View};
use standfast_documents::ObserverState;
use standfast_environment::config::arbiter_config::ArbiterAddress;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::fast_start_failover_config::{FastStartFailoverConfig, FastStartMode};
use standfast_environment::state::now::now_us;
use standfast_instruments::Cause;
use standfast_transport::fetch_status;
use standfast_transport::protection::ProtectionMode;
use standfast_types::Hint;
use std::time::{Duration, Instant};

/// How often a member looks whether fast-start failover has been enabled.
const DISABLED: Duration = Duration::from_millis(500);
/// How often it looks at the others at least while it is enabled, if half the ping interval is not shorter.
const ENABLED: Duration = Duration::from_millis(100);
/// How long a command waits for the observer.
const ANSWER: Duration = Duration::from_secs(5);
/// How long a stop waits for the observer.
const STOP: Duration = Duration::from_secs(3);

/// Requests with which a command replaces the record: it reads, and another member may replace the record meanwhile.
const ATTEMPTS: u32 = 4;

const OBSERVER: &str = "`standfast observer create` on a third host, then `standfast dg edit configuration set property \
                        FastStartFailoverObserver = NAME@HOST:PORT`";

impl Running {
    /// The settings that count here: at a primary its own, at a standby those that the primary has sent.
    pub(crate) fn fast_start_config(&self) -> FastStartFailoverConfig {
        self.fast_start_config_of(self.primary().is_some())
    }

    fn fast_start_config_of(&self, is_primary: bool) -> FastStartFailoverConfig {
        match is_primary {
            true => self.role_change().fast_start_failover,
            false => self
                .current_configuration()
                .map(|kept| kept.role_change.fast_start_failover)
                .unwrap_or_default(),
        }
    }

    /// Holds commits for this reason; `None`: lets those return that everybody has who must.
    fn hold_commits(&self, primary: &RunningPrimary, why: Option<&str>) {
        let shared = primary.threads.shared();
        let are_free = self.environment.commit_hold.set(why);
        shared.segment.set_unconfirmed(why.is_some());
        if are_free {
            shared.release(Cause::Decision);
        }
    }

    /// Before a clean stop of a primary: no member is to take over from it. Waits a moment for the observer.
    pub(crate) fn suspend_for_a_stop(&self) {
        let fast_start = self.fast_start();
        let is_observed = fast_start.document().and_then(|document| document.observed) == Some(true);
        if self.primary().is_none() || !is_observed {
            return;
        }
        let suspended = Suspended::begin(fast_start);
        if !suspended.is_confirmed(STOP) {
            self.environment.alert.say(
                "the observer does not confirm that no member takes over while this instance is stopped: the target may",
            );
        }
        suspended.for_good();
    }

    /// Makes sure that no member takes over while a command changes the roles. Nothing to do when fast-start failover is
    /// disabled.
    ///
    /// # Errors
    /// When the observer does not confirm it.
    pub(crate) fn suspend_fast_start(&self) -> Result<Suspended<'_>, InstanceError> {
        let fast_start = self.fast_start();
        let suspended = Suspended::begin(fast_start);
        if self.fast_start_config().is_enabled() && !suspended.is_confirmed(ANSWER) {
            return Err(self.not_suspended());
        }
        Ok(suspended)
    }

    fn not_suspended(&self) -> InstanceError {
        let error = self.fast_start().document().and_then(|shown| shown.observer_error).unwrap_or_default();
        let why = if error.is_empty() { String::new() } else { format!(": {error}") };
        InstanceError::refused(
            format!("the observer does not confirm that no member takes over meanwhile{why}"),
            "bring the observer back; nothing has been changed",
        )
    }

    /// Asks the observer for the primary's place because an operator has ordered a failover. Nothing to do when
    /// fast-start failover is disabled. Returns whether all that was acknowledged is certainly here.
    ///
    /// # Errors
    /// When the observer does not give it.
    pub(crate) fn claim_primary_place(&self) -> Result<bool, InstanceError> {
        if !self.fast_start_config().is_enabled() {
            // That of an earlier incarnation: the primary's present one has not come.
            let kept = self.environment.shared_configuration.get();
            if self.current_configuration().is_none()
                && kept.is_some_and(|kept| kept.role_change.fast_start_failover.is_enabled())
            {
                return Err(InstanceError::refused(
                    "the configuration of the present primary has not come here, and fast-start failover was enabled before: its \
                     target may take over",
                    "fail over the target; `standfast failover --force` takes over nevertheless, and if the target takes over too, \
                     there are two primaries",
                ));
            }
            return Ok(false);
        }
        let fast_start = self.fast_start();
        let _ordered = Ordered::begin(fast_start);
        if let Some(place) = fast_start.await_shown(ANSWER, |shown| shown.place) {
            return Ok(place.has_all);
        }
        let document = fast_start.document().unwrap_or_default();
        let why = match (document.observer_error.filter(|error| !error.is_empty()), document.status.as_deref()) {
            (Some(error), _) => error,
            (None, Some("NOT READY")) => {
                "it has a gap, a database that is stopped, no right, or gets its redo through another instance".into()
            }
            (None, Some("BYSTANDER")) => "another member is the target, or has the place".into(),
            (None, _) => "the primary has been heard within the threshold, or since the command".into(),
        };
        Err(InstanceError::refused(
            format!("the observer does not give this standby the primary's place: {why}"),
            "look at `standfast dg show observer`; `standfast failover --force` takes over without it, and if the target of \
             fast-start failover takes over too, there are two primaries",
        ))
    }

    /// Enables or disables fast-start failover, durably, for all members.
    ///
    /// # Errors
    /// When it cannot protect anything, or, to disable it, when the observer does not confirm that no member may take over;
    /// `force` disables it nevertheless.
    pub(crate) fn set_fast_start(&self, mode: FastStartMode, force: bool) -> Result<(), InstanceError> {
        self.open_primary()?;
        if mode == FastStartMode::Enabled {
            self.can_be_enabled()?;
        }
        // Before the settings say so: a member that reads the record later finds that no member may take over. Also with
        // `force`: the thread of fast-start failover must not require a member again meanwhile.
        let suspended = Suspended::begin(self.fast_start());
        if self.fast_start_config().is_enabled() && !suspended.is_confirmed(ANSWER) && !force {
            return Err(self.not_suspended());
        }
        let _one = self.one_command();
        let config = self.role_change().fast_start_failover;
        if mode == FastStartMode::Enabled && !config.is_enabled() {
            self.begin_the_record(&config)?;
        }
        self.change_settings(|changeable| {
            changeable.role_change.fast_start_failover.mode = mode;
            Ok(())
        })?;
        if mode == FastStartMode::Disabled {
            self.environment.update_control(|control| control.no_fast_start())?;
            self.set_policies();
        }
        drop(suspended);
        let word = if mode == FastStartMode::Enabled { "enabled" } else { "DISABLED" };
        self.environment.alert.say(format!("fast-start failover is {word}"));
        Ok(())
    }

    /// Asks the observer for its state.
    ///
    /// # Errors
    /// When there is none, or it does not answer.
    pub(crate) fn ask_the_observer(&self) -> Result<ObserverState, InstanceError> {
        let config = self.fast_start_config();
        let (name, address) = match config.arbiter() {
            None => return Err(InstanceError::refused("no observer is configured", OBSERVER)),
            Some(ArbiterAddress::Etcd { .. }) => return self.ask_the_store(&config),
            Some(ArbiterAddress::Observer { name, address }) => (name, address),
        };
        let security = self.environment.security().only([name.clone()]);
        let text = fetch_status(&address, &security, false, ANSWER).map_err(|error| {
            InstanceError::refused(
                format!("the observer {} does not answer: {error}", config.observer),
                "look whether it runs: `standfast start` on its host",
            )
        })?;
        ObserverState::in_observation(&text)
            .map_err(|error| InstanceError::Failed(error.to_string()))?
            .ok_or_else(|| InstanceError::refused(format!("`{name}` is no observer"), OBSERVER))
    }

    fn ask_the_store(&self, config: &FastStartFailoverConfig) -> Result<ObserverState, InstanceError> {
        let mut store = arbiter_of(self, config);
        let Answer::Is { kept, votes } = store.ask(&Ask::Read { follows: None }) else {
            return Err(InstanceError::refused(
                format!("etcd cannot be asked: {}", store.error().unwrap_or("no answer")),
                "look whether it runs, and at [arbiter] in standfast.toml: what this instance proves itself with there",
            ));
        };
        Ok(ObserverState {
            name: Some("etcd".into()),
            votes: Some(votes),
            record: kept.map(|kept| kept.record.document()),
            heard: Some(Vec::new()),
        })
    }

    fn can_be_enabled(&self) -> Result<(), InstanceError> {
        let config = self.role_change().fast_start_failover;
        if config.arbiter().is_none() {
            return Err(InstanceError::refused("fast-start failover needs an observer", OBSERVER));
        }
        self.ask_the_observer()?;
        if self.environment.control().protection_mode == ProtectionMode::MaximumPerformance {
            return Err(InstanceError::refused(
                "fast-start failover needs maximum availability or maximum protection: in maximum performance a failover loses \
                 commits",
                "`standfast protection-mode maximum-availability`",
            ));
        }
        if !at_primary::has_candidate(self, &config) {
            return Err(InstanceError::refused(
                "no member could take over without loss: that needs a destination with SYNC AFFIRM, in no group, that may become \
                 primary",
                "`standfast destination list` shows them",
            ));
        }
        Ok(())
    }

    /// Makes the record state that no member may take over, before the standbys hear that fast-start failover is enabled: it may
    /// still name a target from an earlier time, which lacks what this primary has acknowledged since.
    ///
    /// # Errors
    /// When the arbiter does not replace it.
    fn begin_the_record(&self, config: &FastStartFailoverConfig) -> Result<(), InstanceError> {
        let end = self.open_primary()?.threads.shared().buffer.durable();
        let name = &self.environment.config.instance.name;
        let incarnation = self.environment.of_control(incarnation_of);
        let settings = config.settings();
        let mut rules = PrimaryRules::new(name, incarnation, settings, Required::default(), end, false)
            .with_serials_beyond(now_us());
        let view = View {
            eligible: at_primary::names_of_eligible(self),
            acknowledged: end,
            suspended: true,
            ..View::default()
        };
        let mut arbiter = arbiter_of(self, config);
        let mut why = None;
        for attempt in 0..ATTEMPTS {
            let now = settings.ping_interval * attempt;
            let Order::Ask(ask) = rules.decide(now, &view) else { continue };
            let answer = arbiter.ask(&ask);
            if matches!(answer, Answer::Replaced { .. }) {
                return Ok(());
            }
            why = (answer == Answer::Nothing).then(|| arbiter.error().unwrap_or("no answer").to_owned());
            rules.answered(now, answer);
            if let Some(record) = rules.replaced_by() {
                why = Some(format!("`{}` takes over, or has", record.successor()));
            }
            if why.is_some() {
                break;
            }
        }
        let why = why.unwrap_or_else(|| "it was refused".into());
        Err(InstanceError::refused(
            format!("the record of fast-start failover cannot be replaced: {why}"),
            "look at `standfast dg show observer`; nothing has been changed",
        ))
    }

    /// Makes the members durable without which no commit returns, and lets their destinations know.
    fn put_in_force(&self, required: &Required, observer: &str) -> Result<(), InstanceError> {
        self.environment.update_control(|control| {
            control.required = required.clone();
            observer.clone_into(&mut control.observer);
        })?;
        self.set_policies();
        Ok(())
    }

    /// While fast-start failover is disabled a store may be emptied. A standby that does not have the primary's present
    /// settings does not know.
    fn forget_the_store(&self, is_primary: bool) {
        let is_known = is_primary || self.current_configuration().is_some();
        if !is_known || self.environment.of_control(|control| control.store_seen.is_none()) {
            return;
        }
        if let Err(error) = self.environment.update_control(|control| control.store_seen = None) {
            self.environment.alert.say(format!("fast-start failover: {}", error.in_one_line()));
        }
    }

    fn set_policies(&self) {
        if let Some(primary) = self.primary() {
            let mode = self.environment.of_control(|control| control.protection_mode);
            primary.destinations().set_policies(mode);
        }
    }
}

/// The state of the thread.
pub(crate) struct Look {
    begun: Instant,
    /// At most one of the two.
    at_primary: Option<AtPrimary>,
    at_standby: Option<AtStandby>,
    /// What the alert log has reported last.
    reported: Option<String>,
}

impl Look {
    pub fn begin() -> Look {
        Look { begun: Instant::now(), at_primary: None, at_standby: None, reported: None }
    }

    /// Does what is due, and returns how long to pause. May wait for the observer, for at most two seconds.
    pub fn look(&mut self, running: &Running) -> Duration {
        // The role first: the settings of a standby must not count for a primary that opens meanwhile.
        let primary = running.primary();
        let config = running.fast_start_config_of(primary.is_some());
        if !config.is_enabled() {
            if self.at_primary.is_some() || self.at_standby.is_some() {
                (self.at_primary, self.at_standby) = (None, None);
                running.fast_start().show(Shown::default());
            }
            if let Some(primary) = &primary {
                running.hold_commits(primary, None);
            }
            running.forget_the_store(primary.is_some());
            return DISABLED;
        }
        let orders = running.fast_start().orders();
        let begun = self.begun;
        let clock = move || begun.elapsed();
        let shown = match primary {
            Some(primary) => {
                self.at_standby = None;
                let kept = self.at_primary.take().filter(|at| at.is_for(&primary, &config));
                let at = kept.unwrap_or_else(|| AtPrimary::new(running, &primary, &config));
                self.at_primary.insert(at).look(running, &primary, &config, orders.is_suspended, &clock)
            }
            None if matches!(&*running.mode(), Mode::Standby(_)) => {
                self.at_primary = None;
                let kept = self.at_standby.take().filter(|at| at.is_for(&config));
                let at = kept.unwrap_or_else(|| AtStandby::new(running, &config, clock()));
                self.at_standby.insert(at).look(running, &config, orders.failover, &clock)
            }
            None => {
                (self.at_primary, self.at_standby) = (None, None);
                Shown::default()
            }
        };
        self.say(running, &shown);
        running.fast_start().show(Shown { suspensions: orders.suspensions, ..shown });
        ENABLED.min(config.settings().ping_interval / 2)
    }

    /// Reports a change to the alert log.
    fn say(&mut self, running: &Running, shown: &Shown) {
        let Some(document) = &shown.document else { return };
        let status = document.status.clone().unwrap_or_default();
        let target = document.target.clone().unwrap_or_default();
        let error = document.observer_error.clone().unwrap_or_default();
        let line = match (target.is_empty(), error.is_empty()) {
            (true, true) => status,
            (false, true) => format!("{status}, `{target}` may take over"),
            (true, false) => format!("{status}; the observer: {error}"),
            (false, false) => format!("{status}, `{target}` may take over; the observer: {error}"),
        };
        if self.reported.as_ref() != Some(&line) {
            running.environment.alert.say(format!("fast-start failover: {line}"));
            self.reported = Some(line);
        }
    }
}
