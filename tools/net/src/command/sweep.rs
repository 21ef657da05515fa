//! `net sweep`: searches socket buffers, then numbers of connections.

use super::arguments::SweepArgs;
use super::html_file::ReportFile;
use super::progress::{Progress, figure};
use crate::html::{self, sweep::SweepReport, words::window_name};
use crate::outcome::{Event, Outcome};
use crate::plan::{Direction, Directions, Mode, Plan};
use crate::run::run;
use crate::search::{Sweep, Tried, next_streams, next_window};
use crate::stream::Target;
use crate::terminal::{say, tell};
use crate::{NetError, Result, interrupt, report};
use serde_json::{Value, json};
use standfast_page::units::{Extent, classic_time, megabits, readable_size};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Round trips at the start of a streaming test that are not counted.
const RAMP_UP: f64 = 20.0;

/// Limits of the tests: time, data, and interruption.
pub struct Budget<'a> {
    pub time: Duration,
    /// Bytes that all tests together may still send.
    pub bytes: u64,
    /// Set when the user interrupts the command.
    pub stop: &'a AtomicBool,
    /// Shows how far the tests are.
    pub progress: &'a Progress,
}

impl Budget<'_> {
    /// Runs one test, and ends it early when the bytes are used up. An interruption by the user is an error. Data in
    /// flight at the end is discarded: behind large buffers it would take longer than the test.
    pub fn run(&mut self, target: &Target, plan: &Plan) -> Result<Outcome> {
        let ended = AtomicBool::new(false);
        let (mut sent, mut seconds) = (0, 0.0);
        let plan = Plan {
            duration: Extent::Endless,
            interval: Duration::from_millis(100),
            timeout: Some(Duration::from_secs(30)),
            ..plan.clone()
        };
        let outcome = run(target, &plan, &ended, &mut |event| {
            if let Event::Row(direction, interval) = event {
                self.progress.doing(|| format!("{}{}", settings(&plan), figure(direction, interval)));
                sent += interval.bytes;
                seconds += interval.seconds;
                let over = seconds >= self.time.as_secs_f64() || sent >= self.bytes;
                if over || self.stop.load(Ordering::Relaxed) {
                    ended.store(true, Ordering::Relaxed);
                }
            }
        })?;
        // The ramp-up's bytes are not in the total; they were sent at most as fast as the rest.
        let all = outcome.total.rate() * (outcome.total.seconds + plan.omit.as_secs_f64());
        self.bytes = self.bytes.saturating_sub(all as u64);
        if self.stop.load(Ordering::Relaxed) {
            return Err(NetError::Interrupted { doing: "testing settings" });
        }
        match outcome.error {
            Some(error) => Err(error),
            None => Ok(outcome),
        }
    }

    /// Returns whether another streaming test may begin.
    pub fn is_left(&self) -> bool {
        self.bytes > 0
    }
}

/// Names the settings of a streaming test, in front of its figure.
fn settings(plan: &Plan) -> String {
    match plan.mode {
        Mode::Sync => String::new(),
        Mode::Async => format!("socket buffers {}, {} connections ", window_name(plan.buffer), plan.streams),
    }
}

/// Returns how long a connection needs to reach its speed.
pub fn ramp_up(rtt: f64) -> Duration {
    Duration::from_secs_f64((RAMP_UP * rtt).clamp(0.1, 3.0))
}

/// Tries settings until none gains any more. Results up to an error stay in `sweep`.
pub fn sweep(
    target: &Target,
    direction: Direction,
    budget: &mut Budget<'_>,
    rtt: f64,
    most: (u32, u16),
    sweep: &mut Sweep,
    tell: &mut dyn FnMut(&Tried, &Outcome),
) -> Result<()> {
    let omit = ramp_up(rtt);
    let mut attempt = |window: u32, streams: u16| -> Result<(Tried, Outcome)> {
        let plan = Plan {
            directions: direction.into(),
            mode: Mode::Async,
            buffer: window,
            far_buffer: window,
            streams,
            omit,
            ..Plan::default()
        };
        let outcome = budget.run(target, &plan)?;
        let clamped = !outcome.buffers.clamped_by.is_empty();
        let tried = Tried { window, streams, rate: outcome.total.rate(), clamped };
        tell(&tried, &outcome);
        Ok((tried, outcome))
    };
    while let Some(window) = next_window(&sweep.windows, rtt, most.0) {
        let (tried, outcome) = attempt(window, 1)?;
        sweep.windows.push(tried);
        sweep.outcomes.push(outcome);
    }
    let Some(one) = sweep.best_window() else { return Ok(()) };
    sweep.streams.push(one);
    while let Some(streams) = next_streams(&sweep.streams, most.1) {
        let (tried, outcome) = attempt(one.window, streams)?;
        sweep.streams.push(tried);
        sweep.outcomes.push(outcome);
    }
    Ok(())
}

pub fn round_trip(target: &Target, budget: &mut Budget<'_>) -> Result<Outcome> {
    budget.run(target, &Plan { length: 0, ..Plan::default() })
}

/// Formats a line for the screen.
pub fn line(tried: &Tried, outcome: &Outcome) -> String {
    let limit = outcome.total.limit.map_or_else(|| "-".into(), |limit| limit.to_string());
    let clamp =
        outcome.buffers.clamped_by.first().map_or_else(String::new, |by| format!("  (clamped by {by})"));
    format!(
        "{:>10} {:>7} {:>10.3} {:>10.1} {:>6}  {limit}{clamp}",
        window_name(tried.window),
        tried.streams,
        tried.rate / 1_048_576.0,
        megabits(tried.rate),
        outcome.total.tcp.retransmissions,
    )
}

pub const HEADS: &str = "    window streams      MiB/s     Mbit/s   retr  limited by";

/// Results, also of tests that did not complete.
#[derive(Default)]
struct Found {
    /// Seconds; the median on the idle link.
    round_trip: Option<f64>,
    /// Settings that were tried, for every direction that was begun.
    ways: Vec<(Direction, Sweep)>,
}

pub fn main(args: &SweepArgs) -> Result<u8> {
    // Set up before the first output: the user may interrupt from then on.
    let stop = interrupt::flag();
    let target = args.target.target()?;
    let file = args.html.as_deref().map(ReportFile::begin).transpose()?;
    let directions = if args.both { Directions::Both } else { Directions::ToServer };
    let ways: Vec<&str> = directions.all().iter().map(|direction| direction.name()).collect();
    tell!(
        "tests of {:.1} s each that fill the link {} {target}",
        args.duration.as_secs_f64(),
        ways.join(", then ").replace(" server", "")
    );
    let mut found = Found::default();
    let ended = measure(args, &target, (directions, stop), &mut found);
    if args.json {
        say!("{:#}", document(&target, &found, &ended));
    }
    if let Some(file) = file {
        file.end(|identity| {
            html::sweep::page_of(&SweepReport {
                identity,
                target: &target,
                directions,
                options: options(args),
                round_trip: found.round_trip,
                ways: &found.ways,
                ended: &ended,
            })
        })?;
    }
    ended.map(|()| 0)
}

fn document(target: &Target, found: &Found, ended: &Result<()>) -> Value {
    let mut report = report::begin();
    report["server"] = target.to_string().into();
    report["round_trip"] = json!(found.round_trip);
    for (direction, sweep) in &found.ways {
        report[direction.code()] = sweep.document();
    }
    report::ending(&mut report, ended);
    report
}

fn options(args: &SweepArgs) -> Vec<(&'static str, String)> {
    vec![
        ("time for each setting", classic_time(args.duration)),
        ("largest socket buffer tried", readable_size(args.max_window.into())),
        ("most connections tried", args.max_streams.to_string()),
    ]
}

/// Runs the tests, one direction after the other.
fn measure(
    args: &SweepArgs,
    target: &Target,
    (directions, stop): (Directions, &AtomicBool),
    found: &mut Found,
) -> Result<()> {
    let say = |line: &dyn Fn() -> String| {
        if !args.json {
            say!("{}", line());
        }
    };
    let progress = Progress::begin(None);
    let mut budget = Budget { time: args.duration, bytes: u64::MAX, stop, progress: &progress };
    let idle = round_trip(target, &mut budget)?;
    let rtt = idle.latency().map_or(0.0, |latency| latency.total.p50);
    found.round_trip = Some(rtt);
    say(&|| format!("round trip {:.3} ms", rtt * 1e3));
    let most = (args.max_window, args.max_streams);
    for direction in directions.all() {
        say(&|| format!("{}\n{HEADS}", direction.name()));
        let mut tried = Sweep::default();
        let ended = sweep(target, *direction, &mut budget, rtt, most, &mut tried, &mut |tried, outcome| {
            say(&|| line(tried, outcome));
        });
        if let Some(best) = tried.best() {
            let window = window_name(best.window);
            say(&|| {
                format!("best {}: socket buffers {window}, {} connections", direction.name(), best.streams)
            });
        }
        found.ways.push((*direction, tried));
        ended?;
    }
    Ok(())
}
