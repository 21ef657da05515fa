//! `validate database`: whether a member can take over, and what stands in its way, in both directions.

use super::members::{FAR_SYNC, Member, PRIMARY};
use serde::Serialize;
use standfast_documents::Status;
use standfast_documents::status::Destination;
use standfast_environment::InstanceError;
use standfast_environment::config::shared_configuration::SharedConfiguration;
use standfast_instruments::{Observation, Remote};
use standfast_types::{Hint, printable};
use std::fmt::Write;

/// A difference of clocks from which on it is a finding, seconds.
const CLOCKS_S: f64 = 1.0;
/// Exit code of a command that is refused in the present state.
const REFUSED: u8 = 3;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Check {
    pub what: &'static str,
    /// `None`: not known.
    pub is_well: Option<bool>,
    pub found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    pub name: String,
    pub role: &'static str,
    pub checks: Vec<Check>,
}

impl Report {
    pub fn is_well(&self) -> bool {
        self.checks.iter().all(|check| check.is_well == Some(true))
    }

    /// What is not well, and whether it is ready; `verbose`: everything.
    pub fn text(&self, verbose: bool) -> String {
        let mut out = format!("\n  {:<22} {}\n", "Database Role:", self.role);
        for check in &self.checks {
            if !verbose && check.is_well == Some(true) && !check.what.starts_with("Ready") {
                continue;
            }
            let word = match check.is_well {
                Some(true) => "Yes",
                Some(false) => "No",
                None => "Unknown",
            };
            let word = if check.what.starts_with("Ready") {
                format!("{word}; ")
            } else {
                mark(check.is_well).into()
            };
            let what = format!("{}:", check.what);
            let found = printable(&check.found, usize::MAX);
            let _ = writeln!(out, "  {what:<22} {}", format!("{word}{found}").trim_end_matches("; "));
            if let Some(remedy) = &check.remedy {
                let _ = writeln!(out, "  {:<22} hint: {}", "", printable(remedy, usize::MAX));
            }
        }
        out.push('\n');
        out
    }
}

fn mark(is_well: Option<bool>) -> &'static str {
    match is_well {
        Some(true) => "",
        Some(false) => "WRONG: ",
        None => "UNKNOWN: ",
    }
}

fn check(what: &'static str, is_well: impl Into<Option<bool>>, found: impl Into<String>) -> Check {
    Check { what, is_well: is_well.into(), found: found.into(), remedy: None }
}

impl Check {
    /// What to do if it is not well.
    fn or(mut self, remedy: impl Into<String>) -> Check {
        self.remedy = (self.is_well != Some(true)).then(|| remedy.into());
        self
    }
}

/// Examines `member`. `asked`: what it answered when it was asked whether it can take over.
pub fn report(
    observation: &Observation,
    kept: Option<&SharedConfiguration>,
    member: &Member,
    asked: Option<&Result<(), InstanceError>>,
) -> Report {
    let status = &observation.status;
    let destination = status.destinations().iter().find(|at| at.label() == member.name);
    let remote = observation.standbys.iter().find(|at| at.name == member.name);
    let checks = match (destination, status.is_primary()) {
        (Some(destination), true) => {
            let mut checks = ready(destination, member.role, asked);
            checks.extend(of_standby(status, destination, remote));
            checks
        }
        (None, true) if member.role == PRIMARY => of_primary(status),
        (None, true) => vec![
            check("Ready for Switchover", false, "no redo is shipped to it")
                .or(format!("`standfast dg enable database {}`", member.name)),
        ],
        (_, false) => {
            let primary = kept.map_or("the primary", |kept| kept.primary.as_str());
            vec![
                check("Ready for Switchover", None, "this instance is no primary")
                    .or(format!("validate it at `{primary}`")),
            ]
        }
    };
    Report { name: member.name.clone(), role: member.role, checks }
}

fn ready(at: &Destination, role: &str, asked: Option<&Result<(), InstanceError>>) -> Vec<Check> {
    if role == FAR_SYNC {
        return Vec::new();
    }
    let switchover = match asked {
        Some(Ok(())) => check("Ready for Switchover", true, ""),
        Some(Err(error)) => {
            // Of any other error it is not known what the standby would have answered.
            let is_ready = (error.exit_code() == REFUSED).then_some(false);
            check("Ready for Switchover", is_ready, error.to_string()).or(error.hint().unwrap_or_default())
        }
        None => check("Ready for Switchover", None, "it was not asked"),
    };
    let stopped = at.stopped_total.unwrap_or(0);
    let failover = match (at.is_streaming(), at.gap.is_some(), stopped) {
        (false, ..) => check("Ready for Failover", false, "what it lacks is not known: no redo flows to it"),
        (_, true, _) => check("Ready for Failover", false, "archived logs of a gap are missing there"),
        (.., 1..) => {
            check("Ready for Failover", false, format!("redo is not applied to {stopped} databases"))
        }
        _ => check("Ready for Failover", true, loss(at)),
    };
    vec![switchover, failover]
}

/// What a failover now would lose.
fn loss(at: &Destination) -> String {
    match (at.required, at.transport_lag_s) {
        (Some(true), _) => "no acknowledged commit would be lost".into(),
        (_, Some(seconds)) => format!("commits of about {seconds:.1} s would be lost"),
        (_, None) => "what would be lost is not known".into(),
    }
}

fn of_primary(status: &Status) -> Vec<Check> {
    let mode = status.protection.as_ref().and_then(|protection| protection.mode.as_deref());
    let promises = mode != Some("maximum-performance");
    let sync = status.destinations().iter().filter(|at| at.required == Some(true)).count();
    vec![
        databases("Databases", status, "open"),
        check("Protection", sync > 0 || !promises, format!("commits wait for {sync} standbys"))
            .or("`standfast dg add database NAME as connect identifier is HOST:PORT`, and wait until it is synchronised"),
        listens(status),
        certificate("Certificate", status),
    ]
}

fn of_standby(primary: &Status, at: &Destination, remote: Option<&Remote>) -> Vec<Check> {
    let state = at.state.as_deref().unwrap_or("unknown");
    let mut checks = vec![
        check(
            "Transport",
            at.is_streaming(),
            format!("{state}, {}", at.mode.as_deref().unwrap_or("unknown")),
        )
        .or(at
            .last_trouble
            .clone()
            .unwrap_or_else(|| "`standfast dg show database` says what is wrong".into())),
        check("Gap", at.gap.is_none(), if at.gap.is_none() { "none" } else { "logs are missing there" }),
        listens(primary),
        certificate("Primary certificate", primary),
    ];
    let Some((remote, there)) = remote.and_then(|at| Some((at, &at.observation.as_ref()?.status))) else {
        let why = remote.and_then(|at| at.error.clone()).unwrap_or_else(|| "it was not asked".into());
        checks.push(check("Its own report", None, why).or("start it, or reach it"));
        return checks;
    };
    checks.push(
        check("Versions", there.version == primary.version, versions(primary, there))
            .or("install the same release at both"),
    );
    checks.push(certificate("Its certificate", there));
    checks.push(clocks(there, remote));
    if at.is_standby() {
        checks.push(databases("Databases there", there, "standby"));
        let known = there.databases().len() == primary.databases().len();
        let found =
            format!("{} there, {} at the primary", there.databases().len(), primary.databases().len());
        checks
            .push(check("Number of databases", known, found).or("wait until it has applied the newest redo"));
    }
    // It compares them with those of its primary itself, when a stream begins.
    let received = there.standby.as_ref().filter(|_| at.is_streaming());
    let sizes = received.map(|received| received.log_warning.clone());
    let found = sizes.clone().map_or("not known".into(), |warning| warning.unwrap_or("as needed".into()));
    checks.push(
        check("Standby logs", sizes.map(|warning| warning.is_none()), found)
            .or("`standfast log group add` there"),
    );
    checks
}

fn versions(primary: &Status, there: &Status) -> String {
    let of = |status: &Status| status.version.clone().unwrap_or_else(|| "unknown".into());
    format!("{} at the primary, {} there", of(primary), of(there))
}

/// As a standby the primary must be reachable for redo.
fn listens(primary: &Status) -> Check {
    let address = primary.listen.as_deref().unwrap_or_default();
    let found = if address.is_empty() { "nowhere: as a standby it could not receive redo" } else { address };
    check("The primary listens", !address.is_empty(), found).or("set [instance] listen there and restart it")
}

fn certificate(what: &'static str, status: &Status) -> Check {
    if status.security.as_ref().is_some_and(|security| security.insecure == Some(true)) {
        return check(what, false, "none: connections are plain TCP")
            .or("`standfast cert join`, then take `insecure = true` out at both ends");
    }
    let Some(certificate) = status.certificate() else { return check(what, None, "not known") };
    let state = certificate.state.as_deref();
    let left = standfast_live::certificate::left(certificate, status.time_us);
    let left = left.map_or_else(String::new, |left| format!(", {left} left"));
    let is_well = state.map(|state| ["valid", "due"].contains(&state));
    check(what, is_well, format!("{}{left}", state.unwrap_or("not known"))).or("`standfast cert renew` there")
}

fn clocks(there: &Status, remote: &Remote) -> Check {
    let Some(time_us) = there.time_us else { return check("Clocks", None, "not known") };
    // Its answer took at most as long as its request was allowed to, and is usually far quicker.
    let apart_s = time_us.abs_diff(remote.asked_us) as f64 / 1e6;
    check("Clocks", apart_s <= CLOCKS_S, format!("{apart_s:.1} s apart")).or("set the one that is wrong")
}

fn databases(what: &'static str, status: &Status, good: &str) -> Check {
    let bad: Vec<&str> = status
        .databases()
        .iter()
        .filter(|at| at.state.as_deref() != Some(good))
        .map(|at| at.label())
        .collect();
    let found = match bad.as_slice() {
        [] => format!("{}, all {good}", status.databases().len()),
        bad => format!("not {good}: {}", bad.join(", ")),
    };
    check(what, bad.is_empty(), found).or("`standfast status` there says why")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn observed(destination: Value, there: Value) -> Observation {
        let primary = json!({ "role": "primary", "state": "open", "version": "1", "listen": "a:1",
            "security": { "certificate": { "state": "valid", "days_left": 90 } },
            "databases": [{ "name": "app.db", "state": "open" }], "destinations": [destination] });
        let remote = Remote {
            name: "beta".into(),
            observation: Some(Box::new(Observation { status: Status::of(&there), ..Observation::default() })),
            error: None,
            asked_us: 5_000_000,
        };
        Observation {
            name: "alpha".into(),
            status: Status::of(&primary),
            standbys: vec![remote],
            ..Observation::default()
        }
    }

    fn beta() -> Value {
        json!({ "name": "beta", "role": "standby", "state": "streaming", "mode": "sync-affirm", "required": true })
    }

    fn there() -> Value {
        json!({ "role": "standby", "version": "1", "time_us": 5_100_000, "security": { "certificate": { "state": "due", "days_left": 1 } },
            "databases": [{ "name": "app.db", "state": "standby" }],
            "standby": { "log_warning": null } })
    }

    fn examined(destination: Value, there: Value) -> Report {
        let observation = observed(destination, there);
        let shown = super::super::members::Shown::of(&observation, None);
        report(&observation, None, shown.member("beta").unwrap(), Some(&Ok(())))
    }

    fn wrong(report: &Report) -> Vec<&'static str> {
        report.checks.iter().filter(|check| check.is_well != Some(true)).map(|check| check.what).collect()
    }

    #[test]
    fn standby_that_can_take_over_passes_every_check() {
        let report = examined(beta(), there());
        assert!(report.is_well(), "{}", report.text(true));
        let text = report.text(false);
        assert!(text.contains("Ready for Switchover:  Yes\n"), "{text}");
        assert!(text.contains("Yes; no acknowledged commit would be lost"), "{text}");
        assert!(!text.contains("Clocks") && report.text(true).contains("Clocks"), "{text}");
    }

    #[test]
    fn each_obstacle_is_named() {
        let with = |key: &str, value: Value| {
            let (mut at, mut there) = (beta(), there());
            match key.strip_prefix("there/") {
                Some(key) => there[key] = value,
                None => at[key] = value,
            }
            wrong(&examined(at, there))
        };
        assert_eq!(with("state", json!("connecting")), ["Ready for Failover", "Transport", "Standby logs"]);
        assert_eq!(with("gap", json!({ "from": 1 })), ["Ready for Failover", "Gap"]);
        assert_eq!(with("stopped_total", json!(2)), ["Ready for Failover"]);
        assert_eq!(with("there/version", json!("0.9")), ["Versions"]);
        assert_eq!(with("there/time_us", json!(9_000_000)), ["Clocks"]);
        assert_eq!(
            with("there/security", json!({ "certificate": { "state": "ending", "days_left": 3 } })),
            ["Its certificate"]
        );
        assert_eq!(with("there/security", json!({ "insecure": true })), ["Its certificate"]);
        assert_eq!(with("there/databases", json!([])), ["Number of databases"]);
        assert_eq!(
            with("there/databases", json!([{ "name": "app.db", "state": "stopped" }])),
            ["Databases there"]
        );
        assert_eq!(with("there/standby", json!({ "log_warning": "two logs of 64 bytes" })), ["Standby logs"]);
        let absent = with("there/version", Value::Null);
        assert_eq!(absent, ["Versions"], "unknown is not well");
    }

    #[test]
    fn refusal_of_the_standby_is_printed_with_its_remedy() {
        let observation = observed(beta(), there());
        let shown = super::super::members::Shown::of(&observation, None);
        let refused =
            Err(InstanceError::refused("`beta` may not become primary", "`standfast cert allow beta`"));
        let report = report(&observation, None, shown.member("beta").unwrap(), Some(&refused));
        let text = report.text(false);
        assert!(text.contains("No; `beta` may not become primary\n"), "{text}");
        assert!(text.contains("hint: `standfast cert allow beta`"), "{text}");
    }
}
