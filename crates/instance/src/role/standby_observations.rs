//! Observations of the standbys of a primary.

use crate::role::running::Running;
use standfast_environment::ship::destination_groups::Ships;
use standfast_instruments::{Observation, Remote};
use standfast_transport::{DestinationStatus, fetch_status};
use std::time::Duration;

/// Timeout of a standby's answer. A client that asks for an observation waits this long for a frozen standby.
const STANDBY_TIMEOUT: Duration = Duration::from_secs(3);

/// The smallest log group of each standby that answers: name and bytes.
pub(crate) fn smallest_standby_logs(running: &Running) -> Vec<(String, u64)> {
    let smallest = |standby: &Remote| {
        standby.observation.as_ref()?.status.groups().iter().filter_map(|group| group.bytes).min()
    };
    let standbys = ask_standbys(running, false);
    standbys.iter().filter_map(|standby| Some((standby.name.clone(), smallest(standby)?))).collect()
}

/// Queries all standbys in parallel, so an unreachable one does not delay the others.
pub(crate) fn ask_standbys(running: &Running, history: bool) -> Vec<Remote> {
    let Some(primary) = running.primary() else { return Vec::new() };
    let destinations = primary.destinations().status();
    std::thread::scope(|scope| {
        let ask = |(destination, _): &(DestinationStatus, bool)| {
            let (name, address) = (destination.name.clone(), destination.address.clone());
            let security = running.environment.security();
            scope.spawn(move || {
                let answer = fetch_status(&address, &security, history, STANDBY_TIMEOUT);
                let answer = answer.map_err(|error| error.to_string()).and_then(|text| {
                    serde_json::from_str::<Observation>(&text).map_err(|error| error.to_string())
                });
                let (observation, error) = match answer {
                    Ok(observation) => (Some(Box::new(observation)), None),
                    Err(error) => (None, Some(error)),
                };
                Remote { name, observation, error, asked_us: standfast_environment::state::now::now_us() }
            })
        };
        let asked: Vec<_> = destinations.iter().map(ask).collect();
        asked.into_iter().filter_map(|asked| asked.join().ok()).collect()
    })
}
