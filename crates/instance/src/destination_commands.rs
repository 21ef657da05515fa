//! What an operator does to destinations of a running instance. Each change is checked as a whole, written to
//! `standfast.toml` and then in force, all of it or nothing.

use crate::attribute_text;
use crate::destination_config::{DestinationConfig, State};
use crate::error::InstanceError;
use crate::running::Running;
use serde_json::{Value, json};

impl Running {
    /// Adds a destination, or replaces the one with its name and the one with its number.
    ///
    /// # Errors
    /// When an attribute is out of its range or does not go with the others, or the file cannot be written.
    pub fn set_destination(&self, mut destination: DestinationConfig) -> Result<(), InstanceError> {
        let name = destination.name.clone();
        let mut verb = "added";
        self.change_destinations(|configured| {
            let same_name = configured.iter().find(|other| other.name == destination.name);
            if let Some(known) = same_name {
                verb = "changed";
                // Without a number it keeps the one it has.
                destination.id = if destination.id == 0 { known.id } else { destination.id };
            }
            configured.retain(|other| other.name != destination.name && other.id != destination.id);
            configured.push(destination);
            configured.sort_by_key(|at| if at.id == 0 { u8::MAX } else { at.id });
            Ok(())
        })?;
        self.environment.alert.say(format!("destination {name} {verb}"));
        Ok(())
    }

    /// Removes a destination by name; returns the name.
    ///
    /// # Errors
    /// When there is none, or the configuration is not valid without it.
    pub fn remove_destination(&self, name: &str) -> Result<(), InstanceError> {
        self.change_destinations(|configured| {
            let before = configured.len();
            configured.retain(|other| other.name != name);
            if configured.len() == before { Err(unknown(name)) } else { Ok(()) }
        })?;
        self.environment.alert.say(format!("destination {name} removed"));
        Ok(())
    }

    /// Removes the destination with this number, if there is one.
    ///
    /// # Errors
    /// When the configuration is not valid without it.
    pub fn clear_destination(&self, id: u8) -> Result<(), InstanceError> {
        match self.configured().iter().find(|at| at.id == id) {
            Some(at) => self.remove_destination(&at.name),
            None => Ok(()),
        }
    }

    /// Enables or defers a destination. One that is enabled and was given up is tried again at once.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn set_destination_state(&self, name: &str, state: State) -> Result<(), InstanceError> {
        self.change_destinations(|configured| {
            let found = configured.iter_mut().find(|other| other.name == name);
            found.ok_or_else(|| unknown(name))?.state = state;
            Ok(())
        })?;
        if state == State::Enable {
            if let Some(ships) = self.ships() {
                ships.enable(name);
            }
            if let Some(monitor) = self.monitor().as_ref() {
                monitor.enable(name);
            }
        }
        let verb = if state == State::Defer { "deferred" } else { "enabled" };
        self.environment.alert.say(format!("destination {name} {verb}"));
        Ok(())
    }

    /// All destinations with their attributes, also in the notation of LOG_ARCHIVE_DEST_n.
    pub fn list_destinations(&self) -> Value {
        let row = |at: &DestinationConfig| {
            json!({
                "id": at.id,
                "name": at.name,
                "state": at.state,
                "attributes": attribute_text::write(at),
                "config": at,
            })
        };
        self.configured().iter().map(row).collect()
    }
}

fn unknown(name: &str) -> InstanceError {
    let what = format!("there is no destination {name}");
    InstanceError::refused(what, "`standfast destination list` shows them")
}
