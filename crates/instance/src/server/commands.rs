//! Carries out the requests of operators and applications.

use crate::observe::observation::observe;
use crate::observe::snapshots::Snapshots;
use crate::observe::status::{status, word};
use crate::role::drain;
use crate::role::running::Running;
use crate::role::running::role_change::FailoverOptions;
use crate::role::serving::Serving;
use crate::role::verification::Wanted;
use crate::server::answer::{
    CertificateRenewed, Checkpointed, ConvertedStandby, DestinationCleared, DestinationListed,
    DestinationSet, FailedOver, KeptFiles, KeptRemoved, LogRegistered, LogSwitched, MemberListed, Protected,
    Removed, Served, SnapshotTaken, SwitchedOver, TokenIssued, Unprotected, VerificationBegun,
};
use crate::server::request::Request;
use serde_json::{Value, json};
use standfast_documents::status::Protection;
use standfast_environment::config::attribute_text;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::fast_start_failover_config::FastStartMode;
use standfast_environment::config::settings::DestinationConfig;
use standfast_environment::context::kept;
use standfast_environment::security::Ask;
use standfast_environment::state::process::stop_this_process;
use std::sync::Arc;
use std::time::Duration;

/// How long a client that waits for a change of the role waits at a time.
const SERVING_WAIT: Duration = Duration::from_secs(10);

/// The instance to which commands are given.
#[derive(Clone)]
pub(crate) struct Instance {
    pub running: Arc<Running>,
    pub snapshots: Arc<Snapshots>,
}

impl Instance {
    /// Carries a request out; returns the answer.
    ///
    /// # Errors
    /// Those of the command.
    pub(crate) fn carry_out(&self, request: Request) -> Result<Value, InstanceError> {
        let running = &self.running;
        Ok(match request {
            Request::Status => json!(status(running)),
            Request::Serving { unless } => {
                let serving = match unless {
                    Some(known) => running.await_serving(&known, SERVING_WAIT),
                    None => running.serving(),
                };
                let changing = serving == Serving::NotYet;
                json!(Served { serving: serving.text().to_owned(), changing })
            }
            Request::Observe { history, standbys } => json!(observe(running, history, standbys)),
            // The rows are not JSON; `answer` sends them.
            Request::View { .. } => json!("rows"),
            Request::Snapshot => json!(SnapshotTaken { snapshot: self.snapshots.take(running)? }),
            Request::Stop => {
                stop_this_process();
                json!("stopping")
            }
            Request::Protect { path, name } => {
                json!(Protected { protected: running.protect(&path, name.as_deref())? })
            }
            Request::Unprotect { name } => json!(Unprotected { unprotected: running.unprotect(&name)? }),
            Request::Resolve { name, keep } => json!(running.resolve(&name, keep)?),
            Request::Kept => json!(KeptFiles { kept: kept::sorted(kept::files(&running.environment)) }),
            Request::RemoveKept { file } => {
                json!(KeptRemoved { removed: kept::remove(&running.environment, &file)? })
            }
            Request::SwitchLogfile => json!(LogSwitched { sequence: running.switch_logfile()? }),
            Request::ChangeLog { change } => json!(running.change_log(change)?),
            Request::RegisterLogfile { path } => {
                let registered = running.register_logfile(&path)?;
                json!(LogRegistered { sequence: registered.sequence, end: registered.end })
            }
            Request::Checkpoint => json!(Checkpointed { remaining: running.checkpoint()? }),
            Request::Verify { database, repair, bytes_per_s } => {
                let wanted = Wanted { database, repair, bytes_per_s, scheduled: false };
                json!(VerificationBegun { run: running.verify(&wanted)? })
            }
            Request::Verification => json!(running.verification().progress()),
            Request::Apply { on, no_delay } => {
                running.control_apply(on, no_delay)?;
                json!(if on { "apply started" } else { "apply stopped" })
            }
            Request::Convert { snapshot } => json!(ConvertedStandby::from(match snapshot {
                true => running.open_snapshot_standby()?,
                false => running.close_snapshot_standby()?,
            })),
            Request::Failover { wait_s, immediate, force } => {
                let timeout = wait_s.map_or(drain::TIMEOUT, Duration::from_secs);
                json!(FailedOver::from(running.failover(FailoverOptions { timeout, immediate, force })?))
            }
            Request::Switchover { to, drain_s } => {
                let done = running.switchover(&to, drain_s.map(Duration::from_secs))?;
                json!(SwitchedOver {
                    primary: done.primary,
                    branch: done.branch,
                    unavailable_ms: done.unavailable.as_millis() as u64,
                })
            }
            Request::SetDestination { destination, connect: true } => {
                let name = destination.name.clone();
                let found = running.add_destination(*destination)?;
                json!(DestinationSet { destination: name, found: Some(found) })
            }
            Request::SetDestination { destination, connect: false } => {
                let name = destination.name.clone();
                running.set_destination(*destination)?;
                json!(DestinationSet { destination: name, found: None })
            }
            Request::ClearDestination { id } => {
                running.clear_destination(id)?;
                json!(DestinationCleared { cleared: id })
            }
            Request::SetDestinationState { name, state } => {
                running.set_destination_state(&name, state)?;
                json!(DestinationSet { destination: name, found: None })
            }
            Request::ListDestinations => json!(listed(running)),
            Request::Configuration => json!(running.environment.shared_configuration.get()),
            Request::SetProperty { member, property, value } => {
                json!(running.set_property(member.as_deref(), &property, value.as_deref())?)
            }
            Request::FastStart { enable, force } => {
                let mode = if enable { FastStartMode::Enabled } else { FastStartMode::Disabled };
                running.set_fast_start(mode, force)?;
                json!(running.environment.shared_configuration.get())
            }
            Request::Observer => json!(running.ask_the_observer()?),
            Request::ReadyToTakeOver { name } => {
                running.check_switchover(&name)?;
                json!("ready")
            }
            Request::ProtectionMode { mode } => {
                mode.map_or(Ok(()), |mode| running.set_protection_mode(mode))?;
                let (mode, level) = running.protection();
                json!(Protection { mode: word(&mode), level: level.and_then(|level| word(&level)) })
            }
            Request::IssueToken { name, rights, ttl_s } => {
                let environment = &running.environment;
                let token = environment.keeper.issue_token(&name, rights.clone(), ttl_s)?;
                environment
                    .alert
                    .say(format!("a token for `{name}` was made, good for {ttl_s} s: it may {rights}"));
                json!(TokenIssued { token: token.reveal().to_owned() })
            }
            Request::RenewCertificate => {
                let notes = running.environment.keeper.renew(&Ask::default())?;
                json!(CertificateRenewed { notes })
            }
            Request::AllowMember { name, rights } => {
                running.environment.keeper.allow(&name, rights.clone())?;
                running.environment.alert.say(format!("`{name}` is listed by hand: it may {rights}"));
                json!(MemberListed { listed: name })
            }
            Request::RemoveMember { name } => {
                let environment = &running.environment;
                environment.keeper.remove(&name, &environment.destination_names())?;
                running.environment.alert.say(format!("`{name}` has no rights here any more"));
                json!(Removed { removed: name })
            }
            Request::RemoveDestination { name } => {
                running.remove_destination(&name)?;
                json!(Removed { removed: name })
            }
        })
    }
}

/// All destinations with their attributes, also in the notation of LOG_ARCHIVE_DEST_n.
fn listed(running: &Running) -> Vec<DestinationListed> {
    let row = |at: &DestinationConfig| DestinationListed {
        id: at.id,
        name: at.name.clone(),
        state: word(&at.state).unwrap_or_default(),
        attributes: attribute_text::write(at),
        config: at.clone(),
    };
    running.configured().iter().map(row).collect()
}
