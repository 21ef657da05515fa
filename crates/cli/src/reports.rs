//! `snapshot`, `report` and `diagnose`.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use standfast_environment::InstanceError;
use standfast_environment::config::settings::Config;
use standfast_environment::state::paths::Paths;
use standfast_instance::observe::snapshots::report_failed;
use standfast_instance::server::answer::SnapshotTaken;
use standfast_instance::server::control_client;
use standfast_instance::server::request::Request;
use standfast_instruments::Observation;
use standfast_io::outside;
use standfast_reports::report::document;
use standfast_reports::{
    Finding, Interval, Period, ReportError, Repository, Section, ash, compare, text, units,
};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

pub const SNAPSHOT_EXAMPLES: &str = "\
Examples:
  standfast snapshot -D /srv/sf
  standfast snapshot list -D /srv/sf --json | jq .[-1].id

A running instance takes one every snapshot.interval_s seconds by itself.
Exit codes: 0 ok, 1 it cannot be written or read, 4 the instance does not run.";

pub const REPORT_EXAMPLES: &str = "\
Examples:
  standfast report -D /srv/sf                          # between the last two snapshots
  standfast report -D /srv/sf 17 23 --format html --output report.html
  standfast report -D /srv/sf --compare 11 12 23 24    # two intervals side by side
  standfast report -D /srv/sf --ash --minutes 30       # who was active, and in what

Exit codes: 0 ok, 1 failed (no snapshots, a file that cannot be written), 2 no such snapshots.";

pub const DIAGNOSE_EXAMPLES: &str = "\
Examples:
  standfast diagnose -D /srv/sf                  # watches the running instance for 10 s
  standfast diagnose -D /srv/sf 17 23            # between two snapshots
  standfast diagnose -D /srv/sf --json | jq .findings[0].rule

While the instance is stopped, the last two snapshots are judged.
Exit codes: 0 nothing found, 1 failed, 2 usage or no such snapshots, 3 findings, 4 the instance does not run and there
are no snapshots.";

/// Exit code when something was found.
const FOUND: u8 = 3;

#[derive(Debug, Subcommand)]
pub enum SnapshotCommand {
    /// List the snapshots; the instance need not run.
    #[command(
        after_help = "Examples:\n  standfast snapshot list -D /srv/sf\n\nExit codes: 0 ok, 1 there are none."
    )]
    List {
        /// As JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Format {
    /// 80 columns.
    Text,
    /// Base units, null for what is not known.
    Json,
    /// One file that needs nothing else.
    Html,
}

#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Snapshots: the begin and the end of the interval; of both intervals with --compare. Default: the last two.
    #[arg(value_name = "SNAPSHOT")]
    snapshots: Vec<i64>,
    /// Compare two intervals: four snapshots.
    #[arg(long, conflicts_with = "ash")]
    compare: bool,
    /// Active session history: who was active, and in what.
    #[arg(long)]
    ash: bool,
    /// How far the active session history goes back.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..), requires = "ash", conflicts_with = "snapshots")]
    minutes: u64,
    /// How it is shown.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// File to write it to; default: standard output.
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct DiagnoseArgs {
    /// Two snapshots; default: now, of the running instance.
    #[arg(value_name = "SNAPSHOT", num_args = 2)]
    snapshots: Vec<i64>,
    /// How long the running instance is watched, seconds.
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3600), conflicts_with = "snapshots")]
    seconds: u64,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

fn repository(directory: &Path) -> Result<Repository, InstanceError> {
    let config = Config::load(directory)?;
    let paths = Paths::new(directory, &config);
    let paths = paths.map_err(InstanceError::io("find the instance directory", directory))?;
    Repository::read(&paths.repository()).map_err(report_failed)
}

pub fn snapshot(directory: &Path, command: Option<SnapshotCommand>) -> Result<(), InstanceError> {
    let Some(SnapshotCommand::List { json }) = command else {
        let taken: SnapshotTaken = control_client::ask_for(directory, &Request::Snapshot)?;
        println!("{}", taken.snapshot);
        return Ok(());
    };
    let all = repository(directory)?.list().map_err(report_failed)?;
    if json {
        println!("{:#}", json!(all));
        return Ok(());
    }
    println!("{:>8}  {:<23}  {:<23}  {:<10}  {:>7}", "snapshot", "taken", "running since", "role", "bytes");
    for listed in &all {
        let role = listed.role.as_deref().unwrap_or("unknown");
        let [taken, since] = [listed.time_us, listed.started_us].map(|us| units::when(us.unsigned_abs()));
        println!("{:>8}  {taken:<23}  {since:<23}  {role:<10}  {:>7}", listed.id, listed.bytes);
    }
    Ok(())
}

pub fn report(directory: &Path, args: &ReportArgs) -> Result<(), InstanceError> {
    let made = match (args.compare, args.ash) {
        (true, _) => comparison(directory, args)?,
        (_, true) => activity(directory, args)?,
        _ => interval(directory, args)?,
    };
    let text = match args.format {
        Format::Text => text::text(&made.title, &made.sections),
        Format::Json => format!("{:#}\n", made.json),
        Format::Html => standfast_reports::html::html(&made.title, &made.sections),
    };
    match &args.output {
        None => print!("{text}"),
        Some(path) => {
            outside::write_result(path, text.as_bytes()).map_err(InstanceError::io("write", path))?
        }
    }
    Ok(())
}

/// A report in all its forms.
struct Made {
    title: String,
    sections: Vec<Section>,
    json: Value,
}

fn usage(what: &str) -> InstanceError {
    let (what, hint) = (what.to_owned(), Some("see `standfast report --help`".to_owned()));
    InstanceError::Answered { what, hint, code: 2 }
}

fn interval(directory: &Path, args: &ReportArgs) -> Result<Made, InstanceError> {
    let repository = repository(directory)?;
    let (from, to) = match args.snapshots.as_slice() {
        [] => repository.last_two().map_err(report_failed)?,
        [from, to] => (*from, *to),
        _ => return Err(usage("a report takes two snapshots, or none for the last two")),
    };
    let period = repository.period(from, to).map_err(report_failed)?;
    let document = document(&period);
    let title = format!("Workload report of {}, snapshots {from} to {to}", document.interval.name);
    Ok(Made { title, sections: standfast_reports::report(&period), json: json!(document) })
}

fn comparison(directory: &Path, args: &ReportArgs) -> Result<Made, InstanceError> {
    let [a, b, c, d] = args.snapshots[..] else {
        return Err(usage(
            "--compare takes four snapshots: begin and end of the first interval, then of the second",
        ));
    };
    let repository = repository(directory)?;
    let compared = standfast_reports::comparison(
        &repository.period(a, b).map_err(report_failed)?,
        &repository.period(c, d).map_err(report_failed)?,
    );
    let title = format!("Comparison of {}, snapshots {a} to {b} with {c} to {d}", compared.after.name);
    Ok(Made { title, sections: compare::sections(&compared), json: json!(compared) })
}

/// Takes the activity from the running instance if it has recorded any, else from the repository.
fn activity(directory: &Path, args: &ReportArgs) -> Result<Made, InstanceError> {
    let since_us = |now_us: u64| now_us.saturating_sub(args.minutes * 60_000_000);
    let period = match args.snapshots.as_slice() {
        [from, to] => repository(directory)?.period(*from, *to).map_err(report_failed)?,
        [] => match observe(directory) {
            Ok(now) if !now.history.activity.is_empty() => {
                let mut from = now.clone();
                from.sample.time_us = since_us(now.sample.time_us).max(now.sample.started_us);
                from.history = Default::default();
                Period::between(from, now, Value::Null)
            }
            Ok(_) | Err(InstanceError::NotRunning { .. }) => {
                let repository = repository(directory)?;
                let newest = repository
                    .list()
                    .map_err(report_failed)?
                    .last()
                    .map_or(0, |listed| listed.time_us.unsigned_abs());
                repository.since(since_us(newest)).map_err(report_failed)?
            }
            Err(error) => return Err(error),
        },
        _ => return Err(usage("--ash takes two snapshots, or none for the newest time")),
    };
    let active = ash::active(&period);
    let title = format!("Active session history of {}", period.to.observation.name);
    Ok(Made { title, sections: ash::sections(&active), json: json!(active) })
}

fn observe(directory: &Path) -> Result<Observation, InstanceError> {
    control_client::ask_for(directory, &Request::Observe { history: true, standbys: true })
}

/// Prints what was found; exits 3 when there is something.
pub fn diagnose(directory: &Path, args: &DiagnoseArgs) -> Result<ExitCode, InstanceError> {
    let period = match args.snapshots.as_slice() {
        [from, to] => repository(directory)?.period(*from, *to).map_err(report_failed)?,
        _ => match observe(directory) {
            Ok(from) => watch(directory, from, args.seconds)?,
            Err(gone @ InstanceError::NotRunning { .. }) => last_snapshots(directory, gone)?,
            Err(error) => return Err(error),
        },
    };
    let interval = Interval::of(&period);
    let findings = standfast_reports::diagnose(&interval, &period.to.observation);
    if args.json {
        println!("{:#}", judged(&interval, &findings));
    } else {
        print!("{}", printed(&interval, &findings));
    }
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { FOUND.into() })
}

/// Observes the running instance again after `seconds`; returns the period since `from`.
fn watch(directory: &Path, from: Observation, seconds: u64) -> Result<Period, InstanceError> {
    for left in (1..=seconds).rev() {
        if left == seconds || left % 5 == 0 {
            eprintln!("watching {}: {left} s", from.name);
        }
        std::thread::sleep(Duration::from_secs(1));
    }
    let parameters = match Config::load(directory) {
        // A user who may query the instance need not be able to read its configuration.
        Err(error) if error.is_denied() => Value::Null,
        loaded => json!(loaded?),
    };
    Ok(Period::between(from, observe(directory)?, parameters))
}

/// Returns the period between the last two snapshots of an instance that does not run; `gone` when there are none.
fn last_snapshots(directory: &Path, gone: InstanceError) -> Result<Period, InstanceError> {
    let repository = match repository(directory) {
        Ok(repository) => repository,
        Err(InstanceError::Other { error, .. })
            if matches!(error.downcast_ref(), Some(ReportError::Missing { .. })) =>
        {
            return Err(gone);
        }
        Err(error) => return Err(error),
    };
    let Ok((from, to)) = repository.last_two() else { return Err(gone) };
    eprintln!("the instance does not run: judging snapshots {from} to {to}");
    repository.period(from, to).map_err(report_failed)
}

fn judged(interval: &Interval, findings: &[Finding]) -> Value {
    json!({
        "schema_version": interval.schema_version,
        "name": interval.name,
        "begin_us": interval.begin_us,
        "end_us": interval.end_us,
        "flags": interval.flags,
        "findings": findings,
    })
}

fn printed(interval: &Interval, findings: &[Finding]) -> String {
    let mut out = format!(
        "{}: {} to {}, {}\n",
        interval.name,
        units::when(interval.begin_us),
        units::when(interval.end_us),
        units::duration(interval.seconds)
    );
    for flag in &interval.flags {
        out.push_str(&format!("note: {flag}\n"));
    }
    if findings.is_empty() {
        out.push_str("nothing found\n");
    }
    findings.iter().for_each(|finding| out.push_str(&text::finding(finding)));
    out
}
