//! Checks the state against thresholds: for monitoring, for the verdict and for the alert log.

use crate::figure;
use crate::lags::{Lag, apply_lag, is_heard, transport_lag};
use serde::{Deserialize, Serialize};
use standfast_documents::Status;
use standfast_documents::status::{Database, Destination};
use standfast_types::hint;
use std::collections::BTreeMap;

/// Sorted by importance, the lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Ok,
    Unknown,
    Warning,
    Critical,
}

impl Severity {
    /// The first word of a line for monitoring.
    pub fn word(self) -> &'static str {
        match self {
            Severity::Ok => "OK",
            Severity::Unknown => "UNKNOWN",
            Severity::Warning => "WARNING",
            Severity::Critical => "CRITICAL",
        }
    }

    /// Exit code of monitoring plugins: 0 ok, 1 warning, 2 critical, 3 unknown.
    pub fn exit_code(self) -> u8 {
        match self {
            Severity::Ok => 0,
            Severity::Warning => 1,
            Severity::Critical => 2,
            Severity::Unknown => 3,
        }
    }
}

/// Lags above which there is a finding, seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    pub warn_s: f64,
    pub critical_s: f64,
}

impl Limits {
    /// Replaces the limits that are given.
    pub fn with(self, warn_s: Option<f64>, critical_s: Option<f64>) -> Limits {
        Limits { warn_s: warn_s.unwrap_or(self.warn_s), critical_s: critical_s.unwrap_or(self.critical_s) }
    }

    /// Limits of an apply lag where an apply delay holds redo back on purpose for `delay_s` seconds.
    pub fn beyond_delay(self, delay_s: Option<u64>) -> Limits {
        let held = delay_s.unwrap_or(0) as f64;
        Limits { warn_s: self.warn_s + held, critical_s: self.critical_s + held }
    }

    fn severity(&self, seconds: f64) -> Severity {
        match seconds {
            _ if seconds > self.critical_s => Severity::Critical,
            _ if seconds > self.warn_s => Severity::Warning,
            _ => Severity::Ok,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    pub transport: Limits,
    pub apply: Limits,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds {
            transport: Limits { warn_s: 10.0, critical_s: 60.0 },
            apply: Limits { warn_s: 30.0, critical_s: 300.0 },
        }
    }
}

impl Thresholds {
    /// Returns the thresholds of the instance, with the default for each that it does not report.
    pub fn of(status: &Status) -> Thresholds {
        let (default, own) = (Thresholds::default(), status.thresholds.clone().unwrap_or_default());
        let seconds = |of: Option<u64>| of.map(|seconds| seconds as f64);
        let limits = |limits: Limits, warn_s, critical_s| limits.with(seconds(warn_s), seconds(critical_s));
        Thresholds {
            transport: limits(default.transport, own.transport_lag_warn_s, own.transport_lag_critical_s),
            apply: limits(default.apply, own.apply_lag_warn_s, own.apply_lag_critical_s),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub severity: Severity,
    /// The destination that it is about; `None`: this instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub destination: Option<String>,
    /// Number of the message that Data Guard has for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ora: Option<u32>,
    pub text: String,
}

/// The findings so far.
#[derive(Default)]
struct Found {
    all: Vec<Finding>,
    /// Those that follow are about this destination.
    destination: Option<String>,
}

impl Found {
    fn note(&mut self, severity: Severity, text: String) {
        self.put(severity, None, text);
    }

    fn ora(&mut self, number: u32, severity: Severity, text: String) {
        self.put(severity, Some(number), text);
    }

    fn put(&mut self, severity: Severity, ora: Option<u32>, text: String) {
        self.all.push(Finding { severity, destination: self.destination.clone(), ora, text });
    }
}

/// Finding for an instance that allows plain TCP, with the remedy.
const INSECURE: &str = "insecure: plain TCP lets every user and host that reaches the port read and write redo; give each instance a certificate \
                        (`standfast cert join`) and take `insecure = true` out of [instance] at both ends";

/// ORA numbers of Data Guard's messages.
const TRANSPORT_ERROR: u32 = 16_778;
const APPLY_STOPPED: u32 = 16_766;
const REINSTATE_REQUIRED: u32 = 16_661;
const UNSYNCHRONIZED: u32 = 16_817;
const UNOBSERVED: u32 = 16_820;

/// Name of a lag, and the numbers of its messages: above the threshold, unknown.
type LagWords = (&'static str, u32, u32);
const TRANSPORT_LAG: LagWords = ("transport lag", 16_855, 16_856);
const APPLY_LAG: LagWords = ("apply lag", 16_853, 16_854);

/// Maximum unprotected files that a finding names.
const UNPROTECTED_NAMED: usize = 3;

/// Returns what is wrong, the worst first.
pub fn findings(status: &Status, thresholds: &Thresholds) -> Vec<Finding> {
    let mut found = Found::default();
    let Some(role) = status.role.as_deref() else {
        found.note(Severity::Unknown, "the state is not known".into());
        return found.all;
    };
    if let Some(why) = &status.failure {
        let text = format!("failed: {}", hint::split(why).0);
        match status.state.as_deref() {
            Some("fenced") => found.ora(REINSTATE_REQUIRED, Severity::Critical, text),
            _ => found.note(Severity::Critical, text),
        }
    }
    let state = status.state.as_deref().unwrap_or(figure::UNKNOWN);
    if !["open", "applying", "forwarding"].contains(&state) && status.failure.is_none() {
        let severity = if state == "apply error" { Severity::Critical } else { Severity::Warning };
        found.note(severity, format!("the {role} is in state `{state}`"));
    }
    if let Some(event) = status.blocked_by() {
        found.note(Severity::Critical, format!("commits wait for {event}"));
    }
    if let Some(protection) = &status.protection
        && protection.level.as_deref() == Some("resynchronization")
    {
        found.note(
            Severity::Warning,
            "no synchronous standby is synchronised: commits are on this machine only".into(),
        );
    }
    if role == "primary"
        && let Some(protection) = &status.protection
        && protection.mode.as_deref() == Some("maximum-availability")
        && protection.level.as_deref() == Some("maximum-performance")
    {
        let text = "no synchronous standby is configured: commits are on this machine only";
        found.note(Severity::Warning, text.into());
    }
    if status.security.as_ref().and_then(|security| security.insecure) == Some(true) {
        found.note(Severity::Warning, INSECURE.into());
    }
    of_databases(status, role, &mut found);
    for moved in status.moved_files.as_deref().unwrap_or_default() {
        found.note(Severity::Critical, format!("not in its place: {moved}"));
    }
    for group in status.groups() {
        for member in group.lost_members.as_deref().unwrap_or_default() {
            found.note(Severity::Warning, format!("redo log member lost: {member}"));
        }
    }
    if let Some(files) = status.unprotected_files.as_deref().filter(|files| !files.is_empty()) {
        let named = files.iter().take(UNPROTECTED_NAMED).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = match files.len().saturating_sub(UNPROTECTED_NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        found.note(Severity::Warning, format!("not protected, in a protected directory: {named}{more}"));
    }
    for database in status.databases() {
        of_database(database, status.time_us, &mut found);
    }
    for destination in status.destinations() {
        found.destination = Some(destination.label().into());
        of_destination(destination, status.time_us, thresholds, &mut found);
    }
    found.destination = None;
    if let Some(pages) = status.differing_pages.as_deref().filter(|pages| !pages.is_empty()) {
        let whose = if status.is_primary() { "a former primary" } else { "the primary" };
        let names: std::collections::BTreeSet<_> =
            pages.iter().filter_map(|page| page.database.as_deref()).collect();
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        let text = format!("{} pages of {names} here differ from those of {whose}", pages.len());
        found.note(Severity::Critical, text);
    }
    of_standby(status, thresholds, &mut found);
    of_fast_start(status, &mut found);
    of_certificate(status, &mut found);
    found.all.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found.all
}

/// While fast-start failover is enabled, whatever keeps the target from taking over is a finding.
fn of_fast_start(status: &Status, found: &mut Found) {
    let Some(fast_start) = &status.fast_start_failover else { return };
    let observer = fast_start.observer.as_deref().unwrap_or(figure::UNKNOWN);
    let error = fast_start.observer_error.as_deref().filter(|error| !error.is_empty());
    let unobserved = || {
        let why = error.map_or_else(String::new, |error| format!(": {error}"));
        format!("fast-start failover: the observer {observer} is not heard{why}")
    };
    match fast_start.status.as_deref() {
        Some("SYNCHRONIZED" | "BYSTANDER") => {}
        Some("STALLED") => found.note(
            Severity::Critical,
            format!("fast-start failover: neither target nor observer is reached, no commit returns; {}", unobserved()),
        ),
        Some("PRIMARY UNOBSERVED" | "UNOBSERVED") => found.ora(UNOBSERVED, Severity::Warning, unobserved()),
        Some("UNSYNCHRONIZED") => found.ora(
            UNSYNCHRONIZED,
            Severity::Warning,
            "fast-start failover: no member is synchronised that could take over".into(),
        ),
        Some("SUSPENDED") => {
            found.note(Severity::Warning, "fast-start failover is suspended while the roles change".into());
        }
        Some("REINSTATE REQUIRED") => found.ora(
            REINSTATE_REQUIRED,
            Severity::Critical,
            "fast-start failover: another member has taken over or does, no commit returns".into(),
        ),
        Some("NOT READY") => found.note(
            Severity::Warning,
            "fast-start failover: this standby could not take over now: it has a gap, a database that is stopped, no right \
             to become primary, or gets its redo through another instance"
                .into(),
        ),
        Some("LACKS REDO") => found.note(
            Severity::Critical,
            "fast-start failover: this standby lacks redo that was acknowledged as its own".into(),
        ),
        other => found.note(
            Severity::Unknown,
            format!("fast-start failover: {}", other.unwrap_or(figure::UNKNOWN)),
        ),
    }
}

/// After a certificate has expired, replication ends with the next connection.
fn of_certificate(status: &Status, found: &mut Found) {
    let Some(certificate) = status.certificate() else { return };
    let left = crate::certificate::left(certificate, status.time_us)
        .map_or_else(String::new, |left| format!(", {left} left"));
    let why = certificate.renewal_failure.as_deref().and_then(|why| why.lines().next());
    let why = why.unwrap_or("no cause given");
    match certificate.state.as_deref() {
        Some("expired") => {
            found.note(
                Severity::Critical,
                format!("the certificate has expired, new connections are refused: {why}"),
            );
        }
        Some("not valid yet") => {
            found.note(
                Severity::Critical,
                format!(
                    "the certificate is not valid yet by the clock of this host, compare the clocks of the hosts: {why}"
                ),
            );
        }
        Some("renewal failed") => {
            found.note(Severity::Warning, format!("the certificate cannot be renewed{left}: {why}"));
        }
        Some("ending") => {
            found.note(Severity::Warning, format!("the certificate ends and was not renewed{left}"))
        }
        _ => {}
    }
}

/// Commits without the VFS waited for no standby: they are in the redo, but not protected as configured.
fn of_database(database: &Database, now_us: Option<u64>, found: &mut Found) {
    if let (Some(ago_s), Some(commits)) = (database.foreign_lately_s(now_us), database.foreign_commits) {
        let by = database.foreign_names().map_or_else(String::new, |names| format!(", open in {names}"));
        let text = format!(
            "{}: {commits} commits without Standfast, which waited for no standby, the last {} ago{by}",
            database.label(),
            figure::seconds(ago_s),
        );
        found.note(Severity::Warning, text);
    }
}

fn of_destination(
    destination: &Destination,
    now_us: Option<u64>,
    thresholds: &Thresholds,
    found: &mut Found,
) {
    let name = destination.label();
    if !is_heard(destination, now_us) {
        let state = destination.state.as_deref().unwrap_or(figure::UNKNOWN);
        found.ora(TRANSPORT_ERROR, Severity::Critical, format!("{name}: not connected ({state})"));
    }
    of_lag(name, TRANSPORT_LAG, transport_lag(destination, now_us), &thresholds.transport, found);
    if destination.role.as_deref() != Some("far sync") {
        let limits = thresholds.apply.beyond_delay(destination.delay_s);
        of_lag(name, APPLY_LAG, apply_lag(destination, now_us), &limits, found);
    }
    if destination.gap.is_some() {
        found.note(Severity::Warning, format!("{name}: logs are missing there and on their way (gap)"));
    }
    if let Some(stopped) = destination.stopped_total.filter(|stopped| *stopped > 0) {
        found.ora(
            APPLY_STOPPED,
            Severity::Critical,
            format!("{name}: redo is not applied to {}", stopped_there(destination, stopped)),
        );
    }
    if let Some(pages) = destination.differing_pages.filter(|pages| *pages > 0) {
        let databases = destination.verified_databases.as_deref().unwrap_or_default();
        let databases = databases.iter().filter(|at| at.differing.is_some_and(|pages| pages > 0));
        let names: Vec<_> = databases.filter_map(|at| at.database.as_deref()).collect();
        let of = if names.is_empty() { String::new() } else { format!(" of {}", names.join(", ")) };
        found.note(Severity::Critical, format!("{name}: {pages} pages{of} differ from those of the primary"));
    }
    match destination.standing.as_deref() {
        Some("degraded") => found.note(Severity::Warning, format!("{name}: commits no longer wait for it")),
        Some("new") => found.note(Severity::Warning, format!("{name}: commits do not wait for it yet")),
        _ => {}
    }
}

const NAMES: usize = 3;

fn stopped_there(destination: &Destination, total: u64) -> String {
    let stopped = destination.stopped_databases.as_deref().unwrap_or_default();
    if let Some(all) = stopped.iter().find(|at| at.database.as_deref() == Some("(all)")) {
        let why = all.reason.as_deref().map_or("no cause given", |why| hint::split(why).0);
        return format!("any database: {why}");
    }
    let names: Vec<&str> = stopped.iter().filter_map(|at| at.database.as_deref()).take(NAMES).collect();
    if names.is_empty() {
        format!("{total} databases")
    } else {
        format!("{total} databases ({})", names.join(", "))
    }
}

/// Databases whose state does not fit the role of the instance, grouped by state.
fn of_databases(status: &Status, role: &str, found: &mut Found) {
    // A failure of the whole instance is reported once.
    if status.failure.is_some() {
        return;
    }
    let good = if role == "primary" { "open" } else { "standby" };
    let mut bad: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for database in status.databases() {
        let state = database.state.clone().unwrap_or_else(|| figure::UNKNOWN.into());
        if state != good {
            bad.entry(state)
                .or_default()
                .push(database.name.clone().unwrap_or_else(|| figure::UNKNOWN.into()));
        }
    }
    for (state, names) in bad {
        let severity = if state == "recovering" { Severity::Warning } else { Severity::Critical };
        let (count, names) = (names.len(), names[..names.len().min(NAMES)].join(", "));
        let remedy = match state.as_str() {
            "left out" if role == "primary" => "; decide with `standfast database resolve NAME`",
            _ => "",
        };
        found.note(severity, format!("databases in state `{state}`: {count} ({names}){remedy}"));
    }
    let admitted = status.databases().iter().filter(|at| at.foreign_writers.as_deref() == Some("refusing"));
    let names: Vec<_> = admitted.filter_map(|database| database.name.clone()).collect();
    if let Some(named) = names.get(..names.len().min(NAMES)).filter(|named| !named.is_empty()) {
        let text = "processes without Standfast are not refused yet, because one writes or Standfast cannot take the lock";
        found.note(Severity::Warning, format!("{text}: {} ({})", names.len(), named.join(", ")));
    }
}

fn of_standby(status: &Status, thresholds: &Thresholds, found: &mut Found) {
    let Some(received) = &status.standby else { return };
    if received.connected != Some(true) {
        found.note(Severity::Critical, "not connected to its source".into());
    }
    let transport = Lag { seconds: received.transport_lag_s, bytes: received.transport_lag_bytes };
    of_lag("here", TRANSPORT_LAG, transport, &thresholds.transport, found);
    if status.role.as_deref() == Some("standby") {
        let apply = Lag { seconds: received.apply_lag_s, bytes: received.apply_lag_bytes };
        let limits = thresholds.apply.beyond_delay(received.delay_s);
        of_lag("here", APPLY_LAG, apply, &limits, found);
    }
    if received.gap.is_some() {
        found.note(Severity::Warning, "logs are missing here and on their way (gap)".into());
    }
}

fn of_lag(name: &str, (what, late, unknown): LagWords, lag: Lag, limits: &Limits, found: &mut Found) {
    match lag.seconds {
        None => found.ora(unknown, Severity::Unknown, format!("{name}: {what} unknown")),
        Some(seconds) => match limits.severity(seconds) {
            Severity::Ok => {}
            severity => found.ora(late, severity, format!("{name}: {what} {}", figure::seconds(seconds))),
        },
    }
}

/// Returns the severity of all findings together. A warning outranks an unknown.
pub fn severity(findings: &[Finding]) -> Severity {
    findings.iter().map(|finding| finding.severity).max().unwrap_or(Severity::Ok)
}

/// One line for monitoring: the severity, the instance, the findings, and the lags as performance data.
pub fn line(name: &str, status: &Status, thresholds: &Thresholds) -> (Severity, String) {
    let found = findings(status, thresholds);
    let severity = severity(&found);
    let role = status.role.as_deref().unwrap_or("role unknown");
    let what = match found.is_empty() {
        true => status.state.clone().unwrap_or_else(|| figure::UNKNOWN.into()),
        false => found.iter().map(|finding| finding.text.as_str()).collect::<Vec<_>>().join("; "),
    };
    let mut data = String::new();
    for destination in status.destinations() {
        let (transport, apply) =
            (transport_lag(destination, status.time_us), apply_lag(destination, status.time_us));
        data += &performance(destination.label(), "transport_lag", transport, &thresholds.transport);
        let limits = thresholds.apply.beyond_delay(destination.delay_s);
        data += &performance(destination.label(), "apply_lag", apply, &limits);
    }
    let bar = if data.is_empty() { "" } else { " |" };
    (severity, format!("STANDFAST {} - {name} ({role}): {what}{bar}{data}", severity.word()))
}

/// Performance data of one lag; monitoring plugins write `U` for an unknown value.
fn performance(name: &str, what: &str, lag: Lag, limits: &Limits) -> String {
    let value = lag.seconds.map_or_else(|| "U".into(), |seconds| format!("{seconds:.3}s"));
    format!(" {name}_{what}={value};{};{}", limits.warn_s, limits.critical_s)
}

#[cfg(test)]
mod tests;
