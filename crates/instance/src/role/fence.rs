//! Lifts a fence for an operator: another instance became primary by mistake, and this one continues.
//!
//! The instance must be stopped, and the other one must not be reachable as an open primary: otherwise both would
//! acknowledge commits. Claims about that incarnation are ignored afterwards; otherwise the next connection would fence
//! again.

use standfast_documents::Status;
use standfast_environment::config::error::InstanceError;
use standfast_environment::config::settings::Config;
use standfast_environment::context::environment::{keeper_of, security_of};
use standfast_environment::state::alert::AlertLog;
use standfast_environment::state::control::{Control, FencedBy, Role};
use standfast_environment::state::lock::lock_stopped;
use standfast_environment::state::paths::Paths;
use standfast_io::DirectDisk;
use standfast_transport::{Right, fetch_status};
use std::path::Path;
use std::time::Duration;

/// How long an instance may be silent when it is asked whether it is the primary.
pub(crate) const SILENCE: Duration = Duration::from_secs(5);

/// What another instance reports about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Other {
    /// It is open as primary, in this incarnation.
    Primary(u64),
    /// It is not open as primary; the text is its state.
    NotPrimary(String),
    /// It does not answer; the reason.
    Silent(String),
}

/// Lifts the fence of the instance in `directory`; without `sure` only describes what it would do. Returns the
/// description, line by line.
///
/// # Errors
/// When the instance runs, is not fenced, or another instance is open as primary; when a file cannot be written.
/// Nothing has changed then.
pub fn lift(directory: &Path, sure: bool) -> Result<Vec<String>, InstanceError> {
    let config = Config::load(directory)?;
    let paths = Paths::new(directory, &config)
        .map_err(InstanceError::io("find the instance directory", directory))?;
    let _lock = lock_stopped(&paths)?;
    let mut control = Control::load(&DirectDisk, &paths.control)?;
    if let Some(reinstating) = &control.reinstating {
        return Err(reinstating.unfinished(directory));
    }
    let by = fence_of(&control)?;
    let keeper = keeper_of(&config, &paths);
    let (security, members) = (security_of(&config, &keeper), keeper.members()?);
    let mut lines = Vec::new();
    for destination in config.destinations.iter().filter(|destination| !destination.is_local()) {
        let answer =
            // If another member answers at this address, its state says nothing about the one that is asked for.
            fetch_status(&destination.address, &security.clone().only([destination.name.clone()]), false, SILENCE)
                .map_err(|error| error.to_string());
        // A host that may not become primary is not trusted when it claims to be one, as when it connects.
        let may = members.listed_rights(&destination.name).is_none_or(|rights| rights.has(Right::Candidate));
        match judge(answer) {
            Other::Primary(_) if !may => lines.push(format!(
                "`{}` says that it is primary, and may not become primary: that counts for nothing",
                destination.name
            )),
            Other::Primary(incarnation) => {
                return Err(InstanceError::refused(
                    format!(
                        "`{}` at {} is open as primary, of incarnation {incarnation}: what it has acknowledged would be lost",
                        destination.name, destination.address
                    ),
                    format!(
                        "continue there, and make this one its standby; or stop `{}` first (`standfast stop`), and run this again",
                        destination.name
                    ),
                ));
            }
            Other::NotPrimary(role) => lines.push(format!("`{}` is no primary: {role}", destination.name)),
            Other::Silent(why) => lines.push(format!(
                "`{}` does not answer ({why}): MAKE SURE that it is not open as primary",
                destination.name
            )),
        }
    }
    lines.extend(plan(&control, by.as_ref()));
    if !sure {
        return Ok(lines);
    }
    apply(&mut control, by.as_ref());
    let alert = AlertLog::new(&paths.alert, &config)?;
    control.store(&DirectDisk, &paths.control)?;
    let of = by.map_or_else(String::new, |by| {
        format!(
            " of incarnation {}, reported by `{}`: reports about that incarnation no longer count here",
            by.incarnation.number, by.peer
        )
    });
    alert.say(format!("FENCE LIFTED by an operator{of}"));
    alert.flush();
    Ok(lines)
}

/// Returns what fenced the instance; the inner `None`: an earlier release did not record it.
fn fence_of(control: &Control) -> Result<Option<FencedBy>, InstanceError> {
    if control.fenced.is_some() {
        return Ok(control.trust.fenced_by.clone());
    }
    let newer = control.superseded_by.as_ref().and_then(|newer| {
        let last = newer.incarnations.last()?;
        let incarnation =
            standfast_transport::Incarnation { number: last.number, id: last.id, branch: last.branch };
        Some(FencedBy { peer: newer.peer.clone(), incarnation })
    });
    newer.map(Some).ok_or_else(|| {
        InstanceError::refused("this instance is not fenced, and follows what it knows of", "nothing to do")
    })
}

pub(crate) fn judge(answer: Result<String, String>) -> Other {
    let text = match answer {
        Ok(text) => text,
        Err(why) => return Other::Silent(why),
    };
    let Ok(status) = Status::in_observation(&text) else {
        return Other::Silent("its answer cannot be read".into());
    };
    let word = |of: &Option<String>| of.clone().unwrap_or_else(|| "unknown".into());
    match (word(&status.role).as_str(), word(&status.state).as_str()) {
        // A primary that is fenced, or whose log has failed, acknowledges nothing.
        ("primary", "fenced" | "poisoned" | "failed") => {
            Other::NotPrimary(format!("its state is {}", word(&status.state)))
        }
        ("primary", _) => Other::Primary(status.incarnation.unwrap_or_default()),
        (role, state) => Other::NotPrimary(format!("{role}, {state}")),
    }
}

fn plan(control: &Control, by: Option<&FencedBy>) -> Vec<String> {
    let mut lines = Vec::new();
    let role = control.role;
    match by {
        Some(FencedBy { peer, incarnation }) => {
            lines.push(format!(
                "this {role} continues with its own incarnation {}; incarnation {}, which left it at SCN {} and of which `{peer}` \
                 spoke, counts for nothing here any more",
                control.incarnation().number,
                incarnation.number,
                incarnation.branch
            ));
            lines.push(format!(
                "commits that were acknowledged in incarnation {} are not here; every instance that follows it has to be made \
                 again with `standfast standby create`",
                incarnation.number
            ));
        }
        None => lines.push(format!(
            "this {role} continues with its own incarnation {}; by which one it was fenced was not noted by the release that did \
             it, so an instance that follows that one fences it again when they meet",
            control.incarnation().number
        )),
    }
    if control.role == Role::Primary {
        lines.push("it opens as primary at the next `standfast start`".into());
    }
    lines
}

fn apply(control: &mut Control, by: Option<&FencedBy>) {
    control.fenced = None;
    control.superseded_by = None;
    control.trust.fenced_by = None;
    if let Some(by) = by {
        control.trust.disown(by.incarnation.id);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fence_check_detects_a_primary_that_still_acknowledges() {
        let says = |role: &str, state: &str| {
            judge(Ok(format!(r#"{{"status": {{"role": "{role}", "state": "{state}", "incarnation": 2}}}}"#)))
        };
        assert_eq!(says("primary", "open"), Other::Primary(2));
        assert_eq!(says("primary", "starting"), Other::Primary(2), "what is not known counts as open");
        for (role, state) in [("primary", "fenced"), ("primary", "poisoned"), ("standby", "applying")] {
            assert!(matches!(says(role, state), Other::NotPrimary(_)), "{role} {state}");
        }
        assert!(matches!(judge(Ok("?".into())), Other::Silent(_)));
        assert_eq!(judge(Err("refused".into())), Other::Silent("refused".into()));
    }
}
