//! The protection mode of a running instance: its configuration, its preconditions, and the thread that watches the
//! protection level.
//!
//! The decisions are in `standfast_transport::protection`; docs/guarantees.md says what each mode can lose.

use crate::control::Role;
use crate::destination_config::{DestinationConfig, OnTimeout, State, TransportMode};
use crate::destination_groups::GroupWatch;
use crate::error::InstanceError;
use crate::local_archive::LocalArchives;
use crate::mmnl;
use crate::running::Running;
use crate::shipping::Destinations;
use crate::watchers::Watchers;
use standfast_transport::protection::{Member, ProtectionLevel, ProtectionMode, StallWatch, level};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(500);

/// Checks that an instance may be a primary in `mode` with these destinations. Does not check whether they are
/// reachable.
///
/// # Errors
/// `Refused` with what is missing.
pub fn check(mode: ProtectionMode, destinations: &[DestinationConfig]) -> Result<(), InstanceError> {
    if mode != ProtectionMode::MaximumProtection {
        return Ok(());
    }
    let shipped = || destinations.iter().filter(|at| Destinations::are_shipped_to(at));
    if let Some(soft) = shipped().find(|at| at.is_sync() && at.on_timeout == Some(OnTimeout::Degrade)) {
        let what = format!(
            "destination {} has on_timeout = \"degrade\": maximum protection has no use for it",
            soft.name
        );
        return Err(InstanceError::refused(what, "leave on_timeout away, or say \"stall\""));
    }
    if shipped().any(|at| at.transport_mode() == TransportMode::SyncAffirm && at.state == State::Enable) {
        return Ok(());
    }
    Err(InstanceError::refused(
        "maximum protection needs a destination with SYNC AFFIRM that is enabled",
        "add one first, or choose another mode with `standfast protection-mode`",
    ))
}

impl Running {
    /// The configured mode, and the current protection level, which only a primary has.
    pub fn protection(&self) -> (ProtectionMode, Option<ProtectionLevel>) {
        let mode = self.environment.of_control(|control| control.protection_mode);
        let now = self.primary().map(|primary| level(mode, &primary.destinations().members()));
        (mode, now)
    }

    /// Changes the protection mode, immediately and durably.
    ///
    /// # Errors
    /// `Refused` when the destinations do not support it: maximum protection needs one that is synchronised now.
    pub fn set_protection_mode(&self, mode: ProtectionMode) -> Result<(), InstanceError> {
        let environment = &self.environment;
        let _one = self.one_command();
        if environment.control().role != Role::Primary {
            let hint = "ask the primary; after a failover set the mode there";
            return Err(InstanceError::refused("the protection mode is set at the primary", hint));
        }
        check(mode, &self.configured())?;
        let before = environment.control().protection_mode;
        if let Some(primary) = self.primary() {
            let destinations = primary.destinations();
            // Policies first: from here on no destination that protects commits may degrade.
            destinations.set_policies(mode);
            let missing = mode == ProtectionMode::MaximumProtection
                && !destinations.members().iter().any(Member::protects);
            if missing {
                destinations.set_policies(before);
                return Err(InstanceError::refused(
                    "no destination with SYNC AFFIRM is synchronised now: commits would stall at once",
                    "wait until `standfast status` shows one that commits wait for and that is streaming",
                ));
            }
        }
        environment.update_control(|control| control.protection_mode = mode)?;
        environment.alert.say(format!("protection mode: {} (was {})", mode.words(), before.words()));
        Ok(())
    }
}

/// Monitor threads. TMON reports changes of the protection level, chooses among the destinations of groups, and stops a
/// primary that no destination can protect any more; ARCL feeds local destinations; MMON takes snapshots and runs
/// scheduled verifications; MMNL samples metrics.
pub struct TransportMonitor {
    _threads: Watchers,
    enabled: Arc<Mutex<Vec<String>>>,
}

impl TransportMonitor {
    /// Starts the threads for an instance.
    ///
    /// # Errors
    /// When a thread cannot be started.
    pub fn start(running: &Weak<Running>) -> std::io::Result<TransportMonitor> {
        let (mut threads, enabled) = (Watchers::default(), Arc::<Mutex<Vec<String>>>::default());
        let mut watch = Watch::default();
        threads.spawn("tmon", EVERY, running, move |running| watch.look(running))?;
        let (mut local, asked) = (LocalArchives::default(), enabled.clone());
        threads.spawn("arcl", EVERY, running, move |running| {
            let names = std::mem::take(&mut *asked.lock().unwrap_or_else(PoisonError::into_inner));
            names.iter().for_each(|name| local.enable(name));
            local.look(running);
        })?;
        let mut snapshots = crate::snapshots::Monitor::default();
        threads.spawn("mmon", EVERY, running, move |running| {
            snapshots.look(running);
            running.verification().look(running);
            crate::kept::look(running);
        })?;
        threads.spawn("mmnl", mmnl::EVERY, running, mmnl::look)?;
        Ok(TransportMonitor { _threads: threads, enabled })
    }

    /// Retries the local destination of this name.
    pub fn enable(&self, name: &str) {
        self.enabled.lock().unwrap_or_else(PoisonError::into_inner).push(name.into());
    }
}

struct Watch {
    began: Instant,
    level: Option<ProtectionLevel>,
    stall: StallWatch,
    groups: GroupWatch,
    said: bool,
}

impl Default for Watch {
    fn default() -> Self {
        Watch {
            began: Instant::now(),
            level: None,
            stall: StallWatch::default(),
            groups: GroupWatch::default(),
            said: false,
        }
    }
}

impl Watch {
    fn look(&mut self, running: &Running) {
        match self.groups.look(running) {
            Ok(()) => self.said = false,
            Err(error) if !self.said => {
                self.said = true;
                running
                    .environment
                    .alert
                    .say(format!("another destination of a group cannot begin: {error}"));
            }
            Err(_) => {}
        }
        let members = running.primary().map(|primary| primary.destinations().members());
        let mode = running.environment.of_control(|control| control.protection_mode);
        let now = members.as_ref().map(|members| level(mode, members));
        if let Some(now) = now
            && self.level != Some(now)
        {
            // Also at the first check, when the previous level is unknown.
            let was = self.level.map(|before| format!(" (was {})", before.words())).unwrap_or_default();
            running.environment.alert.say(format!("protection level: {}{was}", now.words()));
        }
        self.level = now;
        let members = members.unwrap_or_default();
        let stop_after = Duration::from_secs(running.environment.config.protection.stop_after_s);
        if self.stall.must_stop(self.began.elapsed(), mode, &members, stop_after) {
            running.stop_for_protection();
        }
    }
}
