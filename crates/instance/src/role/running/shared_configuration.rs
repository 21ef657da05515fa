//! The configuration that all instances share, at a running one: a primary changes it, and whichever takes over continues
//! with it.

use super::changeable::Changeable;
use super::{Mode, Running};
use standfast_environment::config::destination_config::DestinationConfig;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::properties::{self, PropertyError};
use standfast_environment::config::role_change_config::RoleChangeConfig;
use standfast_environment::config::shared_configuration::SharedConfiguration;
use standfast_types::Hint;

/// Exit code of a command with a property or a value that does not exist, as of every wrong command line.
const NO_SUCH_PROPERTY: u8 = 2;

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
        self.change_shared(|changeable| {
            let Some(name) = member else {
                let default = RoleChangeConfig::default();
                return properties::find(&properties::OF_THE_CONFIGURATION, property)
                    .and_then(|found| found.set(&mut changeable.role_change, value, &default))
                    .map_err(refused);
            };
            let found = changeable.destinations.iter_mut().find(|at| at.name == name && !at.is_local());
            let destination = found.ok_or_else(|| {
                let own = &self.environment.config.instance.name;
                let what = match name == own {
                    true => format!("`{name}` is the primary: redo is shipped to the other members"),
                    false => format!("`{own}` ships redo to no member `{name}`"),
                };
                InstanceError::refused(what, "`standfast dg show configuration` lists the members")
            })?;
            let default = DestinationConfig {
                id: destination.id,
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

    fn change_shared(
        &self,
        change: impl FnOnce(&mut Changeable) -> Result<(), InstanceError>,
    ) -> Result<(), InstanceError> {
        let _one = self.one_command();
        self.is_the_primary()?;
        self.change_settings(change)
    }

    /// # Errors
    /// When this is no open primary; a standby names the primary.
    fn is_the_primary(&self) -> Result<(), InstanceError> {
        let Err(error) = self.open_primary() else { return Ok(()) };
        if !matches!(&*self.mode(), Mode::Standby(_) | Mode::FarSync(_)) {
            return Err(error);
        }
        let kept = self.environment.shared_configuration.get();
        let primary = kept.map_or_else(|| "the primary".to_owned(), |kept| format!("`{}`", kept.primary));
        Err(InstanceError::refused(
            format!(
                "`{}` is not the primary, which alone changes the configuration",
                self.environment.config.instance.name
            ),
            format!("give the command at {primary}"),
        ))
    }

    /// Keeps the configuration of this primary for its standbys, which are sent it.
    pub(super) fn share_configuration(&self) {
        let environment = &self.environment;
        let Changeable { destinations, role_change } = self.changeable();
        let incarnation = environment.of_control(|control| control.incarnation().number.into());
        let instance = &environment.config.instance;
        let shared = environment.shared_configuration.change(|kept| {
            Some(SharedConfiguration::of_primary(instance, &destinations, role_change, incarnation, kept))
        });
        if let Err(error) = shared {
            environment
                .alert
                .say(format!("the standbys are not told the configuration: {}", error.in_one_line()));
        }
    }

    /// Takes over what the old primary had configured, if this instance knows what it had last.
    pub(crate) fn continue_configuration(&self, changeable: &mut Changeable) {
        let environment = &self.environment;
        let current = environment.of_control(|control| u64::from(control.incarnation().number));
        let kept = environment.shared_configuration.get().filter(|kept| kept.incarnation == current);
        if let Some(kept) = kept {
            changeable.role_change = kept.role_change;
            kept.continue_in(&environment.config.instance, &mut changeable.destinations);
        }
    }

    pub(crate) fn role_change(&self) -> RoleChangeConfig {
        self.changeable().role_change
    }
}

fn refused(error: PropertyError) -> InstanceError {
    let hint = Some("`standfast dg help properties` describes them".into());
    InstanceError::Answered { what: error.to_string(), hint, code: NO_SUCH_PROPERTY }
}
