//! The configuration that all instances share, at a running one: a primary changes it, and whichever takes over continues
//! with it.

use super::Running;
use super::changeable::Changeable;
use standfast_environment::config::destination_config::DestinationConfig;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::properties::{self, PropertyError};
use standfast_environment::config::role_change_config::RoleChangeConfig;
use standfast_environment::config::shared_configuration::{NotContinued, SharedConfiguration};
use standfast_types::{Hint, hint};

/// Remedy for a standby of the old primary that the new one does not ship to.
pub(super) const ADD: &str = "`standfast destination add NAME HOST:PORT` here";
/// Exit code of a command with a member, property or value that does not exist, as of every wrong command line.
const NO_SUCH: u8 = 2;

impl Running {
    /// Sets a property of a member, or of the configuration itself; without a value, to its default. Returns the
    /// configuration that all instances have from now on. It is durable here, and sent to the standbys.
    ///
    /// # Errors
    /// When this is no open primary, there is no such member or property, the value is none that it takes, or the
    /// configuration cannot be written. Nothing has changed then.
    pub(crate) fn set_property(
        &self,
        member: Option<&str>,
        property: &str,
        value: Option<&str>,
    ) -> Result<Option<SharedConfiguration>, InstanceError> {
        let _one = self.one_command();
        self.open_primary()?;
        self.change_settings(|changeable| {
            let Some(name) = member else {
                let default = RoleChangeConfig::default();
                return properties::find(&properties::OF_THE_CONFIGURATION, property)
                    .and_then(|found| found.set(&mut changeable.role_change, value, &default))
                    .map_err(refused);
            };
            let found = changeable.destinations.iter_mut().find(|at| at.name == name && !at.is_local());
            let destination = found.ok_or_else(|| {
                let hint = "`standfast dg show configuration` lists the members";
                if *name == self.environment.config.instance.name {
                    let what = format!("`{name}` is the primary: redo is shipped to the other members");
                    return InstanceError::refused(what, hint);
                }
                let what = format!("redo is shipped to no member `{name}`");
                InstanceError::Answered { what, hint: Some(hint.into()), code: NO_SUCH }
            })?;
            // Some defaults depend on the number, or the group.
            let default = DestinationConfig {
                id: destination.id,
                group: destination.group,
                ..DestinationConfig::new(destination.name.clone(), destination.address.clone())
            };
            properties::find(&properties::OF_A_MEMBER, property)
                .and_then(|found| found.set(destination, value, &default))
                .map_err(refused)
        })?;
        let what = member.map_or_else(|| "the configuration".to_owned(), |name| format!("`{name}`"));
        let to = value.map_or_else(|| "its default".to_owned(), |value| format!("`{value}`"));
        self.environment.alert.say(format!("{property} of {what} set to {to}"));
        Ok(self.environment.shared_configuration.get())
    }

    /// Keeps the configuration of this primary for its standbys, which are sent it.
    pub(crate) fn share_configuration(&self) {
        let environment = &self.environment;
        let incarnation = environment.of_control(|control| control.incarnation().number.into());
        let instance = &environment.config.instance;
        let shared = environment.shared_configuration.change(|kept| {
            // Not before: a command may change it meanwhile.
            let Changeable { destinations, role_change } = self.changeable();
            Some(SharedConfiguration::of_primary(instance, &destinations, role_change, incarnation, kept))
        });
        if let Err(error) = shared {
            let text = error.in_one_line();
            environment.alert.say(format!("the shared configuration is not durable here: {text}"));
        }
    }

    /// The configuration that the primary has made in the incarnation that this standby follows; `None`: it has not come.
    pub(crate) fn current_configuration(&self) -> Option<SharedConfiguration> {
        let environment = &self.environment;
        let current = environment.of_control(|control| u64::from(control.incarnation().number));
        environment.shared_configuration.get().filter(|kept| kept.incarnation == current)
    }

    /// Takes over what the old primary had configured, and reports what cannot be.
    pub(crate) fn continue_configuration(&self, shared: &SharedConfiguration, changeable: &mut Changeable) {
        let environment = &self.environment;
        changeable.role_change = shared.role_change.clone();
        let is_member = |name: &str| environment.is_member(name);
        let own = &environment.config.instance;
        for NotContinued { name, address, why } in
            shared.continue_in(own, &mut changeable.destinations, is_member)
        {
            let what = format!("redo is not shipped to `{name}` at {address}, as the old primary did: {why}");
            environment.alert.say(hint::in_one_line(what, Some(ADD)));
        }
    }

    pub(crate) fn role_change(&self) -> RoleChangeConfig {
        self.changeable().role_change
    }
}

fn refused(error: PropertyError) -> InstanceError {
    let hint = Some("`standfast dg help properties` describes them".into());
    InstanceError::Answered { what: error.to_string(), hint, code: NO_SUCH }
}
