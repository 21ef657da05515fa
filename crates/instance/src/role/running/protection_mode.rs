//! The protection mode of a running instance. The thread `tmon` watches the protection level, see [`crate::observe::monitors`].

use super::Running;
use crate::role::protection;
use standfast_environment::config::error::InstanceError;
use standfast_environment::state::control::Role;
use standfast_transport::protection::{Member, ProtectionLevel, ProtectionMode, level};

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
        protection::check(mode, &self.configured())?;
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
