//! `net sweep`: socket buffers, then connections.

use super::arguments::SweepArgs;
use crate::plan::{Direction, Directions, Mode, Plan};
use crate::run::{Event, Outcome, run};
use crate::search::{Tried, best, next_streams, next_window};
use crate::stream::Target;
use crate::units::{Extent, megabits, readable_size};
use crate::{NetError, Result, interrupt};
use serde_json::{Value, json};
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
            if let Event::Row(_, interval) = event {
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

/// All settings that were tried.
#[derive(Default)]
pub struct Sweep {
    /// One connection, different buffers.
    pub windows: Vec<Tried>,
    /// The best buffer, different numbers of connections.
    pub streams: Vec<Tried>,
    /// Reports of the runs behind both, in order.
    pub outcomes: Vec<Outcome>,
}

impl Sweep {
    /// The fastest setting of one connection.
    pub fn best_window(&self) -> Option<Tried> {
        best(&self.windows)
    }

    /// The fastest setting of all.
    pub fn best(&self) -> Option<Tried> {
        best(&self.streams).or(self.best_window())
    }
}

/// How long a connection needs until it is at its speed.
pub fn ramp_up(rtt: f64) -> Duration {
    Duration::from_secs_f64((RAMP_UP * rtt).clamp(0.1, 3.0))
}

/// Tries settings until nothing gains any more.
pub fn sweep(
    target: &Target,
    direction: Direction,
    budget: &mut Budget<'_>,
    rtt: f64,
    most: (u32, u16),
    tell: &mut dyn FnMut(&Tried, &Outcome),
) -> Result<Sweep> {
    let mut sweep = Sweep::default();
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
    let Some(one) = sweep.best_window() else { return Ok(sweep) };
    sweep.streams.push(one);
    while let Some(streams) = next_streams(&sweep.streams, most.1) {
        let (tried, outcome) = attempt(one.window, streams)?;
        sweep.streams.push(tried);
        sweep.outcomes.push(outcome);
    }
    Ok(sweep)
}

/// Mean of round trips without payload, seconds.
pub fn round_trip(target: &Target, budget: &mut Budget<'_>) -> Result<Outcome> {
    budget.run(target, &Plan { length: 0, ..Plan::default() })
}

/// A setting in words.
pub fn window_name(window: u32) -> String {
    if window == 0 { "auto".into() } else { readable_size(window.into()) }
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

/// For machines.
pub fn document(sweep: &Sweep) -> Value {
    let one = |tried: &Tried| {
        json!({
            "window": tried.window,
            "streams": tried.streams,
            "bytes_per_second": tried.rate,
            "clamped": tried.clamped,
        })
    };
    json!({
        "windows": sweep.windows.iter().map(one).collect::<Vec<_>>(),
        "streams": sweep.streams.iter().map(one).collect::<Vec<_>>(),
        "best": sweep.best().as_ref().map(one),
    })
}

pub fn main(args: &SweepArgs) -> Result<u8> {
    let target = args.target.target()?;
    let mut budget = Budget { time: args.duration, bytes: u64::MAX, stop: interrupt::flag() };
    let directions = if args.both { Directions::Both } else { Directions::ToServer };
    let ways: Vec<&str> = directions.all().iter().map(|direction| direction.name()).collect();
    eprintln!(
        "tests of {:.1} s each that fill the link {} {target}",
        args.duration.as_secs_f64(),
        ways.join(", then ").replace(" server", "")
    );
    let idle = round_trip(&target, &mut budget)?;
    let rtt = idle.latency().map_or(0.0, |latency| latency.total.p50);
    if !args.json {
        println!("round trip {:.3} ms", rtt * 1e3);
    }
    let mut report = json!({ "schema_version": crate::report::SCHEMA_VERSION, "round_trip": rtt });
    for direction in directions.all() {
        if !args.json {
            println!("{}\n{HEADS}", direction.name());
        }
        let most = (args.max_window, args.max_streams);
        let found = sweep(&target, *direction, &mut budget, rtt, most, &mut |tried, outcome| {
            if !args.json {
                println!("{}", line(tried, outcome));
            }
        })?;
        report[direction.code()] = document(&found);
        if let Some(best) = found.best().filter(|_| !args.json) {
            let window = window_name(best.window);
            println!("best {}: socket buffers {window}, {} connections", direction.name(), best.streams);
        }
    }
    if args.json {
        println!("{report:#}");
    }
    Ok(0)
}
