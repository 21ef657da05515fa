//! `net sweep`: socket buffers, then connections.

use super::arguments::SweepArgs;
use super::html_file::ReportFile;
use crate::html::{self, sweep::SweepReport, words::window_name};
use crate::plan::{Mode, Plan};
use crate::run::{Event, Outcome, run};
use crate::search::{Sweep, Tried, next_streams, next_window};
use crate::stream::Target;
use crate::units::{Extent, classic_time, megabits, readable_size};
use crate::{NetError, Result, interrupt};
use serde_json::json;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Round trips at the begin of a streaming test that do not count.
const RAMP_UP: f64 = 20.0;

/// What tests may use.
pub struct Budget<'a> {
    /// Time of one test.
    pub time: Duration,
    /// Bytes that all tests together may still send.
    pub bytes: u64,
    /// Set when the user has had enough.
    pub stop: &'a AtomicBool,
}

impl Budget<'_> {
    /// One test, ended early when the bytes are used up. An interruption by the user is an error. What is still on its
    /// way at the end is thrown away: behind large buffers it would take longer than the test.
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
            if let Event::Row(interval) = event {
                sent += interval.bytes;
                seconds += interval.seconds;
                let over = seconds >= self.time.as_secs_f64() || sent >= self.bytes;
                if over || self.stop.load(Ordering::Relaxed) {
                    ended.store(true, Ordering::Relaxed);
                }
            }
        })?;
        // What the ramp-up sent is not counted, but at most as fast as the rest.
        let all = outcome.total.rate() * (outcome.total.seconds + plan.omit.as_secs_f64());
        self.bytes = self.bytes.saturating_sub(all as u64);
        if self.stop.load(Ordering::Relaxed) {
            return Err(NetError::Interrupted { doing: "testing settings" });
        }
        match outcome.trouble {
            Some(error) => Err(error),
            None => Ok(outcome),
        }
    }

    /// Whether another streaming test may begin.
    pub fn is_left(&self) -> bool {
        self.bytes > 0
    }
}

/// Tries settings until nothing gains any more. What was found until an error stays in `sweep`.
pub fn sweep(
    target: &Target,
    budget: &mut Budget<'_>,
    rtt: f64,
    most: (u32, u16),
    sweep: &mut Sweep,
    tell: &mut dyn FnMut(&Tried, &Outcome),
) -> Result<()> {
    // A connection needs a number of round trips until it is at its speed.
    let omit = Duration::from_secs_f64((RAMP_UP * rtt).clamp(0.1, 3.0));
    let mut attempt = |window: u32, streams: u16| -> Result<(Tried, Outcome)> {
        let plan =
            Plan { mode: Mode::Async, buffer: window, far_buffer: window, streams, omit, ..Plan::default() };
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

/// Mean of round trips without payload, seconds.
pub fn round_trip(target: &Target, budget: &mut Budget<'_>) -> Result<Outcome> {
    budget.run(target, &Plan { length: 0, ..Plan::default() })
}

/// A line for people.
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

/// Heads of the columns of [`line`].
pub const HEADS: &str = "    window streams      MiB/s     Mbit/s   retr  limited by";

pub fn main(args: &SweepArgs) -> Result<u8> {
    let target = args.target.target();
    let file = args.html.as_deref().map(ReportFile::begin).transpose()?;
    let mut budget = Budget { time: args.duration, bytes: u64::MAX, stop: interrupt::flag() };
    eprintln!("tests of {:.1} s each that fill the link, to {target}", args.duration.as_secs_f64());
    let mut found = (None, Sweep::default());
    let ended = measure(args, &target, &mut budget, &mut found);
    let (rtt, sweep) = found;
    if args.json {
        let mut report = sweep.document();
        report["schema_version"] = crate::report::SCHEMA_VERSION.into();
        report["round_trip"] = json!(rtt);
        crate::report::ending(&mut report, &ended);
        println!("{report:#}");
    } else if let Some(best) = sweep.best() {
        println!("best: socket buffers {}, {} connections", window_name(best.window), best.streams);
    }
    if let Some(file) = file {
        file.end(|identity| {
            html::sweep::page_of(&SweepReport {
                identity,
                target: &target,
                options: options(args),
                round_trip: rtt,
                sweep: &sweep,
                ended: &ended,
            })
        })?;
    }
    ended.map(|()| 0)
}

fn options(args: &SweepArgs) -> Vec<(&'static str, String)> {
    vec![
        ("time for each setting", classic_time(args.duration)),
        ("largest socket buffer tried", readable_size(args.max_window.into())),
        ("most connections tried", args.max_streams.to_string()),
    ]
}

fn measure(
    args: &SweepArgs,
    target: &Target,
    budget: &mut Budget<'_>,
    (round_trip_found, found): &mut (Option<f64>, Sweep),
) -> Result<()> {
    let idle = round_trip(target, budget)?;
    let rtt = idle.latency().map_or(0.0, |latency| latency.total.p50);
    *round_trip_found = Some(rtt);
    if !args.json {
        println!("round trip {:.3} ms\n{HEADS}", rtt * 1e3);
    }
    let most = (args.max_window, args.max_streams);
    sweep(target, budget, rtt, most, found, &mut |tried, outcome| {
        if !args.json {
            println!("{}", line(tried, outcome));
        }
    })
}
