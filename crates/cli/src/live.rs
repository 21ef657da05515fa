//! `top` and `status --check`: the state of an instance as a screen, and as a line for monitoring.

use standfast_environment::InstanceError;
use standfast_instance::server::control_client;
use standfast_instance::server::request::Request;
use standfast_instruments::Observation;
use standfast_io::{DirectDisk, Disk};
use standfast_live::{Dashboard, Looks, Machine, Severity, Status, Thresholds};
use standfast_types::Hint;
use std::path::Path;
use std::time::Duration;

#[derive(Debug, clap::Args)]
pub struct CheckArgs {
    /// One line and an exit code for monitoring.
    #[arg(long, conflicts_with = "json")]
    pub check: bool,
    /// Transport lag above which it warns; without it, and the others, as [alert] of the configuration says.
    #[arg(long, value_name = "TIME", value_parser = time, requires = "check")]
    pub warn_transport_lag: Option<Duration>,
    /// Transport lag above which it is critical.
    #[arg(long, value_name = "TIME", value_parser = time, requires = "check")]
    pub critical_transport_lag: Option<Duration>,
    /// Apply lag above which it warns.
    #[arg(long, value_name = "TIME", value_parser = time, requires = "check")]
    pub warn_apply_lag: Option<Duration>,
    /// Apply lag above which it is critical.
    #[arg(long, value_name = "TIME", value_parser = time, requires = "check")]
    pub critical_apply_lag: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub struct TopArgs {
    /// Print one screen of 80 columns as text, of what happens in one interval.
    #[arg(long)]
    pub once: bool,
    /// Time between two looks.
    #[arg(long, value_name = "TIME", value_parser = interval, default_value = "1s")]
    pub interval: Duration,
}

/// Columns of one screen without a terminal.
const COLUMNS: usize = 80;
/// Lines of one screen without a terminal.
const LINES: usize = 24;

/// Requests an observation and builds the dashboard; rates cover the time since earlier requests.
fn dashboard(directory: &Path, looks: &mut Looks) -> Result<Dashboard, InstanceError> {
    let request = Request::Observe { history: true, standbys: false };
    let observation: Observation = control_client::ask_for(directory, &request)?;
    looks.take(&observation);
    let machine = Machine {
        cpus: std::thread::available_parallelism().ok().map(|cpus| cpus.get() as u64),
        disk_free_bytes: DirectDisk.free_bytes(directory).ok(),
    };
    Ok(Dashboard::of(&observation, looks, &machine))
}

/// Shows the dashboard in a terminal, or prints one screen of it as text.
///
/// # Errors
/// When the instance does not run, or the terminal cannot be used.
pub fn top(directory: &Path, args: &TopArgs) -> Result<(), InstanceError> {
    let mut looks = Looks::default();
    if args.once {
        dashboard(directory, &mut looks)?;
        // Rates need two observations.
        std::thread::sleep(args.interval);
        print!("{}", standfast_top::plain(&dashboard(directory, &mut looks)?, COLUMNS, LINES));
        return Ok(());
    }
    let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    // Fails with the usual error if the instance does not run, before the screen is taken over.
    dashboard(directory, &mut looks)?;
    let ask = || dashboard(directory, &mut looks).map_err(|error| error.for_terminal());
    standfast_top::run(ask, args.interval, colours).map_err(|error| {
        InstanceError::failed(
            format!("the terminal cannot be used: {error}"),
            "--once prints one screen as text",
        )
    })
}

/// Prints the line for monitoring, and returns its exit code.
pub fn check(directory: &Path, args: &CheckArgs) -> u8 {
    let seconds = |given: Option<Duration>| given.map(|given| given.as_secs_f64());
    let (severity, line) = match control_client::ask_for::<Status>(directory, &Request::Status) {
        Ok(status) => {
            let name = status.name.clone().unwrap_or_else(|| "-".into());
            let own = Thresholds::of(&status);
            let thresholds = Thresholds {
                transport: own
                    .transport
                    .with(seconds(args.warn_transport_lag), seconds(args.critical_transport_lag)),
                apply: own.apply.with(seconds(args.warn_apply_lag), seconds(args.critical_apply_lag)),
            };
            standfast_live::line(&name, &status, &thresholds)
        }
        Err(error) => {
            // An instance that does not run protects nothing; any other error says nothing about the instance.
            let gone = matches!(error, InstanceError::NotRunning { .. });
            let severity = if gone { Severity::Critical } else { Severity::Unknown };
            (severity, format!("STANDFAST {} - {error}", severity.word()))
        }
    };
    println!("{line}");
    severity.exit_code()
}

/// Parses a time; a bare number is seconds.
///
/// # Errors
/// The accepted forms.
fn time(text: &str) -> Result<Duration, String> {
    standfast_net::units::time(text, "s").map_err(|forms| format!("{forms}; a bare number is seconds"))
}

/// Parses the refresh interval, at least 100 ms.
///
/// # Errors
/// The accepted forms.
fn interval(text: &str) -> Result<Duration, String> {
    let shortest = Duration::from_millis(100);
    time(text).and_then(|time| if time < shortest { Err("100ms or longer".into()) } else { Ok(time) })
}
