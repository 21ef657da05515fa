//! Carries out `standfast destination`.

use crate::absolute::absolute;
use crate::destination_args::DestinationCommand;
use standfast_environment::InstanceError;
use standfast_environment::config::attribute_text;
use standfast_environment::config::destination_config::State;
use standfast_environment::config::settings::DestinationConfig;
use standfast_instance::server::answer::{DestinationListed, DestinationSet};
use standfast_instance::server::control_client::{ask, ask_for};
use standfast_instance::server::request::Request;
use std::path::Path;

/// Sends the command to the instance in `directory`.
///
/// # Errors
/// The error of the instance, or an invalid attribute.
pub fn destination(directory: &Path, command: DestinationCommand) -> Result<(), InstanceError> {
    let request = match command {
        DestinationCommand::Add { destination, no_wait } => {
            Request::SetDestination { destination: Box::new(destination.into()), connect: !no_wait }
        }
        DestinationCommand::Set { id, attributes } => set(id, &attributes)?,
        DestinationCommand::Enable { name } => Request::SetDestinationState { name, state: State::Enable },
        DestinationCommand::Defer { name } => Request::SetDestinationState { name, state: State::Defer },
        DestinationCommand::Remove { name } => Request::RemoveDestination { name },
        DestinationCommand::List { json } => return list(directory, json),
    };
    let set: Option<DestinationSet> = match request {
        Request::SetDestination { connect: true, .. } => Some(ask_for(directory, &request)?),
        _ => ask(directory, &request).map(|_| None)?,
    };
    if let Some(found) = set.and_then(|set| set.found) {
        eprintln!("{found}");
    }
    Ok(())
}

fn set(id: u8, attributes: &str) -> Result<Request, InstanceError> {
    if attributes.trim().is_empty() {
        return Ok(Request::ClearDestination { id });
    }
    let hint = "`standfast destination set --help` lists the attributes";
    let wrong = |what: String| InstanceError::Answered { what, hint: Some(hint.into()), code: 2 };
    let mut destination: DestinationConfig =
        attribute_text::parse(attributes).map_err(|error| wrong(error.to_string()))?;
    if destination.name.is_empty() {
        if !destination.is_local() {
            return Err(wrong("DB_UNIQUE_NAME is required: the name of the instance there".into()));
        }
        // A local destination has no instance, so nothing depends on the name.
        destination.name = format!("log_archive_dest_{id}");
    }
    if id == 0 {
        return Err(wrong("destination 0: destinations have the numbers 1 to 31".into()));
    }
    destination.id = id;
    if let Some(location) = destination.location {
        destination.location = Some(absolute(&location)?);
    }
    Ok(Request::SetDestination { destination: Box::new(destination), connect: false })
}

fn list(directory: &Path, json: bool) -> Result<(), InstanceError> {
    if json {
        println!("{:#}", ask(directory, &Request::ListDestinations)?);
        return Ok(());
    }
    let destinations: Vec<DestinationListed> = ask_for(directory, &Request::ListDestinations)?;
    for at in destinations {
        println!("{:>2}  {:<9} {}", at.id, at.state.to_uppercase(), at.attributes);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_local_destination_needs_no_name_and_an_instance_does() {
        let Ok(Request::SetDestination { destination, .. }) = set(4, "LOCATION=/mnt/archive") else {
            panic!("refused")
        };
        assert_eq!(destination.name, "log_archive_dest_4");
        let printed = set(4, "SERVICE=oslo:7411").err().map(|error| error.to_string()).unwrap_or_default();
        assert!(printed.contains("DB_UNIQUE_NAME is required"), "{printed}");
    }
}
