//! Options of `standfast net`.

use super::criterion::Criterion;
use super::output::Format;
use crate::log_history::{self, LogHistory};
use crate::plan::{MAX_LENGTH, Mode, Payload, Plan};
use crate::stream::Target;
use crate::units::{self, Extent};
use crate::{NetError, Result};
use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

const CLIENT_EXAMPLES: &str = "\
Examples:
  standfast net client beta --mode async --duration 30s
  standfast net client beta --length 8k --write --duration 1m --fail-if 'p99>5ms'
  standfast net client beta --mode async --rate 20MiB/s --format ndjson
  standfast net client beta --write --duration 5m --html beta.html

Exit codes: 0 ok, 1 failed, 2 usage, 3 a --fail-if is met, 4 refused,
130 interrupted (0 without --duration).";

const ADVISE_EXAMPLES: &str = "\
Examples:
  standfast net advise beta --peak-redo 20MiB/s --redo-write 8k
  standfast net advise beta --peak-redo 2MiB/s --max-traffic 500mb --json
  standfast net advise beta --peak-redo 20MiB/s --html beta.html

Exit codes: 0 every transport mode passes or warns, 3 one fails, 4 refused.";

/// Measures the way to another host, and the disks at both ends; no instance is needed.
#[derive(Debug, Subcommand)]
pub enum NetCommand {
    /// Serve tests of other hosts, until it is interrupted
    Server(ServerArgs),
    /// Carry out one test
    #[command(after_help = CLIENT_EXAMPLES)]
    Client(Box<ClientArgs>),
    /// Measure durable writes of a disk of this host, one and two log members
    Disk(DiskArgs),
    /// Find the best socket buffers and number of connections
    Sweep(SweepArgs),
    /// Say which transport modes the link carries, what limits it, and what to set; changes nothing
    #[command(after_help = ADVISE_EXAMPLES)]
    Advise(AdviseArgs),
    /// Compare two results of `net client --json`; exits 3 when the second one is worse
    Diff(DiffArgs),
}

/// `net server`.
#[derive(Debug, Args)]
pub struct ServerArgs {
    /// Address of this host to listen on, or ADDRESS:PORT; default: all
    #[arg(long, value_name = "ADDRESS")]
    pub bind: Option<String>,
    /// Port
    #[arg(long, default_value_t = 7460, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
    /// File for tests that write: made with 64 MiB, removed at the end; a file of another program is left alone
    #[arg(long, default_value = crate::tcptest::options::DEFAULT_FILE)]
    pub file: PathBuf,
    /// Socket buffer; 0: what the client asks for, or the system's choice
    #[arg(long, default_value = "0", value_parser = buffer, value_name = "SIZE")]
    pub window: u32,
    /// Most connections of tests at the same time
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..))]
    pub max_connections: u16,
}

/// Where the server is.
#[derive(Clone, Debug, Args)]
pub struct TargetArgs {
    /// Host on which `standfast net server` runs, or HOST:PORT
    pub host: String,
    /// Its port, when HOST does not say it
    #[arg(long, default_value_t = 7460, value_parser = clap::value_parser!(u16).range(1..))]
    pub port: u16,
}

impl TargetArgs {
    /// As the engine wants it.
    pub fn target(&self) -> Target {
        let (host, port) = split_port(&self.host);
        Target { host: host.to_owned(), port: port.unwrap_or(self.port) }
    }
}

/// `host:port`, `address:port` or `[v6]:port`, or a host alone.
pub(super) fn split_port(host: &str) -> (&str, Option<u16>) {
    let split = host.rsplit_once(':').and_then(|(name, port)| Some((name, port.parse().ok()?)));
    match split {
        Some((name, port)) if !name.contains(':') => (name, Some(port)),
        Some((name, port)) if name.starts_with('[') && name.ends_with(']') => {
            (&name[1..name.len() - 1], Some(port))
        }
        _ => (host, None),
    }
}

/// `net client`.
#[derive(Debug, Args)]
pub struct ClientArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Whether each message waits for its acknowledgement
    #[arg(long, value_enum, default_value = "sync")]
    mode: ModeArg,
    /// The server writes each message durably before it acknowledges it
    #[arg(long)]
    write: bool,
    /// Payload of a message; 0 for round trips alone
    #[arg(long, default_value = "1m", value_parser = length, value_name = "SIZE")]
    length: u32,
    /// Connections at the same time
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256), value_name = "N")]
    streams: u16,
    /// Socket buffers of both sides; 0: the systems' choice
    #[arg(long, default_value = "0", value_parser = buffer, value_name = "SIZE")]
    window: u32,
    /// random, zero, or a file
    #[arg(long, default_value = "random")]
    payload: String,
    /// Pause between messages
    #[arg(long, default_value = "0", value_parser = pause, value_name = "TIME")]
    delay: Duration,
    /// Messages are due at this rate, all connections together; latencies count from when they are due
    #[arg(long, value_parser = units::rate, value_name = "RATE")]
    rate: Option<f64>,
    /// Congestion control of this side, e.g. cubic
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// A row so often
    #[arg(long, default_value = "1s", value_parser = interval, value_name = "TIME")]
    interval: Duration,
    /// Time (30s, 2m) or amount of data (500mb); default: until it is interrupted
    #[arg(long, value_parser = duration, value_name = "TIME|SIZE")]
    duration: Option<Extent>,
    /// Begin of the test that no figure counts
    #[arg(long, default_value = "0", value_parser = seconds, value_name = "TIME")]
    omit: Duration,
    /// Give up when nothing moves for so long; 0 waits for ever
    #[arg(long, default_value = "30s", value_parser = seconds, value_name = "TIME")]
    timeout: Duration,
    /// What is printed
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Write the result as JSON to this file besides
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Write a report for people to this file besides, one HTML file with plots; replaces only an earlier report
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Exit 3 when this holds at the end, e.g. 'p99>5ms' or 'throughput<80MiB/s'; may be given several times
    #[arg(long, value_name = "CRITERION")]
    pub fail_if: Vec<Criterion>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ModeArg {
    /// The next message waits for the acknowledgement
    Sync,
    /// Messages follow one another
    Async,
}

impl ClientArgs {
    /// What is printed.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    /// The test.
    pub fn plan(&self) -> Result<Plan> {
        let mode = match self.mode {
            ModeArg::Sync => Mode::Sync,
            ModeArg::Async => Mode::Async,
        };
        if self.length == 0 && mode == Mode::Async {
            return Err(NetError::Usage(
                "--mode async with --length 0 sends nothing; give a --length".into(),
            ));
        }
        if self.length == 0 && matches!(self.duration, Some(Extent::Bytes(_))) {
            let text = "messages without payload never reach a --duration in bytes; give a time";
            return Err(NetError::Usage(text.into()));
        }
        Ok(Plan {
            mode,
            write: self.write,
            length: self.length,
            delay: self.delay,
            payload: payload(&self.payload)?,
            streams: self.streams,
            buffer: self.window,
            far_buffer: self.window,
            interval: self.interval,
            duration: self.duration.unwrap_or(Extent::Endless),
            omit: self.omit,
            rate: self.rate,
            timeout: Some(self.timeout).filter(|timeout| !timeout.is_zero()),
            congestion: self.congestion.clone(),
            ..Plan::default()
        })
    }
}

fn payload(name: &str) -> Result<Payload> {
    crate::tcptest::options::payload_named("--payload", name)
}

/// `net disk`.
#[derive(Debug, Args)]
pub struct DiskArgs {
    /// Directory on the disk to be measured; a file of 64 MiB a member is made there and removed
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
    /// Directory of a second member, on another disk; default: the same
    #[arg(long)]
    pub second_dir: Option<PathBuf>,
    /// Bytes of a write; may be given several times [default: 4k 8k 64k 1m]
    #[arg(long, value_parser = write_size, value_name = "SIZE")]
    pub length: Vec<u32>,
    /// Time for each size and number of members
    #[arg(long, default_value = "2s", value_parser = positive_seconds, value_name = "TIME")]
    pub duration: Duration,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `net sweep`.
#[derive(Debug, Args)]
pub struct SweepArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Time for each setting
    #[arg(long, default_value = "5s", value_parser = positive_seconds, value_name = "TIME")]
    pub duration: Duration,
    /// Largest socket buffer that is tried
    #[arg(long, default_value = "64m", value_parser = buffer, value_name = "SIZE")]
    pub max_window: u32,
    /// Most connections that are tried
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=256), value_name = "N")]
    pub max_streams: u16,
    /// Write a report for people to this file besides, one HTML file with plots; replaces only an earlier report
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// `net advise`.
#[derive(Debug, Args)]
pub struct AdviseArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Redo that the primary makes at its peak
    #[arg(long, value_parser = units::rate, value_name = "RATE", required_unless_present = "log_history")]
    peak_redo: Option<f64>,
    /// Table of archived logs with their sizes and times, as a query prints it: the peak is that of the fastest one
    #[arg(long, value_name = "FILE", conflicts_with = "peak_redo")]
    log_history: Option<PathBuf>,
    /// Average size of a redo write [default: 8k]
    #[arg(long, value_parser = write_size, value_name = "SIZE")]
    redo_write: Option<u32>,
    /// Statistic `redo size` of an interval, bytes; with --redo-writes it gives the average redo write
    #[arg(long, value_name = "BYTES", requires = "redo_writes", conflicts_with = "redo_write")]
    redo_bytes: Option<u64>,
    /// Statistic `redo writes` of the same interval
    #[arg(long, value_name = "N", requires = "redo_bytes", value_parser = clap::value_parser!(u64).range(1..))]
    redo_writes: Option<u64>,
    /// Time of each of the tests
    #[arg(long, default_value = "5s", value_parser = positive_seconds, value_name = "TIME")]
    pub duration: Duration,
    /// No further test begins, and a running one ends, when all together have sent about so much
    #[arg(long, default_value = "20g", value_parser = units::size, value_name = "SIZE")]
    pub max_traffic: u64,
    /// Write a report for people to this file besides, one HTML file with plots; replaces only an earlier report
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

impl AdviseArgs {
    /// Peak of the redo, bytes per second, and what the log history says when it comes from there.
    pub fn peak(&self) -> Result<(f64, Option<LogHistory>)> {
        match (self.peak_redo, &self.log_history) {
            (Some(peak), _) => Ok((peak, None)),
            (None, Some(path)) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| NetError::Usage(format!("cannot read {}: {error}", path.display())))?;
                let history = log_history::read(&text)?;
                Ok((history.peak.rate(), Some(history)))
            }
            (None, None) => Err(NetError::Usage("give --peak-redo or --log-history".into())),
        }
    }

    /// Average redo write, bytes.
    pub fn redo_write(&self) -> Result<u32> {
        let Some((bytes, writes)) = self.redo_bytes.zip(self.redo_writes) else {
            return Ok(self.redo_write.unwrap_or(8 << 10));
        };
        write_size(&(bytes / writes).to_string()).map_err(|forms| {
            NetError::Usage(format!(
                "--redo-bytes / --redo-writes is {} bytes a write; {forms}",
                bytes / writes
            ))
        })
    }
}

/// `net diff`.
#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The result to compare with
    pub before: PathBuf,
    /// The result that may be worse
    pub after: PathBuf,
    /// Differences up to so many percent are noise
    #[arg(long, default_value_t = 10.0, value_parser = percent)]
    pub tolerance: f64,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

type Parsed<T> = std::result::Result<T, String>;

fn allowed(forms: &str) -> String {
    format!("allowed: {forms}")
}

fn bounded(text: &str, least: u64, most: u64) -> Parsed<u32> {
    let forms = || allowed(&format!("{}, from {least} to {most} bytes", units::SIZE_FORMS));
    let bytes = units::size(text).map_err(|_| forms())?;
    u32::try_from(bytes).ok().filter(|_| (least..=most).contains(&bytes)).ok_or_else(forms)
}

fn length(text: &str) -> Parsed<u32> {
    bounded(text, 0, MAX_LENGTH.into())
}

fn write_size(text: &str) -> Parsed<u32> {
    bounded(text, 1, crate::file::MAX_WRITE as u64)
}

fn buffer(text: &str) -> Parsed<u32> {
    bounded(text, 0, 1 << 30)
}

fn time_within(text: &str, bare: &str, least: Duration, most: Duration) -> Parsed<Duration> {
    let forms = || {
        let (least, most) = (units::classic_time(least), units::classic_time(most));
        allowed(&format!("{}, from {least} to {most}", units::TIME_FORMS))
    };
    let time = units::time(text, bare).map_err(|_| forms())?;
    (least..=most).contains(&time).then_some(time).ok_or_else(forms)
}

const DAY: Duration = Duration::from_secs(86_400);

fn pause(text: &str) -> Parsed<Duration> {
    time_within(text, "ms", Duration::ZERO, Duration::from_secs(3600))
}

fn seconds(text: &str) -> Parsed<Duration> {
    time_within(text, "s", Duration::ZERO, DAY)
}

fn positive_seconds(text: &str) -> Parsed<Duration> {
    time_within(text, "s", Duration::from_millis(100), DAY)
}

fn interval(text: &str) -> Parsed<Duration> {
    time_within(text, "s", Duration::from_millis(10), DAY)
}

fn duration(text: &str) -> Parsed<Extent> {
    match units::extent(text) {
        Ok(Extent::Time(time)) if time.is_zero() => Err(allowed(units::EXTENT_FORMS)),
        Ok(Extent::Bytes(0)) => Err(allowed(units::EXTENT_FORMS)),
        other => other.map_err(allowed),
    }
}

fn percent(text: &str) -> Parsed<f64> {
    let value = text.parse().ok().filter(|value| (0.0..=1000.0).contains(value));
    value.ok_or_else(|| allowed("percent, from 0 to 1000"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_behind_the_host_is_told_from_an_address_of_colons() {
        assert_eq!(split_port("far.example"), ("far.example", None));
        assert_eq!(split_port("far.example:7"), ("far.example", Some(7)));
        assert_eq!(split_port("[::1]:7"), ("::1", Some(7)));
        assert_eq!(split_port("::1"), ("::1", None));
        assert_eq!(split_port("far:no"), ("far:no", None));
        assert_eq!(split_port("far:70000"), ("far:70000", None));
    }
}
