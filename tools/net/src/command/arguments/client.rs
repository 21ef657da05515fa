//! Options of `net client`.

use super::target::TargetArgs;
use super::values::{buffer, duration, interval, length, pause, rate, seconds};
use crate::command::criterion::Criterion;
use crate::command::output::Format;
use crate::plan::{Directions, MAX_PAUSE, Mode, Payload, Plan};
use crate::{NetError, Result};
use clap::{Args, ValueEnum};
use standfast_page::units::Extent;
use std::path::PathBuf;
use std::time::Duration;

pub(super) const EXAMPLES: &str = "\
Examples:
  standfast net client beta --mode async --duration 30s
  standfast net client beta --length 8k --write --duration 1m --fail-if 'p99>5ms'
  standfast net client beta --mode async --rate 20MiB/s --format ndjson
  standfast net client beta --mode async --bidir --duration 30s
  standfast net client beta --loaded --duration 30s
  standfast net client beta --write --duration 5m --html beta.html

Exit codes: 0 ok, 1 failed, 2 usage, 3 a --fail-if is met, 4 refused,
130 interrupted (0 without --duration).";

/// `net client`.
#[derive(Debug, Args)]
pub struct ClientArgs {
    #[command(flatten)]
    pub target: TargetArgs,
    /// Whether each message waits for its acknowledgement [default: sync, with --loaded async]
    #[arg(long, value_enum)]
    mode: Option<ModeArg>,
    /// Measure round trips too, on a connection of their own: first on the idle link, then while the test fills it
    #[arg(long)]
    pub loaded: bool,
    /// The server sends and this host receives: every figure is of the way from the server
    #[arg(long, conflicts_with = "bidir")]
    reverse: bool,
    /// Both send at the same time, each on connections of its own; every figure says its direction
    #[arg(long)]
    bidir: bool,
    /// The receiver writes each message durably before it acknowledges it
    #[arg(long)]
    write: bool,
    /// File for the writes of this host, when it receives: made with 64 MiB, removed at the end
    #[arg(long, default_value = crate::plan::DEFAULT_FILE)]
    file: PathBuf,
    /// Payload of a message; 0 for round trips alone
    #[arg(long, default_value = "1m", value_parser = length, value_name = "SIZE", allow_hyphen_values = true)]
    length: u32,
    /// Connections at the same time, in each direction
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256), value_name = "N", allow_hyphen_values = true)]
    streams: u16,
    /// Socket buffers of both sides; 0: the systems' choice
    #[arg(long, default_value = "0", value_parser = buffer, value_name = "SIZE", allow_hyphen_values = true)]
    window: u32,
    /// random, zero, or a file; a server that sends has no file
    #[arg(long, default_value = "random")]
    payload: String,
    /// Pause between messages
    #[arg(long, default_value = "0", value_parser = pause, value_name = "TIME", allow_hyphen_values = true)]
    delay: Duration,
    /// Messages are due at this rate, all connections of a direction together; latencies count from when they are due
    #[arg(long, value_parser = rate, value_name = "RATE", allow_hyphen_values = true)]
    rate: Option<f64>,
    /// Congestion control of this side, e.g. cubic
    #[arg(long, value_name = "NAME")]
    congestion: Option<String>,
    /// Print a row every TIME
    #[arg(long, default_value = "1s", value_parser = interval, value_name = "TIME", allow_hyphen_values = true)]
    interval: Duration,
    /// Time (30s, 2m) or amount of data in each direction (500mb); default: until it is interrupted
    #[arg(long, value_parser = duration, value_name = "TIME|SIZE", allow_hyphen_values = true)]
    duration: Option<Extent>,
    /// Warm-up, not counted
    #[arg(long, default_value = "0", value_parser = seconds, value_name = "TIME", allow_hyphen_values = true)]
    omit: Duration,
    /// Give up when nothing moves for so long; 0 waits for ever
    #[arg(long, default_value = "30s", value_parser = seconds, value_name = "TIME", allow_hyphen_values = true)]
    timeout: Duration,
    /// What is printed
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Short for --format json
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Also write the result as JSON to this file
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Also write a report to this file, one HTML page with plots; replaces only an earlier report
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Exit 3 when this holds at the end, e.g. 'p99>5ms' or 'throughput<80MiB/s'; may be given several times
    #[arg(long, value_name = "CRITERION", allow_hyphen_values = true)]
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
    /// Returns the format of the output: `--json` overrides `--format`.
    pub fn format(&self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    pub fn plan(&self) -> Result<Plan> {
        let mode = match self.mode {
            Some(ModeArg::Sync) if self.loaded => {
                return Err(NetError::Usage(
                    "--loaded fills the link, which --mode sync does not; leave one out".into(),
                ));
            }
            Some(ModeArg::Async) => Mode::Async,
            Some(ModeArg::Sync) => Mode::Sync,
            None if self.loaded => Mode::Async,
            None => Mode::Sync,
        };
        let directions = match (self.reverse, self.bidir) {
            (true, _) => Directions::FromServer,
            (_, true) => Directions::Both,
            _ => Directions::ToServer,
        };
        let plan = Plan {
            directions,
            mode,
            write: self.write,
            file: self.file.clone(),
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
        };
        check(&plan)?;
        Ok(plan)
    }
}

/// Options that are possible by themselves, but not together.
fn check(plan: &Plan) -> Result<()> {
    let wrong = |text: &str| Err(NetError::Usage(text.into()));
    if plan.length == 0 && plan.mode == Mode::Async {
        return wrong("--mode async with --length 0 sends nothing; give a --length");
    }
    if plan.length == 0 && matches!(plan.duration, Extent::Bytes(_)) {
        return wrong("messages without payload never reach a --duration in bytes; give a time");
    }
    if plan.period().is_some_and(|period| period > MAX_PAUSE) {
        return wrong("--rate is less than a message an hour; give a higher one, or a shorter --length");
    }
    if plan.directions.has_reverse() && matches!(plan.payload, Payload::File { .. }) {
        return wrong("--payload FILE is of this host and the server sends; give random or zero");
    }
    if plan.directions == Directions::FromServer && plan.congestion.is_some() {
        return wrong("--congestion is that of a sender, and with --reverse the server sends; leave one out");
    }
    Ok(())
}

fn payload(name: &str) -> Result<Payload> {
    crate::tcptest::options::payload_named("--payload", name)
}
