//! Starts and stops apply on a running standby (RECOVER MANAGED STANDBY DATABASE, CANCEL, NODELAY).

use crate::role::running::{Mode, Running};
use standfast_environment::config::error::InstanceError;

impl Running {
    /// Starts or stops apply until the next command or restart; redo is received as before. `no_delay`: redo that is
    /// held back is applied immediately.
    ///
    /// # Errors
    /// When the instance is not a standby.
    pub fn control_apply(&self, on: bool, no_delay: bool) -> Result<(), InstanceError> {
        let Mode::Standby(standby) = &*self.mode() else {
            let hint = "`standfast status` shows what it is; apply is at its standbys";
            return Err(InstanceError::refused("this instance applies no redo: it is no standby", hint));
        };
        if self.environment.of_control(|control| control.snapshot.is_some()) {
            let hint = "`standfast convert physical-standby` makes it apply redo again";
            return Err(InstanceError::refused("this instance is a snapshot standby", hint));
        }
        standby.standby.shared().control_apply(on, no_delay);
        self.environment.alert.say(match (on, no_delay) {
            (false, _) => "apply stopped by command; redo is received and hardened as before",
            (true, false) => "apply started by command",
            (true, true) => "apply started by command, without delay",
        });
        Ok(())
    }
}
