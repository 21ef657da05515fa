//! Carries out the requests of operators and applications.

use crate::observe::observation::observe;
use crate::observe::snapshots::Snapshots;
use crate::observe::status::status;
use crate::role::drain;
use crate::role::running::Running;
use crate::role::running::role_change::TakenOver;
use crate::role::verification::Wanted;
use crate::server::request::Request;
use serde_json::{Value, json};
use standfast_environment::config::error::InstanceError;
use standfast_environment::context::kept;
use standfast_environment::security::Ask;
use standfast_environment::state::process::stop_this_process;
use std::sync::Arc;
use std::time::Duration;

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
            Request::Status => status(running),
            Request::Observe { history, standbys } => json!(observe(running, history, standbys)),
            // The rows are not JSON; `answer` sends them.
            Request::View { .. } => json!("rows"),
            Request::Snapshot => json!({ "snapshot": self.snapshots.take(running)? }),
            Request::Stop => {
                stop_this_process();
                json!("stopping")
            }
            Request::Protect { path, name } => {
                json!({ "protected": running.protect(&path, name.as_deref())? })
            }
            Request::Unprotect { name } => json!({ "unprotected": running.unprotect(&name)? }),
            Request::Resolve { name, keep } => running.resolve(&name, keep)?,
            Request::Kept => json!({ "kept": kept::sorted(kept::files(&running.environment)) }),
            Request::RemoveKept { file } => json!({ "removed": kept::remove(&running.environment, &file)? }),
            Request::SwitchLogfile => json!({ "sequence": running.switch_logfile()? }),
            Request::ChangeLog { change } => running.change_log(change)?,
            Request::RegisterLogfile { path } => {
                let registered = running.register_logfile(&path)?;
                json!({ "sequence": registered.sequence, "end": registered.end })
            }
            Request::Checkpoint => {
                json!({ "remaining": running.checkpoint()? })
            }
            Request::Verify { database, repair, bytes_per_s } => {
                let wanted = Wanted { database, repair, bytes_per_s, scheduled: false };
                json!({ "run": running.verify(&wanted)? })
            }
            Request::Verification => json!(running.verification().progress()),
            Request::Apply { on, no_delay } => {
                running.control_apply(on, no_delay)?;
                json!(if on { "apply started" } else { "apply stopped" })
            }
            Request::Failover { wait_s, force } => {
                let timeout = wait_s.map_or(drain::TIMEOUT, Duration::from_secs);
                let TakenOver { branch, drained, known, left_out, differing } =
                    running.failover(timeout, force)?;
                let drained = drained.map(|(complete, text)| json!({ "complete": complete, "text": text }));
                let left_out: Vec<_> = left_out
                    .iter()
                    .map(|left_out| {
                        json!({
                            "database": left_out.database,
                            "applied": left_out.applied,
                            "reason": left_out.reason,
                            "redo_from": left_out.redo_from,
                            "text": left_out.text(),
                            "remedy": left_out.remedy(),
                        })
                    })
                    .collect();
                let known = known.map(|(complete, text)| json!({ "complete": complete, "text": text }));
                json!({
                    "branch": branch,
                    "drained": drained,
                    "known": known,
                    "left_out": left_out,
                    "differing": differing,
                })
            }
            Request::SetDestination { destination, connect: true } => {
                let name = destination.name.clone();
                let found = running.add_destination(*destination)?;
                json!({ "destination": name, "found": found })
            }
            Request::SetDestination { destination, connect: false } => {
                let name = destination.name.clone();
                running.set_destination(*destination)?;
                json!({ "destination": name })
            }
            Request::ClearDestination { id } => {
                running.clear_destination(id)?;
                json!({ "cleared": id })
            }
            Request::SetDestinationState { name, state } => {
                running.set_destination_state(&name, state)?;
                json!({ "destination": name })
            }
            Request::ListDestinations => running.list_destinations(),
            Request::ProtectionMode { mode } => {
                mode.map_or(Ok(()), |mode| running.set_protection_mode(mode))?;
                let (mode, level) = running.protection();
                json!({ "mode": mode, "level": level })
            }
            Request::IssueToken { name, rights, ttl_s } => {
                let environment = &running.environment;
                let token = environment.keeper.issue_token(&name, rights.clone(), ttl_s)?;
                environment
                    .alert
                    .say(format!("a token for `{name}` was made, good for {ttl_s} s: it may {rights}"));
                json!({ "token": token.reveal() })
            }
            Request::RenewCertificate => {
                let told = running.environment.keeper.renew(&Ask::default())?;
                json!({ "told": told })
            }
            Request::AllowMember { name, rights } => {
                running.environment.keeper.allow(&name, rights.clone())?;
                running.environment.alert.say(format!("`{name}` is listed by hand: it may {rights}"));
                json!({ "listed": name })
            }
            Request::RemoveMember { name } => {
                let environment = &running.environment;
                environment.keeper.remove(&name, &environment.destination_names())?;
                running.environment.alert.say(format!("`{name}` has no rights here any more"));
                json!({ "removed": name })
            }
            Request::RemoveDestination { name } => {
                running.remove_destination(&name)?;
                json!({ "removed": name })
            }
        })
    }
}
