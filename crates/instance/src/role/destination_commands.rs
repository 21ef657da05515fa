//! Operator commands on the destinations of a running instance. Each change is checked as a whole, written to
//! `standfast.toml` and then put in force, all of it or nothing.

use crate::role::running::Running;
use standfast_environment::config::destination_config::{DestinationConfig, State};
use standfast_environment::config::error::InstanceError;
use standfast_instruments::Observation;
use standfast_transport::{DestinationStatus, Standing, TransportError, fetch_status};
use std::time::{Duration, Instant};

/// How long an instance that is added may take to answer, and then how long a stream to it may take to begin.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Interval between checks of the sender.
const LOOK: Duration = Duration::from_millis(20);
const NO_WAIT: &str = "start the instance there and check name and address; `--no-wait` configures it all the same: \
    commits wait for it from its first synchronisation";

impl Running {
    /// Adds a destination. Replaces the destination with the same name and the one with the same number.
    ///
    /// # Errors
    /// When an attribute is out of range or contradicts another one, or the file cannot be written.
    pub fn set_destination(&self, mut destination: DestinationConfig) -> Result<(), InstanceError> {
        let name = destination.name.clone();
        let mut verb = "added";
        self.change_destinations(|configured| {
            let same_name = configured.iter().find(|other| other.name == destination.name);
            if let Some(known) = same_name {
                verb = "changed";
                // Without a number it keeps its present one.
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

    /// Adds a destination as [`Running::set_destination`] does. Before that the instance there has to answer, and
    /// afterwards this waits for a stream to it to begin. Returns what was found, in a sentence. A destination that
    /// this instance does not ship to in its present role is not contacted.
    ///
    /// # Errors
    /// When that instance cannot be reached, is not the one that is meant, or does not take the redo: all destinations
    /// are then as they were before.
    pub fn add_destination(&self, destination: DestinationConfig) -> Result<String, InstanceError> {
        let (name, address) = (destination.name.clone(), destination.address.clone());
        let ships = self.ships().is_some_and(|ships| ships.is_shipped_to(&destination));
        if !ships {
            self.set_destination(destination)?;
            return Ok(format!("{name} is configured; in its present role this instance sends it nothing"));
        }
        let timeout = Duration::from_millis(destination.net_timeout_ms).min(CONNECT_TIMEOUT);
        let answer = fetch_status(&address, &self.environment.security(), false, timeout);
        who_answers(&name, &address, answer.map_err(Unanswered::from))?;
        let before = self.configured();
        self.set_destination(destination)?;
        let until = Instant::now() + timeout;
        let mut known = None;
        while let Some(status) = self.status_of(&name) {
            let found = begun(&status);
            if let Some((text, true)) = found {
                return Ok(text);
            }
            if Instant::now() >= until || status.phase == "failed" {
                if let Some((text, _)) = found {
                    return Ok(text);
                }
                known = Some(status.last_error.unwrap_or_else(|| status.phase.into()));
                break;
            }
            std::thread::sleep(LOOK);
        }
        let Some(why) = known else {
            return Ok(format!("{name} is configured; another destination of its group is in use"));
        };
        self.change_destinations(|configured| {
            configured.retain(|at| at.name != name && !before.iter().any(|was| was.name == at.name));
            configured.splice(0..0, before);
            Ok(())
        })?;
        self.environment.alert.say(format!("destination {name} taken back: no stream to it begins: {why}"));
        Err(InstanceError::refused(
            format!("{name} at {address} answers, and no stream to it begins: {why}"),
            NO_WAIT,
        ))
    }

    fn status_of(&self, name: &str) -> Option<DestinationStatus> {
        let senders = self.ships()?.senders();
        senders.iter().map(|sender| sender.status()).find(|status| status.name == name)
    }

    /// Removes a destination by name.
    ///
    /// # Errors
    /// When there is no such destination, or the configuration is not valid without it.
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

    /// Enables or defers a destination. An enabled destination that was abandoned is tried again immediately.
    ///
    /// # Errors
    /// When there is no destination of this name.
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
            self.retry_local(name);
        }
        let verb = if state == State::Defer { "deferred" } else { "enabled" };
        self.environment.alert.say(format!("destination {name} {verb}"));
        Ok(())
    }
}

/// Why an instance has not reported its state.
enum Unanswered {
    /// It answers, and refuses to report.
    Discreet,
    /// No connection was made, or no answer came; with the error.
    Unreachable(String),
}

impl From<TransportError> for Unanswered {
    fn from(error: TransportError) -> Unanswered {
        match error {
            TransportError::Refused(_) => Unanswered::Discreet,
            other => Unanswered::Unreachable(other.to_string()),
        }
    }
}

/// Checks that the instance that answers at `address` can be the destination `name`.
fn who_answers(name: &str, address: &str, answer: Result<String, Unanswered>) -> Result<(), InstanceError> {
    let text = match answer {
        Ok(text) => text,
        Err(Unanswered::Discreet) => return Ok(()),
        Err(Unanswered::Unreachable(error)) => {
            let what = format!("{name} cannot be reached at {address}: {error}");
            return Err(InstanceError::refused(what, NO_WAIT));
        }
    };
    let Ok(observation) = serde_json::from_str::<Observation>(&text) else { return Ok(()) };
    if !observation.name.is_empty() && observation.name != name {
        let what = format!("the instance at {address} is `{}`, not `{name}`", observation.name);
        return Err(InstanceError::refused(what, "add it under its own name, or check the address"));
    }
    if observation.status.is_primary() {
        let what = format!("{name} at {address} is a primary: it takes no redo");
        return Err(InstanceError::refused(
            what,
            "make it a standby of this one with `standfast standby create`",
        ));
    }
    Ok(())
}

/// Returns the result once a stream has begun, and whether it is final.
fn begun(status: &DestinationStatus) -> Option<(String, bool)> {
    let name = &status.name;
    if !["streaming", "catching_up"].contains(&status.phase) {
        return None;
    }
    Some(match status.standing {
        Standing::Required => (format!("{name} is synchronised: commits wait for it"), true),
        Standing::Optional => (format!("{name} is connected; commits do not wait for it"), true),
        _ => (format!("{name} is catching up: commits wait for it from when it has"), false),
    })
}

fn unknown(name: &str) -> InstanceError {
    let what = format!("there is no destination {name}");
    InstanceError::refused(what, "`standfast destination list` shows them")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use standfast_documents::Status;
    use standfast_types::Hint;

    fn refused(answer: Result<String, Unanswered>) -> String {
        who_answers("oslo", "h:1", answer).map_or_else(|error| error.for_terminal(), |()| "good".into())
    }

    #[test]
    fn destination_is_added_only_if_it_is_the_named_redo_receiver() {
        let says = |name: &str, role: &str| {
            let observation = Observation {
                name: name.into(),
                status: Status::of(&json!({ "role": role })),
                ..Default::default()
            };
            Ok(serde_json::to_string(&observation).unwrap())
        };
        assert_eq!(refused(says("oslo", "standby")), "good");
        assert_eq!(refused(says("oslo", "far sync")), "good");
        assert!(refused(says("rome", "standby")).contains("is `rome`, not `oslo`"));
        assert!(refused(says("oslo", "primary")).contains("takes no redo"));
        assert_eq!(refused(Err(Unanswered::Discreet)), "good");
        let silent = refused(Err(Unanswered::Unreachable("Connection refused".into())));
        assert!(silent.contains("cannot be reached at h:1: Connection refused"), "{silent}");
        assert!(silent.contains("--no-wait"), "{silent}");
    }
}
