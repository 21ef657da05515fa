//! What `standfast dg` prints, in the layout of DGMGRL.

use super::members::{FAR_SYNC, Member, PRIMARY, Shown, Standing};
use standfast_documents::ObserverState;
use standfast_documents::status::FastStartFailover;
use standfast_environment::config::properties::{OF_A_MEMBER, OF_THE_CONFIGURATION, Property};
use standfast_environment::config::shared_configuration::SharedConfiguration;
use standfast_live::{Finding, Severity};
use standfast_types::printable;
use std::fmt::Write;

const COMMANDS: &str = "\
show configuration [lag] [verbose]            members, what is wrong with them, status of the whole
show configuration PROPERTY
show database [verbose] NAME [PROPERTY]       a member: `database`, `far_sync` and `member` mean the same
edit configuration set property P = VALUE     also: reset property P
edit configuration set protection mode as MAXPERFORMANCE | MAXAVAILABILITY | MAXPROTECTION
edit database NAME set property P = VALUE     also: reset property P
edit database NAME set state = APPLY-ON | APPLY-OFF            at that standby
enable database NAME                          redo is shipped to it
disable database NAME                         no redo is shipped to it, until it is enabled
add database NAME as connect identifier is HOST:PORT
remove database NAME                          from the configuration; its files stay
validate database [verbose] NAME              whether it can take over
export configuration [to FILE]                as JSON
switchover to NAME                            at the primary
failover to NAME [immediate] [force]          at that standby
convert database NAME to snapshot standby     or to physical standby; at that standby
reinstate database NAME                       says how
enable fast_start failover                    the target takes over by itself
disable fast_start failover [force]
show fast_start failover
show observer
help [properties]
exit

Words are not case-sensitive. Put names and values with blanks in quotes. A line that begins with `--` is a comment.
";

/// Returns the list of commands, or of properties.
pub fn help(about: Option<&str>) -> String {
    match about {
        Some(about) if about.eq_ignore_ascii_case("properties") => {
            let mut out = String::from("of the configuration:\n");
            properties(&mut out, &OF_THE_CONFIGURATION);
            out += "of a member to which redo is shipped:\n";
            properties(&mut out, &OF_A_MEMBER);
            out
        }
        _ => COMMANDS.into(),
    }
}

fn properties<T>(out: &mut String, all: &[Property<T>]) {
    for property in all {
        let _ = writeln!(out, "  {:<28}{}; {}", property.name, property.values, property.meaning);
    }
}

/// `maximum-availability` is MaxAvailability there.
fn protection(mode: Option<&str>) -> &'static str {
    match mode {
        Some("maximum-performance") => "MaxPerformance",
        Some("maximum-availability") => "MaxAvailability",
        Some("maximum-protection") => "MaxProtection",
        _ => "unknown",
    }
}

fn seconds(lag: Option<f64>) -> String {
    match lag {
        None => "(unknown)".into(),
        Some(seconds) if seconds < 10.0 => format!("{seconds:.1} seconds"),
        Some(seconds) => format!("{seconds:.0} seconds"),
    }
}

fn name(of: &str) -> String {
    printable(of, usize::MAX)
}

fn finding(out: &mut String, indent: usize, finding: &Finding) {
    let word = match finding.severity {
        Severity::Critical => "Error",
        Severity::Warning => "Warning",
        _ => "Unknown",
    };
    let ora = finding.ora.map_or_else(String::new, |number| format!("ORA-{number}: "));
    let _ = writeln!(out, "{:indent$}{word}: {ora}{}", "", name(&finding.text));
}

/// `show configuration`; with `kept`, its properties too.
pub fn configuration(shown: &Shown, kept: Option<&SharedConfiguration>, lag: bool) -> String {
    let mut out = String::from("\nConfiguration");
    if let Some(version) = shown.version {
        let _ = write!(out, ", version {version}");
    }
    let _ = writeln!(out, "\n\n  Protection Mode: {}", protection(shown.protection_mode.as_deref()));
    out += "  Members:\n";
    for member in &shown.members {
        let indent = if member.role == PRIMARY { 2 } else { 4 };
        let off = if member.standing == Standing::Disabled { " (disabled)" } else { "" };
        let _ = writeln!(out, "{:indent$}{} - {}{off}", "", name(&member.name), member.role);
        if lag && member.role != PRIMARY {
            lags(&mut out, indent + 2, member);
        }
        member.findings.iter().for_each(|at| finding(&mut out, indent + 2, at));
    }
    if let Some(kept) = kept {
        out += "\n  Properties:\n";
        for property in &OF_THE_CONFIGURATION {
            let _ = writeln!(out, "    {:<28}= '{}'", property.name, property.show(&kept.role_change));
        }
    }
    let _ = writeln!(out, "\nFast-Start Failover:  {}", shown.fast_start.as_deref().unwrap_or("Disabled"));
    let _ = writeln!(out, "\nConfiguration Status:\n{}", shown.standing.word());
    if shown.standing == Standing::Unknown
        && shown.members.first().is_some_and(|at| at.standing == Standing::Unknown)
    {
        let _ = writeln!(out, "  hint: a standby does not know how the others are; ask the primary");
    }
    out
}

/// `show fast_start failover`
pub fn fast_start(shown: Option<&FastStartFailover>, kept: Option<&SharedConfiguration>) -> String {
    let Some(shown) = shown else { return "\nFast-Start Failover:  Disabled\n".into() };
    let or_none = |text: &Option<String>| match text.as_deref() {
        None => "(unknown)".to_owned(),
        Some("") => "(none)".to_owned(),
        Some(text) => name(text),
    };
    let mut out = String::from("\nFast-Start Failover:  Enabled in Zero Data Loss Mode\n\n");
    let _ = writeln!(out, "  Status:             {}", or_none(&shown.status));
    let _ = writeln!(out, "  Active Target:      {}", or_none(&shown.target));
    let _ = writeln!(out, "  Observer:           {}", or_none(&shown.observer));
    if shown.observer_error.as_deref().is_some_and(|error| !error.is_empty()) {
        let _ = writeln!(out, "    {}", or_none(&shown.observer_error));
    }
    let threshold = shown.threshold_ms.map(|ms| ms as f64 / 1000.0);
    let _ = writeln!(out, "  Threshold:          {}", seconds(threshold));
    if let Some(kept) = kept {
        let config = &kept.role_change.fast_start_failover;
        let _ = writeln!(out, "  Ping Interval:      {} milliseconds", config.ping_interval_ms);
        let word = |yes: bool| if yes { "TRUE" } else { "FALSE" };
        let _ = writeln!(out, "  Shutdown Primary:   {}", word(config.primary_shutdown));
        let _ = writeln!(out, "  Observer Override:  {}", word(config.observer_override));
    }
    out
}

/// `show observer`, from what the observer reports.
pub fn observer(state: &ObserverState) -> String {
    let text = |of: &Option<String>| of.as_deref().map_or_else(|| "(unknown)".into(), name);
    let decides = match state.votes {
        Some(true) => "observing",
        Some(false) => "decides nothing before primary and target have reported where they stand",
        None => "(unknown)",
    };
    let mut out = format!("\nObserver {} - {decides}\n\n", text(&state.name));
    if let Some(record) = &state.record {
        let standing = match record.standing.as_deref() {
            Some("synchronized") => format!("`{}` may take over", text(&record.target)),
            Some("unsynchronized") => "no member may take over".into(),
            Some("failed_over") if record.has_all == Some(true) => {
                format!("`{}` takes over, or has", text(&record.by))
            }
            Some("failed_over") => {
                format!("`{}` takes over, or has, ordered by an operator", text(&record.by))
            }
            _ => "(unknown)".into(),
        };
        let _ = writeln!(out, "  Primary:            {}", text(&record.primary));
        let _ = writeln!(out, "  Standing:           {standing}");
    } else {
        out += "  no primary has reported to it\n";
    }
    for heard in state.heard.iter().flatten() {
        let ago = heard.ago_ms.map(|ms| ms as f64 / 1000.0);
        let _ = writeln!(out, "  Heard:              {}, {} ago", text(&heard.name), seconds(ago));
    }
    out
}

fn lags(out: &mut String, indent: usize, member: &Member) {
    let _ = writeln!(out, "{:indent$}Transport Lag:      {}", "", seconds(member.transport_lag_s));
    if member.role != FAR_SYNC {
        let _ = writeln!(out, "{:indent$}Apply Lag:          {}", "", seconds(member.apply_lag_s));
    }
}

/// `show database`; with `kept`, its properties too.
pub fn member(member: &Member, kept: Option<&SharedConfiguration>) -> String {
    let mut out = format!("\n{} - {}\n\n", member.role, name(&member.name));
    if member.role != PRIMARY {
        let _ = writeln!(out, "  Intended State:     {}", member.intended_state.unwrap_or("(unknown)"));
        lags(&mut out, 2, member);
    }
    let of = kept.and_then(|kept| kept.standbys.iter().find(|at| at.name == member.name));
    if let Some(of) = of {
        out += "\n  Properties:\n";
        for property in &OF_A_MEMBER {
            let _ = writeln!(out, "    {:<28}= '{}'", property.name, name(&property.show(of)));
        }
    }
    if !member.findings.is_empty() {
        out.push('\n');
        member.findings.iter().for_each(|at| finding(&mut out, 2, at));
    }
    let _ = writeln!(out, "\nDatabase Status:\n{}", member.standing.word());
    out
}
