//! The observer as the arbiter of a member.

use crate::role::running::Running;
use standfast_arbitration::arbiter::{Answer, Arbiter, Ask};
use standfast_environment::config::fast_start_failover_config::FastStartFailoverConfig;
use standfast_transport::ObserverConnection;
use std::time::Duration;

const LONGEST: Duration = Duration::from_secs(2);
const SHORTEST: Duration = Duration::from_millis(500);

pub(super) struct ObserverLink {
    connection: ObserverConnection,
    limit: Duration,
    /// Why it did not answer the last time.
    error: Option<String>,
}

impl ObserverLink {
    pub fn new(running: &Running, config: &FastStartFailoverConfig) -> ObserverLink {
        let environment = &running.environment;
        let (name, address) = config.observer().unwrap_or_default();
        let security = environment.security().only([name.to_owned()]);
        let own = &environment.config.instance.name;
        ObserverLink {
            connection: ObserverConnection::new(address, security, own),
            limit: (config.settings().ping_interval * 2).clamp(SHORTEST, LONGEST),
            error: None,
        }
    }
}

impl Arbiter for ObserverLink {
    fn ask(&mut self, ask: &Ask) -> Answer {
        let asked = serde_json::to_value(ask).map_err(|error| error.to_string());
        let answer = asked
            .and_then(|ask| self.connection.ask(&ask, self.limit).map_err(|error| error.to_string()))
            .and_then(|answer| serde_json::from_value(answer).map_err(|error| error.to_string()));
        match answer {
            Ok(answer) => {
                self.error = None;
                answer
            }
            Err(error) => {
                self.error = Some(error);
                Answer::Nothing
            }
        }
    }

    fn error(&self) -> Option<&str> {
        self.error.as_deref()
    }
}
