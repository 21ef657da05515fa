//! The third voice, as a member asks it: an observer, or a store.

use crate::role::running::Running;
use standfast_arbitration::arbiter::{Answer, Arbiter, Ask};
use standfast_arbitration::seen::Seen;
use standfast_environment::config::arbiter_config::ArbiterAddress;
use standfast_environment::config::fast_start_failover_config::FastStartFailoverConfig;
use standfast_environment::context::environment::Environment;
use standfast_environment::state::control::StoreSeen;
use standfast_environment::state::modes::{Readers, read_secret};
use standfast_stores::arbiter::StoreArbiter;
use standfast_stores::client::Access;
use standfast_stores::etcd::Etcd;
use standfast_transport::ObserverConnection;
use standfast_types::Hint;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

const LONGEST: Duration = Duration::from_secs(2);
const SHORTEST: Duration = Duration::from_millis(500);

/// Returns the third voice that `config` names.
pub(super) fn arbiter_of(running: &Running, config: &FastStartFailoverConfig) -> Box<dyn Arbiter> {
    let environment = &running.environment;
    let limit = (config.settings().ping_interval * 2).clamp(SHORTEST, LONGEST);
    let (name, address) = match config.arbiter() {
        Some(ArbiterAddress::Etcd { endpoints }) => {
            return Box::new(etcd_arbiter(environment, config.observer.clone(), endpoints, limit));
        }
        Some(ArbiterAddress::Observer { name, address }) => (name, address),
        None => Default::default(),
    };
    let security = environment.security().only([name]);
    let own = &environment.config.instance.name;
    Box::new(ObserverLink {
        connection: ObserverConnection::new(&address, security, own),
        limit,
        error: None,
    })
}

/// `observer`: the setting that names it.
fn etcd_arbiter(
    environment: &Arc<Environment>,
    observer: String,
    endpoints: Vec<String>,
    limit: Duration,
) -> StoreArbiter {
    let config = &environment.config.arbiter;
    let file = |path: &PathBuf| environment.paths.directory.join(path);
    let file_if_set = |path: &PathBuf| (!path.as_os_str().is_empty()).then(|| file(path));
    let access = Access {
        endpoints,
        is_insecure: config.insecure,
        authorities: file_if_set(&config.authorities),
        identity: file_if_set(&config.certificate).map(|certificate| (certificate, file(&config.key))),
        login: (!config.user.is_empty()).then(|| (config.user.clone(), file(&config.password_file))),
        read_secret: |path| read_secret(path, Readers::Owner).map_err(|error| error.in_one_line()),
        limit,
    };
    let family = environment.of_control(|control| control.family);
    let etcd = Etcd::new(access, &format!("standfast/{family}/fast-start-failover"));
    let seen = environment.of_control(|control| {
        let seen = control.store_seen.as_ref().filter(|seen| seen.observer == observer);
        Seen::new(seen.map_or(0, |seen| seen.serial), control.incarnation().number)
    });
    let environment = environment.clone();
    let keep = move |serial| {
        let seen = StoreSeen { observer: observer.clone(), serial };
        environment
            .update_control(|control| control.store_seen = Some(seen))
            .map_err(|error| error.in_one_line())
    };
    StoreArbiter::new(Box::new(etcd), seen, Box::new(keep))
}

struct ObserverLink {
    connection: ObserverConnection,
    limit: Duration,
    /// Why it did not answer the last time.
    error: Option<String>,
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
