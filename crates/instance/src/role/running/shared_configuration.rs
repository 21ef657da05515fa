//! The configuration that all instances share, at a running one: a primary changes it, and whichever takes over continues
//! with it.

use super::changeable::Changeable;
use super::{Mode, Running};
use standfast_environment::config::destination_config::DestinationConfig;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::properties::{self, PropertyError};
use standfast_environment::config::role_change_config::RoleChangeConfig;
use standfast_environment::config::shared_configuration::{NotContinued, SharedConfiguration};
use standfast_types::{Hint, hint};

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
                let hint = "`standfast dg show configuration` lists the members";
                match name == own {
                    true => InstanceError::refused(what, hint),
                    false => InstanceError::Answered { what, hint: Some(hint.into()), code: NO_SUCH },
                }
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
    pub(crate) fn continue_configuration(
        &self,
        kept: Option<&SharedConfiguration>,
        changeable: &mut Changeable,
    ) {
        let environment = &self.environment;
        let add = "`standfast destination add NAME HOST:PORT` here";
        let Some(kept) = kept else {
            let what =
                "the configuration of the old primary has not come here: its other standbys get no redo";
            environment.alert.say(hint::in_one_line(what, Some(add)));
            return;
        };
        changeable.role_change = kept.role_change;
        let is_member = |name: &str| environment.is_member(name);
        let left = kept.continue_in(&environment.config.instance, &mut changeable.destinations, is_member);
        for NotContinued { name, address, why } in left {
            let what = format!("redo is not shipped to `{name}` at {address}, as the old primary did: {why}");
            environment.alert.say(hint::in_one_line(what, Some(add)));
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
