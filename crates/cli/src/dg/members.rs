//! What `standfast dg` shows of a configuration: each member with its role, its lags and what is wrong, and a status of the
//! whole. Pure: from the documents that the instances report.

use serde::Serialize;
use standfast_documents::Status;
use standfast_documents::status::{Destination, FastStartFailover};
use standfast_environment::config::destination_config::State;
use standfast_environment::config::shared_configuration::SharedConfiguration;
use standfast_instruments::{Observation, Remote};
use standfast_live::{Finding, Severity, Thresholds, findings};

/// Data Guard's word for how a member, or the whole, stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Standing {
    Success,
    Disabled,
    Unknown,
    Warning,
    Error,
}

impl Standing {
    fn of(severity: Severity) -> Standing {
        match severity {
            Severity::Ok => Standing::Success,
            Severity::Unknown => Standing::Unknown,
            Severity::Warning => Standing::Warning,
            Severity::Critical => Standing::Error,
        }
    }

    pub fn word(self) -> &'static str {
        match self {
            Standing::Success => "SUCCESS",
            Standing::Disabled => "DISABLED",
            Standing::Unknown => "UNKNOWN",
            Standing::Warning => "WARNING",
            Standing::Error => "ERROR",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Member {
    pub name: String,
    pub role: &'static str,
    pub standing: Standing,
    /// Whether a standby applies redo; `None`: unknown.
    pub intended_state: Option<&'static str>,
    /// Seconds; `None`: unknown, or it has none.
    pub transport_lag_s: Option<f64>,
    pub apply_lag_s: Option<f64>,
    pub findings: Vec<Finding>,
}

/// A configuration as one of its members sees it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shown {
    /// Name of the instance that was asked.
    pub asked: String,
    pub protection_mode: Option<String>,
    /// Of fast-start failover; `None`: it is disabled.
    pub fast_start: Option<String>,
    pub version: Option<u64>,
    pub members: Vec<Member>,
    pub standing: Standing,
}

pub const PRIMARY: &str = "Primary database";
pub const STANDBY: &str = "Physical standby database";
pub const FAR_SYNC: &str = "Far sync instance";

fn role(word: Option<&str>) -> &'static str {
    match word {
        Some("primary") => PRIMARY,
        Some("far sync") => FAR_SYNC,
        _ => STANDBY,
    }
}

impl Shown {
    /// From what the asked instance observes, and the configuration that it keeps.
    pub fn of(observation: &Observation, kept: Option<&SharedConfiguration>) -> Shown {
        let status = &observation.status;
        let members = if status.is_primary() {
            primary_and_standbys(observation, kept)
        } else {
            seen_from_a_standby(status, kept)
        };
        let standing = members.iter().map(|member| member.standing).max().unwrap_or(Standing::Unknown);
        Shown {
            asked: observation.name.clone(),
            protection_mode: status.protection.as_ref().and_then(|protection| protection.mode.clone()),
            fast_start: status.fast_start_failover.as_ref().map(in_words),
            version: kept.map(|kept| kept.version),
            members,
            // A member that is disabled on purpose does not make the whole one less.
            standing: if standing == Standing::Disabled { Standing::Success } else { standing },
        }
    }

    pub fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }
}

fn in_words(of: &FastStartFailover) -> String {
    let status = of.status.as_deref().unwrap_or("unknown");
    match of.target.as_deref().filter(|target| !target.is_empty()) {
        Some(target) => format!("Enabled in Zero Data Loss Mode, {status}, target {target}"),
        None => format!("Enabled in Zero Data Loss Mode, {status}"),
    }
}

fn primary_and_standbys(observation: &Observation, kept: Option<&SharedConfiguration>) -> Vec<Member> {
    let status = &observation.status;
    let all = findings(status, &Thresholds::of(status));
    let (of_destinations, own): (Vec<_>, Vec<_>) = all.into_iter().partition(|at| at.destination.is_some());
    let mut members = vec![member(&observation.name, PRIMARY, own, None)];
    for destination in status.destinations() {
        let name = destination.label();
        let configured = kept.and_then(|kept| kept.standbys.iter().find(|at| at.name == name));
        let mut found: Vec<Finding> =
            of_destinations.iter().filter(|at| at.destination.as_deref() == Some(name)).cloned().collect();
        found.iter_mut().for_each(|finding| finding.text = without_name(&finding.text, name));
        let remote = observation.standbys.iter().find(|at| at.name == name);
        found.extend(remote.into_iter().flat_map(own_findings));
        found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
        members.push(shipped_to(destination, found, remote, configured.map(|at| at.state)));
    }
    // What is configured and has no sender: it is deferred.
    for at in kept.iter().flat_map(|kept| &kept.standbys) {
        if at.state == State::Defer && members.iter().all(|member| member.name != at.name) {
            let mut member = member(&at.name, STANDBY, Vec::new(), None);
            member.standing = Standing::Disabled;
            members.push(member);
        }
    }
    members
}

fn member(name: &str, role: &'static str, findings: Vec<Finding>, state: Option<&'static str>) -> Member {
    let severity = standfast_live::severity(&findings);
    Member {
        name: name.to_owned(),
        role,
        standing: Standing::of(severity),
        intended_state: state,
        transport_lag_s: None,
        apply_lag_s: None,
        findings,
    }
}

/// A finding of the primary about a destination begins with its name, which is in the heading here.
fn without_name(text: &str, name: &str) -> String {
    text.strip_prefix(name).and_then(|rest| rest.strip_prefix(": ")).unwrap_or(text).to_owned()
}

/// What a standby finds about itself, beyond what its primary finds about it.
fn own_findings(remote: &Remote) -> Vec<Finding> {
    let Some(observation) = &remote.observation else {
        let why = remote.error.as_deref().unwrap_or("no answer");
        return vec![Finding {
            severity: Severity::Unknown,
            destination: None,
            ora: None,
            text: format!("its own status is not known: {why}"),
        }];
    };
    let mut status = observation.status.clone();
    // Its primary has the lags, and whether it is heard.
    status.standby = None;
    let thresholds = Thresholds::of(&status);
    findings(&status, &thresholds).into_iter().filter(|finding| finding.destination.is_none()).collect()
}

fn shipped_to(
    at: &Destination,
    findings: Vec<Finding>,
    remote: Option<&Remote>,
    state: Option<State>,
) -> Member {
    let applies =
        remote.and_then(|remote| remote.observation.as_ref()).map(|observation| {
            match observation.status.state.as_deref() {
                Some("apply stopped" | "snapshot standby") => "APPLY-OFF",
                _ => "APPLY-ON",
            }
        });
    let mut member = member(at.label(), role(at.role.as_deref()), findings, applies);
    if state == Some(State::Defer) {
        member.standing = Standing::Disabled;
    }
    (member.transport_lag_s, member.apply_lag_s) = (at.transport_lag_s, at.apply_lag_s);
    member
}

/// A standby knows itself; of the others it knows that they exist.
fn seen_from_a_standby(status: &Status, kept: Option<&SharedConfiguration>) -> Vec<Member> {
    let name = status.name.clone().unwrap_or_default();
    let unknown =
        |name: &str, role| Member { standing: Standing::Unknown, ..member(name, role, vec![], None) };
    let own = findings(status, &Thresholds::of(status));
    let mut here = member(&name, role(status.role.as_deref()), own, None);
    if let Some(received) = &status.standby {
        (here.transport_lag_s, here.apply_lag_s) = (received.transport_lag_s, received.apply_lag_s);
    }
    let Some(kept) = kept else { return vec![here] };
    let mut members = Vec::new();
    if kept.primary != name {
        members.push(unknown(&kept.primary, PRIMARY));
    }
    for at in &kept.standbys {
        members.push(if at.name == name { here.clone() } else { unknown(&at.name, STANDBY) });
    }
    if members.iter().all(|member| member.name != name) {
        members.push(here);
    }
    members
}
